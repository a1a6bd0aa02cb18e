// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/lustre_sim.h"

#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "apps/weir/model_tree.h"
#include "weir/base/assert.h"
#include "weir/classify/rule_spec.h"
#include "weir/lustre/names.h"

namespace weir::app {
namespace {

using sim::Contender;

// The driver and its dependencies, created when the server exists.
struct Steered {
  Steered(sim::LustreServer& server, const lustre::Driver::Options& options,
          const LustreSimOptions& run)
      : tree(server),
        names(*lustre::Names::read(lustre::Names::kPrefixDefault, "")),
        driver(
            options, tree, names, [](std::string_view) { return Result<void>{}; },
            [this, &run](std::string_view command, std::string_view) {
              if (run.written) run.written(command, tree.now());
            },
            run.controller ? run.controller(options.controller) : nullptr) {}

  ModelTree tree;
  lustre::Names names;
  lustre::Driver driver;
};

void write_static_rules(const sim::Scenario& scenario, ModelTree& tree) {
  const std::uint64_t could =
      tokens_in(scenario.targets.front().capacity, std::chrono::seconds{1}).count();
  std::size_t number = 0;
  for (const sim::JobSpec& job : scenario.jobs) {
    const std::uint64_t rate =
        std::max<std::uint64_t>(could * job.nodes / scenario.nodes() / scenario.lustre->cpts, 1);
    RuleSpec rule{.name = fmt::format("s{}", number++), .conds = conds_for_job(job.name)};
    rule.keys.rate = static_cast<std::uint32_t>(rate);
    const auto done = tree.write(lustre::kRulesPath, print(start_of(std::move(rule))));
    WEIR_ASSERT(done.has_value());
  }
}

lustre::Driver::Options driver_options(const sim::Scenario& scenario, Contender contender,
                                       std::optional<Nanoseconds> period) {
  lustre::Driver::Options options;
  const sim::TargetSpec& target = scenario.targets.front();
  if (contender == Contender::kAdaptbf) options.controller = RuleController::Options::paper();
  if (period) options.controller.period = *period;
  options.controller.cpts = scenario.lustre->cpts;
  if (contender == Contender::kAdaptbf || !target.estimate) {
    options.controller.capacity = target.capacity;
  }
  return options;
}

// Looks as a driver does, without one.
void observe(sim::LustreRunOptions& run, const LustreSimOptions& options) {
  run.period = options.period.value_or(RuleController::Options{}.period);
  run.parts = lustre::Driver::kGlances;
  const auto call = [](const std::function<void(lustre::Tree&, Instant)>& function) {
    return [&function](sim::LustreServer& server, Instant now) {
      ModelTree tree(server);
      tree.set_now(now);
      function(tree, now);
    };
  };
  run.tick = call(options.round);
  run.glance = call(options.glance);
}

}  // namespace

Result<sim::Outcome> simulate_lustre(const sim::Scenario& scenario, Contender contender,
                                     const LustreSimOptions& options) {
  if (contender == Contender::kWfq || sim::is_rival(contender)) {
    return fail(std::errc::invalid_argument,
                "policy " + std::string(sim::contender_name(contender)),
                "cannot be expressed as rules", "leave it out: --policy none,static,adaptbf,weir");
  }
  sim::LustreRunOptions run;
  run.seed = options.seed;
  run.done = options.done;
  std::unique_ptr<Steered> steered;
  const bool drives = contender == Contender::kAdaptbf || contender == Contender::kWeir;
  const lustre::Driver::Options driver = driver_options(scenario, contender, options.period);
  if (drives) run.period = driver.controller.period;
  run.start = [&](sim::LustreServer& server, Instant now) {
    if (contender == Contender::kNone && !options.tbf_without_rules) return;
    ModelTree tree(server);
    const auto started = tree.write(lustre::kPoliciesPath, "tbf jobid");
    WEIR_ASSERT(started.has_value());
    if (contender == Contender::kNone) return;
    if (contender == Contender::kStatic) return write_static_rules(scenario, tree);
    steered = std::make_unique<Steered>(server, driver, options);
    for (const sim::JobSpec& job : scenario.jobs) {
      const auto set = steered->driver.set_nodes(JobId(job.name), job.nodes);
      WEIR_ASSERT(set.has_value());
    }
    steered->tree.set_now(now);
  };
  run.tick = [&](sim::LustreServer& server, Instant now) {
    steered->tree.set_now(now);
    const auto done = steered->driver.round(now);
    WEIR_ASSERT(done.has_value());
    if (options.watch) options.watch(steered->driver, server, now);
  };
  if (contender == Contender::kWeir) run.parts = lustre::Driver::kGlances;
  run.glance = [&](sim::LustreServer&, Instant now) {
    steered->tree.set_now(now);
    const auto done = steered->driver.glance(now);
    WEIR_ASSERT(done.has_value());
  };
  if (!drives && options.round) observe(run, options);
  return sim::run_on_lustre(scenario, contender, run);
}

}  // namespace weir::app
