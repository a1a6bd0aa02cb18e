// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/rule_spec.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/words.h"
#include "weir/schedule/policy_kinds.h"

namespace weir::control {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
// A shorter wait is no reason to change anything.
constexpr std::uint64_t kShortWait = 100'000;

std::uint64_t per_second(std::uint64_t count, Nanoseconds time) {
  if (time <= Nanoseconds{0}) return 0;
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(count) * kNsPerSecond /
                                    static_cast<std::uint64_t>(time.count()));
}

// The name without what ClassQuery allows in front of it.
std::string_view bare(std::string_view name) {
  for (const std::string_view word : {"job=", "uid=", "gid=", "client=", "export=", "rule="}) {
    if (name.starts_with(word)) return name.substr(word.size());
  }
  return name;
}

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

bool is_of(const WaitView& wait, std::string_view rule, const Explained& explained) {
  const ClassSnapshot& found = *explained.found;
  if (explained.job && wait.key.job != *explained.job) return false;
  if (found.by.empty() && rule != found.rule) return false;
  return wait.key.only(found.by) == found.key;
}

WaitSpan span_of(const ServiceSnapshot& service, const Explained& explained,
                 const WaitHistory& history) {
  const JobSnapshot* const job = job_of(service, explained);
  WaitSpan all;
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    const WaitView& wait = service.waits[i];
    const std::string_view rule =
        i < service.wait_rule_names.size() ? std::string_view(service.wait_rule_names[i]) : "";
    if (!is_of(wait, rule, explained)) continue;
    const WaitSpan one = history.since(explained.service, wait,
                                       job == nullptr ? DeviceSums{} : job->device, service.now);
    for (std::size_t cause = 0; cause < kDelays; ++cause) all.delays[cause] += one.delays[cause];
    all.requests += one.requests;
    all.arrived += one.arrived;
    all.waiting += one.waiting;
    all.from = std::min(all.from, one.from);
    if (one.device.requests > all.device.requests) all.device = one.device;  // of one job
  }
  return all;
}

std::string conditions_of(const ServiceSnapshot& service, std::string_view rule) {
  for (const RuleSnapshot& one : service.rules) {
    if (one.name == rule) return "requests that match " + quote(one.conditions);
  }
  return "it is no longer listed";
}

// The key of a request that matches the rule, if one was seen.
Attributes key_under(const ServiceSnapshot& service, const ClassSnapshot& one) {
  for (std::size_t i = 0; one.by.empty() && i < service.wait_rule_names.size(); ++i) {
    if (service.wait_rule_names[i] == one.rule) return service.waits[i].key;
  }
  return one.key;
}

// ---- the answer ----

std::string tokens_rate(std::uint64_t rate, const ServiceSnapshot& service) {
  return service.capacity_unit == "bytes" ? bandwidth_words(rate)
                                          : rate_words(rate, service.capacity_unit);
}

Verdict limited(const ServiceSnapshot& service, const ClassSnapshot& found, const std::string& who,
                const WaitSpan& span) {
  if (found.rate == 0 && found.bps == 0) {
    return {.cause = "limit",
            .text = who +
                    " is limited by a rule of a higher layer that it also matches; weir rule "
                    "list shows them",
            .cure = ""};
  }
  const bool by_bytes = found.bps > 0 && (found.rate == 0 || found.byte_level * found.depth <
                                                                 found.level * found.byte_depth);
  const std::uint64_t asked = per_second(span.arrived, service.now - span.from);
  std::string text =
      fmt::format("{} is limited by rule {} ({}{})", who, quote(found.rule),
                  by_bytes ? bandwidth_words(found.bps) : rate_words(found.rate, "operations"),
                  found.is_of_cluster ? " on this server, its part of a limit of the cluster" : "");
  // Requests that wait count too: a queue that has just filled is not a demand.
  if (!by_bytes && asked > found.rate + found.rate / 4) {
    text += fmt::format("; it asked for {}", rate_words(asked, "operations"));
  }
  RuleKeys more;
  if (by_bytes) {
    more.bps = Rate::per_second(2 * found.bps);
  } else {
    const std::uint64_t rate = std::max(2 * found.rate, asked);
    more.rate = static_cast<std::uint32_t>(std::min<std::uint64_t>(rate, kRateMax));
  }
  return {"limit", text,
          fmt::format("weir {} {}", found.is_of_cluster ? "cluster rule" : "rule",
                      print(change_of(found.rule, more)))};
}

Verdict out_of_share(const ServiceSnapshot& service, const JobSnapshot* job,
                     const std::string& who) {
  if (job == nullptr || !job->share) {
    return {"share", who + " uses all of its share of the capacity", ""};
  }
  std::string text =
      fmt::format("{} uses all of its share of the capacity, {} for {} node{}", who,
                  tokens_rate(*job->share, service), job->nodes, job->nodes == 1 ? "" : "s");
  if (job->record < 0) {
    text += fmt::format(", and repays {} tokens to other jobs",
                        count_words(static_cast<std::uint64_t>(-job->record)));
  }
  return {"share", text,
          fmt::format("weir job set {} {}", printable_id(job->job.text()), 2 * job->nodes)};
}

Verdict behind_others(const ServiceSnapshot& service, const std::string& who) {
  if (service.groups && !service.groups->preferred.empty()) {
    return {"order",
            fmt::format("{} waits for its turn: requests of group {} go first", who,
                        quote(service.groups->preferred)),
            ""};
  }
  return {"order", who + " waits while requests of other classes or jobs run, which go first", ""};
}

}  // namespace

