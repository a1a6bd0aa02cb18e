// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/tree_shares.h"

#include <algorithm>
#include <string>
#include <utility>

#include <absl/container/btree_map.h>
#include <fmt/format.h>

#include "weir/adapt/share_rates.h"
#include "weir/base/assert.h"
#include "weir/base/quote.h"

namespace weir {

std::string path_text(std::span<const JobId> path) {
  std::string text;
  for (const JobId& value : path) {
    if (&value != path.data()) text += '/';
    text += value.text();
  }
  return text;
}

std::vector<JobId> path_values(std::string_view text) {
  std::vector<JobId> values;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('/', at), text.size());
    values.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return values;
}

TreeShares::TreeShares(const Allocator::Options& allocator, const ControllerOptions& options,
                       Enforcer& enforcer)
    : options_(options),
      enforcer_(enforcer),
      allocator_(allocator),
      nowhere_(options.levels, JobId(TreeAllocator::kNone)) {
  WEIR_ASSERT(options.levels > 0 && options.levels < TreeAllocator::kLevelsMax, options.levels);
}

// ---- weights and places ----

Result<void> TreeShares::set_weight(std::string_view path, std::uint64_t weight) {
  const auto refuse = [&](std::string_view what, std::string_view hint) {
    return fail(std::errc::invalid_argument, "node " + quote(path), what, hint);
  };
  std::size_t values = 0;
  for (std::size_t at = 0; at <= path.size(); ++values) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end == at || end - at > JobId::kSizeMax) {
      return refuse("is not a node of the tree of shares",
                    fmt::format("give values of 1 to {} bytes with / between them, such as 1001/7",
                                JobId::kSizeMax));
    }
    at = end + 1;
  }
  if (values > options_.levels) {
    return refuse(fmt::format("has {} values; the tree has {} level{} above the jobs", values,
                              options_.levels, options_.levels == 1 ? "" : "s"),
                  "the weight of a job is weight= of its rule, or its nodes");
  }
  if (weight > TreeAllocator::kWeightMax) {
    return refuse(fmt::format("cannot have the weight {}", weight),
                  fmt::format("give a number from 1 to {}", TreeAllocator::kWeightMax));
  }
  const auto found = weights_.find(path);
  if (weight == 0) {
    if (found != weights_.end()) weights_.erase(found);
    return {};
  }
  if (found == weights_.end() && weights_.size() >= kWeightsMax) {
    return fail(std::errc::no_space_on_device, "node " + quote(path),
                fmt::format("{} nodes already have a weight", kWeightsMax),
                "remove the weights of nodes that are not used");
  }
  weights_[std::string(path)] = weight;
  return {};
}

std::uint64_t TreeShares::weight_of(std::string_view path) const {
  const auto found = weights_.find(path);
  return found == weights_.end() ? 1 : found->second;
}

void TreeShares::place(const JobId& job, Path path) {
  WEIR_ASSERT(path.size() == options_.levels, path.size());
  Place& place = places_[job];
  if (std::equal(place.values.begin(), place.values.end(), path.begin(), path.end())) return;
  place.values.assign(path.begin(), path.end());
  place.path = path_text(path);
}

TreeShares::Path TreeShares::path_of(const JobId& job) const {
  const auto found = places_.find(job);
  return found == places_.end() ? Path{} : Path(found->second.values);
}

TreeShares::Path TreeShares::place_of(const JobId& job) const {
  const Path known = path_of(job);
  return known.empty() ? Path(nowhere_) : known;
}

TreeShares::Node* TreeShares::find_node(std::string_view path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : found->second;
}

TreeShares::Node* TreeShares::parent_of(const Node& node) const {
  if (node.values.size() == 1) return nullptr;
  return find_node(std::string_view(node.path).substr(0, node.path.rfind('/')));
}

TreeShares::Node& TreeShares::make_node(std::string path) {
  Node& node = *nodes_.emplace_back(std::make_unique<Node>());
  node.path = std::move(path);
  node.values = path_values(node.path);
  by_path_.emplace(node.path, &node);
  return node;
}

// ---- newcomers ----

bool TreeShares::give(const JobId& job, std::optional<Rate> capacity, Instant now) {
  const Path path = place_of(job);
  std::optional<Rate> rate = capacity;
  std::uint64_t* held = &held_;
  std::string text;
  for (std::size_t depth = 1; depth <= path.size(); ++depth) {
    if (depth > 1) text += '/';
    text += path[depth - 1].text();
    Node* node = find_node(text);
    if (node == nullptr) {
      if (nodes_.size() >= options_.jobs_max * options_.levels) return false;
      const std::uint64_t weight = weight_of(text);
      node = &make_node(text);
      node->wanted = newcomer_share(rate, weight, *held, options_);
      *held += weight;
    }
    if (!node->enforced) write(*node, now);
    rate = node->wanted.rate;
    held = &node->held;
  }
  return true;
}

