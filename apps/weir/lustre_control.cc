// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/lustre_control.h"

#include <algorithm>
#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/control/api_path.h"
#include "weir/control/audit.h"
#include "weir/control/cluster_requests.h"
#include "weir/control/job_stats_text.h"
#include "weir/control/metric_family.h"
#include "weir/control/page_files.h"
#include "weir/control/problem.h"

namespace weir::app {
namespace {

using Json = nlohmann::ordered_json;
using control::printable_id;
using lustre::JobStatus;
using lustre::Status;
using Published = LustreControl::Published;

// With a series of their own in the metrics: those that are or were held for the longest time.
constexpr std::size_t kSeriesMax = 100;

std::int64_t to_seconds(Nanoseconds time) {
  return std::chrono::floor<std::chrono::seconds>(time).count();
}

std::int64_t wall_of(const Published& published, const Status& status, Instant at) {
  return to_seconds(published.wall.time_since_epoch() - (status.at - at));
}

std::string clock_text(std::int64_t seconds) {
  std::tm parts{};
  const std::time_t time = seconds;
  localtime_r(&time, &parts);
  return fmt::format("{:%H:%M:%S}", parts);
}

std::string reason_of(const Published& published, const Status& status, const JobStatus& job) {
  const std::string since =
      job.hold.since ? clock_text(wall_of(published, status, *job.hold.since)) : "";
  return lustre::explain(status, job, since);
}

Json job_json(const Published& published, const Status& status, const JobStatus& job) {
  Json json{{"job", printable_id(job.job.text())},
            {"nodes", job.nodes},
            {"state", job.known ? lustre::state_name(job.state) : "unknown"},
            {"served", job.served},
            {"per_second", job.per_second},
            {"cost", static_cast<double>(job.cost) / lustre::RequestCosts::kOne},
            {"entitlement", job.entitlement},
            {"record", job.record},
            {"rate", nullptr},
            {"limit", nullptr},
            {"held_since", nullptr},
            {"held_times", job.hold.times},
            {"held_seconds", static_cast<double>(job.hold.total.count()) / 1e9},
            {"why", reason_of(published, status, job)}};
  if (job.hold.rate) json["rate"] = std::uint64_t{*job.hold.rate} * status.cpts;
  if (job.limit) json["limit"] = job.limit->rule;
  if (job.hold.since) json["held_since"] = wall_of(published, status, *job.hold.since);
  return json;
}

Json service_json(const Published& published, const Status& status) {
  const auto& counters = status.counters;
  Json json{{"service", status.service},
            {"algorithm", status.is_paper ? "paper" : "weir"},
            {"dry_run", status.is_dry_run},
            {"capacity", nullptr},
            {"queued", status.queued},
            {"busy", status.busy},
            {"cpts", status.cpts},
            {"held", status.held},
            {"unlimited", status.unlimited},
            {"counters",
             {{"rounds", counters.rounds},
              {"failed_rounds", counters.failed_rounds},
              {"writes", counters.writes},
              {"failed_writes", counters.failed_writes},
              {"repairs", counters.repairs},
              {"stolen", counters.stolen},
              {"vanished", counters.vanished},
              {"unnamed", counters.unnamed}}},
            {"jobs", Json::array()}};
  if (status.capacity) json["capacity"] = *status.capacity;
  for (const JobStatus& job : status.jobs) {
    json["jobs"].push_back(job_json(published, status, job));
  }
  return json;
}

control::HttpResponse explained(const Published& published, std::string_view name) {
  Json answers = Json::array();
  for (const Status& status : published.services) {
    for (const JobStatus& job : status.jobs) {
      if (job.job.text() != name && printable_id(job.job.text()) != name) continue;
      Json json = job_json(published, status, job);
      json["service"] = status.service;
      answers.push_back(std::move(json));
    }
  }
  if (!answers.empty()) return {.body = answers.dump()};
  return control::error_response(404,
                                 fmt::format("no job {} was active lately", printable_id(name)),
                                 "weir lustre top lists the jobs");
}

void add_counters(std::string& page, const Published& published) {
  struct Counter {
    const char* name;
    const char* help;
    std::uint64_t lustre::Driver::Counters::*value;
  };
  using Counters = lustre::Driver::Counters;
  static constexpr Counter kCounters[] = {
      {"weir_lustre_rounds_total", "Periods.", &Counters::rounds},
      {"weir_lustre_failed_rounds_total", "Periods in which the server could not be read.",
       &Counters::failed_rounds},
      {"weir_lustre_writes_total", "Rules started, changed and stopped.", &Counters::writes},
      {"weir_lustre_failed_writes_total", "Commands that the server refused.",
       &Counters::failed_writes},
      {"weir_lustre_repairs_total", "Rules that differed between CPTs.", &Counters::repairs},
      {"weir_lustre_stolen_total", "Rules that were stopped by others.", &Counters::stolen},
      {"weir_lustre_vanished_total", "Times that counters of an active job vanished.",
       &Counters::vanished}};
  for (const Counter& counter : kCounters) {
    control::Family family(page, counter.name, "counter", counter.help);
    for (const Status& status : published.services) {
      family.add(control::labels_of(status.service), status.counters.*counter.value);
    }
  }
}

void add_gauges(std::string& page, const Published& published) {
  const auto add = [&](const char* name, const char* help, auto value) {
    control::Family family(page, name, "gauge", help);
    for (const Status& status : published.services) {
      family.add(control::labels_of(status.service), value(status));
    }
  };
  add("weir_lustre_capacity", "Requests per second that the server can do; 0: unknown.",
      [](const Status& status) { return status.capacity.value_or(0); });
  add("weir_lustre_queued", "Requests that wait.",
      [](const Status& status) { return status.queued; });
  add("weir_lustre_busy", "Requests in service.", [](const Status& status) { return status.busy; });
  add("weir_lustre_jobs", "Jobs with counters.",
      [](const Status& status) { return std::uint64_t{status.jobs.size()}; });
  add("weir_lustre_held_jobs", "Jobs that have a rule.",
      [](const Status& status) { return status.held; });
  add("weir_lustre_unlimited_jobs", "Jobs that match a limit of the cluster and have no rule.",
      [](const Status& status) { return status.unlimited; });
}

void add_jobs(std::string& page, const Published& published) {
  const auto add = [&](const char* name, const char* type, const char* help, auto put) {
    control::Family family(page, name, type, help);
    for (const Status& status : published.services) {
      std::vector<const JobStatus*> jobs;
      for (const JobStatus& job : status.jobs) {
        if (job.hold.times > 0) jobs.push_back(&job);
      }
      std::stable_sort(jobs.begin(), jobs.end(), [](const JobStatus* a, const JobStatus* b) {
        return a->hold.total > b->hold.total;
      });
      if (jobs.size() > kSeriesMax) jobs.resize(kSeriesMax);
      for (const JobStatus* job : jobs) {
        put(family, control::labels_of(status.service, "job", printable_id(job->job.text())), *job);
      }
    }
  };
  add("weir_lustre_job_rate", "gauge", "Rate of the rule of a job; 0: it has none now.",
      [](control::Family& family, const std::string& labels, const JobStatus& job) {
        family.add(labels, job.hold.rate.value_or(0));
      });
  add("weir_lustre_job_entitlement", "gauge", "Requests per second that a job is entitled to.",
      [](control::Family& family, const std::string& labels, const JobStatus& job) {
        family.add(labels, job.entitlement);
      });
  add("weir_lustre_job_held_seconds_total", "counter", "Time for which a job was held.",
      [](control::Family& family, const std::string& labels, const JobStatus& job) {
        family.add_seconds(labels, static_cast<std::uint64_t>(job.hold.total.count()));
      });
}

}  // namespace

control::HttpResponse LustreControl::answer(const Published& published,
                                            const control::HttpRequest& request) {
  if (auto file = control::page_file(request)) return *std::move(file);
  if (request.access == control::Access::kNone) {
    return control::error_response(401, "a token is required",
                                   "send the header Authorization: Bearer TOKEN");
  }
  const bool is_known = request.path == "/v1/lustre" || request.path == "/v1/lustre/explain" ||
                        request.path == "/metrics";
  if (!is_known) {
    return control::error_response(404, "no such path", "see CONTROL SOCKET in weir-lustre(1)");
  }
  if (request.method != "GET") return control::method_response(request.method, "GET");
  if (request.path == "/metrics") {
    std::string page;
    add_counters(page, published);
    add_gauges(page, published);
    add_jobs(page, published);
    return {.body = std::move(page), .type = "text/plain; version=0.0.4"};
  }
  if (request.path == "/v1/lustre/explain") {
    const auto job = request.find("job");
    if (!job) return control::error_response(400, "no job is named", "add ?job=JOB");
    return explained(published, *job);
  }
  Json all{{"time", to_seconds(published.wall.time_since_epoch())}, {"services", Json::array()}};
  for (const Status& status : published.services) {
    all["services"].push_back(service_json(published, status));
  }
  return {.body = all.dump()};
}

void LustreControl::answer_any(const control::HttpRequest& request,
                               const control::HttpServer::Reply& reply) {
  const bool is_allowed_here = request.access != control::Access::kNone;
  if (!is_allowed_here || !control::is_cluster_path(request.path)) {
    return reply(answer(*published_, request));
  }
  const std::string_view allowed = control::allowed_methods(request.path);
  if (!control::is_allowed(request.method, allowed)) {
    return reply(control::method_response(request.method, allowed));
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (!reads && request.access != control::Access::kWrite) {
    return reply(
        control::error_response(403, "this token may only read", "use one with the role write"));
  }
  const control::ClusterRequestHost host{
      .post = [this](std::function<void()> function) { http_->post(std::move(function)); },
      .changed = [](const control::AuditEntry& entry,
                    const Result<void>&) { control::audit(entry); }};
  control::answer_cluster(cluster_, host, request, reply);
}

Result<std::unique_ptr<LustreControl>> LustreControl::create(const control::HttpOptions& options,
                                                             serve::ClusterPort* cluster) {
  std::unique_ptr<LustreControl> made(new LustreControl());
  LustreControl* const self = made.get();
  made->cluster_ = cluster;
  made->published_ = std::make_shared<Published>();
  auto http = control::HttpServer::create(options, [self](const control::HttpRequest& request,
                                                          const control::HttpServer::Reply& reply) {
    self->answer_any(request, reply);
  });
  if (!http) return tl::unexpected(http.error());
  made->http_ = std::move(*http);
  made->thread_ = std::thread([self] { self->http_->run(); });
  return made;
}

LustreControl::~LustreControl() {
  if (!thread_.joinable()) return;
  http_->stop();
  thread_.join();
}

void LustreControl::publish(std::vector<lustre::Status> services,
                            std::chrono::sys_time<Nanoseconds> wall) {
  auto next = std::make_shared<const Published>(Published{std::move(services), wall});
  http_->post([this, next = std::move(next)]() mutable { published_ = std::move(next); });
}

}  // namespace weir::app
