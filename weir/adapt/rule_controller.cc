// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/rule_controller.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace weir {
namespace {

using Wide = unsigned __int128;
using State = JobDemand::State;

constexpr std::uint64_t kOne = 1024;
// Shares are counted in this fraction of a token: with whole tokens no job could have less than one
// per period, which is 50 a second at 20 ms.
constexpr std::uint64_t kParts = 64;
constexpr std::uint64_t kGainMax = 4 * kOne;
// A yield below this is considered chance: late timers and busy threads cost less.
constexpr std::uint64_t kYieldMin = kOne / 2;
// A job with this share of the server gets no rule.
constexpr std::uint64_t kMostPercent = 80;
// Shares this close to the largest count among the largest.
constexpr std::uint64_t kLargestPercent = 90;
// A rate is kept for at least this time, unless it is doubled.
constexpr Nanoseconds kHoldFor = std::chrono::milliseconds{250};
// Number of rounds over which shares are averaged.
constexpr std::uint64_t kSmooth = 8;
// The free tokens of a change may be this fraction of what the rate gives.
constexpr std::uint64_t kFreeParts = 5;
// In this time after jobs start to compete, limited jobs leave the server to the others.
constexpr Nanoseconds kWelcome = std::chrono::milliseconds{40};
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
// A job that is no longer backlogged keeps its rule for this time, so that rules do not flap.
constexpr Nanoseconds kContentFor = std::chrono::milliseconds{250};

std::uint64_t count_in(Rate rate, Nanoseconds time) { return tokens_in(rate, time).count(); }

std::uint64_t per_second(Rate rate) { return count_in(rate, std::chrono::seconds{1}); }

// What a server says is not checked by anybody before: counters go back and wrap, rounds come late,
// and rules may be listed with a rate of 0. Within these bounds every sum and product below fits.
constexpr std::uint64_t kServedMax = std::uint64_t{1} << 40;
constexpr std::uint32_t kCountMax = 1 << 16;  // of CPTs, and of tokens in a bucket
constexpr Nanoseconds kElapsedMax = std::chrono::hours{1};
constexpr Rate kCapacityMin = Rate::per_second(1);
constexpr Rate kCapacityMax = Rate::per_second(kTokensPerNanosecondMax * 1'000'000'000);

Tokens bounded(Tokens served) { return std::min(served, Tokens{kServedMax}); }

std::optional<Rate> bounded(std::optional<Rate> capacity) {
  return capacity ? std::optional(std::clamp(*capacity, kCapacityMin, kCapacityMax)) : std::nullopt;
}

Rate rate_of(const RuleSeen& seen) { return Rate::per_second(std::max(1U, seen.rate)); }

std::uint64_t reach_of(const RuleSeen& seen) { return std::clamp(seen.reach, 1U, kCountMax); }

std::uint64_t scaled(std::uint64_t count, Nanoseconds to, Nanoseconds from) {
  const Wide all = Wide{count} * static_cast<std::uint64_t>(to.count()) /
                   static_cast<std::uint64_t>(std::max<std::int64_t>(from.count(), 1));
  return static_cast<std::uint64_t>(std::min<Wide>(all, kServedMax));
}

RuleController::Options checked(RuleController::Options options) {
  options.cpts = std::clamp(options.cpts, 1U, kCountMax);
  options.depth = std::clamp(options.depth, 1U, kCountMax);
  options.capacity = bounded(options.capacity);
  return options;
}

ControllerOptions controller_options(const RuleController::Options& options) {
  ControllerOptions own = options.mode == RuleController::Mode::kPaper ? ControllerOptions::paper()
                                                                       : ControllerOptions{};
  own.period = options.period;
  own.lending = false;  // the balance of the server's buckets is unknown
  own.jobs_max = options.jobs_max;
  return own;
}

}  // namespace

void apply_to(std::vector<RuleSeen>& rules, const JobRateChange& change) {
  const auto at =
      std::lower_bound(rules.begin(), rules.end(), change.job,
                       [](const RuleSeen& rule, const JobId& id) { return rule.job < id; });
  const bool is_there = at != rules.end() && at->job == change.job;
  if (!change.rate) {
    if (is_there) rules.erase(at);
  } else if (is_there) {
    at->rate = *change.rate;
  } else {
    rules.insert(at, {change.job, *change.rate, 1});
  }
}

// Receives the Controller's decisions in a table, from which rules are made.
struct RuleController::Shares final : Enforcer {
  Result<void> set(const JobId& job, const Share& share, Instant) override {
    rates[job] = share.rate;
    return {};
  }
  Result<void> change(const JobId& job, const Share& share, Instant now) override {
    return set(job, share, now);
  }
  Result<void> drop(const JobId& job, Instant) override {
    rates.erase(job);
    return {};
  }
  std::uint64_t rate_of(const JobId& job) const {
    const auto found = rates.find(job);
    return found == rates.end() || !found->second ? 0 : per_second(*found->second);
  }

