// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/control/api.h"
#include "weir/control/api_path.h"
#include "weir/control/cluster_requests.h"
#include "weir/control/http_control.h"
#include "weir/control/problem.h"
#include "weir/serve/event_log.h"

namespace weir::control {
namespace {

constexpr std::size_t kJobsAtOnce = 256;

}  // namespace

void HttpControl::list_jobs(const Reply& reply) {
  std::string body = "[";
  jobs_.each([&](const std::string& job, std::uint64_t nodes) {
    std::string id = printable_id(job);
    for (std::size_t at = 0; (at = id.find('\\', at)) != std::string::npos; at += 2) {
      id.insert(at, 1, '\\');
    }
    body += fmt::format("{}{{\"job\":\"{}\",\"nodes\":{}}}", body.size() > 1 ? "," : "", id, nodes);
  });
  reply({.body = body + "]\n", .etag = generation_name()});
}

// Checks in all services whether a job that seems to have ended has sent requests.
void HttpControl::forget_ended_jobs() {
  const auto jobs = jobs_.stale(host::now(), kJobsAtOnce);
  if (jobs.empty()) return;
  using Used = std::vector<Instant>;
  ask<Used>(
      [jobs](serve::Server& server) -> Result<Used> {
        Used used;
        for (const std::string& job : jobs) {
          Instant last{};
          for (const auto& service : server.services()) {
            last = std::max(last, service->target.nodes_used_at(JobId(job)).value_or(Instant{}));
          }
          used.push_back(last);
        }
        return used;
      },
      [this, jobs](const Result<Used>& used) {
        if (!used) return;
        const Instant now = host::now();
        for (std::size_t i = 0; i < jobs.size(); ++i) {
          if (now - (*used)[i] <= JobSizes::kIdleMax) {
            jobs_.used(jobs[i], (*used)[i]);
          } else {
            forget_job(jobs[i]);
          }
        }
      });
}

// As an administrator's command would.
void HttpControl::forget_job(const std::string& job) {
  HttpRequest request;
  request.method = "DELETE";
  request.path = "/v1/jobs/" + printable_id(job);
  request.who = "weir serve";
  change(request, [job](const HttpResponse& response) {
    if (response.status == 200) return;
    serve::EventLog::say("size of job " + quote(job) + " cannot be forgotten: " + response.body);
  });
}

// ---- the cluster ----

bool HttpControl::answer_of_cluster(const HttpRequest& request, const Reply& reply) {
  if (!is_cluster_path(request.path)) return false;
  const ClusterRequestHost host{
      .post = [this](std::function<void()> function) { http_->post(std::move(function)); },
      .changed = [this](const AuditEntry& entry,
                        const Result<void>& done) { cluster_changed(entry, done); }};
  answer_cluster(cluster_, host, request, reply);
  return true;
}

// The audit line has the result, and the generation after the change.
void HttpControl::cluster_changed(const AuditEntry& entry, const Result<void>& done) {
  changed();
  AuditEntry made = entry;
  made.generation = generation_name();
  audit(made);
  if (done) usage_.mark(host::now(), made.on + ": " + made.what);
}

// ---- changing ----

ChangeQueue::Host HttpControl::host() {
  return {.ask =
              [this](std::function<void(serve::Server&)> on_loop,
                     std::function<void(const Result<void>&)> then) {
                ask<bool>(
                    [on_loop = std::move(on_loop)](serve::Server& server) -> Result<bool> {
                      on_loop(server);
                      return true;
                    },
                    [then = std::move(then)](const Result<bool>& done) {
                      then(done ? Result<void>() : tl::unexpected(done.error()));
                    });
              },
          .write =
              [this](const std::vector<std::string>& records,
                     std::function<void(const Result<void>&)> then) {
                journal_->append(records, [this, then = std::move(then)](const Result<void>& done) {
                  http_->post([then, done] { then(done); });
                });
              },
          .locks = [this] { return params_of_locks(); }};
}

void HttpControl::change(const HttpRequest& request, const Reply& reply) {
  auto wanted = read_change(request);
  if (!wanted) return reply(error_response(wanted.error()));
  wanted->who = request.who;
  if (wanted->is_params && wanted->persists && journal_ == nullptr) {
    return reply(error_response(409, "this server has no journal", "start it with --journal FILE"));
  }
  if (wanted->is_dry_run) {
    return dry_run(std::make_shared<RuleDryRun>(wanted->changes[0], api_parts(request.path)[1]),
                   reply);
  }
  changes_.add(
      *wanted, wanted->generation.empty() ? request.if_match : wanted->generation,
      journal_ == nullptr ? ChangeQueue::Journalling::kNone : ChangeQueue::Journalling::kFirst,
      [this, request = *wanted, reply](const Result<ChangeQueue::Answer>& done) {
        answer_change(request, done, reply);
      });
}

void HttpControl::dry_run(const std::shared_ptr<RuleDryRun>& run, const Reply& reply) {
  ask<std::pair<bool, std::uint64_t>>(
      [this, run](serve::Server& server) -> Result<std::pair<bool, std::uint64_t>> {
        const auto is_whole = run->step(server);
        if (!is_whole) return tl::unexpected(is_whole.error());
        return std::pair{*is_whole, changes_.generation()};
      },
      [this, run, reply](const Result<std::pair<bool, std::uint64_t>>& step) {
        if (!step) return reply(error_response(step.error()));
        if (!step->first) return dry_run(run, reply);
        const std::string generation = changes_.name_of(step->second);
        reply({.body = run->json(generation), .etag = generation});
      });
}

void HttpControl::answer_change(const ChangeRequest& request,
                                const Result<ChangeQueue::Answer>& done, const Reply& reply) {
  if (!done) return reply(error_response(done.error()));
  generation_ = std::max(generation_, done->number);
  if (done->is_stale) {
    // 412 is the answer to If-Match alone.
    HttpResponse response =
        error_response(request.generation.empty() ? 412 : 409,
                       "the configuration was changed concurrently", "read it again and retry");
    response.etag = done->generation;
    return reply(response);
  }
  changed();
  for (const ParamOutcome& outcome : done->outcomes) {
    if (!outcome.note.empty()) serve::EventLog::say(outcome.note);
  }
  HttpResponse response{.etag = done->generation};
  if (request.is_params) {
    if (!failure_of(done->outcomes)) mark_changes(request);
    response.body = params_json(done->outcomes);
  } else if (const auto failed = failure_of(done->outcomes)) {
    return reply(error_response(*failed));
  } else {
    note_jobs(request);
    mark_changes(request);
    response.body = change_json(response.etag, journal_ != nullptr, done->outcomes);
  }
  reply(response);
}

void HttpControl::note_jobs(const ChangeRequest& request) {
  for (const Change& one : request.changes) {
    if (one.kind != Change::Kind::kJob) continue;
    if (const auto gone = jobs_.set(one.target, one.nodes, host::now())) forget_job(*gone);
  }
}

// Marks in the history. Rule commands name their rule; all others need their object.
void HttpControl::mark_changes(const ChangeRequest& request) {
  if (!request.applies) return;
  for (const Change& one : request.changes) {
    const AuditEntry entry = audit_entry(one);
    usage_.mark(host::now(), is_rule(one) ? entry.what : entry.on + ": " + entry.what);
  }
}

}  // namespace weir::control
