// SPDX-License-Identifier: Apache-2.0
#include "weir/control/change.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/adapt/allocator.h"
#include "weir/base/quote.h"
#include "weir/classify/rule_log.h"
#include "weir/control/job_sizes.h"
#include "weir/target/nrs_text.h"

namespace weir::control {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kRuleLeaf = ".nrs_tbf_rule";
constexpr std::string_view kPolicyLeaf = ".nrs_policies";
constexpr std::string_view kTunableLeaf = ".nrs_";  // and what follows, unless it is one of those

bool is_tunable(const Change& change) {
  return change.kind == Change::Kind::kParam && !is_rule(change) && !is_policy(change) &&
         change.target.find(kTunableLeaf) != std::string::npos;
}

// Whether a value of a parameter replaces an earlier one. "reg_quantum:4" leaves that of the other
// priority as it was.
bool replaces(const Change& change, const Change& earlier) {
  if (earlier.kind != change.kind || earlier.target != change.target) return false;
  if (!is_tunable(change)) return true;
  const auto label = [](const Change& one) {
    return one.value->substr(0, one.value->find(':') + 1);
  };
  return label(change).empty() || label(change) == label(earlier);
}

// "reg", "hp", or nothing for both: "<policy> [reg|hp] [<argument>]".
std::string head_of(const Change& policy) {
  const std::string& text = *policy.value;
  const std::size_t begin = std::min(text.find(' '), text.size() - 1) + 1;
  const std::string word = text.substr(begin, text.find(' ', begin) - begin);
  return word == "reg" || word == "hp" ? word : "";
}

// A policy replaces the one before it on the same heads, including its tunables. The same
// policy continues.
void add_policy(std::vector<Change>& kept, Change policy) {
  const auto is_of_it = [&](const Change& one) {
    return is_policy(one) && one.target == policy.target;
  };
  const auto last = std::find_if(kept.rbegin(), kept.rend(), is_of_it);
  if (last != kept.rend() && last->value == policy.value) return;
  const std::string head = head_of(policy);
  const std::string tuned = policy.target.substr(0, policy.target.size() - kPolicyLeaf.size()) +
                            std::string(kTunableLeaf);
  std::erase_if(kept, [&](const Change& one) {
    if (is_of_it(one)) return head.empty() || head_of(one) == head;
    return head.empty() && is_tunable(one) && one.target.starts_with(tuned);
  });
  kept.push_back(std::move(policy));
}

// The last setting of each job, at most as many as the server keeps; removed ones are dropped.
class JobRecords {
 public:
  void add(const Change& change) {
    if (const auto gone = sizes_.set(change.target, change.nodes, {})) changes_.erase(*gone);
    if (change.nodes == 0) {
      changes_.erase(change.target);
    } else {
      changes_.insert_or_assign(change.target, std::pair{++count_, change});
    }
  }
  // In the order they were set, so that the oldest are removed first after a restart too.
  void append_to(std::vector<Change>& kept) const {
    std::map<std::uint64_t, const Change*> in_order;
    for (const auto& [job, one] : changes_) in_order[one.first] = &one.second;
    for (const auto& [number, change] : in_order) kept.push_back(*change);
  }

 private:
  JobSizes sizes_;
  std::unordered_map<std::string, std::pair<std::uint64_t, Change>> changes_;
  std::uint64_t count_ = 0;
};

// A removed setting falls back to the configuration or Slurm.
Result<void> set_nodes(serve::Server& server, const Change& change) {
  const JobId job(change.target);
  const std::uint64_t nodes = change.nodes != 0 ? change.nodes : server.named_nodes(change.target);
  for (const auto& service : server.services()) {
    auto set = service->target.set_nodes(job, nodes, server.now());
    if (!set) return set;
  }
  return {};
}

enum class Step : std::uint8_t { kCheck, kDo };

Result<void> set_capacity(serve::Server& server, const Change& change, Step step) {
  serve::Service* const service = server.find_service(change.target);
  if (service == nullptr) {
    return fail(std::errc::no_such_file_or_directory, "service " + quote(change.target),
                "does not exist");
  }
  const auto capacity = serve::parse_capacity(*change.value);
  if (!capacity) return tl::unexpected(capacity.error());
  auto done = step == Step::kCheck ? capacity->check_unit(service->target.cost())
                                   : service->target.set_capacity(*capacity, server.now());
  if (!done) {
    done.error().where =
        fmt::format("capacity {} of service {}", quote(*change.value), quote(change.target));
  }
  return done;
}

}  // namespace

Change param_change(Change::Kind kind, std::string path, std::optional<std::string> value,
                    std::size_t rule_size_max) {
  Change change{.kind = kind, .target = std::move(path), .value = std::move(value)};
  if (change.value && change.target.ends_with(kRuleLeaf)) {
    change.rule = read_or_keep(*std::exchange(change.value, std::nullopt), rule_size_max);
  }
  return change;
}

Change rule_change(std::string_view service, RuleChange change) {
  return {.target = rule_path(service), .rule = std::move(change)};
}

std::string value_text(const Change& change) {
  return change.rule ? print(*change.rule) : change.value.value_or("");
}

bool is_rule(const Change& change) {
  return change.kind == Change::Kind::kParam && change.target.ends_with(kRuleLeaf);
}

bool is_policy(const Change& change) {
  return change.kind == Change::Kind::kParam && change.target.ends_with(kPolicyLeaf);
}

