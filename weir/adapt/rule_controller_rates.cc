// SPDX-License-Identifier: Apache-2.0
//
// Which jobs are held, and at which rate.
#include <algorithm>

#include <fmt/format.h>

#include "weir/adapt/rule_bounds.h"
#include "weir/adapt/rule_controller.h"
#include "weir/base/quote.h"

namespace weir {
namespace {

using rule_bounds::count_in;
using rule_bounds::kElapsedMax;
using rule_bounds::kOne;
using rule_bounds::per_second;
using rule_bounds::reach_of;
using rule_bounds::State;
using rule_bounds::Wide;

// A job with this share of the server gets no rule.
constexpr std::uint64_t kMostPercent = 80;

// Bursts are ordered if the shortest takes at most this time, and the others get a rule of so many
// times the capacity meanwhile.
constexpr Nanoseconds kFirstMax = std::chrono::milliseconds{500};
constexpr std::uint64_t kGiveWay = 2;
// Completions that are so many rounds, and times that a request takes, apart are clumps.
constexpr int kClumpRounds = 4;
constexpr int kClumpServices = 2;

// Shares this close to the largest count among the largest.
constexpr std::uint64_t kLargestPercent = 95;

// A rate is kept for at least this time, unless it is doubled.
constexpr Nanoseconds kHoldFor = std::chrono::milliseconds{250};

// The free tokens of a change may be this fraction of what the rate gives.
constexpr std::uint64_t kFreeParts = 5;

// In this time after jobs start to compete, limited jobs leave the server to the others.
constexpr Nanoseconds kWelcome = std::chrono::milliseconds{40};

// A job that is no longer backlogged keeps its rule for this time, so that rules do not flap.
constexpr Nanoseconds kContentFor = std::chrono::milliseconds{250};

// A job that has the server to itself is held at this percentage of it at most when another one
// comes, and see first_rate().
constexpr std::uint64_t kFirstPercent = 25;
constexpr std::uint64_t kBeyondPercent = 66;

// How long jobs are expected to compete at least: with a job that had the server to itself, for a
// burst; else for longer.
constexpr Nanoseconds kBurst = std::chrono::milliseconds{300};
constexpr Nanoseconds kLong = std::chrono::seconds{1};

// Time between two writes that can wait, so that there are less than three in a second.
constexpr Nanoseconds kAdjustEvery = std::chrono::milliseconds{800};

}  // namespace

bool RuleController::may_hold(const JobDemand& demand) const {
  return demand.state != State::kIdle && !cannot_hold_.contains(demand.job);
}

// Whether a job needs no rule, and why.
bool RuleController::is_free(const JobDemand& demand, std::uint64_t largest,
                             std::uint64_t most_nodes, std::string& reason) const {
  if (demand.state == State::kIdle) {
    reason = "idle";
    return true;
  }
  const auto known = held_.find(demand.job);
  // Also if its rule was stopped by others.
  const bool lingers = known != held_.end() && known->second.content < kContentFor;
  if (!may_hold(demand) || (demand.state != State::kBacklogged && !lingers)) {
    reason = "it uses less than its share";
    return true;
  }
  if (!heeds(Lesson::kLone)) return false;
  if (const auto found = accounts_.find(demand.job);
      found != accounts_.end() && found->second.is_owed) {
    reason = "its rule has given it less than its share";
    return true;
  }
  const std::uint64_t share = share_of(demand.job);
  const std::uint64_t nodes = controller_.nodes_of(demand.job);
  if (share * gain_ / kOne * 100 >= per_second(*capacity_) * kMostPercent) {
    reason = "most of the server is its share";
    return true;
  }
  reason = largest == 0 ? "no other job needs more than it has" : "no other job has a larger share";
  return in_requests(share, demand.job) * 100 >= largest * kLargestPercent ||
         in_requests(nodes, demand.job) * 100 >= most_nodes * kLargestPercent;
}

std::uint64_t RuleController::cost_of(const JobId& job) const {
  const auto found = costs_.find(job);
  return found == costs_.end() ? JobCount::kToken : found->second;
}

// Without a rule jobs get as many requests as each other, whatever these cost. So the job that is
// due the most requests is the one that taking turns gives the least of its share. In 1/kToken.
std::uint64_t RuleController::in_requests(std::uint64_t tokens, const JobId& job) const {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  return static_cast<std::uint64_t>(Wide{std::min(tokens, kMost)} * JobCount::kToken *
                                    JobCount::kToken / cost_of(job));
}

void RuleController::choose() {
  std::uint64_t largest = 0;
  std::uint64_t most_nodes = 0;
  for (const JobDemand& demand : demands_) {
    if (demand.state != State::kBacklogged) continue;
    largest = std::max(largest, in_requests(share_of(demand.job), demand.job));
    most_nodes = std::max(most_nodes, in_requests(controller_.nodes_of(demand.job), demand.job));
  }
  adjustments_.clear();
  const std::optional<JobId> first = first_burst(most_nodes);
  std::string reason;
  for (const JobDemand& demand : demands_) {
    const RuleSeen* const seen = seen_of(demand.job);
    if (first && follows(demand, *first)) {
      give_way(demand.job, seen, *first);
      continue;
    }
    if (is_free(demand, largest, most_nodes, reason)) {
      if (seen != nullptr) change(demand.job, std::nullopt, reason);
      held_.erase(demand.job);
      continue;
    }
    Held& held = held_[demand.job];
    const auto rate = next_rate(demand.job, held, seen);
    if (!rate) continue;
    const std::uint64_t now = seen == nullptr ? 0 : std::max(1U, seen->rate);
    const bool is_urgent = *rate >= 2 * now || (*rate > now && gain_ > kOne);
    if (is_urgent || !heeds(Lesson::kRefill)) {
      set_rate(demand.job, held, *rate);
    } else {
      const std::uint64_t apart = *rate > now ? *rate - now : now - *rate;
      adjustments_.push_back({demand.job, *rate, apart * kOne / now});
    }
  }
  // Rules of unknown jobs.
  for (const RuleSeen& seen : rules_) {
    if (demand_of(seen.job) == nullptr) change(seen.job, std::nullopt, "its job has ended");
  }
}

// ---- bursts that coincide ----

// While the job that had the server to itself is held for several bursts of jobs of the same size:
// the one that ends first.
std::optional<JobId> RuleController::first_burst(std::uint64_t most_nodes) const {
  if (!kept_ || !heeds(Lesson::kReturn) || !comes_in_clumps()) return std::nullopt;
  const bool are_alike = std::all_of(demands_.begin(), demands_.end(), [&](const JobDemand& one) {
    if (one.state == State::kIdle || one.job == kept_->job) return true;
    const std::uint64_t nodes = in_requests(controller_.nodes_of(one.job), one.job);
    return nodes * 100 >= most_nodes * kLargestPercent;
  });
  if (!are_alike) return std::nullopt;
  return bursts_.first(demands_, kept_->job, count_in(*capacity_, kFirstMax));
}

// The server completes many requests at once and none for a while: a turn there is a whole
// interval. Elsewhere taking turns delays each request a little, and an order would delay some for
// long.
bool RuleController::comes_in_clumps() const {
  return demand_.spacing() >= kClumpRounds * options_.period &&
         demand_.spacing() >= kClumpServices * service_time();
}

bool RuleController::follows(const JobDemand& demand, const JobId& first) const {
  return demand.state != State::kIdle && may_hold(demand) && demand.job != first &&
         demand.job != kept_->job;
}

// A class waits for 1/rate after each request, and one without a rule for a ten thousandth of a
// second. So a rule at twice what the server does gives a class no turn while the other has
// requests there, and at once when it has none: nothing is idle, and it stops without a delay.
void RuleController::give_way(const JobId& job, const RuleSeen* seen, const JobId& first) {
  held_.erase(job);
  if (seen != nullptr) return;
  const std::uint64_t rate = kGiveWay * per_second(*capacity_) / options_.cpts;
  change(job, static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rate, 1, kRateMax)),
         fmt::format("the burst of job {} is shorter and is served first", quote(first.text())));
}

