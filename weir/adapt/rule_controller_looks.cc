// SPDX-License-Identifier: Apache-2.0
//
// What the queue shows between two rounds: a new job, an idle server, jobs that have ended.
#include <algorithm>

#include "weir/adapt/rule_bounds.h"
#include "weir/adapt/rule_controller.h"

namespace weir {
namespace {

using rule_bounds::bounded;
using rule_bounds::per_second;
using rule_bounds::State;

// A queue that grew by this many requests has a new job, and for how long that is assumed without
// counters that show it.
constexpr std::uint64_t kNewcomerRequests = 4;
constexpr Nanoseconds kSuspectFor = std::chrono::milliseconds{60};

// Requests wait while less than this percentage of the usual number is in service, for so
// many glances.
constexpr std::uint64_t kIdlePercent = 75;
constexpr std::uint32_t kIdleGlances = 2;

// Rules that were released are not started again for this time, because counters lag.
constexpr Nanoseconds kReleaseFor = std::chrono::milliseconds{30};

// Jobs whose outstanding requests are less than this percentage of what the server does at a time
// leave part of it idle if the others are held.
constexpr std::uint64_t kFillPercent = 75;

// Bounds of what is believed: requests in service, and the time that each takes.
constexpr std::uint64_t kBusyMax = 1 << 20;
constexpr Nanoseconds kServiceMax = std::chrono::seconds{1};

}  // namespace

// ---- glances ----

const std::vector<JobRateChange>& RuleController::glance(const RuleGlance& seen) {
  changes_.clear();
  if (seen.queued > 0) most_busy_ = std::max(most_busy_, std::min(seen.busy, kBusyMax));
  has_idled_ = has_idled_ || seen.queued == 0 || !is_busy(seen.busy);
  if (options_.mode == Mode::kPaper || !last_ || !capacity_) return changes_;
  look_for_idling(seen);
  if (changes_.empty()) look_for_others(seen);
  if (changes_.empty() && suspected_ == Nanoseconds{0}) {
    look_for_newcomer(bounded(seen.queued) + bounded(seen.busy));
    if (suspected_ > Nanoseconds{0}) hold_for_newcomer();
  }
  note_changes();
  return changes_;
}

// Whether so many outstanding requests are enough for the other jobs to use the whole server.
bool RuleController::can_fill(std::uint64_t outstanding) const {
  return outstanding * 100 >= kept_->outstanding * 100 + most_busy_ * kFillPercent;
}

// The others take turns with the first job and get less than they want: their requests are there.
void RuleController::see_backlog(std::uint64_t outstanding) {
  if (!kept_ || !can_fill(outstanding)) return;
  for (JobDemand& demand : demands_) {
    const bool is_other = demand.job != kept_->job && seen_of(demand.job) == nullptr;
    if (is_other && demand.state == State::kActive) demand.state = State::kBacklogged;
  }
}

// Counters show a job only when its first request is done; the queue shows it at once. While one
// job has the server to itself, a number of outstanding requests that grows by a step means a new
// job, until the counters have had time to show it. A job that cannot fill the server needs no
// room: its requests take turns with those of the first.
void RuleController::look_for_newcomer(std::uint64_t outstanding) {
  const std::uint64_t usual = *std::min_element(outstanding_.begin(), outstanding_.end());
  outstanding_[looks_++ % outstanding_.size()] = outstanding;
  const bool alone = backlogged_count() < 2 && active_count_ > 0 && !demand_.has_unattributed();
  if (!alone || newcomer_.is_on() || !rules_.empty() || !heeds(Lesson::kReturn)) return;
  if (usual == 0 || outstanding < usual + kNewcomerRequests) return;
  const auto first = std::find_if(demands_.begin(), demands_.end(), [](const JobDemand& demand) {
    return demand.state != State::kIdle;
  });
  kept_ = {first->job, usual};
  if (can_fill(outstanding)) suspected_ = kSuspectFor + demand_.spacing();
}

// Limited jobs get the capacity that others leave, at once: the counters of the next round are
// partly of the time before.
void RuleController::look_for_idling(const RuleGlance& seen) {
  std::uint64_t allowed = 0;
  for (const RuleSeen& rule : rules_) allowed += std::uint64_t{rule.rate} * options_.cpts;
  // Rules that allow more than the server does leave it idle for single requests only.
  const bool idles = !rules_.empty() && seen.queued > 0 && suspected_ == Nanoseconds{0} &&
                     seen.busy * 100 < most_busy_ * kIdlePercent &&
                     allowed < per_second(*capacity_);
  idling_ = idles ? idling_ + 1 : 0;
  if (idling_ < kIdleGlances || release_.is_on() || !heeds(Lesson::kIdling)) return;
  release("requests wait while the server is idle", kReleaseFor);
}

// A rule that is stopped still applies until the next request of its class arrives, which is up to
// 1/rate and a service time later. So the held job is released as soon as the other jobs can no
// longer fill the server: their last requests are then in service already.
void RuleController::look_for_others(const RuleGlance& seen) {
  if (!kept_ || !heeds(Lesson::kIdling)) return;
  const bool fill = can_fill(bounded(seen.queued) + bounded(seen.busy));
  if (released_ > Nanoseconds{0} && fill) {
    released_ = Nanoseconds{0};  // another burst has begun
    return;
  }
  if (fill || rules_.size() != 1 || release_.is_on()) return;
  suspected_ = Nanoseconds{0};
  release("the other jobs have few requests left",
          service_time() + std::max(service_time(), demand_.spacing()) + 2 * options_.period);
}

void RuleController::release(const char* reason, Nanoseconds time) {
  stop_all(reason);
  held_.clear();
  released_ = time;
  idling_ = 0;
}

// A release was right if the other jobs are gone when their counters have had time to show it.
void RuleController::settle_release(Nanoseconds elapsed) {
  release_.pass(elapsed);
  most_busy_ -= most_busy_ / 1024;
  if (released_ == Nanoseconds{0}) return;
  released_ = std::max(released_ - elapsed, Nanoseconds{0});
  if (released_ > Nanoseconds{0}) return;
  backlogged_count() < 2 ? release_.was_right() : release_.was_wrong();
}

// Little's law: of a server that is full.
Nanoseconds RuleController::service_time() const {
  const std::uint64_t could = capacity_ ? per_second(*capacity_) : 0;
  const std::uint64_t ns = most_busy_ * 1'000'000'000 / std::max<std::uint64_t>(could, 1);
  return std::min(Nanoseconds{static_cast<std::int64_t>(ns)}, kServiceMax);
}

// ---- a new job ----

// Checks whether the new job has appeared. After a false alarm the next one is trusted later.
void RuleController::suspect(const RuleRound& round, Nanoseconds elapsed) {
  newcomer_.pass(elapsed);
  const std::uint64_t outstanding = bounded(round.queued) + bounded(round.busy);
  if (suspected_ == Nanoseconds{0}) return look_for_newcomer(outstanding);
  outstanding_[looks_++ % outstanding_.size()] = outstanding;
  suspected_ = std::max(suspected_ - elapsed, Nanoseconds{0});
  // The new job has few requests yet, since its first ones have only just completed.
  bool has_come = backlogged_count() >= 2;
  for (JobDemand& demand : demands_) {
    const bool is_new = demand.since <= CensoredDemand::kReturning;
    if (demand.state != State::kActive || !is_new) continue;
    demand.state = State::kBacklogged;
    has_come = true;
  }
  if (has_come) {
    newcomer_.was_right();
  } else if (suspected_ == Nanoseconds{0}) {
    newcomer_.was_wrong();
  }
}

std::uint64_t RuleController::backlogged_count() const {
  return static_cast<std::uint64_t>(
      std::count_if(demands_.begin(), demands_.end(),
                    [](const JobDemand& demand) { return demand.state == State::kBacklogged; }));
}

// Limits the other jobs until the new job is known.
void RuleController::hold_for_newcomer() {
  for (const JobDemand& demand : demands_) {
    const bool is_new = demand.since <= CensoredDemand::kReturning;
    if (demand.state != State::kBacklogged || is_new || !may_hold(demand)) continue;
    if (seen_of(demand.job) != nullptr) continue;
    held_[demand.job] = Held{};
    const std::uint64_t rate = std::clamp<std::uint64_t>(first_rate(), 1, kRateMax);
    change(demand.job, static_cast<std::uint32_t>(rate), "the queue grew: a new job is active");
  }
}

}  // namespace weir
