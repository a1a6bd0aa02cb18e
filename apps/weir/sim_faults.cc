// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_faults.h"

#include <string>

#include <fmt/core.h>

#include "apps/weir/command.h"
#include "weir/host/files.h"
#include "weir/sim/cluster.h"
#include "weir/study/cluster_study.h"

namespace weir::app {

int simulate_faults(const FaultSimArguments& arguments) {
  if (arguments.out) check(host::make_folder(*arguments.out), Exit::kCantCreate, "--out");
  study::FaultStudy study{.title = kClusterFaultsTitle, .runs = {}};
  sim::ClusterResult all;
  std::uint64_t bad_seeds = 0;
  for (std::uint64_t i = 0; i < arguments.clusters; ++i) {
    const std::uint64_t seed = arguments.seed + i;
    const sim::ClusterOptions options = sim::rough_cluster(seed, arguments.partition);
    const sim::ClusterResult result = sim::run_cluster(options);
    if (arguments.out) study.runs.push_back({seed, options.servers, result});
    all.epochs += result.epochs;
    all.errors += result.errors;
    all.evictions += result.evictions;
    all.leaders += result.leaders;
    all.messages += result.messages;
    all.crashes += result.crashes;
    all.partitions += result.partitions;
    all.stops += result.stops;
    all.forgotten += result.forgotten;
    if (result.findings == 0) continue;
    ++bad_seeds;
    for (const std::string& finding : result.first_findings) {
      print_error("weir sim: seed {}: {}\n", seed, finding);
    }
  }
  if (!arguments.quiet) {
    fmt::print("{}: {}, seeds {} to {}\n\n", kClusterFaults, kClusterFaultsTitle, arguments.seed,
               arguments.seed + arguments.clusters - 1);
    fmt::print("crashes {}   partitions {}   stops {}   forgotten {}   leaders {}   evictions {}\n",
               all.crashes, all.partitions, all.stops, all.forgotten, all.leaders, all.evictions);
    fmt::print("epochs {}   calls without an epoch {}   messages {}\n", all.epochs, all.errors,
               all.messages);
    if (bad_seeds == 0) fmt::print("all checks passed\n");
  }
  if (arguments.out) check(study::write_faults(study, *arguments.out), Exit::kCantCreate, "--out");
  if (bad_seeds == 0) return 0;
  throw Failure{Exit::kSoftware,
                fmt::format("checks failed in {} clusters; the first are listed above", bad_seeds)};
}

}  // namespace weir::app
