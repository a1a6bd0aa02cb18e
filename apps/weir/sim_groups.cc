// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_groups.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "apps/weir/command.h"
#include "weir/base/units.h"
#include "weir/host/files.h"
#include "weir/sim/group_turns.h"
#include "weir/study/cluster_study.h"

namespace weir::app {
namespace {

struct Row {
  std::string name;
  sim::GroupTurnsSpec spec;
};

double milliseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

void show(const Row& row, const sim::GroupTurnsResult& result) {
  sim::Quantiles all;
  std::uint64_t operations = 0;
  for (const auto& group : result.groups) {
    operations += group.operations;
    all.merge(group.latency);
  }
  // The first second is not counted.
  const double seconds = static_cast<double>(row.spec.length.count()) / 1e9 - 1;
  fmt::print("{:<20}{:>9.1f}{:>9.2f}{:>9.2f}{:>12.2f}{:>13.2f} %{:>9}\n", row.name,
             static_cast<double>(operations) / seconds, milliseconds(all.quantile(50, 100)),
             milliseconds(all.quantile(99, 100)),
             milliseconds(static_cast<std::uint64_t>(result.ragged_max.count())),
             static_cast<double>(result.ragged_sum.count()) / 1e7 / seconds, result.epochs);
}

}  // namespace

int simulate_groups(const GroupSimArguments& arguments) {
  sim::GroupTurnsSpec spec;
  spec.seed = arguments.seed;
  if (arguments.length) {
    spec.length = value_or_fail(parse_duration(*arguments.length), Exit::kUsage, "--length");
    if (spec.length < std::chrono::seconds{2} || spec.length > std::chrono::hours{1}) {
      throw Failure{Exit::kUsage, fmt::format("--length: expected 2s to 1h for {}", kGroupEpochs)};
    }
  }
  if (arguments.out) check(host::make_folder(*arguments.out), Exit::kCantCreate, "--out");
  study::GroupStudy study{.title = kGroupEpochsTitle, .seed = arguments.seed, .runs = {}};
  std::vector<Row> rows;
  const auto add = [&](sim::GroupMode mode, bool quiesce) {
    Row row{std::string(sim::group_mode_name(mode)) + (quiesce ? ", quiesce" : ""), spec};
    row.spec.mode = mode;
    row.spec.quiesce = quiesce;
    rows.push_back(std::move(row));
  };
  add(sim::GroupMode::kTogether, false);
  add(sim::GroupMode::kTogether, true);
  add(sim::GroupMode::kApart, false);
  add(sim::GroupMode::kOff, false);
  if (!arguments.quiet) {
    fmt::print("{}: {}, seed {}\n\n{:<20}{:>9}{:>18}{:>12}{:>15}{:>9}\n", kGroupEpochs,
               kGroupEpochsTitle, arguments.seed, "", "", "latency ms", "ragged ms", "ragged", "");
    fmt::print("{:<20}{:>9}{:>9}{:>9}{:>12}{:>15}{:>9}\n", "servers", "oper./s", "p50", "p99",
               "at most", "of the time", "epochs");
  }
  std::uint64_t findings = 0;
  for (const Row& row : rows) {
    const sim::GroupTurnsResult result = sim::run_group_turns(row.spec);
    if (!arguments.quiet) show(row, result);
    findings += result.idle_findings;
    if (row.spec.mode == sim::GroupMode::kTogether) findings += result.crossing_findings;
    if (arguments.out) study.runs.push_back({row.name, row.spec, result});
  }
  if (arguments.out) check(study::write_groups(study, *arguments.out), Exit::kCantCreate, "--out");
  if (findings == 0) return 0;
  throw Failure{Exit::kSoftware, fmt::format("{} checks failed", findings)};
}

}  // namespace weir::app
