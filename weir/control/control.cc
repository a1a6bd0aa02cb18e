// SPDX-License-Identifier: Apache-2.0
#include "weir/control/control.h"

#include <charconv>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/control/api.h"
#include "weir/control/api_path.h"
#include "weir/control/audit.h"
#include "weir/control/embedded.h"
#include "weir/control/history_json.h"
#include "weir/control/http_control.h"
#include "weir/control/page_files.h"
#include "weir/control/problem.h"
#include "weir/control/records.h"
#include "weir/control/snapshot_json.h"
#include "weir/serve/event_log.h"

namespace weir::control {
namespace {

constexpr std::chrono::seconds kWaitSampleInterval{5};
constexpr std::chrono::minutes kJobInterval{1};
constexpr std::chrono::seconds kUsageInterval{1};

// The parameters that match a pattern, with values or only names.
std::vector<ParamOutcome> look_up(const Params& params, const std::string& pattern, bool lists,
                                  Depth depth) {
  if (!lists) return read_params(params, pattern, depth);
  std::vector<ParamOutcome> found;
  for (const ParamName& name : params.list(pattern, depth)) {
    ParamOutcome& one = found.emplace_back();
    one.path = one.slashed = name.path;
    one.is_writable = name.is_writable;
    one.is_folder = name.is_folder;
  }
  return found;
}

}  // namespace

ParamOutcome not_found(const std::string& pattern, const std::string& value) {
  return {
      pattern, pattern, value, {std::errc::no_such_file_or_directory, pattern, "not found", {}}};
}

// ---- coming and going ----

Result<void> HttpControl::open(const ControlOptions& options) {
  if (!options.journal.empty()) {
    auto journal = Journal::open(options.journal, options.damage, effective_records);
    if (!journal) return tl::unexpected(journal.error());
    journal_ = std::move(*journal);
    records_path_ = options.journal + ".records";
    if (!journal_->report().empty()) serve::EventLog::say(journal_->report());
    if (auto replayed = replay(); !replayed) return replayed;
  }
  // The first sample: nothing has been done yet.
  usage_.begin(host::now());
  for (const auto& service : server_.services()) usage_.total(service->name, {});
  if (lock_target_ != nullptr) usage_.total(lock_target_->service(), {});
  auto http = HttpServer::create(
      options.http,
      [this](const HttpRequest& request, const Reply& reply) { answer(request, reply); });
  if (!http) return tl::unexpected(http.error());
  http_ = std::move(*http);
  return {};
}

// Changes that can no longer be applied are logged and skipped, because the server should start
// nevertheless.
Result<void> HttpControl::replay() {
  std::vector<std::string> mistakes;
  std::vector<Change> changes = effective(journal_->records(), mistakes);
  const Params params = server_params(server_, moment_at(server_.now()));
  std::erase_if(changes, [&](const Change& one) {
    if (one.kind == Change::Kind::kJob) jobs_.set(one.target, one.nodes, server_.now());
    if (!may_be_for_locks(one)) return false;
    lock_changes_.push_back(one);
    return params.find(one.target).empty();
  });
  const auto forgotten = control::replay(server_, changes, mistakes);
  if (!forgotten.empty()) journal_->append(forgotten, [](const Result<void>&) {});
  for (const std::string& mistake : mistakes) serve::EventLog::say("journal: " + mistake);
  const auto restored = restore_records(server_, records_path_);
  if (!restored) serve::EventLog::say(restored.error().message() + "; all records start at 0");
  return {};
}

void HttpControl::replay_locks() {
  const Params params = params_of_locks();
  for (const Change& one : std::exchange(lock_changes_, {})) {
    auto outcomes = write_params(params, one.target, value_text(one));
    if (outcomes.empty()) outcomes.push_back(not_found(one.target));
    for (const ParamOutcome& outcome : outcomes) {
      if (outcome.error.code == std::errc{}) continue;
      serve::EventLog::say("journal: " + print_change(one) + ": " + outcome.error.message());
    }
  }
}

Result<std::function<void()>> HttpControl::read_certificates() {
  if (keys_ == nullptr) return std::function<void()>([] {});
  auto keys = keys_->load_again();
  if (!keys) return tl::unexpected(keys.error());
  return std::function<void()>([this, keys = *std::move(keys)] {
    keys_ = keys;
    http_->set_keys(keys);
  });
}

void HttpControl::start() {
  if (!lock_changes_.empty()) http_->post([this] { replay_locks(); });
  http_->every(kEventInterval, [this] { publish_event(); });
  http_->every(kWaitSampleInterval, [this] { sample_waits(); });
  http_->every(kUsageInterval, [this] { sample_usage(); });
  http_->every(kJobInterval, [this] { forget_ended_jobs(); });
  if (journal_ != nullptr) http_->every(kCheckpointInterval, [this] { checkpoint(); });
  thread_ = std::thread([this] { http_->run(); });
}

HttpControl::~HttpControl() {
  if (!thread_.joinable()) return;
  http_->stop();
  thread_.join();
  journal_.reset();
  if (!records_path_.empty()) {
    const auto written = replace_file(records_path_, print_records(records_of(server_)));
    if (!written) serve::EventLog::say(written.error().message());
  }
}

// ---- answering ----

void HttpControl::answer(const HttpRequest& request, const Reply& reply) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (answer_plain(request, reads, reply)) return;
  if (request.access == Access::kNone) {
    return reply(error_response(401, "a token is required", "send Authorization: Bearer TOKEN"));
  }
  const std::string_view allowed = allowed_methods(request.path);
  if (allowed.empty()) {
    return reply(error_response(404, "no path " + quote(request.path), "see weir-api(7)"));
  }
  if (!is_allowed(request.method, allowed)) return reply(method_response(request.method, allowed));
  if (!reads && request.access != Access::kWrite) {
    return reply(error_response(403, "this token may only read", "use one with the role write"));
  }
  if (answer_of_cluster(request, reply)) return;
  if (revoke_lock(request, reply)) return;
  reads ? get(request, reply) : change(request, reply);
}