std::string rule_path(std::string_view service) {
  return fmt::format("ost.OSS.{}.nrs_tbf_rule", service);
}
std::string policy_path(std::string_view service) {
  return fmt::format("ost.OSS.{}.nrs_policies", service);
}

std::string tunable_path(std::string_view service, std::string_view policy,
                         std::string_view tunable) {
  const TunableName name{std::string(policy), std::string(tunable)};
  return fmt::format("ost.OSS.{}.{}", service, name.leaf());
}

std::string print_change(const Change& change) {
  Json json;
  switch (change.kind) {
    case Change::Kind::kParam:
      json = {{"param", change.target}, {"value", value_text(change)}};
      break;
    case Change::Kind::kJob:
      json = {{"job", printable_id(change.target)}, {"nodes", change.nodes}};
      break;
    case Change::Kind::kCapacity:
      json = {{"service", change.target}, {"capacity", *change.value}};
      break;
    case Change::Kind::kForget:
      json = {{"forget", change.target}};
      if (change.value || change.rule) json["value"] = value_text(change);
      break;
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<Change> parse_change(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  const auto text = [&](const char* key) -> std::optional<std::string> {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return std::nullopt;
    return json[key].get<std::string>();
  };
  Change change;
  auto value = text("value");
  if (auto path = text("param"); path && value) {
    change = param_change(Change::Kind::kParam, *std::move(path), std::move(value), kPrintedMax);
  } else if (auto job = text("job");
             job && json.contains("nodes") && json["nodes"].is_number_unsigned()) {
    auto id = read_id(*job);
    if (!id) return tl::unexpected(id.error());
    change.kind = Change::Kind::kJob;
    change.target = *id;
    change.nodes = json["nodes"].get<std::uint64_t>();
  } else if (auto capacity = text("capacity"); capacity && text("service")) {
    change.kind = Change::Kind::kCapacity;
    change.target = *text("service");
    change.value = capacity;
  } else if (auto forgotten = text("forget")) {
    change =
        param_change(Change::Kind::kForget, *std::move(forgotten), std::move(value), kPrintedMax);
  } else {
    return fail(std::errc::invalid_argument, quote(line), "is not a change");
  }
  return change;
}

std::vector<Change> effective(const std::vector<std::string>& records,
                              std::vector<std::string>& mistakes) {
  std::vector<Change> kept;
  JobRecords jobs;
  RuleLog rules;
  for (const std::string& record : records) {
    auto change = parse_change(record);
    if (!change) {
      mistakes.push_back(change.error().message());
    } else if (change->kind == Change::Kind::kJob) {
      jobs.add(*change);
    } else if (change->kind == Change::Kind::kForget) {
      rules.forget(change->target, change->rule);
      std::erase_if(kept, [&](const Change& one) {
        return one.kind == Change::Kind::kParam && one.target == change->target &&
               (!change->value || one.value == change->value);
      });
    } else if (is_rule(*change)) {
      rules.add(change->target, *std::move(change->rule));
    } else if (is_policy(*change)) {
      add_policy(kept, std::move(*change));
    } else {
      std::erase_if(kept, [&](const Change& one) { return replaces(*change, one); });
      kept.push_back(std::move(*change));
    }
  }
  jobs.append_to(kept);
  for (RuleLog::Record& rule : rules.records()) {
    kept.push_back({.target = std::move(rule.target), .rule = std::move(rule.command)});
  }
  return kept;
}

Result<void> check_own(const serve::Server& server, const Change& change) {
  if (!server.options().cluster.is_on() || !is_rule(change) || !change.rule) return {};
  const RuleChange* const own = change_in(*change.rule);
  if (own == nullptr) return {};  // applying it reports the error
  const std::string& name = own->name;
  bool is_shared = own->keys.scope == Scope::kCluster;
  for (const auto& service : server.services()) {
    const RuleView* const rules = service->target.rules(Head::kRegular);
    const Rule* const rule = rules == nullptr ? nullptr : rules->rules(Head::kRegular).find(name);
    is_shared = is_shared || (rule != nullptr && rule->limits().scope == Scope::kCluster);
  }
  if (!is_shared) return {};
  return fail(std::errc::operation_not_permitted, "rule " + quote(name), "is a rule of the cluster",
              "use: weir cluster rule");
}

std::vector<std::string> effective_records(const std::vector<std::string>& records) {
  std::vector<std::string> mistakes;
  const std::vector<Change> kept = effective(records, mistakes);
  if (!mistakes.empty()) return records;
  std::vector<std::string> lines;
  lines.reserve(kept.size());
  for (const Change& one : kept) lines.push_back(print_change(one));
  return lines;
}

Result<void> check(serve::Server& server, const Change& change) {
  if (change.kind == Change::Kind::kCapacity) return set_capacity(server, change, Step::kCheck);
  if (change.kind != Change::Kind::kJob || change.nodes <= Allocator::kNodesMax) return {};
  return fail(std::errc::invalid_argument, "nodes of job " + quote(change.target),
              std::to_string(change.nodes) + " is out of range",
              "give a number from 1 to " + std::to_string(Allocator::kNodesMax));
}

Result<void> apply(serve::Server& server, const Change& change) {
  if (change.kind == Change::Kind::kJob) return set_nodes(server, change);
  if (change.kind == Change::Kind::kCapacity) return set_capacity(server, change, Step::kDo);
  return {};
}

}  // namespace weir::control
