// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explained.h"

#include <algorithm>
#include <set>

#include "weir/base/quote.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/words.h"
#include "weir/schedule/policy_kinds.h"

namespace weir::control {
namespace {

// The name without what ClassQuery allows in front of it.
std::string_view bare(std::string_view name) {
  for (const std::string_view word : {"job=", "uid=", "gid=", "client=", "export=", "rule="}) {
    if (name.starts_with(word)) return name.substr(word.size());
  }
  return name;
}

// The rules of a wait, one for each layer.
const LayerRules& rules_at(const ServiceSnapshot& service, std::size_t at) {
  static const LayerRules none{};
  return at < service.wait_rules.size() ? service.wait_rules[at] : none;
}

bool has_rule(const LayerRules& rules, std::string_view name) {
  return !name.empty() && std::find(rules.begin(), rules.end(), name) != rules.end();
}

// Whether the requests of a wait are in this class. Which are in an overflow class is not known.
bool is_in(const WaitView& wait, const LayerRules& rules, const ClassSnapshot& one) {
  return has_rule(rules, one.rule) && !one.is_overflow && wait.key.only(one.by) == one.key;
}

// The class of a rule in which the requests of a wait are; nullptr: it is not known.
const ClassSnapshot* class_under(const ServiceSnapshot& service, const WaitView& wait,
                                 std::string_view rule) {
  const ClassSnapshot* overflow = nullptr;
  for (const ClassSnapshot& one : service.classes) {
    if (one.rule != rule) continue;
    if (one.is_overflow) {
      overflow = &one;
    } else if (wait.key.only(one.by) == one.key) {
      return &one;
    }
  }
  return overflow;
}

// The key of a request that matches the rule, if one was seen.
Attributes key_under(const ServiceSnapshot& service, const ClassSnapshot& one) {
  for (std::size_t i = 0; one.by.empty() && i < service.waits.size(); ++i) {
    if (has_rule(rules_at(service, i), one.rule)) return service.waits[i].key;
  }
  return one.key;
}

// Whether requests of the job are in the class.
bool has_wait_in(const ServiceSnapshot& service, const JobId& job, const ClassSnapshot& one) {
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (service.waits[i].key.job == job && is_in(service.waits[i], rules_at(service, i), one)) {
      return true;
    }
  }
  return false;
}

}  // namespace

const JobSnapshot* job_of(const ServiceSnapshot& service, const Explained& explained) {
  std::optional<JobId> wanted = explained.job;
  if (!wanted && explained.found != nullptr && explained.found->by.has(Field::kJobid)) {
    wanted = explained.found->key.job;
  }
  for (const JobSnapshot& job : service.jobs) {
    if (job.job == wanted) return &job;
  }
  return nullptr;
}

bool is_of(const ServiceSnapshot& service, std::size_t at, const Explained& explained) {
  const WaitView& wait = service.waits[at];
  if (explained.job && wait.key.job != *explained.job) return false;
  return is_in(wait, rules_at(service, at), *explained.found);
}

WaitSpan span_of(const ServiceSnapshot& service, const Explained& explained,
                 const WaitHistory& history) {
  WaitSpan all;
  std::set<JobId> jobs;  // whose device time is counted
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (!is_of(service, i, explained)) continue;
    const WaitView& wait = service.waits[i];
    const DeviceSums device =
        i < service.wait_devices.size() ? service.wait_devices[i] : DeviceSums{};
    const WaitSpan one = history.since(explained.service, wait, device, service.now);
    for (std::size_t cause = 0; cause < kDelays; ++cause) all.delays[cause] += one.delays[cause];
    all.requests += one.requests;
    all.arrived += one.arrived;
    all.waiting += one.waiting;
    all.from = std::min(all.from, one.from);
    if (!jobs.insert(wait.key.job).second) continue;
    all.device.requests += one.device.requests;
    all.device.ns += one.device.ns;
  }
  return all;
}

std::string conditions_of(const ServiceSnapshot& service, std::string_view rule) {
  for (const RuleSnapshot& one : service.rules) {
    if (one.name == rule) return "requests that match " + quote(one.conditions);
  }
  return "it is no longer listed";
}

std::vector<const ClassSnapshot*> limits_on(const ServiceSnapshot& service,
                                            const Explained& explained) {
  const auto limit_of = [&](std::size_t at) {
    return service.waits[at].delays[static_cast<std::size_t>(Delay::kLimit)];
  };
  std::optional<std::size_t> most;  // the queue that has waited longest
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (is_of(service, i, explained) && (!most || limit_of(*most) < limit_of(i))) most = i;
  }
  std::vector<const ClassSnapshot*> all;
  const auto see = [&](const ClassSnapshot* one) {
    if (one != nullptr && (one->rate > 0 || one->bps > 0)) all.push_back(one);
  };
  if (!most) see(explained.found);
  for (unsigned layer = 0; most && layer < kLayers; ++layer) {
    const std::string& rule = rules_at(service, *most)[layer];
    if (!rule.empty()) see(class_under(service, service.waits[*most], rule));
  }
  return all;
}

