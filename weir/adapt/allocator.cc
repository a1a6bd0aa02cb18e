// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/allocator.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

constexpr int kRatioBits = 20;
constexpr std::uint64_t kOne = std::uint64_t{1} << kRatioBits;
constexpr std::uint64_t kRatioMax = std::uint64_t{1} << 40;
constexpr std::uint64_t kNoRatioYet = UINT64_MAX;

// floor(a * b / c), at most `most`. Products of real numbers of jobs and tokens usually fit in 64
// bits, where division is fast.
std::uint64_t scaled(std::uint64_t a, std::uint64_t b, std::uint64_t c,
                     std::uint64_t most = UINT64_MAX) {
  const Wide product = Wide{a} * b;
  if (product <= UINT64_MAX) return std::min(static_cast<std::uint64_t>(product) / c, most);
  return static_cast<std::uint64_t>(std::min<Wide>(product / c, most));
}

std::uint64_t magnitude(std::int64_t record) {
  return static_cast<std::uint64_t>(record < 0 ? -record : record);
}

bool is_lender(std::int64_t before, std::int64_t after) { return before > 0 && after > 0; }
bool is_borrower(std::int64_t before, std::int64_t after) { return before < 0 && after < 0; }

void check_budget(Rate rate, Nanoseconds period) {
  WEIR_ASSERT(Nanoseconds{0} < period && period <= Ledger::kPeriodMax, period.count());
  const Tokens budget = tokens_in(rate, period);
  WEIR_ASSERT(budget < Allocator::kBudgetMax, budget.count());
}

}  // namespace

Allocator::Allocator(const Options& options) : options_(options), ledger_(options.jobs_max) {
  check_budget(options.rate, options.period);
}

void Allocator::set_rate(Rate rate) {
  check_budget(rate, options_.period);
  carry_ = scaled(carry_, rate.time_ns(), options_.rate.time_ns());
  options_.rate = rate;
}

Tokens Allocator::next_budget() {
  const Rate rate = options_.rate;
  const Wide all =
      Wide{rate.tokens()} * static_cast<std::uint64_t>(options_.period.count()) + carry_;
  carry_ = static_cast<std::uint64_t>(all % rate.time_ns());
  return Tokens{static_cast<std::uint64_t>(all / rate.time_ns())};
}

Tokens Allocator::allocate(std::span<const Demand> demands, std::vector<JobPeriod>& jobs) {
  gather(demands);
  Tokens budget{0};
  if (!rows_.empty()) {
    budget = next_budget();
    settle_initial(budget);
    redistribute();
    recompensate();
  }
  write_back(jobs);
  return budget;
}

void Allocator::allocate_part(Tokens budget, std::span<const Demand> demands,
                              std::span<const Tokens> reserved, std::vector<JobPeriod>& jobs) {
  WEIR_ASSERT(reserved.empty() || reserved.size() == demands.size(), reserved.size());
  if (give_to_the_only_one(budget, demands, jobs)) return;
  gather(demands);
  reserved_.clear();
  std::uint64_t reserved_sum = 0;
  for (std::size_t i = 0; i < reserved.size(); ++i) {
    if (demands[i].demand == Tokens{0}) continue;
    WEIR_ASSERT(reserved[i] <= demands[i].demand, reserved[i].count());
    reserved_.push_back(reserved[i].count());
    reserved_sum += reserved[i].count();
  }
  if (reserved_sum == 0) reserved_.clear();
  if (!rows_.empty()) {
    reserved_.empty() ? settle_initial(budget) : settle_reserved(budget, reserved_sum);
    redistribute();
    recompensate();
  }
  reserved_.clear();
  write_back(jobs);
}

void Allocator::skip() {
  std::vector<JobPeriod> nobody;
  allocate({}, nobody);
}

// A job that has always been alone gets everything and owes nobody. So do most users in a tree:
// this spares each of them the memory of a computation. False if it is not so.
bool Allocator::give_to_the_only_one(Tokens budget, std::span<const Demand> demands,
                                     std::vector<JobPeriod>& jobs) {
  const std::span<Ledger::Account> accounts = ledger_.accounts();
  if (demands.size() != 1 || accounts.size() != 1 || accounts[0].job != demands[0].job ||
      demands[0].demand == Tokens{0}) {
    return false;
  }
  accounts[0].allotted = budget.count();
  accounts[0].last_active = ledger_.period();
  jobs.assign(1, {.job = demands[0].job,
                  .nodes = demands[0].nodes,
                  .demand = demands[0].demand,
                  .initial = budget,
                  .redistributed = budget,
                  .final = budget,
                  .record = 0,
                  .borrowed = {},
                  .lent = {}});
  ledger_.close_period(options_.period, options_.half_life);
  return true;
}

