// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain.h"

#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "weir/control/explain_words.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/words.h"

namespace weir::control {
namespace {

Json texts_json(const std::vector<CauseTime>& causes) {
  Json all = Json::array();
  for (const CauseTime& one : causes) {
    all.push_back({{"cause", one.cause},
                   {"text", one.text},
                   {"each_ns", one.each},
                   {"total_ns", one.total},
                   {"each", time_words(one.each)},
                   {"total", time_words(one.total)}});
  }
  return all;
}

Json delays_json(const ServiceSnapshot& service, const WaitSpan& span) {
  if (span.from == kNever) return nullptr;
  Json delays = Json::object();
  for (std::size_t i = 0; i < kDelays; ++i) {
    delays[std::string(delay_name(static_cast<Delay>(i))) + "_ns"] = span.delays[i];
  }
  delays["wait_ns"] = span.wait_ns();
  delays["window_ns"] = (service.now - span.from).count();
  delays["requests"] = span.requests;
  delays["device_requests"] = span.device.requests;
  delays["device_ns"] = span.device.ns;
  delays["text"] = waited_words(service, span);
  delays["causes"] = texts_json(cause_times(span));
  return delays;
}

// The jobs with the largest records below or above 0.
Json largest_json(const std::vector<const JobSnapshot*>& jobs) {
  Json all = Json::array();
  for (const JobSnapshot* const job : jobs) {
    all.push_back({{"job", printable_id(job->job.text())}, {"tokens", std::abs(job->record)}});
  }
  return all;
}

}  // namespace

std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason) {
  const ServiceSnapshot& service = shot.services[explained.service];
  const WaitSpan span = span_of(service, explained, history);
  const Verdict verdict = verdict_of(service, explained, span, shot.locks);
  const std::string why =
      reason.empty() ? conditions_of(service, explained.found->rule) : std::string(reason);
  Json json = class_json(*explained.found);
  json["service"] = service.name;
  json["reason"] = why;
  json["policy"] = policy_text(service);
  json["cause"] = verdict.cause;
  json["verdict"] = explained.asked_for + verdict.text;
  json["cure"] = verdict.cure.empty() ? Json(nullptr) : Json(verdict.cure);
  json["limited_by"] = verdict.limited_by.empty() ? Json(nullptr) : Json(verdict.limited_by);
  json["facts"] = Json::array();
  for (const Fact& one : facts_of(service, *explained.found,
                                  {.reason = why,
                                  .policy = policy_text(service),
                                  .limited_by = verdict.limited_by,
                                  .waiting = span.waiting,
                                  .is_measured = span.from != kNever})) {
    json["facts"].push_back({{"name", one.name}, {"text", one.text}});
  }
  const std::vector<const JobSnapshot*> debtors = largest_records(service, RecordSign::kOwes);
  const std::vector<const JobSnapshot*> lenders = largest_records(service, RecordSign::kIsOwed);
  json["standing"] = Json::array();
  if (const JobSnapshot* const job = job_of(service, explained)) {
    json["job"] = job_json(*job);
    const std::uint64_t owed = static_cast<std::uint64_t>(std::abs(job->record));
    json["owes"] = job->record < 0 ? owed : 0;
    json["is_owed"] = job->record > 0 ? owed : 0;
    if (service.adaptive == "on") {
      json["standing"] = standing_of(service, *job, verdict);
      for (std::string& one : record_words(debtors, lenders)) {
        json["standing"].push_back(std::move(one));
      }
    }
  }
  json["capacity"] = service.capacity ? Json(*service.capacity) : Json(nullptr);
  json["capacity_unit"] = service.capacity_unit;
  json["waiting"] = span.waiting;
  json["delays"] = delays_json(service, span);
  json["debtors"] = largest_json(debtors);
  json["lenders"] = largest_json(lenders);
  return text_of(json);
}

}  // namespace weir::control
