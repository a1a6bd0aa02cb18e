// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/controller.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "weir/adapt/share_rates.h"
#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

// Nothing is allocated until the capacity is known, so any rate will do.
constexpr Rate kNoRateYet = Rate::per_second(1);
// For a share found at the start: it is dropped unless its job is active.
constexpr std::uint64_t kIdleForEver = UINT64_MAX / 2;

Allocator::Options allocator_options(const ControllerOptions& options) {
  WEIR_ASSERT(ControllerOptions::kPeriodMin <= options.period &&
                  options.period <= ControllerOptions::kPeriodMax,
              options.period.count());
  return {.rate = kNoRateYet,
          .period = options.period,
          .half_life = options.half_life,
          .floor = options.floor,
          .jobs_max = options.jobs_max};
}

Tokens demand_of(const JobSample& sample, ControllerOptions::Demand choice) {
  const Wide tokens = choice == ControllerOptions::Demand::kServed
                          ? Wide{sample.served.count()}
                          : Wide{sample.waiting.count()} + sample.arrived.count();
  if (tokens == 0) return Tokens{0};
  const Tokens most = std::min(sample.limit.value_or(Allocator::kDemandMax), Allocator::kDemandMax);
  // A limit of less than one token per period caps the job but leaves it in the allocation.
  return Tokens{static_cast<std::uint64_t>(std::clamp<Wide>(most.count(), 1, tokens))};
}

void add(JobSample& sum, const JobSample& sample) {
  sum.arrived += sample.arrived;
  sum.served += sample.served;
  sum.waiting += sample.waiting;
  sum.borrowed += std::min(sample.borrowed, Tokens{UINT64_MAX} - sum.borrowed);
  sum.lent += std::min(sample.lent, Tokens{UINT64_MAX} - sum.lent);
  sum.reserved += sample.reserved;
  if (!sum.weight) sum.weight = sample.weight;
  if (sum.limit && sample.limit) sum.limit = *sum.limit + *sample.limit;
  if (!sample.limit) sum.limit.reset();
}

}  // namespace

Controller::Controller(const ControllerOptions& options, Enforcer& enforcer)
    : options_(options), enforcer_(enforcer), allocator_(allocator_options(options)) {
  if (options.levels > 0) {
    tree_ = std::make_unique<TreeShares>(allocator_options(options), options, enforcer);
  }
}

Controller::~Controller() = default;

void Controller::set_capacity(std::optional<Rate> capacity) {
  if (capacity == capacity_) return;
  capacity_ = capacity;
  if (!capacity) return;
  tree_ == nullptr ? allocator_.set_rate(*capacity) : tree_->set_rate(*capacity);
}

Result<void> Controller::set_nodes(const JobId& job, std::uint64_t nodes, Instant now) {
  if (nodes == 0 || nodes > Allocator::kNodesMax) {
    return fail(std::errc::invalid_argument, "nodes of job " + quote(job.text()),
                std::to_string(nodes) + " is out of range",
                "give a number from 1 to " + std::to_string(Allocator::kNodesMax));
  }
  if (nodes_.size() >= kNodesTableMax && !nodes_.contains(job)) {
    return fail(std::errc::no_space_on_device, "nodes of job " + quote(job.text()),
                std::to_string(kNodesTableMax) + " jobs already have a number of nodes",
                "forget jobs that have ended");
  }
  nodes_[job] = {nodes, now};
  return {};
}

std::uint64_t Controller::nodes_of(const JobId& job) const {
  const auto found = nodes_.find(job);
  return found == nodes_.end() ? 1 : found->second.count;
}

std::uint64_t Controller::use_nodes_of(const JobId& job, Instant now) {
  const auto found = nodes_.find(job);
  if (found == nodes_.end()) return 1;
  found->second.used_at = now;
  return found->second.count;
}

std::optional<Instant> Controller::nodes_used_at(const JobId& job) const {
  const auto found = nodes_.find(job);
  return found == nodes_.end() ? std::nullopt : std::optional(found->second.used_at);
}

std::optional<Share> Controller::share_of(const JobId& job) const {
  const auto found = holders_.find(job);
  return found == holders_.end() ? std::nullopt : found->second.enforced;
}

std::optional<JobId> Controller::visit_shares(
    const JobId& from, std::size_t count,
    const std::function<void(const JobId&, const Share&)>& visit) const {
  for (auto holder = holders_.lower_bound(from); holder != holders_.end(); ++holder) {
    if (count-- == 0) return holder->first;
    if (holder->second.enforced) visit(holder->first, *holder->second.enforced);
  }
  return std::nullopt;
}

// ---- one period ----

void Controller::observe(const JobSample& sample) {
  if (!suspended_) samples_.push_back(sample);
}

