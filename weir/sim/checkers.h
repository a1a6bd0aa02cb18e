// SPDX-License-Identifier: Apache-2.0
//
// Invariants of every run under every policy. The world reports all events of a target to a
// Checkers, which reports violations:
//
//   lost, twice      every request that arrived is dispatched once and completed once, or is still
//                    there at the end
//   order            requests of one process leave in order of arrival
//   slots            never more requests in service than there are slots
//   asleep           a target that has nothing to run gives the same answer again; one that may not
//                    idle has no free slot while requests wait
//   limits           of each job and of the whole target: no interval holds more than rate x its
//                    length + depth
//   records          of all jobs sum to 0 at the end of every period
//   parts            in a tree of shares (parts_check.h)
//   reservations     in every second in which a job with a reservation has requests waiting
//                    throughout, it gets 99 % of it, less one request
//
// Each is a separate class with a test that makes it fail; Checkers has one of each for a target.
// Findings are counted, and the first few are kept as text. Time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/adapt/period.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"
#include "weir/sim/contender.h"
#include "weir/sim/parts_check.h"

namespace weir::sim {

// The findings of all checkers of a run.
class Findings {
 public:
  static constexpr std::size_t kKept = 10;

  void add(Instant at, std::string text);
  std::uint64_t count() const { return count_; }
  const std::vector<std::string>& kept() const { return kept_; }

 private:
  std::uint64_t count_ = 0;
  std::vector<std::string> kept_;
};

// Checks served requests against a limit. With X(t) = served until t - rate x t, the interval from
// s to t holds too much if X(t) - X(s) > depth; the smallest X so far represents the worst s.
class WindowCheck {
 public:
  explicit WindowCheck(const Limit& limit) : limit_(limit) {}

  // Whether the limit still holds in every interval that ends now. A single request that costs
  // more than the depth is allowed, as by the limit itself. Time that steps back counts as
  // standing still.
  bool serve(Tokens cost, Instant now);
  // Whether this additional cost would exceed no interval that ends now.
  bool has_room(Tokens cost, Instant now) const;

 private:
  using Wide = __int128;
  Wide excess_at(Instant now) const;  // X, in tokens x the time of the rate
  Wide allowance(Tokens cost) const;

  Limit limit_;
  Wide served_ = 0;
  Wide least_ = 0;
  Instant last_{};
  bool started_ = false;
};

// Checks served requests against a reservation, over all intervals of one second that begin with a
// dispatch or with the first waiting request. Others hold at least as much.
class ReserveCheck {
 public:
  // Reservations are checked with the largest request of the scenario.
  ReserveCheck(Rate rate, Tokens largest);

  // Each returns whether all intervals that have ended by now hold enough. Call it in order of
  // time.
  bool arrive(Instant now);
  bool dispatch(Tokens cost, Instant now);
  bool check(Instant now);

 private:
  struct Begin {
    Instant at;
    Tokens served;  // before the interval
  };

  Tokens least_;  // in an interval
  std::uint64_t waiting_ = 0;
  Tokens served_{};
  std::deque<Begin> begins_;  // of intervals that have not ended, while requests wait
};

// The sum of the records of all jobs, and whether the records of active jobs agree.
struct RecordCheck {
  std::int64_t sum = 0;
  bool agrees = true;

  explicit RecordCheck(const PeriodReport& report);
};

// Order inside each lane (the requests of one process to one target), each request once.
class OrderCheck {
 public:
  enum class Fault : std::uint8_t { kNone, kTwice, kOrder };

  explicit OrderCheck(std::size_t lanes) : lanes_(lanes) {}
  // The number of the request in its lane: 0, 1, 2 ...
  std::uint64_t arrive(std::size_t lane) { return lanes_[lane].arrived++; }
  Fault dispatch(std::size_t lane, std::uint64_t number);
  // Number of requests that arrived and were not dispatched.
  std::uint64_t waiting() const;

 private:
  struct Lane {
    std::uint64_t arrived = 0;
    std::uint64_t dispatched = 0;
  };
  std::vector<Lane> lanes_;
};

// The checkers of one target.
class Checkers {
 public:
  Checkers(std::string_view target, const Bounds& bounds, std::uint32_t slots, std::size_t lanes,
           Tokens largest, Findings& findings);

  // Returns the number to pass to dispatch().
  std::uint64_t arrive(std::size_t lane) {
    ++queued_;
    return order_.arrive(lane);
  }
  // The request is of this job; only for reservations and trees of shares.
  void wait(std::size_t job, Instant now);
  void dispatch(std::size_t job, std::size_t lane, std::uint64_t number, Tokens cost, Instant now);
  void complete(Instant now);
  // Another number of slots; requests beyond it finish.
  void set_slots(std::uint32_t slots) { slots_ = slots; }
  // The target has nothing to run; ran_after_all: it ran something when asked again.
  void rest(bool ran_after_all, Instant now);
  void period(const PeriodReport& report);
  // At the end: the requests that the target still dispatched, and those that arrived.
  void end(std::uint64_t drained, Instant now);
  // Stretches of time in which the parts of a tree of shares were checked.
  std::uint64_t parts_checked() const { return parts_ ? parts_->checked() : 0; }

 private:
  void found(Instant at, std::string_view what);
  ReserveCheck* reserve_of(std::size_t job);
  void miss_reserve(std::size_t job, Instant now);
  void note_parts(Instant now);

  std::string target_;
  Idling idling_;
  std::uint32_t slots_;
  Tokens largest_;
  std::vector<std::optional<WindowCheck>> jobs_;
  std::optional<WindowCheck> whole_;
  std::optional<WindowCheck> enough_;
  std::vector<std::optional<ReserveCheck>> reserves_;
  std::optional<PartsCheck> parts_;
  OrderCheck order_;
  std::uint64_t queued_ = 0;
  std::uint64_t running_ = 0;
  Findings& findings_;
};

}  // namespace weir::sim
