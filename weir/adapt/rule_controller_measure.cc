// SPDX-License-Identifier: Apache-2.0
//
// What a round's counters say: the capacity, the demand of jobs, and what rules really gave.
#include <algorithm>
#include <utility>

#include "weir/adapt/rule_bounds.h"
#include "weir/adapt/rule_controller.h"

namespace weir {
namespace {

using rule_bounds::bounded;
using rule_bounds::count_in;
using rule_bounds::kElapsedMax;
using rule_bounds::kOne;
using rule_bounds::kParts;
using rule_bounds::kServedMax;
using rule_bounds::per_second;
using rule_bounds::rate_of;
using rule_bounds::reach_of;
using rule_bounds::State;
using rule_bounds::Wide;

constexpr std::uint64_t kGainMax = 4 * kOne;

// A yield below this is considered chance: late timers and busy threads cost less.
constexpr std::uint64_t kYieldMin = kOne / 2;

// A request that costs more counts as this.
constexpr std::uint64_t kCostMax = JobCount::kToken * 1024;

// A round that took so many times as long as the one before is late.
constexpr int kLateRounds = 4;

}  // namespace

std::uint64_t RuleController::served_in(const RuleRound& round) {
  if (round.served_all) return bounded(*round.served_all).count();
  Tokens sum{0};
  for (const JobCount& job : round.jobs) sum = bounded(sum + bounded(job.served));
  return sum.count();
}

// Whether requests wait for the server, and not for a rule.
bool RuleController::is_full(const RuleRound& round) const {
  const bool is_free = round.rules.empty() && held_.empty();
  return round.queued > 0 && (is_free || (!has_idled_ && most_busy_ > 0 && is_busy(round.busy)));
}

// Measures the capacity while the server is full, from one round with completions to another: where
// completions come in clumps, the time before the first one and after the last one says nothing.
// A round that comes late may have had any load meanwhile, and is not used; nor is one in which
// counters are missing.
void RuleController::measure(const RuleRound& round, Nanoseconds elapsed) {
  const std::uint64_t served = served_in(round);
  const Nanoseconds usual = std::max(options_.period, std::exchange(last_elapsed_, elapsed));
  const bool is_complete =
      round.served_all || std::all_of(round.jobs.begin(), round.jobs.end(),
                                      [](const JobCount& job) { return job.known; });
  const bool was_full = std::exchange(was_full_, is_full(round));
  const bool has_idled = std::exchange(has_idled_, false) || !is_busy(round.busy);
  if (!options_.capacity) {
    is_counting_ = is_counting_ && was_full && was_full_;
    if (elapsed > usual * kLateRounds || !is_complete) is_counting_ = false;
    counted_ += served;
    counted_for_ += elapsed;
    if (is_counting_ && served > 0) estimate_.add(Tokens{counted_}, counted_for_);
    if (served > 0 || !is_counting_) {
      is_counting_ = was_full_ && served > 0;
      counted_ = 0;
      counted_for_ = Nanoseconds{0};
    }
    capacity_ = bounded(estimate_.rate(round.at));
  }
  if (capacity_) controller_.set_capacity(Rate::per_second(per_second(*capacity_) * kParts));
  measure_use(served, elapsed);
  // Observed on real servers: with a backlog and less served than allowed, rates are too low.
  const bool idles = round.queued > 0 && use_ * 100 < 90 * kOne && !round.rules.empty() &&
                     (has_idled || most_busy_ == 0) && heeds(Lesson::kIdling);
  gain_ = idles ? std::min(kGainMax, gain_ + gain_ / 4) : std::max(kOne, gain_ - gain_ / 32);
  // What others cannot use is not a debt.
  for (auto& [job, account] : accounts_) {
    if (gain_ > kOne) account.balance = std::max<std::int64_t>(account.balance, 0);
  }
}

// Also from one round with completions to another.
void RuleController::measure_use(std::uint64_t served, Nanoseconds elapsed) {
  unused_ = std::min(unused_ + served, kServedMax);
  unused_for_ = std::min(unused_for_ + elapsed, kElapsedMax);
  if (served == 0 && unused_for_ < CensoredDemand::kSpacingMax) return;
  const std::uint64_t could = capacity_ ? count_in(*capacity_, unused_for_) : 0;
  const std::uint64_t used = could == 0 ? kOne : std::min(2 * kOne, unused_ * kOne / could);
  use_ = (use_ * 3 + used) / 4;
  unused_ = 0;
  unused_for_ = Nanoseconds{0};
}

// The job's amount if all others were backlogged, at most what taking turns gives it.
Tokens RuleController::own_part(const JobId& job, Nanoseconds elapsed) const {
  if (!capacity_) return Tokens{1};
  const std::uint64_t nodes = controller_.nodes_of(job);
  const JobDemand* const before = demand_of(job);
  const bool counted = before != nullptr && before->state != State::kIdle;
  const std::uint64_t all = active_nodes_ + (counted ? 0 : nodes);
  // In turns each job gets as many requests as any other.
  const std::uint64_t cost = cost_of(job);
  const std::uint64_t costs =
      active_cost_ + (counted ? 0 : cost) + (demand_.has_unattributed() ? JobCount::kToken : 0);
  const std::uint64_t could = count_in(*capacity_, elapsed);
  const auto by_nodes = static_cast<std::uint64_t>(Wide{could} * nodes / std::max(all, nodes));
  const auto by_turns = static_cast<std::uint64_t>(Wide{could} * cost / std::max(costs, cost));
  return Tokens{std::max<std::uint64_t>(std::min(by_nodes, by_turns), 1)};
}

// What a job with this rule gets if it wants more: at most its share, since a rate above it makes
// up for what the rule falls short of.
Rate RuleController::expected_of(const RuleSeen& seen) const {
  const std::uint64_t share = share_of(seen.job);
  return share == 0 ? rate_of(seen) : std::min(rate_of(seen), Rate::per_second(share));
}

void RuleController::estimate(const RuleRound& round, Nanoseconds elapsed) {
  demand_.begin(elapsed,
                round.served_all ? std::optional(bounded(*round.served_all)) : std::nullopt,
                service_time());
  cannot_hold_.clear();
  costs_.clear();
  for (const JobCount& job : round.jobs) {
    if (job.cost != JobCount::kToken) {
      costs_[job.job] = std::clamp<std::uint64_t>(job.cost, 1, kCostMax);
    }
    std::optional<Rate> rate;
    if (const RuleSeen* seen = seen_of(job.job)) rate = expected_of(*seen);
    const Tokens own = own_part(job.job, elapsed);
    if (job.known || !heeds(Lesson::kVanished)) {
      demand_.count({job.job, bounded(job.served), rate, own});
    } else {
      demand_.vanish(job.job, rate, own);
    }
    if (!job.can_hold) cannot_hold_[job.job] = true;
  }
  demands_ = demand_.end();
  for (JobDemand& demand : demands_) {
    const bool is_held = seen_of(demand.job) != nullptr;
    if (demand.state == State::kBacklogged && is_held && !heeds(Lesson::kBacklog)) {
      demand.state = State::kActive;
    }
  }
  bursts_.follow(demands_);
  active_nodes_ = 0;
  active_count_ = 0;
  active_cost_ = 0;
  for (const JobDemand& demand : demands_) {
    if (demand.state == State::kIdle) continue;
    active_nodes_ += controller_.nodes_of(demand.job);
    ++active_count_;
    active_cost_ += cost_of(demand.job);
  }
}

// The yield of a rule: what it actually delivered for its rate.
void RuleController::learn(Nanoseconds elapsed) {
  for (const JobDemand& demand : demands_) {
    const RuleSeen* const seen = seen_of(demand.job);
    const auto found = held_.find(demand.job);
    if (seen == nullptr || found == held_.end()) continue;
    Held& held = found->second;
    held.time += elapsed;
    held.content = demand.state == State::kBacklogged ? Nanoseconds{0} : held.content + elapsed;
    held.served += demand.served.count();
    held.allowed += count_in(rate_of(*seen), elapsed * kOne);
    const std::uint64_t free = options_.depth * reach_of(*seen);
    const bool is_enough = is_paid(held, reach_of(*seen));
    if (demand.state != State::kBacklogged || !demand.known || !is_enough) continue;
    const std::uint64_t paid = held.served > free ? held.served - free : 0;
    const std::uint64_t most = kOne * options_.cpts * 21 / 20;
    const auto now = static_cast<std::uint64_t>(Wide{paid} * kOne * kOne / held.allowed);
    const std::uint64_t yield = std::clamp(now, kYieldMin, most);
    Account& account = accounts_[demand.job];
    account.yield = account.yield == 0 ? yield : (account.yield + yield) / 2;
  }
}

}  // namespace weir
