// SPDX-License-Identifier: Apache-2.0
#include "weir/control/question.h"

#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/nid.h"
#include "weir/classify/number.h"
#include "weir/control/job_stats_text.h"
#include "weir/schedule/policy_kinds.h"

namespace weir::control {
namespace {

// The job that waits most, of some that are known; none: no service has one of them.
struct MostDelayed {
  const serve::Service* service = nullptr;
  const JobStats::Entry* entry = nullptr;

  void see(const serve::Service& one, const JobId& job) {
    const auto delay_of = [](const JobStats::Entry& of) {
      return std::pair(of.waiting().requests, of.wait_sum);
    };
    const JobStats::Entry* const found = one.target.stats().find(job);
    if (found == nullptr || (entry != nullptr && delay_of(*found) <= delay_of(*entry))) return;
    service = &one;
    entry = found;
  }
  // `what` is the start of the sentence: "export 'a' serves".
  Question question(const std::string& what, std::size_t jobs) const {
    const std::string job = printable_id(entry->job.text());
    return {.name = "job=" + job,
            .service = service->name,
            .asked_for =
                jobs == 1 ? what + " one job: "
                          : fmt::format("{} {} jobs, of which {} waits most: ", what, jobs, job)};
  }
};

}  // namespace

std::string reason_of(const Target& target, const Attributes& key) {
  const RuleView* const rules = target.rules(Head::kRegular);
  if (rules == nullptr) return policies_with_rules() + " is not active";
  return rules->rules(Head::kRegular).explain(key, 0);
}

Error no_export(std::string_view name, std::string_view service) {
  return {std::errc::no_such_file_or_directory, "no export named " + quote(name),
          service.empty() ? "" : "in service " + quote(service), "weir status --json lists them"};
}

Result<Question> question_of_export(serve::ServedExport& served, Instant now) {
  const auto& jobs = served.stats.jobs(now);
  MostDelayed most;
  for (const OpStats::Job& job : jobs) most.see(*served.service, job.id);
  const std::string name = quote(served.options.name);
  if (most.entry == nullptr) {
    return fail(std::errc::no_such_file_or_directory, "export " + name,
                "has served no job in the last minutes", "weir top lists the classes");
  }
  return most.question("export " + name + " serves", jobs.size());
}

std::optional<ClientOrUser> read_client_or_user(std::string_view name) {
  static constexpr std::pair<std::string_view, Field> kWords[] = {
      {"client", Field::kNid}, {"uid", Field::kUid}, {"gid", Field::kGid}};
  for (const auto& [word, field] : kWords) {
    if (!name.starts_with(word) || name.substr(word.size(), 1) != "=") continue;
    const std::string_view value = name.substr(word.size() + 1);
    ClientOrUser found{.field = field, .word = word};
    if (field == Field::kNid) {
      const auto nid = parse_nid(value);
      if (!nid) return std::nullopt;
      found.key.nid = *nid;
      return found;
    }
    const auto id = read_number(value);
    if (!id || *id >= kUnknownId) return std::nullopt;
    (field == Field::kUid ? found.key.uid : found.key.gid) = static_cast<std::uint32_t>(*id);
    return found;
  }
  return std::nullopt;
}

std::optional<Question> question_of_client(const serve::Server& server, const ClientOrUser& asked,
                                           std::string_view name, std::string_view service) {
  MostDelayed most;
  std::size_t jobs = 0;
  for (const JobId& job : server.known_clients().jobs(asked.field, asked.key)) {
    bool is_seen = false;
    for (const auto& one : server.services()) {
      if (!service.empty() && one->name != service) continue;
      is_seen |= one->target.stats().find(job) != nullptr;
      most.see(*one, job);
    }
    if (is_seen) ++jobs;
  }
  if (most.entry == nullptr) return std::nullopt;
  const std::string value(name.substr(asked.word.size() + 1));
  Question question = most.question(fmt::format("{} {} runs", asked.word, value), jobs);
  // The job of a user or client who claims none needs no explanation.
  const bool is_own = most.entry->job == JobId("uid." + value) || most.entry->job == JobId(value);
  if (jobs == 1 && is_own) question.asked_for.clear();
  return question;
}

}  // namespace weir::control
