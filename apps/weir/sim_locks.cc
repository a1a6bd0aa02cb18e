// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_locks.h"

#include <cstdio>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "apps/weir/command.h"
#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/files.h"
#include "weir/sim/lock_world.h"
#include "weir/study/lock_scenario_file.h"
#include "weir/study/lock_study.h"

namespace weir::app {
namespace {

std::vector<sim::LockContender> contenders_of(std::string_view list) {
  std::vector<sim::LockContender> chosen;
  for (;;) {
    const std::size_t comma = list.find(',');
    const std::string_view name = list.substr(0, comma);
    const auto contender = sim::lock_contender_by(name);
    if (!contender) {
      const std::vector<std::string_view> names = {"weir", "dld", "lustre", "frozen"};
      const auto meant = nearest(std::string(name), names);
      throw Failure{Exit::kUsage,
                    fmt::format("--policy: no policy {} for locks; {}", quote(name),
                                meant ? fmt::format("did you mean {}?", *meant)
                                      : "expected weir, dld, lustre, frozen or lru-N")};
    }
    chosen.push_back(*contender);
    if (comma == std::string_view::npos) return chosen;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace

int simulate_locks(const study::ScenarioText& found, const LockSimArguments& arguments) {
  study::LockStudy study;
  study.scenario =
      value_or_fail(study::parse_lock_scenario(found.text, found.where), Exit::kDataErr, "");
  study.scenario.name = found.name;
  study.seed = arguments.seed;
  if (arguments.policies) study.scenario.contenders = contenders_of(*arguments.policies);
  if (arguments.length) {
    study.scenario.length =
        value_or_fail(parse_duration(*arguments.length), Exit::kUsage, "--length");
  }
  check(sim::check(study.scenario), Exit::kUsage, "");
  if (arguments.out) check(host::make_folder(*arguments.out), Exit::kCantCreate, "--out");
  for (const sim::Appetite appetite : study.scenario.appetites) {
    for (const sim::LockContender& contender : study.scenario.contenders) {
      study.outcomes.push_back(sim::run_locks(study.scenario, appetite, contender, study.seed));
    }
  }
  if (!arguments.quiet) {
    fmt::print("{}{}{}, seed {}\n\n{}", study.scenario.name,
               study.scenario.title.empty() ? "" : ": ", study.scenario.title, study.seed,
               study::lock_table_text(study));
  }
  check_output();
  if (arguments.out) {
    check(study::write_lock_study(study, *arguments.out), Exit::kCantCreate, "--out");
  }
  std::uint64_t findings = 0;
  for (const sim::LockOutcome& outcome : study.outcomes) {
    findings += outcome.findings;
    for (const std::string& finding : outcome.first_findings) {
      print_error("weir sim: {}: {}\n", outcome.contender.name(), finding);
    }
  }
  if (findings == 0) return 0;
  throw Failure{Exit::kSoftware,
                fmt::format("{} checks failed; the first are listed above", findings)};
}

}  // namespace weir::app
