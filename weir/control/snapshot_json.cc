// SPDX-License-Identifier: Apache-2.0
#include "weir/control/snapshot_json.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "weir/control/json_nlohmann.h"
#include "weir/control/lock_json.h"

namespace weir::control {

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

Json class_json(const ClassSnapshot& one) {
  return {{"class", one.name()},
          {"rule", one.rule},
          {"rate", one.rate},
          {"depth", one.depth},
          {"level", one.level},
          {"bps", one.bps},
          {"byte_depth", one.byte_depth},
          {"byte_level", one.byte_level},
          {"reserve", one.reserve},
          {"reserve_unit", one.reserves_bytes ? "bytes" : "operations"},
          {"served", one.totals.served},
          {"bytes", one.totals.bytes},
          {"waited_ns", one.totals.waited_ns}};
}

Json job_json(const JobSnapshot& job) {
  Json json{{"job", printable_id(job.job.text())},
            {"nodes", job.nodes},
            {"weight", job.weight},
            {"arrived", job.arrived},
            {"finished", job.finished},
            {"waiting", job.waiting},
            {"running", job.running},
            {"read_bytes", job.read_bytes},
            {"written_bytes", job.written_bytes},
            {"waited_ns", job.wait_ns},
            {"latency_ns", job.latency_ns}};
  json["share"] = job.share ? Json(*job.share) : Json(nullptr);
  json["record"] = job.record;
  json["lent"] = job.lent;
  json["borrowed"] = job.borrowed;
  json["path"] = job.path.empty() ? Json(nullptr) : Json(job.path);
  return json;
}

std::string policy_text(const ServiceSnapshot& shot) {
  std::string text = "fifo";
  for (const PolicySnapshot& policy : shot.policies) {
    if (policy.head != "regular" || policy.state != "started" || policy.name == "fifo") continue;
    text = policy.argument.empty() ? policy.name : policy.name + " " + policy.argument;
  }
  return text;
}

namespace {

Json rule_json(const RuleSnapshot& rule) {
  return {{"rule", rule.name},   {"conditions", rule.conditions}, {"limits", rule.limits},
          {"heads", rule.heads}, {"layer", rule.layer},           {"rate", rule.rate},
          {"bps", rule.bps},     {"classes", rule.classes},       {"state", rule.state}};
}

Json policies_json(const ServiceSnapshot& shot) {
  Json all = Json::array();
  for (const PolicySnapshot& policy : shot.policies) {
    all.push_back({{"head", policy.head},
                   {"policy", policy.name},
                   {"argument", policy.argument},
                   {"state", policy.state},
                   {"queued", policy.queued},
                   {"running", policy.running}});
  }
  return all;
}

Json tunables_json(const ServiceSnapshot& shot) {
  Json all = Json::array();
  for (const TunableSnapshot& one : shot.tunables) {
    all.push_back({{"policy", one.policy},
                   {"tunable", one.name},
                   {"head", one.head},
                   {"value", one.value},
                   {"min", one.least},
                   {"max", one.most},
                   {"help", one.help}});
  }
  return all;
}

Json capacity_json(const ServiceSnapshot& shot) {
  return {{"capacity", shot.capacity ? Json(*shot.capacity) : Json(nullptr)},
          {"capacity_unit", shot.capacity_unit},
          {"adaptive", shot.adaptive}};
}

Json groups_json(const std::optional<GroupsSnapshot>& shot) {
  if (!shot) return nullptr;
  Json groups = Json::array();
  for (const GroupsSnapshot::Group& one : shot->groups) {
    groups.push_back({{"group", one.name}, {"turns", one.turns}, {"waiting", one.waiting}});
  }
  return {{"preferred", shot->preferred.empty() ? Json(nullptr) : Json(shot->preferred)},
          {"step", shot->step},
          {"epoch", shot->epoch},
          {"ragged", shot->ragged},
          {"groups", groups}};
}

Json slots_json(const SlotsSnapshot& shot) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"count", shot.count},
          {"auto", shot.is_auto},
          {"settled", shot.is_settled},
          {"latency_ns", or_null(shot.latency_ns)},
          {"latency_target_ns", or_null(shot.latency_target_ns)}};
}

Json tree_json(const std::optional<TreeSnapshot>& shot) {
  if (!shot) return nullptr;
  return {{"levels", shot->levels}, {"nodes", shot->nodes_in_all}};
}

// /v1/services/NAME/shares: the nodes above the jobs in a tree of shares.
Json shares_json(const ServiceSnapshot& shot) {
  Json all = Json::array();
  if (!shot.tree) return all;
  for (const NodeSnapshot& node : shot.tree->nodes) {
    all.push_back({{"path", node.path},
                   {"name", node.name.empty() ? Json(nullptr) : Json(node.name)},
                   {"level", node.level},
                   {"weight", node.weight},
                   {"weights", node.siblings},
                   {"share", node.share ? Json(*node.share) : Json(nullptr)},
                   {"record", node.record},
                   {"lent", node.lent},
                   {"borrowed", node.borrowed}});
  }
  return all;
}

