// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/tree_allocator.h"

#include <algorithm>
#include <utility>

#include <absl/container/btree_map.h>

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
  struct Asked {
    Tokens demand;
    Tokens reserved;
  };
  struct Child {
    std::unique_ptr<Inner> inner;  // none: a leaf, of which the others are
    std::uint64_t weight = 1;
    Asked asked;
    bool is_over = false;  // it ends
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
  Asked asked;                      // of all leaves below it
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

// Created if necessary.
TreeAllocator::Inner& TreeAllocator::child_of(Inner& inner, const JobId& value) {
  Inner::Child& child = inner.children[value];
  if (child.inner == nullptr) {
    child.inner = std::make_unique<Inner>(options_, &inner, value);
    ++inner_;
  }
  return *child.inner;
}

TreeAllocator::Inner& TreeAllocator::parent_of(const Demand& demand) {
  Inner* inner = root_.get();
  for (const JobId& value : demand.path) inner = &child_of(*inner, value);
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
    const std::span<const JobId> above = path.first(path.size() - 1);
    const auto leaf = leaves_.find(path.back());
    const bool is_leaf = leaf != leaves_.end() && is_at(leaf->second, above);
    Inner* const parent = is_leaf ? leaf->second.parent : find(above);
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

// Whether the leaf is where the path leads.
bool TreeAllocator::is_at(const Leaf& leaf, std::span<const JobId> path) {
  const Inner* inner = leaf.parent;
  for (; inner != nullptr && !path.empty(); path = path.first(path.size() - 1)) {
    if (inner->name != path.back()) return false;
    inner = inner->parent;
  }
  return inner != nullptr && inner->parent == nullptr && path.empty();
}

void TreeAllocator::add(const Demand& demand) {
  WEIR_ASSERT(demand.weight >= 1 && demand.weight <= Allocator::kNodesMax, demand.weight);
  WEIR_ASSERT(demand.reserve <= kReserveMax, demand.reserve);
  Leaf& leaf = leaves_[demand.job];
  if (!is_at(leaf, demand.path)) {
    if (leaf.parent != nullptr) {
      leaf.parent->allocator.write_off({&demand.job, 1});
      leaf.parent->children.erase(demand.job);
    }
    leaf = {.parent = &parent_of(demand)};
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
  Inner::Child& own = leaf.parent->children[demand.job];
  own.weight = demand.weight;
  own.asked = {demand.demand, reserved};
  for (Inner* inner = leaf.parent; inner != nullptr; inner = inner->parent) {
    inner->asked.demand = sum_of(inner->asked.demand, demand.demand);
    inner->asked.reserved = sum_of(inner->asked.reserved, reserved);
  }
}

// What all steps of a period have in common.
struct TreeAllocator::Division {
  const WeightOf& weight_of;
  std::vector<Node>& nodes;
  LeafPaths paths;
  std::string path = {};  // of the node that is being dealt with, and a slash behind it
};

Tokens TreeAllocator::allocate(std::span<const Demand> demands, const WeightOf& weight_of,
                               std::vector<Node>& nodes, LeafPaths paths) {
  ++period_;
  for (const Demand& demand : demands) add(demand);
  nodes.clear();
  const bool is_active = std::any_of(demands.begin(), demands.end(),
                                     [](const Demand& one) { return one.demand > Tokens{0}; });
  const Tokens budget = is_active ? root_->allocator.next_budget() : Tokens{0};
  Division division{weight_of, nodes, paths};
  divide(*root_, budget, 0, division);
  root_->asked = {};
  return budget;
}

void TreeAllocator::divide(Inner& inner, Tokens budget, std::size_t depth, Division& division) {
  auto& [demands, reserved, periods] = levels_.at(depth);
  std::string& path = division.path;
  const std::size_t above = path.size();
  demands.clear();
  reserved.clear();
  for (const auto& [name, child] : inner.children) {
    const Inner::Asked& asked = child.inner == nullptr ? child.asked : child.inner->asked;
    if (asked.demand == Tokens{0}) continue;
    std::uint64_t weight = child.weight;
    if (child.inner != nullptr) {
      weight = division.weight_of(path += name.text());
      path.resize(above);
    }
    demands.push_back({name, weight, asked.demand});
    reserved.push_back(asked.reserved);
  }
  inner.allocator.allocate_part(budget, demands, reserved, periods);
  std::size_t at = 0;
  for (auto& [name, child] : inner.children) {
    const bool is_leaf = child.inner == nullptr;
    Inner::Asked& asked = is_leaf ? child.asked : child.inner->asked;
    const bool is_active = asked.demand > Tokens{0};
    asked = {};
    Tokens part{0};
    path += name.text();
    if (is_active) {
      part = periods[at].final;
      const bool has_path = !is_leaf || division.paths == LeafPaths::kAll;
      division.nodes.push_back({has_path ? path : std::string(), periods[at++], is_leaf});
    }
    // Also without a demand: its records fade, and its last allocation is forgotten.
    if (!is_leaf && (is_active || !child.inner->is_quiet)) {
      path += '/';
      divide(*child.inner, part, depth + 1, division);
    }
    path.resize(above);
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
  std::sort(records.begin(), records.end(),
            [](const JobRecord& a, const JobRecord& b) { return a.job < b.job; });
}

// ---- bounds ----

void TreeAllocator::forget_idle(std::size_t leaves_max) {
  // Fewer than allowed, so that this is rare.
  const std::size_t kept = leaves_max - leaves_max / 8;
  const bool has_many = leaves_.size() > leaves_max;
  if (has_many) {
    std::vector<std::pair<std::uint64_t, JobId>> idle;
    for (const auto& [job, leaf] : leaves_) {
      if (leaf.last_active != period_) idle.emplace_back(leaf.last_active, job);
    }
    const std::size_t count = std::min(idle.size(), leaves_.size() - kept);
    const auto end = idle.begin() + static_cast<std::ptrdiff_t>(count);
    if (end != idle.end()) std::nth_element(idle.begin(), end, idle.end());
    for (auto one = idle.begin(); one != end; ++one) mark(one->second);
  }
  // Jobs that moved may leave parents without children.
  if (has_many || inner_ > leaves_max * kLevelsMax) forget_marked(*root_);
}

void TreeAllocator::mark(const JobId& job) {
  const auto leaf = leaves_.find(job);
  auto& siblings = leaf->second.parent->children;
  if (const auto child = siblings.find(job); child != siblings.end()) child->second.is_over = true;
  leaves_.erase(leaf);
}

// Ends the marked leaves, and parents without children.
void TreeAllocator::forget_marked(Inner& inner) {
  std::vector<JobId> over;
  for (auto child = inner.children.begin(); child != inner.children.end();) {
    Inner* const below = child->second.inner.get();
    if (below != nullptr) forget_marked(*below);
    if (below == nullptr ? !child->second.is_over : !below->children.empty()) {
      ++child;
      continue;
    }
    over.push_back(child->first);
    if (below != nullptr) --inner_;
    child = inner.children.erase(child);
  }
  inner.allocator.write_off(over);
}

// ---- restart ----

TreeAllocator::State TreeAllocator::state() const {
  State state;
  std::vector<JobId> path;
  list_state(*root_, path, state);
  return state;
}

void TreeAllocator::list_state(const Inner& inner, std::vector<JobId>& path, State& state) {
  state.nodes.push_back({path, inner.allocator.state()});
  for (const auto& [name, child] : inner.children) {
    if (child.inner == nullptr) continue;
    path.push_back(name);
    list_state(*child.inner, path, state);
    path.pop_back();
  }
}

Result<void> TreeAllocator::restore(const State& state, std::size_t levels) {
  TreeAllocator restored(options_);
  for (const State::Node& node : state.nodes) {
    if (auto done = restored.restore_node(node, levels); !done) return done;
  }
  root_ = std::move(restored.root_);
  leaves_ = std::move(restored.leaves_);
  inner_ = restored.inner_;
  period_ = 0;
  return {};
}

Result<void> TreeAllocator::restore_node(const State::Node& node, std::size_t levels) {
  const auto refuse = [](std::string_view what) {
    return fail(std::errc::invalid_argument, "saved records", what,
                "start without the saved state; records then start at 0");
  };
  Inner* inner = root_.get();
  if (node.path.size() > levels) return refuse("a node is below the last level");
  for (const JobId& value : node.path) {
    const auto child = inner->children.find(value);
    if (child == inner->children.end()) return refuse("a node has no account");
    inner = child->second.inner.get();
  }
  if (!inner->allocator.ledger().accounts().empty()) return refuse("a node is given twice");
  if (auto done = inner->allocator.restore(node.allocator); !done) return done;
  for (const Ledger::Account& account : inner->allocator.ledger().accounts()) {
    if (node.path.size() < levels) {
      const std::string_view value = account.job.text();
      if (value.empty() || value.find('/') != std::string_view::npos) {
        return refuse("a node has no name, or a slash in it");
      }
      child_of(*inner, account.job);
    } else if (leaves_.emplace(account.job, Leaf{.parent = inner}).second) {
      inner->children.try_emplace(account.job);
    } else {
      return refuse("a job has two places");
    }
  }
  return {};
}

}  // namespace weir
