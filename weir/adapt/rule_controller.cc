// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/rule_controller.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"

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
// Bursts are ordered if the shortest takes at most this time, and the others get a rule of so many
// times the capacity meanwhile.
constexpr Nanoseconds kFirstMax = std::chrono::milliseconds{500};
constexpr std::uint64_t kGiveWay = 2;
// A request that costs more counts as this.
constexpr std::uint64_t kCostMax = JobCount::kToken * 1024;
// Shares this close to the largest count among the largest.
constexpr std::uint64_t kLargestPercent = 95;
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

// Jobs whose outstanding requests are less than this percentage of what the server does at a time
// leave part of it idle if the others are held.
constexpr std::uint64_t kFillPercent = 75;
// A job that has the server to itself is held at this percentage of it at most when another one
// comes, and see first_rate().
constexpr std::uint64_t kFirstPercent = 25;
constexpr std::uint64_t kBeyondPercent = 66;
// How long jobs are expected to compete at least: with a job that had the server to itself, for a
// burst; else for longer.
constexpr Nanoseconds kBurst = std::chrono::milliseconds{300};
constexpr Nanoseconds kLong = std::chrono::seconds{1};
// What a job got more or less than its share is made up for in this time.
constexpr std::int64_t kRepaySeconds = 2;
// Time between two writes that can wait, so that there are less than three in a second.
constexpr Nanoseconds kAdjustEvery = std::chrono::milliseconds{800};
// A round that took so many times as long as the one before is late.
constexpr int kLateRounds = 4;
// Bounds of what is believed: requests in service, and the time that each takes.
constexpr std::uint64_t kBusyMax = 1 << 20;
constexpr Nanoseconds kServiceMax = std::chrono::seconds{1};

std::uint64_t count_in(Rate rate, Nanoseconds time) { return tokens_in(rate, time).count(); }

std::uint64_t per_second(Rate rate) { return count_in(rate, std::chrono::seconds{1}); }

// What a server says is not checked by anybody before: counters go back and wrap, rounds come late,
// and rules may be listed with a rate of 0. Within these bounds every sum and product below fits.
constexpr std::uint64_t kServedMax = std::uint64_t{1} << 40;
constexpr std::uint32_t kCountMax = 1 << 16;  // of CPTs, and of tokens in a bucket
constexpr Nanoseconds kElapsedMax = std::chrono::hours{1};
constexpr Rate kCapacityMin = Rate::per_second(1);
constexpr Rate kCapacityMax = Rate::per_second(kTokensPerNanosecondMax * 1'000'000'000);

std::uint64_t bounded(std::uint64_t count) { return std::min(count, kServedMax); }

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
  see_backlog(bounded(round.queued) + bounded(round.busy));
  settle_release(elapsed);
  if (capacity_ && suspected_ > Nanoseconds{0} && backlogged_count() < 2) {
    hold_for_newcomer();
  } else if ((active_count_ < 2 && heeds(Lesson::kLone)) || !capacity_) {
    contended_ = Nanoseconds{0};
    gain_ = kOne;
    stop_all(active_count_ < 2 ? "no other job is active" : "the capacity is not known yet");
    held_.clear();
    account(elapsed);
    if (suspected_ == Nanoseconds{0}) kept_.reset();
  } else {
    contended_ += elapsed;
    allocate(round, elapsed);
    account(elapsed);
    if (released_ == Nanoseconds{0}) {
      choose();
      adjust(elapsed);
    }
  }
  note_changes();
  return changes_;
}

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

// ---- what is wanted ----

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
  if (smooth_.size() > demands_.size()) {  // jobs may come and go for days
    absl::erase_if(smooth_, [&](const auto& entry) { return demand_of(entry.first) == nullptr; });
  }
}

// Free tokens, late timers, and what a job got before it was held add up to what it is given more
// or less than its share from then on.
void RuleController::account(Nanoseconds elapsed) {
  if (active_count_ < 2 || !heeds(Lesson::kYield)) return accounts_.clear();
  for (const JobDemand& demand : demands_) {
    if (demand.state == State::kIdle) {
      accounts_.erase(demand.job);
      continue;
    }
    Account& account = accounts_[demand.job];
    account.unpriced = std::min(account.unpriced + demand.served.count(), kServedMax);
    account.unpriced_for = std::min(account.unpriced_for + elapsed, kElapsedMax);
    const auto share = smooth_.find(demand.job);
    if (!capacity_ || share == smooth_.end()) continue;
    // While the server idles, every job may have more.
    const std::uint64_t due =
        scaled(share->second * gain_ / kOne, account.unpriced_for, std::chrono::seconds{1});
    const std::int64_t most = static_cast<std::int64_t>(std::min(2 * share->second, kServedMax) +
                                                        4 * kOne * options_.depth);
    const std::int64_t before = account.balance;
    account.balance +=
        static_cast<std::int64_t>(due) - static_cast<std::int64_t>(account.unpriced * kOne);
    // A job that does not want more is not owed more.
    if (demand.state != State::kBacklogged)
      account.balance = std::min(account.balance, std::max<std::int64_t>(before, 0));
    account.balance = std::clamp(account.balance, -most, most);
    const RuleSeen* const seen = seen_of(demand.job);
    const auto owed =
        static_cast<std::int64_t>(std::max(share->second * 3 / 4, 2 * kOne * options_.depth));
    if (account.balance <= -owed) account.is_owed = false;
    if (seen != nullptr && account.balance > owed) account.is_owed = true;
    account.unpriced = 0;
    account.unpriced_for = Nanoseconds{0};
  }
}

