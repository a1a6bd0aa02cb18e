// SPDX-License-Identifier: Apache-2.0
//
// The part of a Controller for a tree of shares: where each job is, the weights of the nodes above
// the jobs, and the shares of these nodes.
//
//   tree.place(job, path);                   before its first request, and when it has moved
//   tree.give(job, capacity, now);           shares for the nodes above a newcomer
//   Share share = tree.newcomer(job, weight, capacity);
//   tree.observe(path, lent, borrowed);      each node, in the period that ends
//   tree.allocate(demands, ...); tree.enforce(report, ...); tree.count_holders(...)
//
// A path is the values of the levels above the jobs, as text with / between them. Weights are set
// by path, and are 1 otherwise.
//
// A newcomer gets the rate of the node above it, times its weight, divided by the weights of all
// children of that node that hold a share; a node that is new itself gets its rate in the same way.
// A node keeps its share as jobs do: for as many idle periods as its bucket takes to fill.
//
// A job whose place is not known is at "(none)" in every level. No clock; one owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/account/ledger.h"
#include "weir/adapt/allocator.h"
#include "weir/adapt/enforcer.h"
#include "weir/adapt/options.h"
#include "weir/adapt/period.h"
#include "weir/adapt/tree_allocator.h"
#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir {

class TreeShares {
 public:
  using Path = std::span<const JobId>;
  enum class Idle : std::uint8_t { kKeep, kDrop };

  static constexpr std::size_t kWeightsMax = std::size_t{1} << 20;

  // A node above the jobs that holds a share.
  struct NodeView {
    std::string_view path;
    Path values;
    std::uint64_t weight = 1;
    std::uint64_t siblings = 1;  // the weights of all children of its parent that hold a share
    std::optional<Rate> rate;
    const Ledger::Account* account = nullptr;  // nullptr: it has neither lent nor borrowed
  };

  // The enforcer must outlive it. REQUIRES: options.levels > 0.
  TreeShares(const Allocator::Options& allocator, const ControllerOptions& options,
             Enforcer& enforcer);

  std::size_t levels() const { return options_.levels; }
  void set_rate(Rate rate) { allocator_.set_rate(rate); }

  // The weight of a node; 0: it is 1 again. EINVAL for a path or weight that cannot be.
  Result<void> set_weight(std::string_view path, std::uint64_t weight);
  std::uint64_t weight_of(std::string_view path) const;

  // Where a job is from now on. REQUIRES: as many values as levels; none contains a slash.
  void place(const JobId& job, Path path);
  // Empty if it is not known.
  Path path_of(const JobId& job) const;

  // ---- newcomers ----

  // Gives the nodes above a job a share if they have none. False: there are too many nodes.
  bool give(const JobId& job, std::optional<Rate> capacity, Instant now);
  // The share of a job that has none. REQUIRES: give() was called.
  Share newcomer(const JobId& job, std::uint64_t weight, std::optional<Rate> capacity);

  // ---- one period, in this order ----

  // Of a node above the jobs.
  void observe(Path path, Tokens lent, Tokens borrowed);
  // Demands and loans are of jobs, in the order of their ids; fills in budget, jobs and nodes.
  void allocate(std::span<const Allocator::Demand> demands, std::span<const Tokens> reserved,
                std::span<const Ledger::Loan> loans, PeriodReport& report);
  // Instead of allocate(), while the capacity is unknown.
  void skip();
  // The nodes above the jobs of the report, without an allocation.
  void list_active(PeriodReport& report) const;
  void enforce(const PeriodReport& report, std::optional<Rate> capacity, Idle idle, Instant now);
  // `weight_of`: of the share that a job holds; 0: it has none, and its place is forgotten.
  void count_holders(const std::function<std::uint64_t(const JobId&)>& weight_of);
  void drop_all(Instant now);

  // ---- reading ----

  const TreeAllocator& allocator() const { return allocator_; }
  void list_records(std::vector<JobRecord>& records) const { allocator_.list_records(records); }
  TreeAllocator::State state() const { return allocator_.state(); }
  Result<void> restore(const TreeAllocator::State& state) {
    return allocator_.restore(state, options_.levels);
  }
  // The weights of all jobs beside this one that hold a share, and its own.
  std::uint64_t siblings_of(const JobId& job) const;
  std::size_t nodes() const { return nodes_.size(); }
  // The first `most`, level by level.
  void visit(std::size_t most, const std::function<void(const NodeView&)>& visit) const;
  std::optional<NodeView> find(Path path) const;
  // Shares of nodes that could not be written.
  std::uint64_t failed() const { return failed_; }

 private:
  struct Node {
    std::string path;
    std::vector<JobId> values;
    Share wanted{};
    std::optional<Share> enforced = {};
    std::uint64_t idle = 0;
    std::uint64_t held = 0;  // the weights of its children that hold a share
    std::uint64_t seen = 0;  // the number of the period in which it was active
  };
  struct Place {
    std::vector<JobId> values;
    std::string path;
  };
  struct PathHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view path) const {
      return std::hash<std::string_view>()(path);
    }
  };
  template <class Value>
  using Paths = absl::flat_hash_map<std::string, Value, PathHash, std::equal_to<>>;
  struct Lending {
    Tokens lent;
    Tokens borrowed;
  };

  Path place_of(const JobId& job) const;
  Node* find_node(std::string_view path) const;
  // That of the node above, or nullptr.
  Node* parent_of(const Node& node) const;
  Node& make_node(std::string path);
  NodeView view_of(const Node& node) const;
  void list_loans(std::span<const Ledger::Loan> loans);
  void list_demands(std::span<const Allocator::Demand> demands, std::span<const Tokens> reserved,
                    std::span<const Ledger::Loan> loans);
  void note_loans(PeriodReport& report) const;
  void write(Node& node, Instant now);
  bool drop(Node& node, Instant now);
  // Of nodes that `keeps` does not select, in the order in which they were created.
  template <class Keeps>
  void drop_nodes(Keeps keeps, Instant now);

  ControllerOptions options_;
  Enforcer& enforcer_;
  TreeAllocator allocator_;
  std::vector<JobId> nowhere_;  // the place of jobs whose place is not known
  Paths<std::uint64_t> weights_;
  absl::flat_hash_map<JobId, Place, std::hash<JobId>> places_;
  // Keys are the nodes' own paths. Their order is that of their creation, whatever the hash.
  absl::flat_hash_map<std::string_view, Node*, PathHash, std::equal_to<>> by_path_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::uint64_t held_ = 0;  // the weights of the nodes of the first level that hold a share
  std::uint64_t period_ = 0;
  std::uint64_t failed_ = 0;
  Paths<Lending> observed_;  // of nodes, in this period
  std::vector<TreeAllocator::Demand> demands_;
  std::vector<TreeAllocator::Loan> loans_;
  std::vector<TreeAllocator::Node> divided_;
};

// Values with / between them, and the reverse.
std::string path_text(std::span<const JobId> path);
std::vector<JobId> path_values(std::string_view text);

}  // namespace weir
