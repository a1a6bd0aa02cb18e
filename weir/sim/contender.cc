// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/contender.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "weir/adapt/options.h"
#include "weir/base/assert.h"
#include "weir/base/units.h"
#include "weir/classify/rule_spec.h"
#include "weir/classify/share_level.h"

namespace weir::sim {
namespace {

constexpr std::array<std::string_view,
                     kContenders.size() + kRivals.size() + kClusterContenders.size()>
    kNames = {"none",       "static",     "adaptbf",    "weir",  "wfq",
              "mclock",     "sfq-d",      "sfq-d-auto", "gift",  "themis",
              "io-latency", "lustre-tbf", "slices",     "fixed", "each"};
// Depth of the fixed rates, in requests.
constexpr std::uint64_t kStaticDepth = 3;

// The job's share of the capacity, rounded to a whole number per second, at least one.
std::uint64_t fixed_rate(const TargetSpec& spec, std::uint64_t nodes, std::uint64_t all_nodes) {
  using Wide = unsigned __int128;
  const Wide scale = Wide{spec.capacity.time_ns()} * all_nodes;
  const Wide tokens = Wide{spec.capacity.tokens()} * 1'000'000'000 * nodes;
  return std::max<std::uint64_t>(static_cast<std::uint64_t>((tokens + scale / 2) / scale), 1);
}

Result<void> fix_rates(const Scenario& scenario, const TargetSpec& spec, Stage& stage,
                       Instant now) {
  const bool in_bytes = spec.cost.kind() == Cost::Kind::kBytes;
  const std::uint64_t depth =
      in_bytes ? kStaticDepth * largest_request(scenario).count() : kStaticDepth;
  for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
    const JobSpec& job = scenario.jobs[i];
    const std::uint64_t rate = fixed_rate(spec, job.nodes, scenario.nodes());
    if (!in_bytes && rate > kRateMax) {
      return fail(std::errc::invalid_argument, "target '" + spec.name + "'",
                  fmt::format("policy static would need a rate above {}", kRateMax),
                  "give a smaller capacity, or leave that policy out");
    }
    RuleSpec rule{.name = fmt::format("s{}", i), .conds = conds_for_job(job.name)};
    if (in_bytes) {
      rule.keys.bps = Rate::per_second(rate);
      rule.keys.burst_bytes = Bytes{depth};
    } else {
      rule.keys.rate = static_cast<std::uint32_t>(rate);
      rule.keys.burst_ops = Tokens{depth};
      rule.keys.cost = spec.cost;
    }
    if (auto done = stage.target->apply_rule(start_of(std::move(rule)), now); !done) return done;
    stage.bounds.jobs[i] = Limit{Rate::per_second(rate), Tokens{depth}};
  }
  return {};
}

// The rule that applies to a job: it has one of its own if it has a reservation.
std::string rule_of(const Scenario& scenario, std::size_t job) {
  return scenario.jobs[job].reserve ? fmt::format("s{}", job) : "default";
}

// Reservations without a limit. They may take more than the root has for up to a second, which is
// made up for afterwards.
Result<void> reserve(const Scenario& scenario, const TargetSpec& spec, Stage& stage, Instant now) {
  const bool in_bytes = spec.cost.kind() == Cost::Kind::kBytes;
  stage.bounds.reserves.resize(scenario.jobs.size());
  for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
    const JobSpec& job = scenario.jobs[i];
    if (!job.reserve) continue;
    RuleSpec rule{.name = rule_of(scenario, i), .conds = conds_for_job(job.name)};
    rule.keys.rate = kRateMax;
    rule.keys.reserve = Reserve{*job.reserve, in_bytes};
    if (!in_bytes) rule.keys.cost = spec.cost;
    if (auto done = stage.target->apply_rule(start_of(std::move(rule)), now); !done) return done;
    stage.bounds.reserves[i] = job.reserve;
    if (stage.bounds.whole) {
      stage.bounds.whole->depth += tokens_in(*job.reserve, std::chrono::seconds{1});
    }
  }
  return {};
}

// Or controls nothing.
bool has_tree(Contender contender) {
  return contender == Contender::kWeir || contender == Contender::kWfq ||
         contender == Contender::kNone;
}

// Empty if it has them, or if it controls nothing.
std::string_view why_no_reservations(Contender contender) {
  switch (contender) {
    case Contender::kStatic:
    case Contender::kLustreTbf:
      return "a rate limits a job, and reserves nothing for it";
    case Contender::kAdaptbf:
      return "it divides the capacity by nodes only, and a job has a reservation";
    case Contender::kSfqD:
    case Contender::kSfqDAuto:
    case Contender::kGift:
    case Contender::kThemis:
      return "it has shares by nodes only, and a job has a reservation";
    case Contender::kIoLatency:
      return "a latency target is not a rate, and a job has a reservation";
    default:
      return "";
  }
}

// The nodes of jobs, and the weights of nodes above them.
Result<void> set_weights(const Scenario& scenario, const TargetSpec& spec, Stage& stage,
                         Instant now) {
  for (const JobSpec& job : scenario.jobs) {
    if (auto set = stage.target->set_nodes(JobId(job.name), job.nodes, now); !set) return set;
  }
  if (!stage.bounds.tree) return {};
  for (const auto& [path, weight] : spec.weights) {
    if (auto set = stage.target->set_node_weight(path, weight, now); !set) return set;
  }
  return {};
}

}  // namespace