// ---- adjustments ----

// Writes the change that is the most needed, a few times in a second.
void RuleController::adjust(Nanoseconds elapsed) {
  since_adjusted_ = std::min(since_adjusted_ + elapsed, kElapsedMax);
  if (adjustments_.empty() || since_adjusted_ < kAdjustEvery) return;
  const auto most =
      std::max_element(adjustments_.begin(), adjustments_.end(),
                       [](const Adjustment& a, const Adjustment& b) { return a.off < b.off; });
  set_rate(most->job, held_[most->job], most->rate);
  since_adjusted_ = Nanoseconds{0};
}

void RuleController::set_rate(const JobId& job, Held& held, std::uint32_t rate) {
  held.served = held.allowed = 0;
  held.time = Nanoseconds{0};
  change(job, rate,
         fmt::format("its share is {} of {} a second, gain {} %, yield {} %", share_of(job),
                     per_second(*capacity_), gain_ * 100 / kOne, yield_of(job) * 100 / kOne));
}

std::uint64_t RuleController::wanted_rate(const JobId& job) const {
  return static_cast<std::uint64_t>(Wide{corrected_share(job)} * gain_ / yield_of(job) / kOne);
}

// Until it is measured, all CPTs are assumed to be reached, which is the maximum.
std::uint64_t RuleController::yield_of(const JobId& job) const {
  const auto found = accounts_.find(job);
  const bool is_known = found != accounts_.end() && found->second.yield > 0;
  return is_known && heeds(Lesson::kYield) ? found->second.yield : kOne * options_.cpts;
}