Json summary_json(const ServiceSnapshot& shot) {
  Json json{{"service", shot.name},
            {"policy", policy_text(shot)},
            {"queued", shot.queued},
            {"running", shot.running},
            {"slots", slots_json(shot.slots)},
            {"classes", shot.classes.size()},
            {"jobs", shot.jobs.size()},
            {"rules", shot.rules_in_all},
            {"reserve_permille", shot.reserve_scale / (kReserveScaleOne / 1000)},
            {"overflowed", shot.overflowed},
            {"groups", groups_json(shot.groups)},
            {"tree", tree_json(shot.tree)},
            {"notes", shot.notes}};
  json.update(capacity_json(shot));
  return json;
}

Json ledger_json(const ServiceSnapshot& shot) {
  Json all = Json::array();
  for (const JobSnapshot& job : shot.jobs) {
    if (job.record == 0 && job.lent == 0 && job.borrowed == 0) continue;
    all.push_back({{"job", printable_id(job.job.text())},
                   {"path", job.path.empty() ? Json(nullptr) : Json(job.path)},
                   {"record", job.record},
                   {"lent", job.lent},
                   {"borrowed", job.borrowed}});
  }
  return all;
}

// The job of a class by job; nullptr: it is not that of one job.
using JobIndex = std::map<JobId, const JobSnapshot*>;
JobIndex index_of(const ServiceSnapshot& shot) {
  JobIndex jobs;
  for (const JobSnapshot& job : shot.jobs) jobs.emplace(job.job, &job);
  return jobs;
}

Json listed_class_json(const ClassSnapshot& one, const JobIndex& jobs) {
  Json json = class_json(one);
  json["recent"] = one.recent.window_ns == 0 ? Json(nullptr)
                                             : Json{{"served", one.recent.sums.served},
                                                    {"bytes", one.recent.sums.bytes},
                                                    {"waited_ns", one.recent.sums.waited_ns},
                                                    {"window_ns", one.recent.window_ns}};
  json["cause"] = one.cause.empty() ? Json(nullptr) : Json(one.cause);
  const bool is_of_job = one.by.has(Field::kJobid) && !one.is_overflow;
  const auto found = is_of_job ? jobs.find(one.key.job) : jobs.end();
  const JobSnapshot* const job = found == jobs.end() ? nullptr : found->second;
  json["waiting"] = job == nullptr ? Json(nullptr) : Json(job->waiting);
  json["share"] = job == nullptr || !job->share ? Json(nullptr) : Json(*job->share);
  json["record"] = job == nullptr ? Json(nullptr) : Json(job->record);
  return json;
}

// What a list of classes is sorted by, except for names.
std::uint64_t sort_value(const ClassSnapshot& one, std::string_view sort) {
  const UsageSums& recent = one.recent.sums;
  if (sort == "served") return one.totals.served;
  if (sort == "bytes") return one.totals.bytes;
  if (sort == "recent_served") return recent.served;
  if (sort == "recent_bytes") return recent.bytes;
  if (sort == "recent_waited_ns") {
    return recent.served == 0 ? 0 : recent.waited_ns / recent.served;
  }
  return one.totals.waited_ns;
}

Json classes_json(const ServiceSnapshot& shot, const ListQuery& query) {
  struct Entry {
    std::uint64_t value = 0;
    std::string name;
    const ClassSnapshot* of = nullptr;
  };
  std::vector<Entry> order;
  order.reserve(shot.classes.size());
  const bool is_by_name = query.sort == "class";
  for (const ClassSnapshot& one : shot.classes) {
    std::string name = one.name();
    if (!query.wants(name)) continue;
    order.push_back({is_by_name ? 0 : sort_value(one, query.sort), std::move(name), &one});
  }
  const std::size_t from = std::min(query.offset, order.size());
  const std::size_t to = from + std::min(query.limit, order.size() - from);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(to), order.end(),
                    [](const Entry& a, const Entry& b) {
                      return a.value != b.value ? a.value > b.value : a.name < b.name;
                    });
  const JobIndex jobs = index_of(shot);
  Json all = Json::array();
  for (std::size_t i = from; i < to; ++i) all.push_back(listed_class_json(*order[i].of, jobs));
  return all;
}

Json jobs_json(const ServiceSnapshot& shot, const ListQuery& query) {
  std::vector<const JobSnapshot*> order;
  order.reserve(shot.jobs.size());
  for (const JobSnapshot& job : shot.jobs) {
    if (query.wants(printable_id(job.job.text()))) order.push_back(&job);
  }
  std::sort(order.begin(), order.end(), [](const JobSnapshot* a, const JobSnapshot* b) {
    return a->finished != b->finished ? a->finished > b->finished : a->job < b->job;
  });
  const std::size_t from = std::min(query.offset, order.size());
  const std::size_t to = from + std::min(query.limit, order.size() - from);
  Json all = Json::array();
  for (std::size_t i = from; i < to; ++i) all.push_back(job_json(*order[i]));
  return all;
}