const PeriodReport& Controller::decide(Instant now) {
  adopt();
  gather(now);
  report_.at = now;
  report_.budget = Tokens{0};
  report_.jobs.clear();
  report_.nodes.clear();
  if (capacity_ && !suspended_) {
    allocate();
  } else {
    tree_ == nullptr ? allocator_.skip() : tree_->skip();
    list_active();
    if (tree_ != nullptr && !suspended_) tree_->list_active(report_);
  }
  list_records();
  enforce(now);
  samples_.clear();
  ++counters_.periods;
  return report_;
}

void Controller::list_records() {
  report_.records.clear();
  if (tree_ != nullptr) return tree_->list_records(report_.records);
  for (const Ledger::Account& account : ledger().accounts()) {
    if (account.record != 0) report_.records.push_back({account.job, account.record});
  }
}

void Controller::adopt() {
  if (adopted_) return;
  const auto held = enforcer_.held();
  if (!held) return note_failure(held.error());
  adopted_ = true;
  for (const JobId& job : *held) {
    if (holders_.contains(job)) continue;
    const Share unknown{.rate = std::nullopt, .depth = {}, .nodes = nodes_of(job)};
    hold(holders_.lower_bound(job), job, unknown)->second.idle = kIdleForEver;
  }
}

// Combines the samples of each job, in order, and computes demands and loans.
void Controller::gather(Instant now) {
  const auto by_job = [](const JobSample& a, const JobSample& b) { return a.job < b.job; };
  if (!std::is_sorted(samples_.begin(), samples_.end(), by_job)) {
    std::stable_sort(samples_.begin(), samples_.end(), by_job);
  }
  std::size_t count = 0;
  for (const JobSample& sample : samples_) {
    if (count > 0 && samples_[count - 1].job == sample.job) {
      add(samples_[count - 1], sample);
    } else {
      samples_[count++] = sample;
    }
  }
  samples_.resize(count);
  demands_.clear();
  reserved_.clear();
  loans_.clear();
  demands_.reserve(count);
  loans_.reserve(count);
  const std::span<const Ledger::Account> accounts = ledger().accounts();
  std::size_t at = 0;
  for (JobSample& sample : samples_) {
    const Tokens demand = demand_of(sample, options_.demand);
    if (demand > Tokens{0}) {
      const std::uint64_t nodes = use_nodes_of(sample.job, now);
      demands_.push_back({sample.job, sample.weight.value_or(nodes), demand});
      if (sample.reserved > Tokens{0} || !reserved_.empty()) {
        reserved_.resize(demands_.size() - 1);
        reserved_.push_back(std::min(sample.reserved, demand));
      }
    }
    if (!options_.lending) continue;
    if (tree_ == nullptr) {  // which looks for itself
      while (at < accounts.size() && accounts[at].job < sample.job) ++at;
      const bool allotted =
          at < accounts.size() && accounts[at].job == sample.job && accounts[at].allotted > 0;
      if (!allotted) sample.lent = Tokens{0};
    }
    if (sample.lent > Tokens{0} || sample.borrowed > Tokens{0}) {
      loans_.push_back({sample.job, sample.lent, sample.borrowed});
    }
  }
}

void Controller::allocate() {
  if (tree_ != nullptr) {
    tree_->allocate(demands_, reserved_, loans_, report_);
    return note_loans();
  }
  if (options_.lending) allocator_.settle_loans(loans_);
  if (reserved_.empty()) {
    report_.budget = allocator_.allocate(demands_, report_.jobs);
  } else {
    report_.budget = allocator_.next_budget();
    allocator_.allocate_part(report_.budget, demands_, reserved_, report_.jobs);
  }
  if (options_.lending) note_loans();
}

void Controller::note_loans() {
  auto loan = loans_.begin();
  for (JobPeriod& job : report_.jobs) {
    while (loan != loans_.end() && loan->job < job.job) ++loan;
    if (loan == loans_.end() || loan->job != job.job) continue;
    job.borrowed = loan->borrowed;
    job.lent = loan->lent;
  }
}

// While the capacity is unknown.
void Controller::list_active() {
  for (const Allocator::Demand& demand : demands_) {
    const Ledger::Account* account = account_of(demand.job);
    report_.jobs.push_back({.job = demand.job,
                            .nodes = demand.nodes,
                            .demand = demand.demand,
                            .initial = {},
                            .redistributed = {},
                            .final = {},
                            .record = account == nullptr ? 0 : account->record,
                            .borrowed = {},
                            .lent = {}});
  }
}

// ---- shares ----

Share Controller::share_for(const JobPeriod& job) const {
  if (!capacity_) return {.rate = std::nullopt, .depth = {}, .nodes = job.nodes};
  return allotted_share(job.final, job.nodes, options_);
}

