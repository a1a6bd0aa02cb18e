// SPDX-License-Identifier: Apache-2.0
//
// AdapTBF over a tree: projects, their users, and the users' jobs, or any other levels. Each
// period, from the top down, every inner node divides its own allocation between its active
// children as the Allocator divides the target between jobs:
//
//   target 100 --+-- bio   weight 2 --+-- 1001 --- ior.7      child's demand: the sum of its leaves
//                |                    +-- 1002 --- dd.1       child's budget: its own allocation
//                +-- chem  weight 1 ----- 1003 --- cp.5
//
// The last allocation, records, remainders, fading and the floor belong to a node under its parent,
// so records sum to 0 under every parent: what a user of bio borrows from another one stays between
// them. A tree of one level is the Allocator, to the token.
//
// A leaf may have a reservation of R tokens per second: in a period in which it is active it is
// worth g = min(demand, whole tokens of R x period), the fraction carried by the leaf; an inner
// node's is the sum of its leaves'. It is part of the allocation, not on top of it.
//
// A leaf that appears under another parent has moved: its record there is written off, and it
// starts with 0. Leaves have unique names in the whole tree. O(nodes) a period; no clock; one
// owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/adapt/allocator.h"
#include "weir/adapt/period.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/result.h"

namespace weir {

class TreeAllocator {
 public:
  struct Demand {
    std::vector<JobId> path;  // values of the levels above, top first
    JobId job;
    std::uint64_t weight = 1;
    Tokens demand;
    std::uint64_t reserve = 0;  // tokens per second
    Tokens reserved{};          // g, if it is known otherwise than by `reserve`
  };
  // An active node; `period.demand` is the sum of its leaves'.
  using Node = NodePeriod;
  // What a node has lent and borrowed in a period.
  struct Loan {
    std::vector<JobId> path;  // down to the node, top first
    Tokens lent{};
    Tokens borrowed{};
  };
  // The state that one period passes to the next, for a restart: that of each inner node, parents
  // before their children.
  struct State {
    struct Node {
      std::vector<JobId> path;  // none: the root
      Allocator::State allocator;
    };
    std::vector<Node> nodes;
  };
  // The weight of an inner node by its path, at least 1.
  using WeightOf = std::function<std::uint64_t(std::string_view path)>;

  static constexpr std::string_view kNone = "(none)";  // of a request that has no such value
  static constexpr std::uint64_t kWeightMax = 1'000'000'000;
  static constexpr std::uint64_t kReserveMax = 1'000'000'000'000;
  static constexpr std::size_t kLevelsMax = 8;

  // REQUIRES: as for Allocator; jobs_max bounds the accounts of the children of each parent.
  explicit TreeAllocator(const Allocator::Options& options);
  ~TreeAllocator();

  // Instant loans of the period that has just ended, settled between the children of each parent;
  // call in every period with lending, before allocate(). Tokens lent by a node to which nothing
  // was allotted in that period belong to no node. REQUIRES: each node once.
  void settle_loans(std::span<const Loan> loans);

  // Whether leaves have a path in the result, which takes longer.
  enum class LeafPaths : std::uint8_t { kNone, kAll };

  // One period: fills `nodes` with the active nodes, parents before their children, children in the
  // order of their bytes, and returns the budget. REQUIRES: each job once; every path has the same
  // length, in every call; weights from 1 to kWeightMax, reserves up to kReserveMax.
  Tokens allocate(std::span<const Demand> demands, const WeightOf& weight_of,
                  std::vector<Node>& nodes, LeafPaths paths = LeafPaths::kAll);

  // Takes effect in the next period.
  void set_rate(Rate rate);
  // A period with unknown capacity: allocates nothing and discards the last allocation.
  void skip();
  // If there are more leaves than this, ends those that were inactive longest: their records are
  // written off. Parents without children end with them. Call after allocate().
  void forget_idle(std::size_t leaves_max);

  // Inner nodes and leaves that are known.
  std::size_t inner_nodes() const { return inner_; }
  std::size_t leaves() const { return leaves_.size(); }
  // The account of a job, or of an inner node, under its parent; nullptr if it has none.
  const Ledger::Account* account_of(const JobId& job) const;
  const Ledger::Account* account_of(std::span<const JobId> path) const;
  // The records of all leaves that have one, in the order of their ids.
  void list_records(std::vector<JobRecord>& records) const;

  State state() const;
  // `levels`: of inner nodes below the root. Restored leaves count as inactive since then. On
  // failure nothing changes.
  Result<void> restore(const State& state, std::size_t levels);

 private:
  struct Inner;
  struct Leaf {
    Inner* parent = nullptr;
    std::uint64_t carry = 0;        // of its reservation, in 10^-9 tokens
    std::uint64_t last_active = 0;  // number of a period
  };
  using Leaves = absl::flat_hash_map<JobId, Leaf, std::hash<JobId>>;

  Inner& child_of(Inner& inner, const JobId& value);
  Inner& parent_of(const Demand& demand);
  Inner* find(std::span<const JobId> path) const;
  static void settle_below(Inner& inner);
  Result<void> restore_node(const State::Node& node, std::size_t levels);
  static void list_state(const Inner& inner, std::vector<JobId>& path, State& state);
  void mark(const JobId& job);
  void forget_marked(Inner& inner);
  static bool is_at(const Leaf& leaf, std::span<const JobId> path);
  void add(const Demand& demand);
  struct Division;
  void divide(Inner& inner, Tokens budget, std::size_t depth, Division& division);

  Allocator::Options options_;
  std::unique_ptr<Inner> root_;
  Leaves leaves_;
  std::size_t inner_ = 0;
  std::uint64_t period_ = 0;
  // The children of one inner node of each depth while they are dealt with: members, so that their
  // memory is reused.
  struct Level {
    std::vector<Allocator::Demand> demands;
    std::vector<Tokens> reserved;
    std::vector<JobPeriod> periods;
  };
  std::array<Level, kLevelsMax> levels_;
};

}  // namespace weir