std::uint64_t WaitSpan::wait_ns() const {
  return std::accumulate(delays.begin(), delays.end(), std::uint64_t{0});
}

void WaitHistory::add(Sample sample) {
  samples.push_back(std::move(sample));
  if (samples.size() > kSamplesMax) samples.pop_front();
}

WaitSpan WaitHistory::since(std::size_t service, const WaitView& now, const DeviceSums& device,
                            Instant at) const {
  WaitSpan span{.delays = now.delays,
                .requests = now.left + now.waiting,
                .arrived = now.left + now.waiting,
                .waiting = now.waiting,
                .from = now.begun,
                .device = device};
  for (const Sample& sample : samples) {
    if (service >= sample.size() || at - sample[service].at > kWindow) continue;
    const OfService& then = sample[service];
    for (std::size_t i = 0; i < then.waits.size(); ++i) {
      const WaitView& before = then.waits[i];
      if (before.key != now.key || before.head != now.head || before.begun != now.begun) continue;
      for (std::size_t cause = 0; cause < kDelays; ++cause) {
        span.delays[cause] -= before.delays[cause];
      }
      span.requests -= before.left;
      span.arrived -= before.left + before.waiting;
      span.from = then.at;
      if (i < then.devices.size() && then.devices[i].requests <= device.requests) {
        span.device.requests -= then.devices[i].requests;
        span.device.ns -= then.devices[i].ns;
      }
      return span;
    }
    // It was not watched then, so all its delays are later.
    if (now.begun >= then.at) return span;
  }
  return span;
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
      // The class of a whole rule is that of a job whose requests match the rule.
      if (is_seen && one.by.empty() && one.rule == rule && !best) {
        of_key = Explained{at, &one, {}, job};
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
  for (const ServiceSnapshot& one : shot.services) {
    if (!service.empty() && one.name != service) continue;
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

Verdict verdict_of(const ServiceSnapshot& service, const Explained& explained,
                   const WaitSpan& span) {
  const ClassSnapshot& found = *explained.found;
  const std::string who = explained.job ? printable_id(explained.job->text()) : found.name();
  if (span.from == kNever) {
    return {"unknown", who + " is not measured: too many classes are busy, or it was idle", ""};
  }
  const std::string window =
      time_words(static_cast<std::uint64_t>((service.now - span.from).count()));
  if (span.requests == 0) {
    return {"none", fmt::format("{} has sent no requests in the last {}", who, window), ""};
  }
  const std::uint64_t wait = span.wait_each();
  const std::uint64_t device = span.device_each();
  if (wait < kShortWait || wait < device / 10) {
    std::string text =
        fmt::format("{} is not throttled: its requests wait {} on average", who, time_words(wait));
    if (device > 0) text += fmt::format(", and the device takes {}", time_words(device));
    return {device > wait ? "device" : "none", text, ""};
  }
  if (device > wait) {
    return {"device",
            fmt::format("{} waits mostly for the device: {} of {} on average", who,
                        time_words(device), time_words(wait + device)),
            ""};
  }
  const auto most = std::max_element(span.delays.begin(), span.delays.end());
  switch (static_cast<Delay>(most - span.delays.begin())) {
    case Delay::kLimit:
      return limited(service, found, who, span);
    case Delay::kShare:
      return out_of_share(service, job_of(service, explained), who);
    case Delay::kRoot:
      return {"root",
              fmt::format(
                  "service {} is at its capacity{}, which {} shares with other jobs", service.name,
                  service.capacity ? " of " + tokens_rate(*service.capacity, service) : "", who),
              ""};
    case Delay::kSlot:
      return {"slot",
              fmt::format("{} waits for the device: all {} slots of service {} are busy", who,
                          service.slots.count, service.name),
              ""};
    case Delay::kOrder:
      break;
  }
  return behind_others(service, who);
}

std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason) {
  const ServiceSnapshot& service = shot.services[explained.service];
  const WaitSpan span = span_of(service, explained, history);
  const Verdict verdict = verdict_of(service, explained, span);
  Json json = class_json(*explained.found);
  json["service"] = service.name;
  json["reason"] =
      reason.empty() ? conditions_of(service, explained.found->rule) : std::string(reason);
  json["policy"] = policy_text(service);
  json["cause"] = verdict.cause;
  json["verdict"] = verdict.text;
  json["cure"] = verdict.cure.empty() ? Json(nullptr) : Json(verdict.cure);
  if (const JobSnapshot* const job = job_of(service, explained)) {
    json["job"] = job_json(*job);
    const std::uint64_t owed = static_cast<std::uint64_t>(std::abs(job->record));
    json["owes"] = job->record < 0 ? owed : 0;
    json["is_owed"] = job->record > 0 ? owed : 0;
  }
  json["capacity"] = service.capacity ? Json(*service.capacity) : Json(nullptr);
  json["capacity_unit"] = service.capacity_unit;
  json["waiting"] = span.waiting;
  Json delays = nullptr;
  if (span.from != kNever) {
    delays = Json::object();
    for (std::size_t i = 0; i < kDelays; ++i) {
      delays[std::string(delay_name(static_cast<Delay>(i))) + "_ns"] = span.delays[i];
    }
    delays["wait_ns"] = span.wait_ns();
    delays["window_ns"] = (service.now - span.from).count();
    delays["requests"] = span.requests;
    delays["device_requests"] = span.device.requests;
    delays["device_ns"] = span.device.ns;
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

}  // namespace weir::control
