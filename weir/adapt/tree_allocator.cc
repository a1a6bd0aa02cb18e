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

  explicit Inner(const Allocator::Options& options) : allocator(options) {}

  Allocator allocator;
  absl::btree_map<JobId, Child> children;
  std::vector<Ledger::Loan> loans;  // of its children
};

TreeAllocator::TreeAllocator(const Allocator::Options& options)
    : options_(options), root_(std::make_unique<Inner>(options)) {}

TreeAllocator::~TreeAllocator() = default;

// The chain of parents of a leaf, each of which gets the leaf's demand.
TreeAllocator::Inner& TreeAllocator::parent_of(const Demand& demand) {
  Inner* inner = root_.get();
  for (const JobId& value : demand.path) {
    Inner::Child& child = inner->children[value];
    if (child.inner == nullptr) {
      child.inner = std::make_unique<Inner>(options_);
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
    if (lent > Tokens{0} || loan.borrowed > Tokens{0}) {
      parent->loans.push_back({path.back(), lent, loan.borrowed});
    }
  }
  settle_below(*root_);
}

void TreeAllocator::settle_below(Inner& inner) {
  std::sort(inner.loans.begin(), inner.loans.end(),
            [](const Ledger::Loan& a, const Ledger::Loan& b) { return a.job < b.job; });
  inner.allocator.settle_loans(inner.loans);
  inner.loans.clear();
  for (auto& [name, child] : inner.children) {
    if (child.inner != nullptr) settle_below(*child.inner);
  }
}

void TreeAllocator::add(const Demand& demand) {
  WEIR_ASSERT(demand.weight >= 1 && demand.weight <= kWeightMax, demand.weight);
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
  Tokens reserved{0};
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
      nodes.push_back({own, periods[at++]});
    }
    // Also without a demand: its records fade, and its last allocation is forgotten.
    if (child.inner != nullptr) divide(*child.inner, part, own + "/", weight_of, nodes);
  }
}

}  // namespace weir
