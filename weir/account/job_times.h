// SPDX-License-Identifier: Apache-2.0
//
// Times of the requests of a job, as histograms by powers of two: the wait before dispatch, and the
// time in the device, apart for reads, writes and all other operations.
//
//   bucket     63    0      1      2      3  ...      k
//   time, ns    0  1, 2    3, 4   5..8   9..16   (2^k, 2^(k+1)]
//
// A power of two is an upper bound that belongs to its bucket, as "le" of Prometheus has it. The
// index is that of the highest bit of (time - 1), which for a time of 0 is bit 63: so recording has
// no branch, and costs two additions and one bit scan.
//
// Each histogram adds up exactly: merging those of several jobs gives the same as one for all.
// Trivially copyable, two KiB, no allocation, no clock, not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "weir/account/request_record.h"
#include "weir/base/operation_kind.h"
#include "weir/base/time.h"

namespace weir {

class TimeHistogram {
 public:
  static constexpr std::size_t kBuckets = 64;

  // A clock that stepped back gives a time below 0: it counts as 0.
  void record(Nanoseconds time) {
    const auto ns = static_cast<std::uint64_t>(time.count());
    ++counts_[static_cast<std::size_t>(63 - std::countl_zero((ns - 1) | 1U))];
    sum_ns_ += ns;
  }
  TimeHistogram& operator+=(const TimeHistogram& more);
  // No count is below that of `other` afterwards.
  void raise_to(const TimeHistogram& other);

  // Number of times of at most 2^exponent nanoseconds. REQUIRES: 0 < exponent < kBuckets.
  std::uint64_t count_up_to(unsigned exponent) const;
  std::uint64_t count() const { return count_up_to(kBuckets - 1); }
  std::uint64_t sum_ns() const { return sum_ns_; }

  // The times recorded since `before`, a copy of this histogram. If `before` is of another one
  // (there are fewer times now in some bucket), all of them.
  TimeHistogram since(const TimeHistogram& before) const;

  bool operator==(const TimeHistogram&) const = default;

 private:
  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t sum_ns_ = 0;
};

struct JobTimes {
  enum class Kind : std::uint8_t { kRead, kWrite, kOther };
  static constexpr std::size_t kKinds = 3;

  static Kind kind_of(OperationKind operation) {
    if (operation == OperationKind::kRead) return Kind::kRead;
    const bool writes = operation == OperationKind::kWrite || operation == OperationKind::kZero;
    return writes ? Kind::kWrite : Kind::kOther;
  }

  void start(const RequestRecord& record) { wait.record(record.waited()); }
  void finish(const RequestRecord& record) {
    device[static_cast<std::size_t>(kind_of(record.operation))].record(record.device_time());
  }
  JobTimes& operator+=(const JobTimes& more);
  void raise_to(const JobTimes& other);
  JobTimes since(const JobTimes& before) const;

  bool operator==(const JobTimes&) const = default;

  TimeHistogram wait;
  std::array<TimeHistogram, kKinds> device;
};

}  // namespace weir