// Rows of the active jobs, with the state of their accounts; prev is cleared for the others.
void Allocator::gather(std::span<const Demand> demands) {
  if (try_gather(demands)) return;
  ledger_.open(demands);
  const bool gathered = try_gather(demands);
  WEIR_ASSERT(gathered, demands.size());
}

// False if a job has no account yet, which is rare; then call it again.
bool Allocator::try_gather(std::span<const Demand> demands) {
  const std::span<Ledger::Account> accounts = ledger_.accounts();
  rows_.clear();
  shares_.clear();
  rows_.reserve(demands.size());
  shares_.reserve(demands.size());
  nodes_sum_ = 0;
  std::size_t at = 0;
  for (const Demand& demand : demands) {
    while (at < accounts.size() && accounts[at].job != demand.job) ++at;
    if (at == accounts.size()) return false;
    if (demand.demand == Tokens{0}) continue;
    WEIR_ASSERT(demand.nodes > 0 && demand.nodes <= kNodesMax, demand.nodes);
    WEIR_ASSERT(demand.demand <= kDemandMax, demand.demand.count());
    const Ledger::Account& account = accounts[at];
    nodes_sum_ += demand.nodes;
    const std::uint64_t wanted = demand.demand.count();
    rows_.push_back({.account = at,
                     .nodes = demand.nodes,
                     .demand = wanted,
                     .ratio = account.allotted == 0
                                  ? kNoRatioYet
                                  : scaled(wanted, kOne, account.allotted, kRatioMax),
                     .record_before = account.record});
    shares_.push_back({demand.nodes, account.remainder, 0});
  }
  return true;
}

void Allocator::settle_initial(Tokens budget) {
  settle(shares_, budget);
  weigh();
}

// By weight, but not less than the reservation: jobs that would get less get exactly their
// reservation, and the others share the rest. If the budget is smaller than all reservations, it is
// divided in proportion to them.
void Allocator::settle_reserved(Tokens budget, std::uint64_t reserved_sum) {
  const bool is_short = budget.count() < reserved_sum;
  std::vector<bool> is_fixed(rows_.size(), false);
  std::vector<SettleShare> trial;
  for (bool moved = true; moved;) {
    moved = false;
    std::uint64_t rest = budget.count();
    trial.clear();
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (is_short && reserved_[i] > 0) trial.push_back({reserved_[i], shares_[i].remainder, 0});
      if (is_short) continue;
      if (is_fixed[i]) rest -= reserved_[i];
      if (!is_fixed[i]) trial.push_back(shares_[i]);
    }
    settle(trial, Tokens{rest});
    std::size_t at = 0;
    for (std::size_t i = 0; i < rows_.size() && !is_short; ++i) {
      if (is_fixed[i] || trial[at++].got >= reserved_[i]) continue;
      is_fixed[i] = moved = true;
    }
  }
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const bool is_settled = is_short ? reserved_[i] > 0 : !is_fixed[i];
    shares_[i].got = is_short ? 0 : reserved_[i];
    if (!is_settled) continue;
    shares_[i].got = trial[at].got;
    shares_[i].remainder = trial[at++].remainder;
  }
  weigh();
}

// Factors by use, and the surplus.
void Allocator::weigh() {
  surplus_sum_ = 0;
  std::uint64_t factor_sum = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    row.initial = shares_[i].got;
    if (row.ratio == kNoRatioYet) {
      row.ratio = scaled(row.demand, kOne, std::max<std::uint64_t>(1, row.initial), kRatioMax);
    }
    const std::uint64_t by_nodes = scaled(row.ratio, row.nodes, nodes_sum_);
    const std::uint64_t factor = row.ratio > kOne ? row.ratio + by_nodes : by_nodes;
    surplus_sum_ += row.initial - std::min(row.initial, row.demand);
    factor_sum += factor;
    shares_[i].weight = factor;
  }
  if (factor_sum == 0) surplus_sum_ = 0;  // no job to give it to: it stays
}