Share TreeShares::newcomer(const JobId& job, std::uint64_t weight, std::optional<Rate> capacity) {
  Node* const parent = find_node(path_text(place_of(job)));
  if (parent == nullptr) return newcomer_share(capacity, weight, held_, options_);
  const Share share = newcomer_share(parent->wanted.rate, weight, parent->held, options_);
  parent->held += weight;
  return share;
}

// ---- one period ----

void TreeShares::observe(Path path, Tokens lent, Tokens borrowed) {
  if (lent == Tokens{0} && borrowed == Tokens{0}) return;
  observed_[path_text(path)] = {lent, borrowed};
}

void TreeShares::allocate(std::span<const Allocator::Demand> demands,
                          std::span<const Tokens> reserved, std::span<const Ledger::Loan> loans,
                          PeriodReport& report) {
  if (options_.lending) {
    list_loans(loans);
    allocator_.settle_loans(loans_);
  }
  list_demands(demands, reserved, loans);
  report.budget = allocator_.allocate(
      demands_, [this](std::string_view path) { return weight_of(path); }, divided_,
      TreeAllocator::LeafPaths::kNone);
  allocator_.forget_idle(options_.jobs_max);
  for (TreeAllocator::Node& node : divided_) {
    if (node.is_job) {
      report.jobs.push_back(node.period);
    } else {
      report.nodes.push_back(std::move(node));
    }
  }
  std::sort(report.jobs.begin(), report.jobs.end(),
            [](const JobPeriod& a, const JobPeriod& b) { return a.job < b.job; });
  note_loans(report);
  observed_.clear();
}

void TreeShares::list_loans(std::span<const Ledger::Loan> loans) {
  loans_.resize(loans.size() + observed_.size());  // elements keep their memory
  auto next = loans_.begin();
  for (const Ledger::Loan& loan : loans) {
    const Path above = place_of(loan.job);
    next->path.assign(above.begin(), above.end());
    next->path.push_back(loan.job);
    next->lent = loan.lent;
    (next++)->borrowed = loan.borrowed;
  }
  for (const auto& [path, loan] : observed_) {
    next->path = path_values(path);
    next->lent = loan.lent;
    (next++)->borrowed = loan.borrowed;
  }
}

// Jobs with a loan but no demand are known too: they have a record.
void TreeShares::list_demands(std::span<const Allocator::Demand> demands,
                              std::span<const Tokens> reserved,
                              std::span<const Ledger::Loan> loans) {
  std::size_t count = 0;
  const auto list = [&](const JobId& job, std::uint64_t weight, Tokens demand, Tokens under) {
    if (count == demands_.size()) demands_.emplace_back();
    TreeAllocator::Demand& one = demands_[count++];  // keeps the memory of its path
    const Path place = place_of(job);
    one.path.assign(place.begin(), place.end());
    one.job = job;
    one.weight = weight;
    one.demand = demand;
    one.reserved = under;
  };
  auto loan = loans.begin();
  for (std::size_t i = 0; i <= demands.size(); ++i) {
    for (; loan != loans.end() && (i == demands.size() || loan->job < demands[i].job); ++loan) {
      list(loan->job, 1, Tokens{0}, Tokens{0});
    }
    if (i == demands.size()) break;
    if (loan != loans.end() && loan->job == demands[i].job) ++loan;
    list(demands[i].job, demands[i].nodes, demands[i].demand,
         i < reserved.size() ? reserved[i] : Tokens{0});
  }
  demands_.resize(count);
}

void TreeShares::note_loans(PeriodReport& report) const {
  for (NodePeriod& node : report.nodes) {
    const auto found = observed_.find(node.path);
    if (found == observed_.end()) continue;
    node.period.lent = found->second.lent;
    node.period.borrowed = found->second.borrowed;
  }
}

void TreeShares::skip() {
  observed_.clear();
  allocator_.skip();
}

