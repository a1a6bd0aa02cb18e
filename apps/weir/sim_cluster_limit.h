// SPDX-License-Identifier: Apache-2.0
//
// weir sim cluster-limit: one limit on many servers, with a hot spot that moves between them. The
// command and its options are those of other scenarios (sim.cc), which calls this for the scenario
// cluster-limit; options for clusters only are added here.
//
//   weir sim cluster-limit --servers 1000 --cost cost.toml
//   weir sim cluster-limit --partition last --outage etcd
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "weir/coordinate/slices.h"
#include "weir/sim/contender.h"
#include "weir/sim/outcome.h"

namespace weir::app {

inline constexpr const char* kClusterLimit = "cluster-limit";
inline constexpr const char* kClusterLimitTitle =
    "One limit on many servers, a hot spot that moves between them";

// As given.
struct ClusterSimOptions {
  std::optional<std::string> servers;
  std::optional<std::string> move;
  std::optional<std::string> partition;
  std::optional<std::string> outage;
  std::optional<std::string> cost;

  // The first that was given and has no meaning for cluster-faults, or for other scenarios.
  const char* first_of_limit() const;
  const char* first() const;
};

void add_cluster_options(CLI::App& command, ClusterSimOptions& options);
Partition partition_of(const ClusterSimOptions& options);

struct ClusterLimitArguments {
  std::vector<sim::Contender> contenders;
  ClusterSimOptions options;
  std::optional<std::string> length;
  std::optional<std::string> out;
  std::uint64_t seed = 1;
  bool quiet = false;
  std::function<void(const sim::Outcome&)> show;  // prints the table of a run
};

// The outcomes, with their findings, or a Failure.
std::vector<sim::Outcome> simulate_cluster_limit(const ClusterLimitArguments& arguments);

}  // namespace weir::app
