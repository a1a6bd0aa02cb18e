// SPDX-License-Identifier: Apache-2.0
//
// Checks how a tree of shares divides a target. While the same children of a node have requests
// waiting throughout, what each of them gets is its part of what they get together, by weight.
// Every such stretch of at least kStretchMin is checked, for every node:
//
//   project 2  ####################################   throughout: 2/3 of both
//   project 1  ##################                     throughout: 1/3
//     user 1   #########           #########          two stretches: alone, and half
//     user 2   ..........##########..........
//
// So a node that needs less than its part leaves the rest to its siblings first: its parent still
// gets its own part.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir::sim {

// The jobs of a scenario as leaves of a tree.
struct JobTree {
  struct Node {
    std::size_t parent = 0;
    std::uint64_t weight = 1;
    std::string path;  // of values, or of values and the job
  };
  std::vector<Node> nodes;        // parents before children; the first is the root
  std::vector<std::size_t> jobs;  // the node of each job

  // The product of the parts of a job and all nodes above it, of `whole`.
  std::uint64_t part_of(std::size_t job, std::uint64_t whole) const;
};

class PartsCheck {
 public:
  static constexpr Nanoseconds kStretchMin = std::chrono::seconds{10};

  // Parts are checked with the largest request of the scenario.
  PartsCheck(JobTree tree, Tokens largest);

  void wait(std::size_t job, Instant now);
  void dispatch(std::size_t job, Tokens cost, Instant now);
  // Ends all stretches.
  void end(Instant now);

  // Stretches that were checked so far, and the first wrong part since the last call.
  std::uint64_t checked() const { return checked_; }
  std::optional<std::string> take_finding();

 private:
  struct State {
    std::uint64_t waiting = 0;  // requests below the node
    std::uint64_t served = 0;   // cost, in this stretch
    Instant since{};            // of the stretch of its children
    std::vector<std::size_t> children;
  };

  void change(std::size_t job, bool arrives, Instant now);
  void end_stretch(std::size_t node, Instant now);
  void check(std::size_t node, Nanoseconds length);

  JobTree tree_;
  std::uint64_t largest_;
  std::vector<State> states_;
  std::uint64_t checked_ = 0;
  std::optional<std::string> finding_;
};

}  // namespace weir::sim
