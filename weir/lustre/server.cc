// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/server.h"

#include <charconv>

#include "weir/base/quote.h"

namespace weir::lustre {
namespace {

constexpr std::uint32_t kDepthDefault = 3;
constexpr int kSwitchTries = 600;

bool has_jobid(std::string_view type) {
  if (type.empty() || type == "generic") return true;
  for (std::size_t at = 0; at <= type.size();) {
    const std::size_t plus = std::min(type.find('+', at), type.size());
    if (type.substr(at, plus - at) == "jobid") return true;
    at = plus + 1;
  }
  return false;
}

}  // namespace

std::uint32_t partitions_of(Tree& tree) {
  const auto text = tree.read(kPartitionsPath);
  if (!text) return 1;
  return parse_partitions(*text).value_or(1);
}

std::uint32_t depth_of(Tree& tree) {
  const auto text = tree.read(kDepthPath);
  std::uint32_t depth = 0;
  if (!text) return kDepthDefault;
  std::from_chars(text->data(), text->data() + text->size(), depth);
  return depth == 0 ? kDepthDefault : depth;
}

Result<std::vector<std::string>> targets_of(Tree& tree, const Service& service) {
  auto names = tree.list(service.targets);
  if (!names) return names;
  std::vector<std::string> targets;
  for (std::string& name : *names) {
    // Files such as num_refs are in the same folder.
    if (tree.list(std::string(service.targets) + "/" + name)) targets.push_back(std::move(name));
  }
  if (targets.empty()) {
    return fail(std::errc::no_such_device, service.targets,
                "no " + std::string(service.target) + " is mounted here",
                "run it on a server, after its targets are mounted");
  }
  return targets;
}

Result<Policies> policies_of(Tree& tree, const Service& service) {
  const auto text = tree.read(service.policies);
  if (text) return parse_policies(*text);
  Error error = text.error();
  if (error.code == std::errc::invalid_argument) {
    error.what = "the CPTs of " + std::string(service.name) + " run different policies";
    error.hint =
        "a wrong type was written to it; write fifo and then 'tbf jobid', or run with "
        "--set-policy";
  }
  return tl::unexpected(std::move(error));
}

Result<std::string> type_of(const Policies& policies, const Service& service) {
  const Policy* const tbf = policies.tbf();
  if (tbf == nullptr) {
    return fail(std::errc::no_such_device, service.policies,
                "tbf is not running on " + std::string(service.name),
                "lctl set_param " + std::string(service.parameter) +
                    ".nrs_policies='tbf jobid', or run with --set-policy");
  }
  if (!has_jobid(tbf->argument)) {
    return fail(std::errc::not_supported, service.policies,
                "tbf runs with type " + quote(tbf->argument) + ", which has no job ids",
                "use --set-policy to change the type; its rules are lost");
  }
  const std::string both = tbf->argument.empty() ? "tbf hp" : "tbf hp " + tbf->argument;
  for (const Policy& policy : policies.high) {
    if (policy.name != "tbf") continue;
    if (policy.state != "started") {
      return fail(std::errc::no_such_device, service.policies,
                  "tbf runs for regular requests only, so its rules cannot be read",
                  "start it on both: write '" + both + "', or use --set-policy");
    }
    if (policy.argument != tbf->argument) {
      return fail(std::errc::not_supported, service.policies,
                  "tbf runs with type " + quote(tbf->argument) + " for regular requests and " +
                      quote(policy.argument) +
                      " for high-priority requests, so no rule can apply to both",
                  "write '" + both + "', or use --set-policy: rules are lost");
    }
  }
  return tbf->argument;
}

Result<RuleTable> rules_of(Tree& tree, const Service& service) {
  const auto text = tree.read(service.rules);
  if (!text) return tl::unexpected(text.error());
  auto table = parse_rules(*text);
  if (table && table->regular.empty()) {
    return fail(std::errc::invalid_argument, service.rules, "shows no CPT for regular requests",
                "a wrong type was written to it; write fifo and then 'tbf jobid', or run with "
                "--set-policy");
  }
  return table;
}

Result<TargetView> target_view(Tree& tree, const std::string& name, const Service& service) {
  TargetView view;
  view.name = name;
  const std::string path = std::string(service.targets) + "/" + name + "/job_stats";
  const auto text = tree.read(path);
  if (!text) return tl::unexpected(text.error());
  auto jobs = parse_job_stats(*text, service.counted);
  if (!jobs) {
    jobs.error().where = path + ": " + jobs.error().where;
    return tl::unexpected(jobs.error());
  }
  view.jobs = std::move(jobs->jobs);
  view.is_cut = jobs->is_cut;
  for (const char* const folder : {service.targets, service.debug_targets}) {
    const auto stats = tree.read(std::string(folder) + "/" + name + "/" + service.totals);
    if (!stats) continue;
    if (auto totals = parse_stats(*stats, service.counted)) view.totals = std::move(*totals);
    break;
  }
  return view;
}

namespace {

Result<void> read_targets(Tree& tree, const std::vector<std::string>& names, const Service& service,
                          View& view) {
  view.targets.reserve(names.size());
  for (const std::string& name : names) {
    auto target = target_view(tree, name, service);
    if (!target && target.error().code == std::errc::no_such_file_or_directory) continue;
    if (!target) return tl::unexpected(target.error());
    view.targets.push_back(std::move(*target));
  }
  return {};
}

}  // namespace

Result<View> look(Tree& tree, const Service& service) {
  View view;
  auto names = targets_of(tree, service);
  if (!names) return tl::unexpected(names.error());
  auto policies = policies_of(tree, service);
  if (!policies) return tl::unexpected(policies.error());
  auto type = type_of(*policies, service);
  if (!type) return tl::unexpected(type.error());
  auto rules = rules_of(tree, service);
  if (!rules) return tl::unexpected(rules.error());
  view.policies = std::move(*policies);
  view.type = std::move(*type);
  view.rules = std::move(*rules);
  if (auto done = read_targets(tree, *names, service, view); !done)
    return tl::unexpected(done.error());
  return view;
}

Result<View> look_only(Tree& tree, const Service& service) {
  View view;
  auto names = targets_of(tree, service);
  if (!names) return tl::unexpected(names.error());
  auto policies = policies_of(tree, service);
  if (!policies) return tl::unexpected(policies.error());
  view.policies = std::move(*policies);
  if (view.policies.tbf() != nullptr) {
    if (auto rules = rules_of(tree, service)) view.rules = std::move(*rules);
  }
  if (auto done = read_targets(tree, *names, service, view); !done)
    return tl::unexpected(done.error());
  return view;
}

Result<void> set_policy(Tree& tree, const std::function<bool()>& wait, const Service& service) {
  // No newline: it would make the type invalid, and the head would lose its rules.
  if (auto done = tree.write(service.policies, "fifo"); !done) return done;
  for (int tries = 0; tries < kSwitchTries; ++tries) {
    const auto policies = policies_of(tree, service);
    bool is_drained = policies.has_value();
    if (policies) {
      for (const auto* head : {&policies->regular, &policies->high}) {
        for (const Policy& policy : *head) {
          if (policy.name == "tbf" && (policy.state != "stopped" || policy.queued > 0)) {
            is_drained = false;
          }
        }
      }
    }
    if (is_drained) {
      auto done = tree.write(service.policies, "tbf jobid");
      if (done) return {};
      if (done.error().code != std::errc::resource_unavailable_try_again) return done;
    }
    if (!wait()) break;
  }
  return fail(
      std::errc::timed_out, service.policies, "requests still wait in the old policy",
      std::string(service.name) + " runs fifo for now; try again, or write 'tbf jobid' to it");
}

}  // namespace weir::lustre