void Controller::enforce(Instant now) {
  auto active = report_.jobs.begin();
  auto holder = holders_.begin();
  // Both are in the order of ids, so the calls are too.
  while (active != report_.jobs.end() || holder != holders_.end()) {
    const bool is_active =
        active != report_.jobs.end() && (holder == holders_.end() || active->job <= holder->first);
    if (!is_active) {
      let_idle(holder, now);
      continue;
    }
    holder = hold(holder, active->job, share_for(*active));
    holder->second.idle = 0;
    write(active->job, holder->second, now);
    ++holder;
    ++active;
  }
  if (tree_ == nullptr) return;
  tree_->enforce(report_, capacity_, suspended_ ? TreeShares::Idle::kDrop : TreeShares::Idle::kKeep,
                 now);
  tree_->count_holders([this](const JobId& job) {
    const auto found = holders_.find(job);
    return found == holders_.end() ? 0 : found->second.wanted.nodes;
  });
}

// Moves on to the next holder.
void Controller::let_idle(Holders::iterator& holder, Instant now) {
  Holder& idle = holder->second;
  if (idle.idle < kIdleForEver) ++idle.idle;
  const bool keeps =
      options_.lending && !suspended_ && idle.idle <= periods_to_fill(idle.wanted, options_.period);
  if (!keeps) {
    if (drop(holder->first, idle, now)) return erase(holder);
  } else {
    write(holder->first, idle, now);
  }
  ++holder;
}

void Controller::write(const JobId& job, Holder& holder, Instant now) {
  if (holder.enforced == holder.wanted) return;
  const Result<void> done = holder.enforced ? enforcer_.change(job, holder.wanted, now)
                                            : enforcer_.set(job, holder.wanted, now);
  if (done) {
    holder.enforced = holder.wanted;
    ++counters_.written;
  } else {
    holder.enforced.reset();
    note_failure(done.error());
  }
}

bool Controller::drop(const JobId& job, Holder& holder, Instant now) {
  const Result<void> done = enforcer_.drop(job, now);
  if (done) {
    ++counters_.written;
    return true;
  }
  holder.enforced.reset();
  note_failure(done.error());
  return false;
}

void Controller::note_failure(const Error& error) {
  ++counters_.failed;
  last_error_ = error;
}

// The holder of the job, a new one if necessary. REQUIRES: `at` is the first that is not before it.
Controller::Holders::iterator Controller::hold(Holders::iterator at, const JobId& job,
                                               const Share& wanted) {
  nodes_held_ += wanted.nodes;
  if (at == holders_.end() || at->first != job) {
    return holders_.try_emplace(at, job, Holder{.wanted = wanted});
  }
  nodes_held_ -= at->second.wanted.nodes;
  at->second.wanted = wanted;
  return at;
}

void Controller::erase(Holders::iterator& holder) {
  nodes_held_ -= holder->second.wanted.nodes;
  holder = holders_.erase(holder);
}

void Controller::first_request(const JobId& job, Instant now, std::optional<std::uint64_t> weight) {
  if (suspended_ || !options_.lending) return;
  if (tree_ != nullptr && !tree_->give(job, capacity_, now)) {
    ++counters_.overflow;
    return;
  }
  const auto found = holders_.find(job);
  if (found != holders_.end() && found->second.enforced) return;
  if (found == holders_.end() && holders_.size() >= options_.jobs_max) {
    ++counters_.overflow;
    return;
  }
  auto before = found;
  if (found != holders_.end()) erase(before);  // found at the start, or failed: treat it as new
  const std::uint64_t nodes = weight.value_or(use_nodes_of(job, now));
  const Share share = tree_ != nullptr ? tree_->newcomer(job, nodes, capacity_)
                                       : newcomer_share(capacity_, nodes, nodes_held_, options_);
  write(job, hold(holders_.lower_bound(job), job, share)->second, now);
}

void Controller::suspend(std::string reason, Instant now) {
  suspended_ = std::move(reason);
  samples_.clear();
  for (auto holder = holders_.begin(); holder != holders_.end();) let_idle(holder, now);
  if (tree_ != nullptr) tree_->drop_all(now);
}

// ---- restart ----

const Ledger::Account* Controller::account_of(const JobId& job) const {
  return tree_ == nullptr ? ledger().find(job) : tree_->allocator().account_of(job);
}

Controller::State Controller::state() const {
  if (tree_ != nullptr) return {.allocator = {}, .tree = tree_->state()};
  return {.allocator = allocator_.state(), .tree = {}};
}

Result<void> Controller::restore(const State& state) {
  return tree_ == nullptr ? allocator_.restore(state.allocator) : tree_->restore(state.tree);
}

}  // namespace weir
