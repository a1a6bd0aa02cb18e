// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/tree_allocator.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kPerSecond = 1'000'000'000;

Tokens sum_of(Tokens a, Tokens b) {
  return Tokens{std::min(a.count() + b.count(), Allocator::kDemandMax.count())};
}

}  // namespace

// A parent, with the demands of its active children in this period.
struct TreeAllocator::Inner {
  struct Child {
    std::unique_ptr<Inner> inner;  // none: a leaf
    std::uint64_t weight = 1;      // of a leaf
    Tokens demand;
    Tokens reserved;
  };

  Inner(const Allocator::Options& options, Inner* above, const JobId& value)
      : allocator(options), parent(above), name(value) {}

  // Whether another period without demands and loans would change nothing here.
  bool rests() const;

  Allocator allocator;
  Inner* parent;
  JobId name;
  absl::btree_map<JobId, Child> children;
  std::vector<Ledger::Loan> loans;  // of its children
  bool is_quiet = false;            // it rests, and so do all nodes below it
};

bool TreeAllocator::Inner::rests() const {
  const auto accounts = allocator.ledger().accounts();
  const auto is_settled = [](const Ledger::Account& one) {
    return one.record == 0 && one.lent == Tokens{0} && one.borrowed == Tokens{0};
  };
  return std::all_of(accounts.begin(), accounts.end(), is_settled) &&
         std::all_of(children.begin(), children.end(), [](const auto& child) {
           return child.second.inner == nullptr || child.second.inner->is_quiet;
         });
}

TreeAllocator::TreeAllocator(const Allocator::Options& options)
    : options_(options), root_(std::make_unique<Inner>(options, nullptr, JobId())) {}

TreeAllocator::~TreeAllocator() = default;

// The chain of parents of a leaf, each of which gets the leaf's demand.
TreeAllocator::Inner& TreeAllocator::parent_of(const Demand& demand) {
  Inner* inner = root_.get();
  for (const JobId& value : demand.path) {
    Inner::Child& child = inner->children[value];
    if (child.inner == nullptr) {
      child.inner = std::make_unique<Inner>(options_, inner, value);
      ++inner_;
    }
    inner = child.inner.get();
  }
  return *inner;
}

TreeAllocator::Inner* TreeAllocator::find(std::span<const JobId> path) const {
  Inner* inner = root_.get();
  for (const JobId& value : path) {
    const auto child = inner->children.find(value);
    if (child == inner->children.end() || child->second.inner == nullptr) return nullptr;
    inner = child->second.inner.get();
  }
  return inner;
}

void TreeAllocator::settle_loans(std::span<const Loan> loans) {
  for (const Loan& loan : loans) {
    const std::span<const JobId> path = loan.path;
    Inner* const parent = find(path.first(path.size() - 1));
    if (parent == nullptr) continue;  // nobody below it has been active
    const Ledger::Account* const account = parent->allocator.ledger().find(path.back());
    const bool is_allotted = account != nullptr && account->allotted > 0;
    const Tokens lent = is_allotted ? loan.lent : Tokens{0};
    if (lent == Tokens{0} && loan.borrowed == Tokens{0}) continue;
    parent->loans.push_back({path.back(), lent, loan.borrowed});
    for (Inner* inner = parent; inner != nullptr; inner = inner->parent) inner->is_quiet = false;
  }
  settle_below(*root_);
}

void TreeAllocator::settle_below(Inner& inner) {
  std::sort(inner.loans.begin(), inner.loans.end(),
            [](const Ledger::Loan& a, const Ledger::Loan& b) { return a.job < b.job; });
  inner.allocator.settle_loans(inner.loans);
  inner.loans.clear();
  for (auto& [name, child] : inner.children) {
    if (child.inner != nullptr && !child.inner->is_quiet) settle_below(*child.inner);
  }
}

void TreeAllocator::add(const Demand& demand) {
  WEIR_ASSERT(demand.weight >= 1 && demand.weight <= Allocator::kNodesMax, demand.weight);
  WEIR_ASSERT(demand.reserve <= kReserveMax, demand.reserve);
  Inner& parent = parent_of(demand);
  Leaf& leaf = leaves_[demand.job];
  if (leaf.parent != &parent) {
    if (leaf.parent != nullptr) {
      leaf.parent->allocator.write_off(demand.job);
      leaf.parent->children.erase(demand.job);
    }
    leaf = {.parent = &parent};
  }
  if (demand.demand == Tokens{0}) return;
  leaf.last_active = period_;
  Tokens reserved = std::min(demand.reserved, demand.demand);
  if (demand.reserve > 0) {
    const Wide all =
        Wide{demand.reserve} * static_cast<std::uint64_t>(options_.period.count()) + leaf.carry;
    leaf.carry = static_cast<std::uint64_t>(all % kPerSecond);
    reserved = std::min(demand.demand, Tokens{static_cast<std::uint64_t>(all / kPerSecond)});
  }
  Inner* inner = root_.get();
  for (const JobId& value : demand.path) {
    Inner::Child& child = inner->children[value];
    child.demand = sum_of(child.demand, demand.demand);
    child.reserved = sum_of(child.reserved, reserved);
    inner = child.inner.get();
  }
  Inner::Child& own = parent.children[demand.job];
  own.weight = demand.weight;
  own.demand = demand.demand;
  own.reserved = reserved;
}

