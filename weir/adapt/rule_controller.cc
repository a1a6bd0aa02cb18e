// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/rule_controller.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/adapt/rule_bounds.h"

namespace weir {
namespace {

using rule_bounds::bounded;
using rule_bounds::count_in;
using rule_bounds::kCountMax;
using rule_bounds::kElapsedMax;
using rule_bounds::kOne;
using rule_bounds::kParts;
using rule_bounds::kServedMax;
using rule_bounds::per_second;
using rule_bounds::rate_of;
using rule_bounds::State;
using rule_bounds::Wide;

// Number of rounds over which shares are averaged.
constexpr std::uint64_t kSmooth = 8;

// What a job got more or less than its share is made up for in this time.
constexpr std::int64_t kRepaySeconds = 2;

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

// ---- shares and accounts ----

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