// The lowest rate, per CPT: the free tokens of a change are then a fifth of what the rate gives in
// the time that jobs compete. How long that will be is unknown: as long as it has been already, and
// at least kBurst or kLong.
std::uint64_t RuleController::lowest() const {
  return options_.depth * kFreeParts * 1'000'000'000 /
         static_cast<std::uint64_t>(std::max(contended_, kept_ ? kBurst : kLong).count());
}

// The rate that a job is held at when a new one, of a size that is not known yet, comes: at most a
// part of the server; and low, but not so low that the requests that exceed it, which are in
// service or have free tokens, are more than kBeyondPercent of what it gives in a burst.
std::uint64_t RuleController::first_rate() const {
  const std::uint64_t beyond = options_.depth + most_busy_ / options_.cpts;
  const std::uint64_t low =
      beyond * 100'000'000'000 / kBeyondPercent / static_cast<std::uint64_t>(kBurst.count());
  const std::uint64_t part = per_second(*capacity_) * kFirstPercent / 100 / options_.cpts;
  return std::max(lowest(), std::min(low, part));
}

// Whether the free tokens of a change are few beside what its rate has given since.
bool RuleController::is_paid(const Held& held, std::uint64_t reach) const {
  return held.allowed > 0 &&
         Wide{held.allowed} * reach >= Wide{options_.depth} * reach * kFreeParts * kOne;
}

// None if the current rate stays.
std::optional<std::uint32_t> RuleController::next_rate(const JobId& job, Held& held,
                                                       const RuleSeen* seen) const {
  const std::uint64_t reach = seen == nullptr ? options_.cpts : reach_of(*seen);
  std::uint64_t wanted = wanted_rate(job);
  // A low rate is worth its free tokens only if it lasts. And a job that returns finds the others
  // out of its way.
  if (heeds(Lesson::kRefill)) wanted = std::max(wanted, lowest());
  if (heeds(Lesson::kReturn) && kept_ && contended_ < kWelcome) wanted = first_rate();
  wanted = std::clamp<std::uint64_t>(wanted, 1, kRateMax);
  if (seen == nullptr || !heeds(Lesson::kRefill)) return static_cast<std::uint32_t>(wanted);
  const std::uint64_t now = seen->rate;
  const std::uint64_t apart = now > wanted ? now - wanted : wanted - now;
  if (apart * 100 <= now * options_.step_percent) return std::nullopt;
  const bool is_kept = !is_paid(held, reach) || held.time < kHoldFor;
  const bool is_rise = wanted >= 2 * now;
  if (is_kept && !is_rise) return std::nullopt;
  return static_cast<std::uint32_t>(wanted);
}

}  // namespace weir