// In 1/kOne of one a second.
std::uint64_t RuleController::corrected_share(const JobId& job) const {
  const auto share = smooth_.find(job);
  if (share == smooth_.end()) return 0;
  const auto found = accounts_.find(job);
  if (found == accounts_.end()) return share->second;
  const auto own = static_cast<std::int64_t>(std::min(share->second, kServedMax));
  const std::int64_t more = found->second.balance / kRepaySeconds;
  return static_cast<std::uint64_t>(own + std::clamp(more, -own / 2, own));
}

std::uint64_t RuleController::share_of(const JobId& job) const {
  const auto found = smooth_.find(job);
  return found == smooth_.end() ? 0 : found->second / kOne;
}

std::uint64_t RuleController::entitlement_of(const JobId& job) const {
  if (options_.mode == Mode::kPaper) return shares_->rate_of(job);
  return contended_ == Nanoseconds{0} ? 0 : share_of(job);
}

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
  if (!kept_ || !heeds(Lesson::kReturn)) return std::nullopt;
  const bool are_alike = std::all_of(demands_.begin(), demands_.end(), [&](const JobDemand& one) {
    if (one.state == State::kIdle || one.job == kept_->job) return true;
    const std::uint64_t nodes = in_requests(controller_.nodes_of(one.job), one.job);
    return nodes * 100 >= most_nodes * kLargestPercent;
  });
  if (!are_alike) return std::nullopt;
  return bursts_.first(demands_, kept_->job, count_in(*capacity_, kFirstMax));
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

// ---- the published algorithm ----

// Section III-D: a rule for every active job, written in every period, the largest job first; no
// rule for the others. Without a capacity there is nothing to divide.
void RuleController::decide_paper(const RuleRound& round, Nanoseconds elapsed) {
  if (!capacity_) return stop_all("the capacity is not known");
  controller_.set_capacity(capacity_);
  demands_.clear();
  for (const JobCount& job : round.jobs) {
    if (job.served == Tokens{0}) continue;
    const Tokens served{
        std::max<std::uint64_t>(scaled(bounded(job.served).count(), options_.period, elapsed), 1)};
    controller_.observe({.job = job.job, .served = served});
    demands_.push_back({.job = job.job,
                        .state = State::kActive,
                        .known = job.known,
                        .served = bounded(job.served),
                        .wanted = served});
  }
  report_ = controller_.decide(round.at);
  std::vector<const JobPeriod*> by_size;
  by_size.reserve(report_.jobs.size());
  for (const JobPeriod& job : report_.jobs) by_size.push_back(&job);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const JobPeriod* a, const JobPeriod* b) { return a->nodes > b->nodes; });
  for (const JobPeriod* job : by_size) {
    const std::uint64_t share = shares_->rate_of(job->job);
    const std::uint64_t rate = std::clamp<std::uint64_t>(share / options_.cpts, 1, kRateMax);
    change(job->job, static_cast<std::uint32_t>(rate),
           fmt::format("as published: it is allocated {} of {} a second", share,
                       per_second(*capacity_)));
  }
  for (const RuleSeen& seen : round.rules) {
    if (!shares_->rates.contains(seen.job)) {
      change(seen.job, std::nullopt, "as published: it was not active in the last period");
    }
  }
}

// ---- changes ----

const RuleSeen* RuleController::seen_of(const JobId& job) const {
  const auto found =
      std::lower_bound(rules_.begin(), rules_.end(), job,
                       [](const RuleSeen& rule, const JobId& id) { return rule.job < id; });
  return found == rules_.end() || found->job != job ? nullptr : &*found;
}

const JobDemand* RuleController::demand_of(const JobId& job) const {
  const auto found =
      std::lower_bound(demands_.begin(), demands_.end(), job,
                       [](const JobDemand& demand, const JobId& id) { return demand.job < id; });
  return found == demands_.end() || found->job != job ? nullptr : &*found;
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