Tokens TreeAllocator::allocate(std::span<const Demand> demands, const WeightOf& weight_of,
                               std::vector<Node>& nodes) {
  ++period_;
  for (const Demand& demand : demands) add(demand);
  nodes.clear();
  const bool is_active = std::any_of(demands.begin(), demands.end(),
                                     [](const Demand& one) { return one.demand > Tokens{0}; });
  const Tokens budget = is_active ? root_->allocator.next_budget() : Tokens{0};
  divide(*root_, budget, {}, weight_of, nodes);
  return budget;
}

void TreeAllocator::divide(Inner& inner, Tokens budget, const std::string& path,
                           const WeightOf& weight_of, std::vector<Node>& nodes) {
  std::vector<Allocator::Demand> demands;
  std::vector<Tokens> reserved;
  std::vector<JobPeriod> periods;
  for (const auto& [name, child] : inner.children) {
    if (child.demand == Tokens{0}) continue;
    const std::uint64_t weight =
        child.inner == nullptr ? child.weight : weight_of(path + std::string(name.text()));
    demands.push_back({name, weight, child.demand});
    reserved.push_back(child.reserved);
  }
  inner.allocator.allocate_part(budget, demands, reserved, periods);
  std::size_t at = 0;
  for (auto& [name, child] : inner.children) {
    const bool is_active = child.demand > Tokens{0};
    child.demand = child.reserved = Tokens{0};
    Tokens part{0};
    std::string own = path + std::string(name.text());
    if (is_active) {
      part = periods[at].final;
      nodes.push_back({own, periods[at++], child.inner == nullptr});
    }
    if (child.inner == nullptr) continue;
    // Also without a demand: its records fade, and its last allocation is forgotten.
    if (is_active || !child.inner->is_quiet) {
      divide(*child.inner, part, own + "/", weight_of, nodes);
    }
  }
  inner.is_quiet = demands.empty() && inner.rests();
}

void TreeAllocator::set_rate(Rate rate) {
  options_.rate = rate;
  root_->allocator.set_rate(rate);
}

void TreeAllocator::skip() {
  std::vector<Node> none;
  allocate(
      {}, [](std::string_view) { return std::uint64_t{1}; }, none);
}

// ---- reading ----

const Ledger::Account* TreeAllocator::account_of(const JobId& job) const {
  const auto leaf = leaves_.find(job);
  return leaf == leaves_.end() ? nullptr : leaf->second.parent->allocator.ledger().find(job);
}

const Ledger::Account* TreeAllocator::account_of(std::span<const JobId> path) const {
  const Inner* const parent = find(path.first(path.size() - 1));
  return parent == nullptr ? nullptr : parent->allocator.ledger().find(path.back());
}

void TreeAllocator::list_records(std::vector<JobRecord>& records) const {
  for (const auto& [job, leaf] : leaves_) {
    if (leaf.parent->is_quiet) continue;
    const Ledger::Account* const account = leaf.parent->allocator.ledger().find(job);
    if (account != nullptr && account->record != 0) records.push_back({job, account->record});
  }
}

// ---- bounds ----

void TreeAllocator::forget_idle(std::size_t leaves_max) {
  // Fewer than allowed, so that this is rare.
  const std::size_t kept = leaves_max - leaves_max / 8;
  if (leaves_.size() > leaves_max) {
    std::vector<std::pair<std::uint64_t, JobId>> idle;
    for (const auto& [job, leaf] : leaves_) {
      if (leaf.last_active != period_) idle.emplace_back(leaf.last_active, job);
    }
    const std::size_t count = std::min(idle.size(), leaves_.size() - kept);
    const auto end = idle.begin() + static_cast<std::ptrdiff_t>(count);
    if (end != idle.end()) std::nth_element(idle.begin(), end, idle.end());
    for (auto one = idle.begin(); one != end; ++one) forget(one->second);
  }
  // Jobs that moved may leave parents without children.
  if (inner_ > leaves_max * kLevelsMax) forget_childless(*root_);
}

void TreeAllocator::forget(const JobId& job) {
  const auto leaf = leaves_.find(job);
  Inner* inner = leaf->second.parent;
  inner->allocator.write_off(job);
  inner->children.erase(job);
  leaves_.erase(leaf);
  while (inner->children.empty() && inner->parent != nullptr) {
    Inner& parent = *inner->parent;
    const JobId name = inner->name;
    parent.allocator.write_off(name);
    parent.children.erase(name);
    --inner_;
    inner = &parent;
  }
}

void TreeAllocator::forget_childless(Inner& inner) {
  for (auto child = inner.children.begin(); child != inner.children.end();) {
    Inner* const below = child->second.inner.get();
    if (below != nullptr) forget_childless(*below);
    if (below == nullptr || !below->children.empty()) {
      ++child;
      continue;
    }
    inner.allocator.write_off(child->first);
    child = inner.children.erase(child);
    --inner_;
  }
}

}  // namespace weir
