// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "weir/control/json_nlohmann.h"

namespace weir::control {

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

}  // namespace weir::control
