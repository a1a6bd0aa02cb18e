// SPDX-License-Identifier: Apache-2.0
#include "weir/control/api.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "weir/base/quote.h"
#include "weir/control/lock_json.h"
#include "weir/control/lock_params.h"

namespace weir::control {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPageClasses = 200;  // in an event
constexpr std::size_t kLimitDefault = 1000;
constexpr std::size_t kLocksMax = 100'000;  // maximum of a list

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

HttpResponse ok(const Json& json) { return {.body = text_of(json)}; }

unsigned status_of(std::errc code) {
  switch (code) {
    case std::errc::no_such_file_or_directory:
      return 404;
    case std::errc::file_exists:
    case std::errc::no_such_device:
    case std::errc::device_or_resource_busy:
      return 409;
    case std::errc::operation_not_permitted:
    case std::errc::permission_denied:
      return 403;
    case std::errc::not_supported:
      return 405;
    case std::errc::no_space_on_device:
      return 507;
    case std::errc::operation_canceled:
    case std::errc::resource_unavailable_try_again:
      return 503;
    case std::errc::io_error:
      return 500;
    default:
      return 400;
  }
}

// ---- snapshots as JSON ----

Json class_json(const ClassSnapshot& one) {
  return {{"class", one.name()},
          {"rule", one.rule},
          {"rate", one.rate},
          {"depth", one.depth},
          {"level", one.level},
          {"bps", one.bps},
          {"byte_depth", one.byte_depth},
          {"byte_level", one.byte_level},
          {"served", one.totals.served},
          {"bytes", one.totals.bytes},
          {"waited_ns", one.totals.waited_ns}};
}

Json job_json(const JobSnapshot& job) {
  Json json{{"job", printable_id(job.job.text())},
            {"nodes", job.nodes},
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

// The policy of the regular head as it is written to nrs_policies.
std::string policy_text(const ServiceSnapshot& shot) {
  std::string text = "fifo";
  for (const PolicySnapshot& policy : shot.policies) {
    if (policy.head != "regular" || policy.state != "started" || policy.name == "fifo") continue;
    text = policy.argument.empty() ? policy.name : policy.name + " " + policy.argument;
  }
  return text;
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

Json service_json(const ServiceSnapshot& shot) {
  Json json{{"service", shot.name},
            {"policy", policy_text(shot)},
            {"queued", shot.queued},
            {"running", shot.running},
            {"classes", shot.classes.size()},
            {"jobs", shot.jobs.size()},
            {"rules", shot.rules_in_all},
            {"overflowed", shot.overflowed},
            {"groups", groups_json(shot.groups)}};
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

constexpr std::array<std::string_view, 4> kSorts = {"waited_ns", "served", "bytes", "class"};

// The query of a list.
struct ListQuery {
  std::size_t limit = kLimitDefault;
  std::string_view sort = kSorts[0];
  std::string_view filter;

  bool wants(std::string_view name) const { return name.find(filter) != std::string_view::npos; }
};

Result<ListQuery> list_query(const HttpRequest& request) {
  ListQuery query;
  query.filter = request.find("filter").value_or("");
  query.sort = request.find("sort").value_or(query.sort);
  if (std::count(kSorts.begin(), kSorts.end(), query.sort) == 0) {
    return fail(std::errc::invalid_argument, "sort", quote(query.sort) + " is not a sort key",
                fmt::format("use one of {}", fmt::join(kSorts, ", ")));
  }
  const auto text = request.find("limit");
  if (!text) return query;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), query.limit);
  if (error != std::errc{} || end != text->data() + text->size()) {
    return fail(std::errc::invalid_argument, "limit", quote(*text) + " is not a whole number",
                "omit it for 1000");
  }
  return query;
}

HttpResponse locks_answer(const Snapshot& shot, const std::vector<std::string>& parts) {
  if (parts.size() == 1) return {.body = namespaces_json(shot.locks)};
  const auto found = std::find_if(shot.locks.begin(), shot.locks.end(),
                                  [&](const auto& one) { return one.name == parts[1]; });
  if (found == shot.locks.end()) {
    return error_response(404, "no namespace named " + quote(parts[1]));
  }
  return {.body = namespace_json(*found)};
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

Json status_json(const Snapshot& shot, std::string_view version, std::string_view generation) {
  Json services = Json::array();
  for (const ServiceSnapshot& one : shot.services) services.push_back(service_json(one));
  const serve::Counters& counters = shot.counters;
  return {{"version", version},
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
          {"services", services}};
}

// "/v1/services/ost_io/rules" in its parts behind "/v1".
std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts;
  if (!path.starts_with("/v1/")) return parts;
  path.remove_prefix(4);
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

HttpResponse service_answer(const ServiceSnapshot& shot, std::string_view what,
                            const HttpRequest& request) {
  if (what.empty()) return ok(service_json(shot));
  if (what == "policies") return ok(policies_json(shot));
  if (what == "rules") return ok(rules_json(shot));
  if (what == "classes" || what == "jobs") {
    const auto query = list_query(request);
    if (!query) return error_response(query.error());
    return ok(what == "classes" ? classes_json(shot, *query) : jobs_json(shot, *query));
  }
  if (what == "ledger") return ok(ledger_json(shot));
  if (what == "capacity") return ok(capacity_json(shot));
  return error_response(404, "a service has no " + quote(what),
                        "use policies, rules, classes, jobs, ledger or capacity");
}

}  // namespace

HttpResponse error_response(unsigned status, std::string_view what, std::string_view hint) {
  Json json{{"error", what}};
  if (!hint.empty()) json["hint"] = hint;
  return {.status = status, .body = text_of(json)};
}

HttpResponse error_response(const Error& error) {
  Json json{{"error", error.what},
            {"where", error.where},
            {"hint", error.hint},
            {"errno", static_cast<int>(error.code)}};
  return {.status = status_of(error.code), .body = text_of(json)};
}

bool is_snapshot_path(std::string_view path) {
  const auto parts = parts_of(path);
  if (!parts.empty() && parts[0] == "locks") return parts.size() <= 2;
  return parts.size() >= 1 && parts.size() <= 3 && (parts[0] == "status" || parts[0] == "services");
}

bool is_lock_list_path(std::string_view path) {
  const auto parts = parts_of(path);
  return parts.size() == 3 && parts[0] == "locks" && parts[2] == "list";
}

HttpResponse answer_lock_list(lock::Console& console, const HttpRequest& request) {
  const auto query = list_query(request);
  if (!query) return error_response(query.error());
  const std::size_t limit = std::min(query->limit, kLocksMax);
  lock::ListOptions options{.filter = std::string(query->filter)};
  std::vector<lock::LockView> locks;
  do {
    options.max = limit - locks.size();
    auto list = console.list(parts_of(request.path)[1], options);
    if (!list) return error_response(list.error());
    std::move(list->locks.begin(), list->locks.end(), std::back_inserter(locks));
    options.from = list->next;
  } while (options.from != 0 && locks.size() < limit);
  return {.body = lock_list_json(locks, options.from == 0)};
}

HttpResponse answer_from(const Snapshot& shot, const HttpRequest& request, std::string_view version,
                         std::string_view generation) {
  const auto parts = parts_of(request.path);
  HttpResponse response;
  if (parts[0] == "status") {
    response = ok(status_json(shot, version, generation));
  } else if (parts[0] == "locks") {
    response = locks_answer(shot, parts);
  } else if (parts.size() == 1) {
    Json all = Json::array();
    for (const ServiceSnapshot& one : shot.services) all.push_back(service_json(one));
    response = ok(all);
  } else {
    const auto found = std::find_if(shot.services.begin(), shot.services.end(),
                                    [&](const auto& one) { return one.name == parts[1]; });
    if (found == shot.services.end()) {
      return error_response(404, "no service named " + quote(parts[1]));
    }
    response = service_answer(*found, parts.size() == 3 ? parts[2] : "", request);
  }
  if (response.status == 200) {
    response.etag = generation;
    response.time_ns = static_cast<std::uint64_t>(shot.moment.wall_ns);
  }
  return response;
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
    Json json = service_json(service);
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

std::string params_json(const std::vector<ParamOutcome>& outcomes) {
  Json all = Json::array();
  for (const ParamOutcome& outcome : outcomes) {
    Json one{{"path", outcome.path}, {"file", outcome.slashed}};
    if (outcome.error.code == std::errc{}) {
      one["value"] = outcome.value;
      if (!outcome.note.empty()) one["note"] = outcome.note;
    } else {
      one["errno"] = static_cast<int>(outcome.error.code);
      one["error"] = outcome.error.message();
    }
    all.push_back(std::move(one));
  }
  return text_of(all);
}

std::string change_json(std::string_view generation, bool is_durable,
                        const std::vector<ParamOutcome>& outcomes) {
  Json json{{"generation", generation}, {"durable", is_durable}};
  for (const ParamOutcome& outcome : outcomes) {
    if (!outcome.note.empty()) json["notes"].push_back(outcome.note);
  }
  return text_of(json);
}

// ---- the cluster ----

namespace {

Json slices_json(const std::vector<serve::SliceStatus>& slices) {
  Json all = Json::array();
  for (const serve::SliceStatus& one : slices) {
    all.push_back({{"of", one.of}, {"milli_per_s", one.milli}, {"leased", one.is_leased}});
  }
  return all;
}

Json courses_json(const std::vector<serve::CourseStatus>& courses) {
  Json all = Json::array();
  for (const serve::CourseStatus& one : courses) {
    all.push_back({{"service", one.service},
                   {"epoch", one.epoch},
                   {"rounds", one.rounds},
                   {"evictions", one.evictions},
                   {"members", one.members}});
  }
  return all;
}

}  // namespace

std::string cluster_json(const serve::ClusterStatus& status) {
  Json members = Json::array();
  for (const serve::MemberStatus& one : status.members) {
    members.push_back({{"name", one.name},
                       {"address", one.address},
                       {"registered", one.is_registered},
                       {"joined", one.is_joined},
                       {"away_ns", one.away ? Json(one.away->count()) : Json(nullptr)},
                       {"slices", slices_json(one.slices)}});
  }
  Json leader = nullptr;
  if (const auto& told = status.at_leader) {
    leader = {{"rounds", told->rounds},
              {"round_median_ns", told->round_median.count()},
              {"round_p99_ns", told->round_p99.count()},
              {"evictions", told->evictions},
              {"refused", told->refused},
              {"garbage", told->garbage},
              {"courses", courses_json(told->courses)}};
  }
  return text_of({{"name", status.name},
                  {"state", status.state},
                  {"why", status.why},
                  {"leader", status.leader},
                  {"term", status.term},
                  {"epoch", status.epoch},
                  {"epochs", status.epochs},
                  {"errors", status.errors},
                  {"counted", status.counted},
                  {"slices", slices_json(status.slices)},
                  {"members", members},
                  {"at_leader", leader},
                  {"rule_errors", status.rule_errors}});
}

std::string cluster_rules_json(const std::vector<serve::ClusterRule>& rules) {
  Json all = Json::array();
  for (const serve::ClusterRule& one : rules) {
    all.push_back(
        {{"service", one.service}, {"rule", one.rule}, {"commands", print_all(one.changes)}});
  }
  return text_of(all);
}

// ---- explaining ----

void WaitHistory::add(Sample sample) {
  samples.push_back(std::move(sample));
  if (samples.size() > kSamplesMax) samples.pop_front();
}

DelaySums WaitHistory::since(std::size_t service, const WaitView& now, Instant at,
                             Instant& from) const {
  DelaySums delays = now.delays;
  from = now.begun;
  for (const Sample& sample : samples) {
    if (service >= sample.size() || at - sample[service].at > kWindow) continue;
    for (const WaitView& before : sample[service].waits) {
      if (before.key != now.key || before.head != now.head || before.begun != now.begun) continue;
      for (std::size_t i = 0; i < kDelays; ++i) delays[i] = now.delays[i] - before.delays[i];
      from = sample[service].at;
      return delays;
    }
    // It was not watched then, so all its delays are later.
    if (now.begun >= sample[service].at) return delays;
  }
  return delays;
}

std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view name, std::string_view rule) {
  const auto id = read_id(name);
  const std::optional<JobId> job = id ? std::optional(JobId(*id)) : std::nullopt;
  std::optional<Explained> by_job;
  for (std::size_t at = 0; at < shot.services.size(); ++at) {
    if (!service.empty() && shot.services[at].name != service) continue;
    for (const ClassSnapshot& one : shot.services[at].classes) {
      const bool has_rule = name.size() > one.rule.size() && name.starts_with(one.rule) &&
                            name[one.rule.size()] == '/';
      if (has_rule && one.name() == name) return Explained{at, &one};
      if (by_job && (one.rule != rule || by_job->found->rule == rule)) continue;
      const bool is_jobs = job && one.by.has(Field::kJobid) && one.key.job == *job;
      if (is_jobs ||
          (!one.by.has(Field::kJobid) && !one.by.empty() && key_name(one.key, one.by) == name)) {
        by_job = Explained{at, &one};
      }
    }
  }
  return by_job;
}

std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason) {
  const ServiceSnapshot& service = shot.services[explained.service];
  const ClassSnapshot& found = *explained.found;
  Json json = class_json(found);
  json["service"] = service.name;
  json["reason"] = reason;
  json["policy"] = policy_text(service);
  for (const JobSnapshot& job : service.jobs) {
    if (!found.by.has(Field::kJobid) || job.job != found.key.job) continue;
    json["job"] = job_json(job);
    const std::uint64_t owed = static_cast<std::uint64_t>(std::abs(job.record));
    json["owes"] = job.record < 0 ? owed : 0;
    json["is_owed"] = job.record > 0 ? owed : 0;
  }
  DelaySums sums{};
  std::uint64_t waiting = 0;
  Instant since = service.now;
  bool is_watched = false;
  for (const WaitView& wait : service.waits) {
    if (wait.key.only(found.by) != found.key) continue;
    Instant from{};
    const DelaySums delays = history.since(explained.service, wait, service.now, from);
    for (std::size_t i = 0; i < kDelays; ++i) sums[i] += delays[i];
    since = std::min(since, from);
    waiting += wait.waiting;
    is_watched = true;
  }
  json["waiting"] = waiting;
  Json delays = nullptr;
  if (is_watched) {
    delays = Json::object();
    for (std::size_t i = 0; i < kDelays; ++i) {
      delays[std::string(delay_name(static_cast<Delay>(i))) + "_ns"] = sums[i];
    }
    delays["wait_ns"] = std::accumulate(sums.begin(), sums.end(), std::uint64_t{0});
    delays["window_ns"] = (service.now - since).count();
  }
  json["delays"] = delays;
  Json debtors = Json::array(), lenders = Json::array();
  for (const JobSnapshot& job : service.jobs) {
    Json one{{"job", printable_id(job.job.text())}, {"tokens", std::abs(job.record)}};
    if (job.record < 0 && debtors.size() < 10)
      debtors.push_back(std::move(one));
    else if (job.record > 0 && lenders.size() < 10)
      lenders.push_back(std::move(one));
  }
  json["debtors"] = debtors;
  json["lenders"] = lenders;
  return text_of(json);
}

// ---- changing ----

namespace {

// An object with these keys and no others.
class Body {  // NOLINT(bugprone-exception-escape): of Json, which asserts when it is moved
 public:
  static Result<Body> read(const std::string& text, std::initializer_list<const char*> keys) {
    Body body;
    body.json_ = Json::parse(text, nullptr, false);
    if (!body.json_.is_object()) {
      return fail(std::errc::invalid_argument, "body", "is not a JSON object");
    }
    for (const auto& item : body.json_.items()) {
      const auto known = [&](const char* one) { return item.key() == one; };
      if (std::none_of(keys.begin(), keys.end(), known)) {
        return fail(std::errc::invalid_argument, quote(item.key()), "is not a valid key here");
      }
    }
    return body;
  }

  Result<std::string> text(const char* key) const {
    if (!json_.contains(key) || !json_[key].is_string()) {
      return fail(std::errc::invalid_argument, quote(key), "is missing or not a string");
    }
    return json_[key].get<std::string>();
  }
  Result<std::uint64_t> number(const char* key) const {
    if (!json_.contains(key) || !json_[key].is_number_unsigned()) {
      return fail(std::errc::invalid_argument, quote(key), "is missing or not a whole number");
    }
    return json_[key].get<std::uint64_t>();
  }
  Result<bool> flag(const char* key) const {
    if (!json_.contains(key)) return false;
    if (!json_[key].is_boolean()) {
      return fail(std::errc::invalid_argument, quote(key), "must be true or false");
    }
    return json_[key].get<bool>();
  }
  const Json& json() const { return json_; }

 private:
  Json json_;
};

tl::unexpected<Error> no_such_method(const HttpRequest& request) {
  return fail(std::errc::not_supported, quote(request.path),
              quote(request.method) + " is not allowed here");
}

Result<ChangeRequest> read_params_change(const HttpRequest& request) {
  const auto body = Body::read(request.body, {"set", "persist", "delete"});
  if (!body) return tl::unexpected(body.error());
  const auto persist = body->flag("persist");
  const auto forget = body->flag("delete");
  if (!persist) return tl::unexpected(persist.error());
  if (!forget) return tl::unexpected(forget.error());
  ChangeRequest change{.changes = {}, .persists = *persist, .applies = !*forget, .is_params = true};
  if (!body->json().contains("set") || !body->json()["set"].is_array()) {
    return fail(std::errc::invalid_argument, "'set'", "is missing or not an array");
  }
  for (const Json& one : body->json()["set"]) {
    const auto is_text = [&](const char* key) { return one.contains(key) && one[key].is_string(); };
    if (!one.is_object() || !is_text("pattern") || (!*forget && !is_text("value"))) {
      return fail(std::errc::invalid_argument, "'set'", "contains more than pattern and value");
    }
    Change made{.kind = *forget ? Change::Kind::kForget : Change::Kind::kParam,
                .target = dotted(one["pattern"].get<std::string>()),
                .value = {}};
    if (is_text("value")) made.value = one["value"].get<std::string>();
    change.changes.push_back(std::move(made));
  }
  return change;
}

Result<ChangeRequest> read_job_change(const HttpRequest& request, const std::string& name) {
  auto id = read_id(name);
  if (!id) return tl::unexpected(id.error());
  if (id->size() > JobId::kSizeMax) {
    return fail(std::errc::invalid_argument, "job " + quote(name), "is longer than 31 bytes");
  }
  Change change{.kind = Change::Kind::kJob, .target = std::move(*id), .value = {}};
  if (request.method == "PUT") {
    const auto body = Body::read(request.body, {"nodes"});
    if (!body) return tl::unexpected(body.error());
    const auto nodes = body->number("nodes");
    if (!nodes) return tl::unexpected(nodes.error());
    if (*nodes == 0) return fail(std::errc::invalid_argument, "'nodes'", "must be above 0");
    change.nodes = *nodes;
  } else if (request.method != "DELETE") {
    return no_such_method(request);
  }
  return ChangeRequest{.changes = {std::move(change)}};
}

Result<ChangeRequest> read_service_change(const HttpRequest& request,
                                          const std::vector<std::string>& parts) {
  const std::string& service = parts[1];
  const auto one_text = [&](const char* key) -> Result<std::string> {
    const auto body = Body::read(request.body, {key});
    if (!body) return tl::unexpected(body.error());
    return body->text(key);
  };
  Change change;
  if (parts[2] == "rules" && parts.size() == 4 && request.method == "DELETE") {
    change = {.target = rule_path(service), .value = print(stop_of(parts[3]))};
  } else if (parts.size() != 3) {
    return fail(std::errc::no_such_file_or_directory, quote(request.path), "no such path");
  } else if (parts[2] == "rules" && request.method == "POST") {
    auto command = one_text("command");
    if (!command) return tl::unexpected(command.error());
    change = {.target = rule_path(service), .value = std::move(*command)};
  } else if (parts[2] == "policies" && request.method == "PUT") {
    auto policy = one_text("policy");
    if (!policy) return tl::unexpected(policy.error());
    change = {.target = policy_path(service), .value = std::move(*policy)};
  } else if (parts[2] == "capacity" && request.method == "PUT") {
    auto capacity = one_text("capacity");
    if (!capacity) return tl::unexpected(capacity.error());
    change = {.kind = Change::Kind::kCapacity, .target = service, .value = std::move(*capacity)};
  } else {
    return no_such_method(request);
  }
  return ChangeRequest{.changes = {std::move(change)}};
}

// Each key is one parameter, so that it is parsed, stored and refused like parameters.
Result<ChangeRequest> read_locks_change(const HttpRequest& request, const std::string& name) {
  const auto body = Body::read(request.body, {"limit", "recalc_period", "lru_size", "lru_max_age"});
  if (!body) return tl::unexpected(body.error());
  ChangeRequest change;
  for (const auto& item : body->json().items()) {
    const bool is_count = item.key() == "limit" || item.key() == "lru_size";
    Change made;
    if (is_count) {
      const auto number = body->number(item.key().c_str());
      if (!number) return tl::unexpected(number.error());
      made.value = std::to_string(*number);
    } else {
      auto text = body->text(item.key().c_str());
      if (!text) return tl::unexpected(text.error());
      made.value = std::move(*text);
    }
    const bool is_pool = item.key() == "limit" || item.key() == "recalc_period";
    made.target =
        is_pool ? lock_pool_path(name, item.key()) : lock_namespace_path(name, item.key());
    change.changes.push_back(std::move(made));
  }
  if (change.changes.empty()) {
    return fail(std::errc::invalid_argument, "body", "changes nothing",
                "set limit, recalc_period, lru_size or lru_max_age");
  }
  return change;
}

}  // namespace

Result<ClusterChange> read_cluster_change(const HttpRequest& request) {
  const auto body = Body::read(request.body, {"service", "command"});
  if (!body) return tl::unexpected(body.error());
  auto service = body->text("service");
  if (!service) return tl::unexpected(service.error());
  const auto command = body->text("command");
  if (!command) return tl::unexpected(command.error());
  auto change = parse_rule(*command);
  if (!change) return tl::unexpected(change.error());
  return ClusterChange{std::move(*service), std::move(*change)};
}

Result<ChangeRequest> read_change(const HttpRequest& request) {
  const auto parts = parts_of(request.path);
  if (parts.size() == 1 && parts[0] == "params" && request.method == "POST") {
    return read_params_change(request);
  }
  if (parts.size() == 2 && parts[0] == "jobs") return read_job_change(request, parts[1]);
  if (parts.size() >= 3 && parts[0] == "services") return read_service_change(request, parts);
  if (parts.size() == 2 && parts[0] == "locks" && request.method == "PUT") {
    return read_locks_change(request, parts[1]);
  }
  if (is_lock_list_path(request.path)) return no_such_method(request);
  if (is_snapshot_path(request.path) || (parts.size() == 1 && parts[0] == "params")) {
    return no_such_method(request);
  }
  return fail(std::errc::no_such_file_or_directory, quote(request.path), "no such path",
              "see weir-api(7)");
}

}  // namespace weir::control
