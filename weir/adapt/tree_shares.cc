// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/tree_shares.h"

#include <algorithm>
#include <string>
#include <utility>

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
    : options_(options), enforcer_(enforcer), allocator_(allocator) {
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
  std::vector<JobId>& place = places_[job];
  if (!std::equal(place.begin(), place.end(), path.begin(), path.end())) {
    place.assign(path.begin(), path.end());
  }
}

TreeShares::Path TreeShares::path_of(const JobId& job) const {
  const auto found = places_.find(job);
  return found == places_.end() ? Path{} : Path(found->second);
}

std::vector<JobId> TreeShares::place_of(const JobId& job) const {
  const auto found = places_.find(job);
  if (found != places_.end()) return found->second;
  return std::vector<JobId>(options_.levels, JobId(TreeAllocator::kNone));
}

const TreeShares::Node* TreeShares::find_node(Path path) const {
  const auto found = nodes_.find(path_text(path));
  return found == nodes_.end() ? nullptr : &found->second;
}

TreeShares::Node* TreeShares::find_node(Path path) {
  const auto found = nodes_.find(path_text(path));
  return found == nodes_.end() ? nullptr : &found->second;
}

// ---- newcomers ----

bool TreeShares::give(const JobId& job, std::optional<Rate> capacity, Instant now) {
  const std::vector<JobId> path = place_of(job);
  std::optional<Rate> rate = capacity;
  std::uint64_t* held = &held_;
  std::string text;
  for (std::size_t depth = 1; depth <= path.size(); ++depth) {
    if (depth > 1) text += '/';
    text += path[depth - 1].text();
    auto found = nodes_.find(text);
    if (found == nodes_.end()) {
      if (nodes_.size() >= options_.jobs_max * options_.levels) return false;
      const std::uint64_t weight = weight_of(text);
      Node node{.values = {path.begin(), path.begin() + static_cast<std::ptrdiff_t>(depth)},
                .wanted = newcomer_share(rate, weight, *held, options_)};
      *held += weight;
      found = nodes_.emplace(text, std::move(node)).first;  // `held` may have moved
    }
    Node& node = found->second;
    if (!node.enforced) write(node, now);
    rate = node.wanted.rate;
    held = &node.held;
  }
  return true;
}

Share TreeShares::newcomer(const JobId& job, std::uint64_t weight, std::optional<Rate> capacity) {
  Node* const parent = find_node(place_of(job));
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
    loans_.clear();
    for (const Ledger::Loan& loan : loans) {
      std::vector<JobId> path = place_of(loan.job);
      path.push_back(loan.job);
      loans_.push_back({.path = std::move(path), .lent = loan.lent, .borrowed = loan.borrowed});
    }
    for (const auto& [path, loan] : observed_) {
      loans_.push_back({.path = path_values(path), .lent = loan.lent, .borrowed = loan.borrowed});
    }
    allocator_.settle_loans(loans_);
  }
  list_demands(demands, reserved, loans);
  report.budget = allocator_.allocate(
      demands_, [this](std::string_view path) { return weight_of(path); }, divided_);
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

// Jobs with a loan but no demand are known too: they have a record.
void TreeShares::list_demands(std::span<const Allocator::Demand> demands,
                              std::span<const Tokens> reserved,
                              std::span<const Ledger::Loan> loans) {
  demands_.clear();
  auto loan = loans.begin();
  for (std::size_t i = 0; i <= demands.size(); ++i) {
    for (; loan != loans.end() && (i == demands.size() || loan->job < demands[i].job); ++loan) {
      demands_.push_back({.path = place_of(loan->job), .job = loan->job, .demand = Tokens{0}});
    }
    if (i == demands.size()) break;
    if (loan != loans.end() && loan->job == demands[i].job) ++loan;
    demands_.push_back({.path = place_of(demands[i].job),
                        .job = demands[i].job,
                        .weight = demands[i].nodes,
                        .demand = demands[i].demand,
                        .reserved = i < reserved.size() ? reserved[i] : Tokens{0}});
  }
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
    std::vector<JobId> path = place_of(job.job);
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
    Node& node = nodes_[active.path];
    if (node.values.empty()) node.values = path_values(active.path);
    node.wanted = capacity ? allotted_share(active.period.final, active.period.nodes, options_)
                           : Share{.rate = {}, .depth = {}, .nodes = active.period.nodes};
    node.idle = 0;
    node.seen = period_;
    write(node, now);
  }
  for (auto each = nodes_.begin(); each != nodes_.end();) {
    Node& node = each->second;
    if (node.seen == period_) {
      ++each;
      continue;
    }
    ++node.idle;
    const bool keeps = idle == Idle::kKeep && options_.lending &&
                       node.idle <= periods_to_fill(node.wanted, options_.period);
    if (keeps) write(node, now);
    if (!keeps && drop(node, now)) {
      each = nodes_.erase(each);
    } else {
      ++each;
    }
  }
}

void TreeShares::count_holders(const std::function<std::uint64_t(const JobId&)>& weight_of) {
  held_ = 0;
  for (auto& [path, node] : nodes_) node.held = 0;
  for (auto& [path, node] : nodes_) {
    const Path above = Path(node.values).first(node.values.size() - 1);
    Node* const parent = above.empty() ? nullptr : find_node(above);
    if (above.empty()) {
      held_ += node.wanted.nodes;
    } else if (parent != nullptr) {
      parent->held += node.wanted.nodes;
    }
  }
  for (auto each = places_.begin(); each != places_.end();) {
    const std::uint64_t weight = weight_of(each->first);
    Node* const parent = weight == 0 ? nullptr : find_node(each->second);
    if (parent != nullptr) parent->held += weight;
    each = weight == 0 ? places_.erase(each) : std::next(each);
  }
}

void TreeShares::drop_all(Instant now) {
  observed_.clear();
  for (auto each = nodes_.begin(); each != nodes_.end();) {
    each = drop(each->second, now) ? nodes_.erase(each) : std::next(each);
  }
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
  const Node* const parent = place == places_.end() ? nullptr : find_node(place->second);
  return parent == nullptr ? 0 : parent->held;
}

TreeShares::NodeView TreeShares::view_of(const std::string& path, const Node& node) const {
  const Path above = Path(node.values).first(node.values.size() - 1);
  const Node* const parent = above.empty() ? nullptr : find_node(above);
  const std::uint64_t held = above.empty() ? held_ : parent == nullptr ? 0 : parent->held;
  return {.path = path,
          .values = node.values,
          .weight = node.wanted.nodes,
          .siblings = std::max(held, node.wanted.nodes),
          .rate = node.wanted.rate,
          .account = allocator_.account_of(Path(node.values))};
}

void TreeShares::visit(std::size_t most, const std::function<void(const NodeView&)>& visit) const {
  for (std::size_t depth = 1; depth <= options_.levels; ++depth) {
    for (const auto& [path, node] : nodes_) {
      if (node.values.size() != depth) continue;
      if (most-- == 0) return;
      visit(view_of(path, node));
    }
  }
}

std::optional<TreeShares::NodeView> TreeShares::find(Path path) const {
  const auto found = nodes_.find(path_text(path));
  if (found == nodes_.end()) return std::nullopt;
  return view_of(found->first, found->second);
}

}  // namespace weir
