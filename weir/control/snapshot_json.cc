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

constexpr std::size_t kPageClasses = 200;  // in an event

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
            {"notes", shot.notes}};
  json.update(capacity_json(shot));
  return json;
}

Json ledger_json(const ServiceSnapshot& shot) {
  Json all = Json::array();
  for (const JobSnapshot& job : shot.jobs) {
    if (job.record == 0 && job.lent == 0 && job.borrowed == 0) continue;
    all.push_back({{"job", printable_id(job.job.text())},
                   {"record", job.record},
                   {"lent", job.lent},
                   {"borrowed", job.borrowed}});
  }
  return all;
}

Json classes_json(const ServiceSnapshot& shot, const ListQuery& query) {
  std::vector<const ClassSnapshot*> order;
  order.reserve(shot.classes.size());
  for (const ClassSnapshot& one : shot.classes) order.push_back(&one);
  const std::string_view sort = query.sort;
  std::sort(order.begin(), order.end(), [&](const ClassSnapshot* a, const ClassSnapshot* b) {
    if (sort == "served") return a->totals.served > b->totals.served;
    if (sort == "bytes") return a->totals.bytes > b->totals.bytes;
    if (sort == "class") return a->name() < b->name();
    return a->totals.waited_ns > b->totals.waited_ns;
  });
  Json all = Json::array();
  for (const ClassSnapshot* const one : order) {
    if (all.size() >= query.limit) break;
    if (query.wants(one->name())) all.push_back(class_json(*one));
  }
  return all;
}

Json jobs_json(const ServiceSnapshot& shot, const ListQuery& query) {
  std::vector<const JobSnapshot*> order;
  order.reserve(shot.jobs.size());
  for (const JobSnapshot& job : shot.jobs) order.push_back(&job);
  std::sort(order.begin(), order.end(), [](const JobSnapshot* a, const JobSnapshot* b) {
    return a->finished != b->finished ? a->finished > b->finished : a->job < b->job;
  });
  Json all = Json::array();
  for (const JobSnapshot* const job : order) {
    if (all.size() >= query.limit) break;
    if (query.wants(printable_id(job->job.text()))) all.push_back(job_json(*job));
  }
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

std::string status_json(const Snapshot& shot, std::string_view version,
                        std::string_view generation) {
  Json services = Json::array();
  for (const ServiceSnapshot& one : shot.services) services.push_back(summary_json(one));
  const serve::Counters& counters = shot.counters;
  return text_of(
      {{"version", version},
       {"generation", generation},
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
        {{"used", shot.memory_used}, {"kept", shot.memory_kept}, {"limit", shot.memory_limit}}},
       {"exports", shot.exports},
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
  if (what == "capacity") return text_of(capacity_json(shot));
  return std::nullopt;
}

std::string live_event(const Snapshot& shot, std::string_view generation) {
  Json services = Json::array();
  for (const ServiceSnapshot& service : shot.services) {
    std::vector<const ClassSnapshot*> order;
    order.reserve(service.classes.size());
    for (const ClassSnapshot& one : service.classes) order.push_back(&one);
    const auto first = order.begin();
    const auto last = first + static_cast<std::ptrdiff_t>(std::min(order.size(), kPageClasses));
    std::partial_sort(first, last, order.end(), [](const ClassSnapshot* a, const ClassSnapshot* b) {
      return a->totals.served > b->totals.served;
    });
    std::map<JobId, const JobSnapshot*> jobs;
    for (const JobSnapshot& job : service.jobs) jobs.emplace(job.job, &job);
    Json classes = Json::array();
    for (auto one = first; one != last; ++one) {
      Json json = class_json(**one);
      const auto job = jobs.find((*one)->key.job);
      if ((*one)->by.has(Field::kJobid) && job != jobs.end()) {
        json["waiting"] = job->second->waiting;
        json["record"] = job->second->record;
        json["share"] = job->second->share ? Json(*job->second->share) : Json(nullptr);
      }
      classes.push_back(std::move(json));
    }
    ClassTotals others;
    for (auto one = last; one != order.end(); ++one) {
      others += (*one)->totals;
    }
    Json json = summary_json(service);
    json["top"] = classes;
    json["others"] = {
        {"served", others.served}, {"bytes", others.bytes}, {"waited_ns", others.waited_ns}};
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