bool HttpControl::answer_plain(const HttpRequest& request, bool reads, const Reply& reply) {
  if (auto file = page_file(request)) return reply(*std::move(file)), true;
  const bool is_health = request.path == "/healthz" || request.path == "/readyz";
  if (is_health && !reads) return reply(method_response(request.method, "GET, HEAD")), true;
  if (request.path == "/healthz") {
    reply({.body = "{\"status\":\"ok\"}\n"});
    return true;
  }
  if (request.path != "/readyz") return false;
  ask<bool>([](serve::Server&) -> Result<bool> { return true; },
            [reply](const Result<bool>& ready) {
              reply(ready ? HttpResponse{.body = "{\"status\":\"ready\"}\n"}
                          : error_response(503, "the server is shutting down"));
            });
  return true;
}

void HttpControl::get(const HttpRequest& request, const Reply& reply) {
  if (request.path == "/v1/events") {
    // A reader sees the state at once, not at the next second.
    return with_snapshot([this, reply](const Result<const Snapshot*>& shot) {
      if (!shot) return reply(error_response(shot.error()));
      reply({.body = live_event(**shot, generation_name()), .is_stream = true});
    });
  }
  if (request.path == "/v1/openapi.json") {
    return reply(
        {.body = std::string(find_embedded(embedded_files(), "openapi.json").value_or(""))});
  }
  if (request.path == "/v1/params") return read_params_of(request, reply);
  if (request.path == "/v1/explain") return explain(request, reply);
  if (request.path == "/v1/jobs") return list_jobs(reply);
  if (request.path == "/metrics") {
    return with_snapshot([this, reply](const Result<const Snapshot*>& shot) {
      if (!shot) return reply(error_response(shot.error()));
      reply({.body = metrics_.scrape(**shot), .type = "text/plain; version=0.0.4; charset=utf-8"});
    });
  }
  if (is_lock_list_path(request.path)) return list_locks(request, reply);
  if (is_history_path(request.path)) return list_history(request, reply);
  if (is_snapshot_path(request.path)) {
    if (request.path.ends_with("/classes")) {
      classes_read_at_ = std::chrono::steady_clock::now();
      add_rates();  // the first reader of classes may get the snapshot of another reader
    }
    return with_snapshot([this, request, reply](const Result<const Snapshot*>& shot) {
      if (!shot) return reply(error_response(shot.error()));
      reply(answer_from(**shot, request, version_, generation_name()));
    });
  }
  reply(error_response(404, "no path " + quote(request.path), "see weir-api(7)"));
}