void TreeShares::list_active(PeriodReport& report) const {
  absl::btree_map<std::vector<JobId>, JobPeriod> active;  // parents come first
  for (const JobPeriod& job : report.jobs) {
    const Path place = place_of(job.job);
    std::vector<JobId> path(place.begin(), place.end());
    for (; !path.empty(); path.pop_back()) {
      JobPeriod& node = active[path];
      node.job = path.back();
      node.demand += std::min(job.demand, Allocator::kDemandMax - node.demand);
    }
  }
  for (auto& [path, period] : active) {
    std::string text = path_text(path);
    period.nodes = weight_of(text);
    report.nodes.push_back({std::move(text), period});
  }
}

void TreeShares::enforce(const PeriodReport& report, std::optional<Rate> capacity, Idle idle,
                         Instant now) {
  ++period_;
  for (const NodePeriod& active : report.nodes) {
    Node* const known = find_node(active.path);
    Node& node = known != nullptr ? *known : make_node(active.path);
    node.wanted = capacity ? allotted_share(active.period.final, active.period.nodes, options_)
                           : Share{.rate = {}, .depth = {}, .nodes = active.period.nodes};
    node.idle = 0;
    node.seen = period_;
    write(node, now);
  }
  const auto keeps = [&](Node& node) {
    if (node.seen == period_) return true;
    ++node.idle;
    if (idle != Idle::kKeep || !options_.lending ||
        node.idle > periods_to_fill(node.wanted, options_.period)) {
      return false;
    }
    write(node, now);
    return true;
  };
  drop_nodes(keeps, now);
}

template <class Keeps>
void TreeShares::drop_nodes(Keeps keeps, Instant now) {
  std::erase_if(nodes_, [&](const std::unique_ptr<Node>& node) {
    if (keeps(*node) || !drop(*node, now)) return false;
    by_path_.erase(node->path);
    return true;
  });
}

void TreeShares::count_holders(const std::function<std::uint64_t(const JobId&)>& weight_of) {
  held_ = 0;
  for (const auto& node : nodes_) node->held = 0;
  for (const auto& node : nodes_) {
    Node* const parent = parent_of(*node);
    if (node->values.size() == 1) held_ += node->wanted.nodes;
    if (parent != nullptr) parent->held += node->wanted.nodes;
  }
  absl::erase_if(places_, [&](const auto& place) {
    const std::uint64_t weight = weight_of(place.first);
    Node* const parent = weight == 0 ? nullptr : find_node(place.second.path);
    if (parent != nullptr) parent->held += weight;
    return weight == 0;
  });
}

void TreeShares::drop_all(Instant now) {
  observed_.clear();
  drop_nodes([](const Node&) { return false; }, now);
  held_ = 0;
}

// A write that failed is repeated at the end of the next period.
void TreeShares::write(Node& node, Instant now) {
  if (node.enforced == node.wanted) return;
  if (enforcer_.set_node(node.values, node.wanted, now)) {
    node.enforced = node.wanted;
  } else {
    node.enforced.reset();
    ++failed_;
  }
}

bool TreeShares::drop(Node& node, Instant now) {
  if (enforcer_.drop_node(node.values, now)) return true;
  node.enforced.reset();
  ++failed_;
  return false;
}

// ---- reading ----

std::uint64_t TreeShares::siblings_of(const JobId& job) const {
  const auto place = places_.find(job);
  const Node* const parent = place == places_.end() ? nullptr : find_node(place->second.path);
  return parent == nullptr ? 0 : parent->held;
}

TreeShares::NodeView TreeShares::view_of(const Node& node) const {
  const Node* const parent = parent_of(node);
  const std::uint64_t held = node.values.size() == 1 ? held_ : parent == nullptr ? 0 : parent->held;
  return {.path = node.path,
          .values = node.values,
          .weight = node.wanted.nodes,
          .siblings = std::max(held, node.wanted.nodes),
          .rate = node.wanted.rate,
          .account = allocator_.account_of(Path(node.values))};
}

void TreeShares::visit(std::size_t most, const std::function<void(const NodeView&)>& visit) const {
  std::vector<const Node*> found;
  for (const auto& node : nodes_) found.push_back(node.get());
  const auto end = found.begin() + static_cast<std::ptrdiff_t>(std::min(most, found.size()));
  std::partial_sort(found.begin(), end, found.end(), [](const Node* a, const Node* b) {
    return a->values.size() != b->values.size() ? a->values.size() < b->values.size()
                                                : a->path < b->path;
  });
  for (auto node = found.begin(); node != end; ++node) visit(view_of(**node));
}

std::optional<TreeShares::NodeView> TreeShares::find(Path path) const {
  const Node* const node = find_node(path_text(path));
  if (node == nullptr) return std::nullopt;
  return view_of(*node);
}

}  // namespace weir