void Allocator::redistribute() {
  const bool moves = surplus_sum_ > 0;
  if (moves) settle(shares_, Tokens{surplus_sum_});
  lenders_.clear();
  lender_rows_.clear();
  has_borrower_ = false;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    Row& row = rows_[i];
    const std::uint64_t surplus = moves ? row.initial - std::min(row.initial, row.demand) : 0;
    const std::uint64_t share = moves ? shares_[i].got : 0;
    row.redistributed = row.initial - surplus + share;
    row.final = row.redistributed;
    has_borrower_ |= is_borrower(row.record_before, row.record());
    if (!is_lender(row.record_before, row.record())) continue;
    lenders_.push_back({shares_[i].weight, shares_[i].remainder, 0});
    lender_rows_.push_back(i);
  }
}

// How much of their allocation borrowers repay, 20 fraction bits: the more the lenders need, the
// more (eq. 15-17).
std::uint64_t Allocator::coefficient() const {
  std::uint64_t sum = 0;
  for (const std::size_t i : lender_rows_) {
    const Row& row = rows_[i];
    const std::uint64_t use =
        scaled(row.demand, kOne, std::max<std::uint64_t>(1, row.redistributed));
    const std::uint64_t hunger = std::max(kOne, row.ratio) + (use < kOne ? kOne - use : 0);
    sum += scaled(row.nodes, hunger, 2 * nodes_sum_);
  }
  return sum;
}

std::uint64_t Allocator::repayment(const Row& row, std::uint64_t coefficient) const {
  std::uint64_t most = std::min(magnitude(row.record_before), row.redistributed);
  if (options_.floor) {
    const std::uint64_t kept = row.initial / 2;
    most = std::min(most, row.redistributed - std::min(row.redistributed, kept));
  }
  if (!reserved_.empty()) {
    const std::uint64_t kept = reserved_[static_cast<std::size_t>(&row - rows_.data())];
    most = std::min(most, row.redistributed - std::min(row.redistributed, kept));
  }
  return scaled(coefficient, row.redistributed, kOne, most);
}

void Allocator::recompensate() {
  std::uint64_t factor_sum = 0;
  for (const SettleShare& lender : lenders_) factor_sum += lender.weight;
  if (!has_borrower_ || factor_sum == 0) return;
  const std::uint64_t share = coefficient();
  std::uint64_t repaid = 0;
  for (Row& row : rows_) {
    if (!is_borrower(row.record_before, row.record())) continue;
    const std::uint64_t amount = repayment(row, share);
    row.final -= amount;
    repaid += amount;
  }
  if (repaid == 0) return;
  settle(lenders_, Tokens{repaid});
  for (std::size_t i = 0; i < lenders_.size(); ++i) {
    rows_[lender_rows_[i]].final += lenders_[i].got;
    shares_[lender_rows_[i]].remainder = lenders_[i].remainder;
  }
}

void Allocator::write_back(std::vector<JobPeriod>& jobs) {
  const std::span<Ledger::Account> accounts = ledger_.accounts();
  jobs.resize(rows_.size());
  std::size_t at = 0;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    for (; at < row.account; ++at) accounts[at].allotted = 0;
    Ledger::Account& account = accounts[at++];
    account.record = row.record();
    account.remainder = shares_[i].remainder;
    account.allotted = row.final;
    account.last_active = ledger_.period();
    jobs[i] = {.job = account.job,
               .nodes = row.nodes,
               .demand = Tokens{row.demand},
               .initial = Tokens{row.initial},
               .redistributed = Tokens{row.redistributed},
               .final = Tokens{row.final},
               .record = account.record,
               .borrowed = {},
               .lent = {}};
  }
  for (; at < accounts.size(); ++at) accounts[at].allotted = 0;
  if (!ledger_.close_period(options_.period, options_.half_life)) return;
  for (std::size_t i = 0; i < rows_.size(); ++i) jobs[i].record = accounts[rows_[i].account].record;
}

Allocator::State Allocator::state() const {
  return {.ledger = ledger_.state(), .carry = carry_, .carry_of = options_.rate.time_ns()};
}

Result<void> Allocator::restore(State state) {
  if (state.carry_of == 0 || state.carry >= state.carry_of) {
    return fail(std::errc::invalid_argument, "saved allocation", "a fraction is 1 or more",
                "start without the saved state; records then start at 0");
  }
  if (auto restored = ledger_.restore(std::move(state.ledger)); !restored) return restored;
  carry_ = scaled(state.carry, options_.rate.time_ns(), state.carry_of);
  return {};
}

}  // namespace weir