void HttpControl::read_params_of(const HttpRequest& request, const Reply& reply) {
  const bool lists = request.find("list").has_value();
  const Depth depth = request.find("recursive") ? Depth::kBelow : Depth::kExact;
  std::vector<std::string> patterns;
  for (const auto& [key, value] : request.query) {
    if (key == "pattern") patterns.push_back(value);
  }
  using Found = std::vector<std::vector<ParamOutcome>>;
  ask<Found>(
      [lists, depth, patterns](serve::Server& server) -> Result<Found> {
        const Params params = server_params(server, moment_at(server.now()));
        Found found;
        found.reserve(patterns.size());
        for (const std::string& pattern : patterns) {
          found.push_back(look_up(params, pattern, lists, depth));
        }
        return found;
      },
      [this, lists, depth, patterns, reply](Result<Found> found) {
        if (!found) return reply(error_response(found.error()));
        const Params locks = params_of_locks();
        std::vector<ParamOutcome> all;
        for (std::size_t i = 0; i < patterns.size(); ++i) {
          auto& here = (*found)[i];
          auto there = look_up(locks, patterns[i], lists, depth);
          if (here.empty() && there.empty()) here.push_back(not_found(patterns[i]));
          std::move(here.begin(), here.end(), std::back_inserter(all));
          std::move(there.begin(), there.end(), std::back_inserter(all));
        }
        reply({.body = params_json(all)});
      });
}

void HttpControl::list_locks(const HttpRequest& request, const Reply& reply) {
  if (locks_ == nullptr) return reply(error_response(404, "no lock service runs"));
  HttpResponse response = answer_lock_list(*locks_, request);
  if (response.status == 200) response.etag = generation_name();
  reply(response);
}

// DELETE /v1/locks/NAMESPACE/resources/NAME?client=N
bool HttpControl::revoke_lock(const HttpRequest& request, const Reply& reply) {
  constexpr std::string_view kBefore = "/v1/locks/";
  constexpr std::string_view kBetween = "/resources/";
  const std::string_view path = request.path;
  const std::size_t between = path.find(kBetween);
  const bool is_meant = path.starts_with(kBefore) && between != std::string_view::npos;
  if (request.method != "DELETE" || !is_meant) return false;
  const auto refuse = [&](HttpResponse response) {
    reply(std::move(response));
    return true;
  };
  if (locks_ == nullptr) return refuse(error_response(404, "no lock service runs"));
  const std::string_view digits = request.find("client").value_or("0");
  std::uint64_t client = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), client);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return refuse(error_response(400, "client is not a number", "it is in the list of locks"));
  }
  const std::string resource(path.substr(between + kBetween.size()));
  const auto done =
      locks_->revoke(path.substr(kBefore.size(), between - kBefore.size()), resource, client);
  AuditEntry entry;
  entry.who = request.who;
  entry.what = client == 0 ? "release" : fmt::format("release of client {:x}", client);
  entry.on = "lock " + resource;
  entry.generation = generation_name();
  if (done) {
    entry.after = fmt::format("{} released", *done);
  } else {
    entry.error = done.error().message();
  }
  audit(entry);
  return refuse(done ? HttpResponse{.body = fmt::format("{{\"released\": {}}}\n", *done)}
                     : error_response(done.error()));
}

void HttpControl::list_history(const HttpRequest& request, const Reply& reply) const {
  const auto query = read_history_query(request);
  if (!query) return reply(error_response(query.error()));
  const std::string service = api_parts(request.path)[1];
  auto body = history_json(usage_, service, *query, moment_at(host::now()));
  if (!body) return reply(error_response(404, "no service named " + quote(service)));
  reply({.body = std::move(*body)});
}

Result<std::unique_ptr<Control>> Control::create(serve::Server& server,
                                                 const ControlOptions& options) {
  auto control = std::make_unique<HttpControl>(server, options);
  if (auto opened = control->open(options); !opened) return tl::unexpected(opened.error());
  return control;
}

}  // namespace weir::control
