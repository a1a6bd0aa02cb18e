// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_cluster_limit.h"

#include <utility>

#include <fmt/core.h>
#include <fmt/format.h>

#include "apps/weir/command.h"
#include "apps/weir/one_of.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/config/toml.h"
#include "weir/host/files.h"
#include "weir/sim/cluster_limit.h"
#include "weir/study/cluster_study.h"

namespace weir::app {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kServersMax = 1000;

Nanoseconds time_of(const std::string& text, const char* option, Nanoseconds least,
                    Nanoseconds most) {
  const Nanoseconds time = value_or_fail(parse_duration(text), Exit::kUsage, option);
  if (time >= least && time <= most) return time;
  throw Failure{Exit::kUsage,
                fmt::format("{}: expected {} to {} for {}", option, print_duration(least),
                            print_duration(most), kClusterLimit)};
}

std::size_t servers_of(const std::string& text) {
  const std::uint64_t count = value_or_fail(parse_count(text), Exit::kUsage, "--servers");
  if (count >= 2 && count <= kServersMax) return count;
  throw Failure{Exit::kUsage, fmt::format("--servers: {} is not valid; expected 2 to {}",
                                          quote(text), kServersMax)};
}

// As bench/epochs.py writes it: receive, send and carried, each a time.
sim::MessageCost cost_of(const std::string& path) {
  const std::string text = value_or_fail(host::read_file(path), Exit::kNoInput, "--cost");
  const config::TomlDocument document =
      value_or_fail(config::parse_toml(text, path), Exit::kDataErr, "--cost");
  sim::MessageCost cost;
  const auto take = [&](const char* key, Nanoseconds& into) {
    const auto value = document.find(key);
    const std::string* const found = value ? value->as<std::string>() : nullptr;
    if (found == nullptr) {
      throw Failure{
          Exit::kDataErr,
          fmt::format("--cost: {}: {} is missing; expected a time such as \"20us\"", path, key)};
    }
    into = value_or_fail(parse_duration(*found), Exit::kDataErr, "--cost");
    if (into < Nanoseconds{0} || into > std::chrono::milliseconds{10}) {
      throw Failure{Exit::kDataErr, fmt::format("--cost: {}: {} must be at most 10ms", path, key)};
    }
  };
  take("receive", cost.receive);
  take("send", cost.send);
  take("carried", cost.carried);
  return cost;
}

sim::ClusterSpec spec_of(const ClusterLimitArguments& arguments) {
  const ClusterSimOptions& options = arguments.options;
  sim::ClusterSpec spec;
  spec.partition = partition_of(options);
  if (options.cost) spec.cost = cost_of(*options.cost);
  if (options.servers) spec.servers = servers_of(*options.servers);
  if (options.move) {
    spec.move_every =
        time_of(*options.move, "--move", std::chrono::milliseconds{100}, seconds{3600});
  }
  if (options.outage == "leader") spec.outage = sim::ClusterSpec::Outage::kLeader;
  if (options.outage == "etcd") spec.outage = sim::ClusterSpec::Outage::kEtcd;
  if (spec.outage != sim::ClusterSpec::Outage::kNone) {
    spec.length = sim::ClusterSpec::kOutageAt + spec.outage_length() + seconds{10};
  }
  const Nanoseconds least = options.outage ? spec.length : Nanoseconds{seconds{7}};
  if (arguments.length) spec.length = time_of(*arguments.length, "--length", least, seconds{3600});
  return spec;
}

std::string parts(const sim::WindowFigures& figures) {
  return fmt::format("{:.2f} ... {:.2f} %", figures.least * 100, figures.most * 100);
}

void show_windows(const sim::ClusterLimitOutcome& result, Nanoseconds length) {
  fmt::print("  of the limit in any 500 ms: {}   in any 5 s: {}   used: {:.2f} %\n",
             parts(result.short_windows), parts(result.long_windows), result.utilisation * 100);
  if (result.through_outage) {
    fmt::print("  through the outage: {:.2f} % used\n", *result.through_outage * 100);
  }
  if (result.cluster.epochs > 0) {
    fmt::print(
        "  epochs {:.1f}/s   evictions {}, after the first second {}   messages {}\n",
        static_cast<double>(result.cluster.rounds) * 1e9 / static_cast<double>(length.count()),
        result.cluster.evictions, result.cluster.late_evictions, result.cluster.messages);
  }
}

}  // namespace

const char* ClusterSimOptions::first_of_limit() const {
  return servers ? "--servers" : move ? "--move" : outage ? "--outage" : cost ? "--cost" : nullptr;
}
const char* ClusterSimOptions::first() const {
  return partition ? "--partition" : first_of_limit();
}

void add_cluster_options(CLI::App& command, ClusterSimOptions& options) {
  command
      .add_option("--servers", options.servers, "Number of servers of cluster-limit (default 10)")
      ->type_name("N");
  command
      .add_option("--move", options.move,
                  "Move the hot spot of cluster-limit after this time (default 2s)")
      ->type_name("TIME");
  command
      .add_option("--partition", options.partition,
                  "What servers of clusters use while they are cut off (default safe)")
      ->check(one_of({"safe", "last"}));
  command
      .add_option("--outage", options.outage,
                  "End the leader of cluster-limit for 5 s, or etcd for 60 s")
      ->check(one_of({"leader", "etcd"}));
  command
      .add_option("--cost", options.cost,
                  "File with the processor time of messages, written by bench/epochs.py")
      ->type_name("FILE");
}

Partition partition_of(const ClusterSimOptions& options) {
  return options.partition == "last" ? Partition::kLast : Partition::kSafe;
}

std::vector<sim::Outcome> simulate_cluster_limit(const ClusterLimitArguments& arguments) {
  const sim::ClusterSpec spec = spec_of(arguments);
  if (arguments.out) check(host::make_folder(*arguments.out), Exit::kCantCreate, "--out");
  study::ClusterLimitStudy study{
      .title = kClusterLimitTitle, .spec = spec, .seed = arguments.seed, .runs = {}};
  if (!arguments.quiet) {
    fmt::print("{}: {}, seed {}\n", kClusterLimit, kClusterLimitTitle, study.seed);
  }
  std::vector<sim::Outcome> outcomes;
  for (const sim::Contender contender : arguments.contenders) {
    sim::ClusterLimitOutcome result = sim::run_cluster_limit(spec, contender, arguments.seed);
    if (!arguments.quiet) {
      arguments.show(result.outcome);
      show_windows(result, spec.length);
    }
    outcomes.push_back(result.outcome);
    study.runs.push_back(std::move(result));
  }
  if (arguments.out) {
    check(study::write_cluster_limit(study, *arguments.out), Exit::kCantCreate, "--out");
  }
  return outcomes;
}

}  // namespace weir::app
