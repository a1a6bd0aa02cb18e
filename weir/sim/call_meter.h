// SPDX-License-Identifier: Apache-2.0
//
// Estimates how much time calls take, from a sample of them: reading a clock takes about as long as
// a call of a scheduler.
//
//   CallMeter meter({.now = ..., .switches = ...});
//   { const CallMeter::Span span = meter.span(); call(); }
//   meter.estimate();
//
// Every 101st span is measured: a prime, so that no kind of call is always left out when calls
// repeat in a pattern. The time that the clock itself takes is subtracted: the median of 101 empty
// spans. The clock must be one that is read without a system call, after which calls are slower.
// Such a clock also counts the time of other threads, so 32 samples at a time are dropped if the
// thread lost its processor meanwhile. Without a clock nothing is measured. One owner.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "weir/base/time.h"

namespace weir::sim {

struct Stopwatch {
  std::function<Nanoseconds()> now = nullptr;
  std::function<std::uint64_t()> switches = nullptr;  // how often the thread lost its processor
};

class CallMeter {
 public:
  static constexpr std::uint64_t kEvery = 101;
  static constexpr std::uint64_t kBatch = 32;
  static constexpr std::size_t kReadings = 101;

  // Both functions of the stopwatch, or none.
  explicit CallMeter(Stopwatch stopwatch);
  CallMeter(const CallMeter&) = delete;
  CallMeter& operator=(const CallMeter&) = delete;
  ~CallMeter() = default;

  class Span {
   public:
    explicit Span(CallMeter* meter) : meter_(meter) {
      if (meter_ != nullptr) begin_ = meter_->stopwatch_.now();
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;
    ~Span() {
      if (meter_ != nullptr) meter_->add(meter_->stopwatch_.now() - begin_);
    }

   private:
    CallMeter* meter_;
    Nanoseconds begin_{0};
  };

  Span span() {
    const bool is_measured = stopwatch_.now && ++calls_ % kEvery == 0;
    return Span(is_measured ? this : nullptr);
  }

  // Of all calls so far; none without a clock or before the first batch is complete. At least 0.
  std::optional<Nanoseconds> estimate() const;

 private:
  void add(Nanoseconds spent);

  Stopwatch stopwatch_;
  Nanoseconds reading_{0};
  std::uint64_t calls_ = 0;
  // Of the current batch.
  Nanoseconds batch_{0};
  std::uint64_t in_batch_ = 0;
  std::uint64_t switches_ = 0;  // when it began
  // Of the batches that count.
  Nanoseconds spent_{0};
  std::uint64_t measured_ = 0;
};

}  // namespace weir::sim