JobTree job_tree(const Scenario& scenario, const TargetSpec& spec) {
  JobTree tree{.nodes = {{}}, .jobs = {}};
  std::map<std::string, std::size_t> known;  // by path
  for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
    const JobSpec& job = scenario.jobs[i];
    const std::string rule = rule_of(scenario, i);
    Attributes attributes;
    attributes.projid = job.project;
    attributes.uid = job.user;
    std::size_t node = 0;
    std::string path;
    for (const FieldSet level : spec.tree) {
      path += (path.empty() ? "" : "/") + std::string(node_name(level, attributes, rule).text());
      const auto [found, is_new] = known.try_emplace(path, tree.nodes.size());
      if (is_new) {
        const auto weight = spec.weights.find(path);
        tree.nodes.push_back({node, weight == spec.weights.end() ? 1 : weight->second, path});
      }
      node = found->second;
    }
    tree.jobs.push_back(tree.nodes.size());
    tree.nodes.push_back({node, job.nodes, path + "/" + job.name});
  }
  return tree;
}

std::string_view contender_name(Contender contender) {
  return kNames[static_cast<std::size_t>(contender)];
}

std::optional<Contender> contender_by(std::string_view name) {
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Contender>(found - kNames.begin());
}

std::string obstacle(Contender contender, const Scenario& scenario) {
  if (is_rival(contender) && scenario.lustre) return "the scenario has a Lustre server";
  const bool by_size =
      std::any_of(scenario.targets.begin(), scenario.targets.end(),
                  [](const TargetSpec& of) { return of.cost.kind() != Cost::Kind::kOp; });
  if (by_size && contender == Contender::kIoLatency) {
    return "a latency target is for requests of one size, and requests are charged by size";
  }
  if (by_size && contender == Contender::kLustreTbf) {
    return "its rules count requests, and requests are charged by size";
  }
  const bool is_tree = std::any_of(scenario.targets.begin(), scenario.targets.end(),
                                   [](const TargetSpec& of) { return !of.tree.empty(); });
  if (is_tree && !has_tree(contender)) {
    return "it has shares of jobs alone, and the scenario has a tree of shares";
  }
  const bool is_reserved = std::any_of(scenario.jobs.begin(), scenario.jobs.end(),
                                       [](const JobSpec& job) { return job.reserve.has_value(); });
  return is_reserved ? std::string(why_no_reservations(contender)) : "";
}

Nanoseconds own_period(Contender contender) {
  return contender == Contender::kAdaptbf ? ControllerOptions::paper().period
                                          : ControllerOptions{}.period;
}

Result<Stage> make_stage(Contender contender, const Scenario& scenario, const TargetSpec& spec,
                         std::optional<Nanoseconds> period, Instant now) {
  if (is_cluster_contender(contender)) {
    return fail(std::errc::invalid_argument,
                "policy '" + std::string(contender_name(contender)) + "'",
                "requires one limit on many servers", "use it with the scenario cluster-limit");
  }
  if (is_rival(contender)) {
    return fail(std::errc::invalid_argument,
                "policy '" + std::string(contender_name(contender)) + "'", "is not one of Weir's",
                "use it with weir sim or weir sim compare");
  }
  Target::Options options;
  options.gate.slots = spec.store.slots;
  options.auto_slots = spec.auto_slots;
  options.latency_target = spec.latency_target;
  options.gate.rules.classes_max = kJobsMax + 1;
  options.cost = spec.cost;
  Bounds bounds;
  bounds.jobs.resize(scenario.jobs.size());
  if (contender == Contender::kAdaptbf) {
    options.controller = ControllerOptions::paper();
    options.capacity = spec.capacity;
  } else if (contender == Contender::kWeir) {
    options.controller = ControllerOptions{};
    bounds.idling = Idling::kForbidden;
    options.estimate_capacity = spec.estimate;
    if (!spec.estimate) {
      options.capacity = spec.capacity;
      const RootBucket root = Target::root_of(spec.capacity, spec.store.slots);
      bounds.whole = Limit{spec.capacity, root.busy.depth()};
      bounds.enough = Limit{spec.capacity, root.rested.depth()};
      bounds.idling = Idling::kAtCapacity;
    }
  } else if (contender == Contender::kWfq) {
    options.controller = ControllerOptions{};
    bounds.idling = Idling::kForbidden;
  } else if (contender == Contender::kNone) {
    bounds.idling = Idling::kForbidden;
  }
  const bool is_ours = contender == Contender::kWeir || contender == Contender::kWfq;
  if (is_ours && !spec.tree.empty()) {
    options.share_levels = spec.tree;
    bounds.tree = job_tree(scenario, spec);
  }
  if (options.controller && period) options.controller->period = *period;

  Stage stage{std::make_unique<Target>(options, now), std::move(bounds)};
  if (contender == Contender::kNone) return stage;
  if (auto started = stage.target->set_policy("tbf", "jobid", Heads::kBoth, now); !started) {
    return tl::unexpected(started.error());
  }
  if (auto set = set_weights(scenario, spec, stage, now); !set) return tl::unexpected(set.error());
  if (is_ours) {
    if (auto reserved = reserve(scenario, spec, stage, now); !reserved) {
      return tl::unexpected(reserved.error());
    }
  }
  if (contender == Contender::kStatic) {
    if (auto fixed = fix_rates(scenario, spec, stage, now); !fixed) {
      return tl::unexpected(fixed.error());
    }
  }
  return stage;
}

}  // namespace weir::sim