  absl::btree_map<JobId, std::optional<Rate>> rates;
};

RuleController::RuleController(const Options& options)
    : options_(checked(options)),
      shares_(std::make_unique<Shares>()),
      controller_(controller_options(options), *shares_),
      capacity_(options_.capacity) {}

RuleController::~RuleController() = default;

Result<void> RuleController::set_nodes(const JobId& job, std::uint64_t nodes) {
  return controller_.set_nodes(job, nodes);
}

void RuleController::forget_nodes(const JobId& job) { controller_.forget_nodes(job); }

const std::vector<JobRateChange>& RuleController::decide(const RuleRound& round) {
  changes_.clear();
  rules_ = round.rules;
  const bool first = !last_;
  const Nanoseconds elapsed = first ? options_.period : std::min(round.at - *last_, kElapsedMax);
  last_ = round.at;
  if (first || elapsed <= Nanoseconds{0}) {
    if (first) stop_all("left by an earlier run");
    note_changes();
    return changes_;
  }
  if (options_.mode == Mode::kPaper) {
    decide_paper(round, elapsed);
    return changes_;
  }
  measure(round, elapsed);
  estimate(round, elapsed);
  learn(elapsed);
  suspect(round, elapsed);
  settle_release(elapsed);
  if (capacity_ && suspected_ > Nanoseconds{0} && backlogged_count() < 2) {
    hold_for_newcomer();
  } else if ((active_count_ < 2 && heeds(Lesson::kLone)) || !capacity_) {
    contended_ = Nanoseconds{0};
    gain_ = kOne;
    stop_all(active_count_ < 2 ? "no other job is active" : "the capacity is not known yet");
    held_.clear();
  } else {
    contended_ += elapsed;
    allocate(round, elapsed);
    if (released_ == Nanoseconds{0}) choose();
  }
  note_changes();
  return changes_;
}

// ---- glances ----

const std::vector<JobRateChange>& RuleController::glance(const RuleGlance& seen) {
  changes_.clear();
  if (options_.mode == Mode::kPaper || !last_ || !capacity_) return changes_;
  if (seen.queued > 0) most_busy_ = std::max(most_busy_, seen.busy);
  look_for_idling(seen);
  if (suspected_ == Nanoseconds{0}) {
    look_for_newcomer(seen.queued);
    if (suspected_ > Nanoseconds{0}) hold_for_newcomer();
  }
  note_changes();
  return changes_;
}

// Counters show a job only when its first request is done; the queue shows it at once. While one
// job has the server to itself, a queue that grows by a step means a new job, until the counters
// have had time to show it.
void RuleController::look_for_newcomer(std::uint64_t queued) {
  const std::uint64_t usual = usual_queue_;
  usual_queue_ = queued;
  const bool alone = backlogged_count() < 2 && active_count_ > 0 && !demand_.has_unattributed();
  if (!alone || newcomer_.is_on() || !rules_.empty() || !heeds(Lesson::kReturn)) return;
  if (usual > 0 && queued >= usual + kNewcomerRequests) suspected_ = kSuspectFor;
}

// Limited jobs get the capacity that others leave, at once: the counters of the next round are
// partly of the time before.
void RuleController::look_for_idling(const RuleGlance& seen) {
  const bool idles = !rules_.empty() && seen.queued > 0 && suspected_ == Nanoseconds{0} &&
                     seen.busy * 100 < most_busy_ * kIdlePercent;
  idling_ = idles ? idling_ + 1 : 0;
  if (idling_ < kIdleGlances || release_.is_on() || !heeds(Lesson::kIdling)) return;
  stop_all("requests wait while the server is idle");
  held_.clear();
  released_ = kReleaseFor;
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

// ---- what is wanted ----

// Checks whether the new job has appeared. After a false alarm the next one is trusted later.
void RuleController::suspect(const RuleRound& round, Nanoseconds elapsed) {
  newcomer_.pass(elapsed);
  if (suspected_ == Nanoseconds{0}) return look_for_newcomer(round.queued);
  usual_queue_ = round.queued;
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
    const std::uint64_t rate = std::clamp<std::uint64_t>(lowest(), 1, kRateMax);
    change(demand.job, static_cast<std::uint32_t>(rate), "the queue grew: a new job is active");
  }
}

std::uint64_t RuleController::served_in(const RuleRound& round) {
  if (round.served_all) return bounded(*round.served_all).count();
  Tokens sum{0};
  for (const JobCount& job : round.jobs) sum = bounded(sum + bounded(job.served));
  return sum.count();
}

// Measures the capacity while requests wait, and not for a rule.
void RuleController::measure(const RuleRound& round, Nanoseconds elapsed) {
  const std::uint64_t served = served_in(round);
  if (!options_.capacity) {
    // A round that started without a queue was not saturated all the time.
    const bool is_full = round.queued > 0 && round.rules.empty() && held_.empty();
    if (std::exchange(was_full_, is_full) && is_full) {
      estimate_.saturate(round.at - elapsed);
      estimate_.complete(Tokens{served}, round.at);
    } else {
      estimate_.relax(round.at - elapsed);
    }
    capacity_ = bounded(estimate_.rate(round.at));
  }
  if (capacity_) controller_.set_capacity(Rate::per_second(per_second(*capacity_) * kParts));
  const std::uint64_t could = capacity_ ? count_in(*capacity_, elapsed) : 0;
  const std::uint64_t used = could == 0 ? kOne : std::min(2 * kOne, served * kOne / could);
  use_ = (use_ * 3 + used) / 4;
  // Observed on real servers: with a backlog and less served than allowed, rates are too low.
  const bool idles =
      round.queued > 0 && use_ * 100 < 90 * kOne && !round.rules.empty() && heeds(Lesson::kIdling);
  gain_ = idles ? std::min(kGainMax, gain_ + gain_ / 4) : std::max(kOne, gain_ - gain_ / 10);
}

// The job's amount if all others were backlogged, at most what taking turns gives it.
Tokens RuleController::own_part(const JobId& job, Nanoseconds elapsed) const {
  if (!capacity_) return Tokens{1};
  const std::uint64_t nodes = controller_.nodes_of(job);
  bool counted = false;
  for (const JobDemand& demand : demands_) {
    counted = counted || (demand.job == job && demand.state != State::kIdle);
  }
  const std::uint64_t all = active_nodes_ + (counted ? 0 : nodes);
  const std::uint64_t count =
      active_count_ + (counted ? 0 : 1) + (demand_.has_unattributed() ? 1 : 0);
  const std::uint64_t could = count_in(*capacity_, elapsed);
  const auto by_nodes = static_cast<std::uint64_t>(Wide{could} * nodes / std::max(all, nodes));
  const std::uint64_t by_turns = could / std::max<std::uint64_t>(count, 1);
  return Tokens{std::max<std::uint64_t>(std::min(by_nodes, by_turns), 1)};
}

void RuleController::estimate(const RuleRound& round, Nanoseconds elapsed) {
  demand_.begin(elapsed,
                round.served_all ? std::optional(bounded(*round.served_all)) : std::nullopt);
  cannot_hold_.clear();
  for (const JobCount& job : round.jobs) {
    std::optional<Tokens> allowed;
    if (const RuleSeen* seen = seen_of(job.job)) {
      allowed = tokens_in(rate_of(*seen), elapsed);
    }
    const Tokens own = own_part(job.job, elapsed);
    if (job.known || !heeds(Lesson::kVanished)) {
      demand_.count({job.job, bounded(job.served), allowed, own});
    } else {
      demand_.vanish(job.job, allowed, own);
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
  active_nodes_ = 0;
  active_count_ = 0;
  for (const JobDemand& demand : demands_) {
    if (demand.state == State::kIdle) continue;
    active_nodes_ += controller_.nodes_of(demand.job);
    ++active_count_;
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
    held.allowed += count_in(rate_of(*seen), elapsed);
    const std::uint64_t free = options_.depth * reach_of(*seen);
    const bool is_enough = held.allowed > 0 && held.allowed * reach_of(*seen) >= free * kFreeParts;
    if (demand.state != State::kBacklogged || !demand.known || !is_enough) continue;
    const std::uint64_t paid = held.served > free ? held.served - free : 0;
    const std::uint64_t most = kOne * options_.cpts * 21 / 20;
    const std::uint64_t now = std::clamp(paid * kOne / held.allowed, kYieldMin, most);
    held.yield = held.yield == 0 ? now : (held.yield + now) / 2;
  }
}

void RuleController::allocate(const RuleRound& round, Nanoseconds elapsed) {
  const Tokens all{count_in(*capacity_, options_.period) + 1};
  for (const JobDemand& demand : demands_) {
    if (demand.state == State::kIdle) continue;
    const Tokens wanted = demand.state == State::kBacklogged
                              ? all
                              : Tokens{scaled(demand.wanted.count(), options_.period, elapsed)};
    controller_.observe({.job = demand.job,
                         .arrived = Tokens{std::max<std::uint64_t>(wanted.count(), 1) * kParts}});
  }
  report_ = controller_.decide(round.at);
  smooth(contended_ <= elapsed);
}

// In single periods jobs of the same size have more or less, because records are repaid in whole
// tokens. The mean over some periods is used.
void RuleController::smooth(bool anew) {
  if (anew) smooth_.clear();
  for (const JobDemand& demand : demands_) {
    const std::uint64_t now = shares_->rate_of(demand.job) * kOne / kParts;
    const auto [mean, is_new] = smooth_.try_emplace(demand.job, now);
    if (!is_new) mean->second = (mean->second * (kSmooth - 1) + now) / kSmooth;
  }
}

std::uint64_t RuleController::share_of(const JobId& job) const {
  const auto found = smooth_.find(job);
  return found == smooth_.end() ? 0 : found->second / kOne;
}

bool RuleController::may_hold(const JobDemand& demand) const {
  return demand.state != State::kIdle && !cannot_hold_.contains(demand.job);
}

void RuleController::choose() {
  std::uint64_t largest = 0;
  std::uint64_t most_nodes = 0;
  for (const JobDemand& demand : demands_) {
    if (demand.state != State::kBacklogged) continue;
    largest = std::max(largest, share_of(demand.job));
    most_nodes = std::max(most_nodes, controller_.nodes_of(demand.job));
  }
  const std::uint64_t could = per_second(*capacity_);
  for (const JobDemand& demand : demands_) {
    const RuleSeen* const seen = seen_of(demand.job);
    const std::uint64_t share = share_of(demand.job);
    const bool is_large = share * 100 >= largest * kLargestPercent ||
                          controller_.nodes_of(demand.job) * 100 >= most_nodes * kLargestPercent;
    const bool is_most = share * gain_ / kOne * 100 >= could * kMostPercent;
    const auto known = held_.find(demand.job);
    const bool lingers =
        seen != nullptr && known != held_.end() && known->second.content < kContentFor;
    const bool wants = demand.state == State::kBacklogged || lingers;
    const bool is_free = (is_large || is_most) && heeds(Lesson::kLone);
    if (!may_hold(demand) || !wants || is_free) {
      if (seen != nullptr) {
        change(demand.job, std::nullopt,
               demand.state == State::kIdle ? "idle"
               : is_most                    ? "it has most of the server"
               : is_large                   ? "its share is among the largest"
                                            : "it uses less than its share");
      }
      if (known != held_.end()) held_.erase(known);
      continue;
    }
    Held& held = held_[demand.job];
    if (const auto rate = next_rate(demand.job, held, seen)) {
      held.served = held.allowed = 0;
      held.time = Nanoseconds{0};
      change(demand.job, rate,
             fmt::format("its share is {} of {} a second, gain {} %, yield {} %", share, could,
                         gain_ * 100 / kOne, yield_of(held) * 100 / kOne));
    }
  }
  // Rules of unknown jobs.
  for (const RuleSeen& seen : rules_) {
    const auto known = std::find_if(demands_.begin(), demands_.end(), [&](const JobDemand& demand) {
      return demand.job == seen.job;
    });
    if (known == demands_.end()) change(seen.job, std::nullopt, "its job has ended");
  }
}

std::uint64_t RuleController::wanted_rate(const JobId& job, const Held& held) const {
  return share_of(job) * gain_ / yield_of(held);
}

// Until it is measured, all CPTs are assumed to be reached, which is the maximum.
std::uint64_t RuleController::yield_of(const Held& held) const {
  if (!heeds(Lesson::kYield)) return kOne * options_.cpts;
  return held.yield == 0 ? kOne * options_.cpts : held.yield;
}

// The lowest rate, per CPT: the free tokens of a change are then a fifth of what the rate gives in
// the time that jobs have competed already, at least kFirstHold. How long it will last is unknown.
std::uint64_t RuleController::lowest() const {
  return options_.depth * kFreeParts * 1'000'000'000 /
         static_cast<std::uint64_t>(std::max(contended_, kFirstHold).count());
}

// None if the current rate stays.
std::optional<std::uint32_t> RuleController::next_rate(const JobId& job, Held& held,
                                                       const RuleSeen* seen) const {
  const std::uint64_t reach = seen == nullptr ? options_.cpts : reach_of(*seen);
  const std::uint64_t free = options_.depth * reach;
  std::uint64_t wanted = wanted_rate(job, held);
  // A low rate is worth its free tokens only if it lasts. And a job that returns finds the others
  // out of its way.
  if (heeds(Lesson::kRefill)) wanted = std::max(wanted, lowest());
  if (heeds(Lesson::kReturn) && contended_ < kWelcome) wanted = lowest();
  wanted = std::clamp<std::uint64_t>(wanted, 1, kRateMax);
  if (seen == nullptr || !heeds(Lesson::kRefill)) return static_cast<std::uint32_t>(wanted);
  const std::uint64_t now = seen->rate;
  const std::uint64_t apart = now > wanted ? now - wanted : wanted - now;
  if (apart * 100 <= now * options_.step_percent) return std::nullopt;
  const bool is_paid = held.allowed * reach >= free * kFreeParts && held.time >= kHoldFor;
  const bool is_rise = wanted >= 2 * now;
  if (!is_paid && !is_rise) return std::nullopt;
  return static_cast<std::uint32_t>(wanted);
}

// ---- the published algorithm ----

void RuleController::decide_paper(const RuleRound& round, Nanoseconds elapsed) {
  if (capacity_) controller_.set_capacity(capacity_);
  demands_.clear();
  for (const JobCount& job : round.jobs) {
    if (job.served == Tokens{0}) continue;
    const Tokens served{
        std::max<std::uint64_t>(scaled(bounded(job.served).count(), options_.period, elapsed), 1)};
    controller_.observe({.job = job.job, .served = served});
  }
  report_ = controller_.decide(round.at);
  for (const JobPeriod& job : report_.jobs) {
    const std::uint64_t rate = shares_->rate_of(job.job) / options_.cpts;
    change(job.job, static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rate, 1, kRateMax)),
           "active");
  }
  for (const RuleSeen& seen : round.rules) {
    if (!shares_->rates.contains(seen.job)) change(seen.job, std::nullopt, "not active");
  }
}

// ---- changes ----

const RuleSeen* RuleController::seen_of(const JobId& job) const {
  const auto found =
      std::lower_bound(rules_.begin(), rules_.end(), job,
                       [](const RuleSeen& rule, const JobId& id) { return rule.job < id; });
  return found == rules_.end() || found->job != job ? nullptr : &*found;
}

void RuleController::stop_all(const std::string& reason) {
  for (const RuleSeen& seen : rules_) change(seen.job, std::nullopt, reason);
}

// Until the next round reads the rules, all changes are assumed to have succeeded.
void RuleController::note_changes() {
  for (const JobRateChange& change : changes_) apply_to(rules_, change);
}

void RuleController::change(const JobId& job, std::optional<std::uint32_t> rate,
                            std::string reason) {
  changes_.push_back({job, rate, std::move(reason)});
}

}  // namespace weir