const ClassSnapshot* emptiest(const std::vector<const ClassSnapshot*>& limits) {
  // In millionths of the depth, so that a large bucket is comparable with a small one.
  const auto fill = [](const ClassSnapshot& one) {
    const auto of = [](std::uint64_t level, std::uint64_t depth) {
      return static_cast<unsigned __int128>(level) * 1'000'000 / std::max<std::uint64_t>(depth, 1);
    };
    constexpr unsigned __int128 kFull = 2'000'000;
    return std::min(one.rate > 0 ? of(one.level, one.depth) : kFull,
                    one.bps > 0 ? of(one.byte_level, one.byte_depth) : kFull);
  };
  const auto least =
      std::min_element(limits.begin(), limits.end(),
                       [&](const auto* a, const auto* b) { return fill(*a) < fill(*b); });
  return least == limits.end() ? nullptr : *least;
}

std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view asked, std::string_view rule) {
  const std::string_view name = bare(asked);
  const bool is_rule = asked.starts_with("rule=");
  const auto id = read_id(name);
  const std::optional<JobId> job = id && !is_rule ? std::optional(JobId(*id)) : std::nullopt;
  std::optional<Explained> best, of_rule, of_key;
  for (std::size_t at = 0; at < shot.services.size(); ++at) {
    const ServiceSnapshot& in = shot.services[at];
    if (!service.empty() && in.name != service) continue;
    const bool is_seen =
        job && std::any_of(in.jobs.begin(), in.jobs.end(),
                           [&](const JobSnapshot& one) { return one.job == *job; });
    for (const ClassSnapshot& one : in.classes) {
      const bool has_rule = name.size() > one.rule.size() && name.starts_with(one.rule) &&
                            name[one.rule.size()] == '/';
      if (has_rule && one.name() == name) return Explained{at, &one, key_under(in, one), {}};
      if (one.rule == name &&
          (!of_rule || of_rule->found->totals.waited_ns < one.totals.waited_ns)) {
        of_rule = Explained{at, &one, key_under(in, one), {}};
      }
      if (is_rule || (best && (one.rule != rule || best->found->rule == rule))) continue;
      const bool is_jobs = job && one.by.has(Field::kJobid) && one.key.job == *job;
      if (is_jobs ||
          (!one.by.has(Field::kJobid) && !one.by.empty() && key_name(one.key, one.by) == name)) {
        best = Explained{at, &one, one.key, is_jobs ? job : std::nullopt};
      }
      // A class without jobs is that of a job whose requests are in it.
      if (is_seen && one.rule == rule && !best && (one.by.empty() || has_wait_in(in, *job, one))) {
        of_key = Explained{at, &one, one.key, job};
      }
    }
    if (best || of_key || !job || !in.has_rules) continue;
    // Without a class of its own: its key determines the rule.
    for (const JobSnapshot& seen : in.jobs) {
      if (seen.job != *job || !rule.empty()) continue;
      Attributes key;
      key.job = *job;
      for (const WaitView& wait : in.waits) {
        if (wait.key.job == *job) key = wait.key;
      }
      of_key = Explained{at, nullptr, key, job};
    }
  }
  return best ? best : of_key ? of_key : of_rule;
}

Error not_explained(const Snapshot& shot, std::string_view service, std::string_view name) {
  std::string policy;
  const auto id = read_id(bare(name));
  for (const ServiceSnapshot& one : shot.services) {
    if (!service.empty() && one.name != service) continue;
    const bool is_seen = id && std::any_of(one.jobs.begin(), one.jobs.end(),
                                           [&](const auto& job) { return job.job == JobId(*id); });
    if (one.has_rules && is_seen) {
      return {std::errc::no_such_file_or_directory, "job " + quote(bare(name)),
              "is known, but not its class: under policy " + quote(policy_text(one)) +
                  " other fields than the job determine it, or too many classes are busy",
              "explain its class, client or user; weir top lists the classes"};
    }
    const bool is_rule = std::any_of(one.rules.begin(), one.rules.end(),
                                     [&](const auto& rule) { return rule.name == bare(name); });
    if (one.has_rules && is_rule) {
      return {std::errc::no_such_file_or_directory, "rule " + quote(bare(name)),
              "has no class: no request has matched it",
              "weir rule list shows its conditions, and weir top the classes of requests"};
    }
    if (one.has_rules) {
      return {std::errc::no_such_file_or_directory, "",
              "no class, job or rule named " + quote(bare(name)),
              "list them with weir top, or /v1/services/NAME/classes"};
    }
    if (policy.empty()) policy = policy_text(one);
  }
  return {std::errc::no_such_device, "policy " + quote(policy),
          "has no rules, classes or shares that explain could show",
          "explain requires policy " + policies_with_rules()};
}

}  // namespace weir::control
