// SPDX-License-Identifier: Apache-2.0
#include "weir/account/job_times.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

constexpr std::size_t kZero = TimeHistogram::kBuckets - 1;  // the bucket of times of 0

}  // namespace

TimeHistogram& TimeHistogram::operator+=(const TimeHistogram& more) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] += more.counts_[i];
  sum_ns_ += more.sum_ns_;
  return *this;
}

void TimeHistogram::raise_to(const TimeHistogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) counts_[i] = std::max(counts_[i], other.counts_[i]);
  sum_ns_ = std::max(sum_ns_, other.sum_ns_);
}

// A time of 2^exponent is in bucket exponent - 1.
std::uint64_t TimeHistogram::count_up_to(unsigned exponent) const {
  WEIR_ASSERT(exponent > 0 && exponent < kBuckets, exponent);
  std::uint64_t count = counts_[kZero];
  for (std::size_t i = 0; i < exponent; ++i) count += counts_[i];
  return count;
}

TimeHistogram TimeHistogram::since(const TimeHistogram& before) const {
  TimeHistogram grown = *this;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    if (counts_[i] < before.counts_[i]) return *this;
    grown.counts_[i] -= before.counts_[i];
  }
  grown.sum_ns_ -= before.sum_ns_;
  return grown;
}

JobTimes& JobTimes::operator+=(const JobTimes& more) {
  wait += more.wait;
  for (std::size_t i = 0; i < kKinds; ++i) device[i] += more.device[i];
  return *this;
}

void JobTimes::raise_to(const JobTimes& other) {
  wait.raise_to(other.wait);
  for (std::size_t i = 0; i < kKinds; ++i) device[i].raise_to(other.device[i]);
}

JobTimes JobTimes::since(const JobTimes& before) const {
  JobTimes grown;
  grown.wait = wait.since(before.wait);
  for (std::size_t i = 0; i < kKinds; ++i) grown.device[i] = device[i].since(before.device[i]);
  return grown;
}

}  // namespace weir