Json rules_json(const ServiceSnapshot& shot) {
  Json all = Json::array();
  for (const RuleSnapshot& rule : shot.rules) all.push_back(rule_json(rule));
  return all;
}

Json hung_json(const Snapshot& shot) {
  Json all = Json::array();
  for (const HungExportSnapshot& one : shot.hung) {
    all.push_back({{"export", one.name},
                   {"service", one.service},
                   {"unfinished", one.unfinished},
                   {"kept", one.kept},
                   {"silent_ns", one.silent_ns}});
  }
  return all;
}

Json stores_json(const Snapshot& shot) {
  Json all = Json::array();
  for (const StoreSnapshot& one : shot.stores) {
    all.push_back({{"export", one.name},
                   {"service", one.service},
                   {"store", one.store},
                   {"bytes", one.bytes},
                   {"read_only", one.is_read_only}});
  }
  return all;
}

Json loops_json(const Snapshot& shot) {
  Json all = Json::array();
  for (const serve::Server::LoopStatus& one : shot.loops) {
    all.push_back({{"connections", one.connections},
                   {"requests", one.requests},
                   {"turns", one.stats.turns},
                   {"longest_turn_ns", one.stats.longest_turn_ns},
                   {"wake_ups", one.wake_ups},
                   {"lock_busy", one.stats.lock_busy},
                   {"lock_wait_ns", one.stats.lock_wait_ns}});
  }
  return all;
}

}  // namespace

std::string status_json(const Snapshot& shot, std::string_view version, std::string_view generation,
                        std::string_view access) {
  Json services = Json::array();
  for (const ServiceSnapshot& one : shot.services) services.push_back(summary_json(one));
  const serve::Counters& counters = shot.counters;
  return text_of({{"version", version},
                  {"generation", generation},
                  {"access", access},
                  {"time_ns", shot.moment.wall_ns},
                  {"io", shot.io},
                  {"threads", loops_json(shot)},
                  {"connections", shot.connections},
                  {"counters",
                   {{"accepted", counters.accepted},
                    {"refused", counters.refused},
                    {"broken", counters.broken},
                    {"stalled", counters.stalled},
                    {"requests", counters.requests},
                    {"requests_refused", counters.requests_refused},
                    {"claims_refused", counters.claims_refused},
                    {"store_errors", counters.store_errors},
                    {"memory_waits", counters.memory_waits},
                    {"log_dropped", shot.log_dropped}}},
                  {"memory",
                   {{"used", shot.memory_used},
                    {"kept", shot.memory_kept},
                    {"history", shot.memory_history},
                    {"limit", shot.memory_limit}}},
                  {"exports", shot.exports},
                  {"stores", stores_json(shot)},
                  {"hung_exports", hung_json(shot)},
                  {"services", services}});
}

std::string services_json(const Snapshot& shot) {
  Json all = Json::array();
  for (const ServiceSnapshot& one : shot.services) all.push_back(summary_json(one));
  return text_of(all);
}

std::optional<std::string> service_json(const ServiceSnapshot& shot, std::string_view what,
                                        const ListQuery& query) {
  if (what.empty()) return text_of(summary_json(shot));
  if (what == "policies") return text_of(policies_json(shot));
  if (what == "tunables") return text_of(tunables_json(shot));
  if (what == "rules") return text_of(rules_json(shot));
  if (what == "classes") return text_of(classes_json(shot, query));
  if (what == "jobs") return text_of(jobs_json(shot, query));
  if (what == "ledger") return text_of(ledger_json(shot));
  if (what == "shares") return text_of(shares_json(shot));
  if (what == "capacity") return text_of(capacity_json(shot));
  return std::nullopt;
}

std::size_t count_of(const ServiceSnapshot& shot, std::string_view what, const ListQuery& query) {
  const auto count = [&](const auto& all, const auto& name) {
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [&](const auto& one) { return query.wants(name(one)); }));
  };
  if (what == "jobs") {
    return count(shot.jobs, [](const JobSnapshot& one) { return printable_id(one.job.text()); });
  }
  return count(shot.classes, [](const ClassSnapshot& one) { return one.name(); });
}

std::string live_event(const Snapshot& shot, std::string_view generation) {
  Json services = Json::array();
  for (const ServiceSnapshot& service : shot.services) {
    Json json = summary_json(service);
    json["rule_list"] = rules_json(service);
    services.push_back(std::move(json));
  }
  const Json event{{"generation", generation},
                   {"time_ns", shot.moment.wall_ns},
                   {"connections", shot.connections},
                   {"services", services},
                   {"locks", Json::parse(namespaces_json(shot.locks))}};
  return "data: " + text_of(event) + "\n";
}

}  // namespace weir::control
