// SPDX-License-Identifier: Apache-2.0
#include "weir/control/control.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/classify/number.h"
#include "weir/control/api.h"
#include "weir/control/api_path.h"
#include "weir/control/audit.h"
#include "weir/control/change.h"
#include "weir/control/change_queue.h"
#include "weir/control/change_request.h"
#include "weir/control/change_trial.h"
#include "weir/control/class_rates.h"
#include "weir/control/cluster_requests.h"
#include "weir/control/embedded.h"
#include "weir/control/explain.h"
#include "weir/control/history_json.h"
#include "weir/control/job_sizes.h"
#include "weir/control/lock_params.h"
#include "weir/control/metrics.h"
#include "weir/control/page_files.h"
#include "weir/control/params.h"
#include "weir/control/problem.h"
#include "weir/control/records.h"
#include "weir/control/rule_dry_run.h"
#include "weir/control/snapshot.h"
#include "weir/control/snapshot_json.h"
#include "weir/control/usage_sampler.h"
#include "weir/host/clock.h"
#include "weir/schedule/policy_kinds.h"
#include "weir/serve/event_log.h"

namespace weir::control {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kWaitSampleInterval{5};
constexpr std::chrono::minutes kJobInterval{1};
constexpr std::chrono::seconds kUsageInterval{1};
// Classes sampled for the history in a second; with more of them, samples are rarer.
constexpr std::size_t kUsageClasses = 16'384;
constexpr std::size_t kJobsAtOnce = 256;

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

ParamOutcome not_found(const std::string& pattern, const std::string& value = {}) {
  return {
      pattern, pattern, value, {std::errc::no_such_file_or_directory, pattern, "not found", {}}};
}

// The rule of a class and the reason, as returned by RuleList::explain.
std::string reason_of(const Target& target, const Attributes& key) {
  const RuleView* const rules = target.rules(Head::kRegular);
  if (rules == nullptr) return policies_with_rules() + " is not active";
  return rules->rules(Head::kRegular).explain(key, 0);
}

// What is explained, and for which question (Explained::asked_for).
struct Question {
  std::string name;
  std::string service;  // empty: all
  std::string asked_for = {};
};

constexpr std::string_view kExport = "export=";  // in front of a name

Error no_export(std::string_view name, std::string_view service) {
  return {std::errc::no_such_file_or_directory, "no export named " + quote(name),
          service.empty() ? "" : "in service " + quote(service), "weir status --json lists them"};
}

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

// About the job that waits most of those that the export has served.
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

// What a name with "client=", "uid=" or "gid=" in front of it asks for.
struct ClientOrUser {
  Field field;
  std::string_view word;
  Attributes key = {};
};
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

// About the job that waits most of those that this client or user has named; none: they have no
// requests.
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

WaitHistory::OfService waits_of(const Target& target, Instant now) {
  WaitHistory::OfService waits{now};
  if (const RuleView* const rules = target.rules(Head::kRegular)) {
    rules->visit_waits(now, [&](const WaitView& wait) {
      waits.waits.push_back(wait);
      waits.devices.push_back(device_of(target.stats().find(wait.key.job)));
    });
  }
  return waits;
}

// Everything not marked "loop" runs in the HTTP server's thread.
class HttpControl final : public Control {
 public:
  HttpControl(serve::Server& server, const ControlOptions& options)
      : server_(server),
        locks_(options.locks),
        lock_target_(options.lock_target),
        version_(options.version),
        keys_(options.http.keys),
        boot_(fmt::format("{:x}", moment_at(server.now()).wall_ns)),
        changes_(host(), boot_) {}

  ~HttpControl() override;
  HttpControl(const HttpControl&) = delete;
  HttpControl& operator=(const HttpControl&) = delete;

  Result<void> open(const ControlOptions& options);
  void set_cluster(serve::ClusterPort* cluster) override { cluster_ = cluster; }
  void start() override;
  void change_elsewhere(const std::function<void()>& change) override {
    changes_.change_elsewhere(change);
    http_->post([this] { usage_.mark(host::now(), "the configuration file was read again"); });
  }
  void changed() override { ++shown_changes_; }
  void set_tokens(std::vector<Token> tokens) override { http_->set_tokens(std::move(tokens)); }
  Result<std::function<void()>> read_certificates() override;
  std::uint16_t tcp_port() const override { return http_->tcp_port(); }

 private:
  using Reply = HttpServer::Reply;
  using WithSnapshot = std::function<void(const Result<const Snapshot*>&)>;
  Result<void> replay();
  void answer(const HttpRequest& request, const Reply& reply);
  bool answer_plain(const HttpRequest& request, bool reads, const Reply& reply);
  void get(const HttpRequest& request, const Reply& reply);
  void read_params_of(const HttpRequest& request, const Reply& reply);
  void explain(const HttpRequest& request, const Reply& reply);
  void explain_export(const std::string& name, const std::string& service, const Reply& reply);
  void explain_client(const Question& question, const Error& unknown, const Reply& reply);
  void explain_class(const Question& question, const Reply& reply);
  void answer_question(const Question& question, const Snapshot& shot, const std::string& reason,
                       const Reply& reply) const;
  void list_history(const HttpRequest& request, const Reply& reply) const;
  void list_jobs(const Reply& reply);
  void forget_ended_jobs();
  void forget_job(const std::string& job);

  bool answer_of_cluster(const HttpRequest& request, const Reply& reply);
  void cluster_changed(const AuditEntry& entry, const Result<void>& done);
  void list_locks(const HttpRequest& request, const Reply& reply);
  bool revoke_lock(const HttpRequest& request, const Reply& reply);
  Params params_of_locks() { return locks_ == nullptr ? Params() : lock_params(*locks_); }
  void replay_locks();

  void change(const HttpRequest& request, const Reply& reply);
  ChangeQueue::Host host();
  void answer_change(const ChangeRequest& request, const Result<ChangeQueue::Answer>& done,
                     const Reply& reply);
  void dry_run(const std::shared_ptr<RuleDryRun>& run, const Reply& reply);
  void note_jobs(const ChangeRequest& request);
  void mark_changes(const ChangeRequest& request);

  void with_snapshot(WithSnapshot then);
  using Taken = std::function<void(Result<Snapshot>)>;
  void take(const std::shared_ptr<SnapshotTaker>& taker, Taken then);
  void take_snapshot();
  void add_rates();
  void hand_out(const Result<const Snapshot*>& shot, std::uint64_t changes);
  void publish_event();
  void sample_waits();
  void sample_usage();
  void step_usage(const std::shared_ptr<UsageSampler>& sampler);
  void checkpoint();

  // Runs `on_loop` on the loop and then `then` here, with its result or error.
  template <class Value>
  void ask(std::function<Result<Value>(serve::Server&)> on_loop,
           std::function<void(Result<Value>)> then);
  std::string generation_name() const { return fmt::format("{}-{}", boot_, generation_); }

  serve::Server& server_;
  serve::ClusterPort* cluster_ = nullptr;
  lock::Console* locks_;
  serve::TargetPort* lock_target_;
  std::string version_;
  HttpKeys::Ptr keys_;  // as last read; loop
  std::string boot_;
  ChangeQueue changes_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<Journal> journal_;
  std::string records_path_;
  std::string records_text_;  // as last written
  std::thread thread_;

  std::uint64_t generation_ = 1;  // as last received
  std::optional<Snapshot> shot_;
  Clock::time_point shot_at_;
  bool is_taking_ = false;
  std::vector<std::pair<std::uint64_t, WithSnapshot>>
      wanting_;                                   // and the number of changes that they must see
  std::atomic<std::uint64_t> shown_changes_ = 0;  // changes that readers must see
  std::uint64_t shot_changes_ = 0;
  ClassRates rates_;
  Clock::time_point classes_read_at_ = Clock::time_point::min();
  bool has_rates_ = false;  // of shot_
  WaitHistory history_;
  UsageHistory usage_;
  bool is_sampling_ = false;
  std::size_t usage_skips_ = 0;  // samples to omit, because there are many classes
  Metrics metrics_{version_};
  JobSizes jobs_;                     // that were set here
  std::vector<Change> lock_changes_;  // of the journal
};

template <class Value>
void HttpControl::ask(std::function<Result<Value>(serve::Server&)> on_loop,
                      std::function<void(Result<Value>)> then) {
  auto shared = std::make_shared<std::function<void(Result<Value>)>>(std::move(then));
  const auto ordered = server_.order(
      [this, on_loop = std::move(on_loop), shared](const Result<serve::Server*>& server) {
        auto value = std::make_shared<Result<Value>>(
            server ? on_loop(**server) : Result<Value>(tl::unexpected(server.error())));
        http_->post([shared, value] { (*shared)(std::move(*value)); });
      });
  if (!ordered) {
    http_->post([shared, error = ordered.error()] { (*shared)(tl::unexpected(error)); });
  }
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
      classes_read_at_ = Clock::now();
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

void HttpControl::explain(const HttpRequest& request, const Reply& reply) {
  const std::string name(request.find("name").value_or(""));
  const std::string service(request.find("service").value_or(""));
  if (!name.starts_with(kExport)) return explain_class({name, service}, reply);
  explain_export(name.substr(kExport.size()), service, reply);
}

// Explains the job that waits most of those that the export has served.
void HttpControl::explain_export(const std::string& name, const std::string& service,
                                 const Reply& reply) {
  ask<Question>(
      [name, service](serve::Server& server) -> Result<Question> {
        for (const auto& served : server.exports()) {
          if (served->options.name != name) continue;
          if (!service.empty() && served->service->name != service) break;
          return question_of_export(*served, server.now());
        }
        return Question{std::string(kExport) + name, service};  // a class may be named so
      },
      [this, reply](const Result<Question>& question) {
        if (!question) return reply(error_response(question.error()));
        explain_class(*question, reply);
      });
}

// Explains a job of a client, user or group without a class of its own.
void HttpControl::explain_client(const Question& question, const Error& unknown,
                                 const Reply& reply) {
  const std::optional<ClientOrUser> asked = read_client_or_user(question.name);
  if (!asked) return reply(error_response(unknown));
  ask<std::optional<Question>>(
      [question, asked](serve::Server& server) -> Result<std::optional<Question>> {
        return question_of_client(server, *asked, question.name, question.service);
      },
      [this, question, unknown, reply](const Result<std::optional<Question>>& job) {
        if (!job) return reply(error_response(job.error()));
        if (*job) return explain_class(**job, reply);
        // The job of a user who claims none.
        constexpr std::string_view kUid = "uid=";
        if (!question.name.starts_with(kUid)) return reply(error_response(unknown));
        explain_class({"job=uid." + question.name.substr(kUid.size()), question.service}, reply);
      });
}

void HttpControl::explain_class(const Question& question, const Reply& reply) {
  const auto taker = std::make_shared<SnapshotTaker>(ClassQuery(question.name));
  take(taker, [this, question, reply](Result<Snapshot> taken) {
    if (!taken) return reply(error_response(taken.error()));
    const auto shot = std::make_shared<Snapshot>(std::move(*taken));
    const auto& [name, service, asked_for] = question;
    const auto is_it = [&](const ServiceSnapshot& one) { return one.name == question.service; };
    if (!service.empty() && std::none_of(shot->services.begin(), shot->services.end(), is_it)) {
      return reply(error_response(404, "no service named " + quote(service)));
    }
    const auto found = find_class(*shot, service, name);
    if (!found && name.starts_with(kExport)) {
      return reply(error_response(no_export(name.substr(kExport.size()), service)));
    }
    if (!found) return explain_client(question, not_explained(*shot, service, name), reply);
    const std::string in = shot->services[found->service].name;
    const auto then = [this, shot, question, reply](const Result<std::string>& reason) {
      answer_question(question, *shot, reason.value_or(""), reply);
    };
    if (lock_target_ != nullptr && in == lock_target_->service()) {
      std::string reason;
      if (locks_ != nullptr) shot->locks = locks_->view();
      lock_target_->look(
          [&](const Target& target, Instant) { reason = reason_of(target, found->key); });
      return then(reason);
    }
    ask<std::string>(
        [key = found->key, in](serve::Server& server) -> Result<std::string> {
          const serve::Service* const there = server.find_service(in);
          return there == nullptr ? "" : reason_of(there->target, key);
        },
        then);
  });
}

// `reason` is the name of the rule in layer 0, a tab and why it matches.
void HttpControl::answer_question(const Question& question, const Snapshot& shot,
                                  const std::string& reason, const Reply& reply) const {
  const std::size_t tab = std::min(reason.find('\t'), reason.size());
  auto under = find_class(shot, question.service, question.name, reason.substr(0, tab));
  if (!under || under->found == nullptr) {
    return reply(error_response(not_explained(shot, question.service, question.name)));
  }
  under->asked_for = question.asked_for;
  // A class of another layer is described by its rule.
  const bool is_its_rule = reason.substr(0, tab) == under->found->rule;
  reply({.body = explain_json(shot, *under, history_,
                              is_its_rule ? reason.substr(std::min(tab + 1, reason.size())) : "")});
}

void HttpControl::list_history(const HttpRequest& request, const Reply& reply) const {
  const auto query = read_history_query(request);
  if (!query) return reply(error_response(query.error()));
  const std::string service = api_parts(request.path)[1];
  auto body = history_json(usage_, service, *query, moment_at(host::now()));
  if (!body) return reply(error_response(404, "no service named " + quote(service)));
  reply({.body = std::move(*body)});
}

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

// ---- snapshots ----

// A reader sees its own earlier changes: a snapshot that was started before them is not used.
void HttpControl::with_snapshot(WithSnapshot then) {
  const std::uint64_t changes = shown_changes_;
  const bool is_new = shot_ && shot_changes_ == changes && Clock::now() - shot_at_ <= kSnapshotAge;
  if (is_new) return then(&*shot_);
  wanting_.emplace_back(changes, std::move(then));
  if (!is_taking_) take_snapshot();
}

void HttpControl::take_snapshot() {
  is_taking_ = true;
  const std::uint64_t changes = shown_changes_;
  take(std::make_shared<SnapshotTaker>(), [this, changes](Result<Snapshot> shot) {
    if (!shot) return hand_out(tl::unexpected(shot.error()), UINT64_MAX);
    shot_ = std::move(*shot);
    if (locks_ != nullptr) shot_->locks = locks_->view();
    shot_->memory_history = usage_.memory();
    shot_at_ = Clock::now();
    has_rates_ = false;
    if (shot_at_ < classes_read_at_ + ClassRates::kWindowMax) add_rates();
    shot_changes_ = changes;
    hand_out(&*shot_, changes);
  });
}

void HttpControl::add_rates() {
  if (!shot_ || std::exchange(has_rates_, true)) return;
  rates_.update(*shot_, usage_);
}

// Takes the snapshot in steps, each a separate command, so that requests run between them.
void HttpControl::take(const std::shared_ptr<SnapshotTaker>& taker, Taken then) {
  ask<std::pair<bool, std::uint64_t>>(
      [this, taker](serve::Server& server) -> Result<std::pair<bool, std::uint64_t>> {
        return std::pair{taker->step(server), changes_.generation()};
      },
      [this, taker, then = std::move(then)](const Result<std::pair<bool, std::uint64_t>>& step) {
        if (!step) return then(tl::unexpected(step.error()));
        generation_ = std::max(generation_, step->second);
        if (!step->first) return take(taker, then);
        if (lock_target_ != nullptr) taker->add(*lock_target_);
        then(taker->finish());
      });
}

// Passes the snapshot to readers that need at most these changes; the others get the next one.
void HttpControl::hand_out(const Result<const Snapshot*>& shot, std::uint64_t changes) {
  is_taking_ = false;
  for (auto& [wanted, then] : std::exchange(wanting_, {})) {
    if (wanted <= changes) {
      then(shot);
    } else {
      wanting_.emplace_back(wanted, std::move(then));
    }
  }
  if (!wanting_.empty() && !is_taking_) take_snapshot();
}

void HttpControl::publish_event() {
  if (http_->streams() == 0) return;
  with_snapshot([this](const Result<const Snapshot*>& shot) {
    if (shot) http_->publish(live_event(**shot, generation_name()));
  });
}

void HttpControl::sample_waits() {
  using Sample = WaitHistory::Sample;
  ask<Sample>(
      [](serve::Server& server) -> Result<Sample> {
        Sample sample;
        for (const auto& service : server.services()) {
          sample.push_back(waits_of(service->target, server.now()));
        }
        return sample;
      },
      [this](Result<Sample> sample) {
        if (!sample) return;
        if (lock_target_ != nullptr) {
          lock_target_->look(
              [&](const Target& target, Instant now) { sample->push_back(waits_of(target, now)); });
        }
        history_.add(*std::move(sample));
      });
}

void HttpControl::sample_usage() {
  if (is_sampling_) return;
  if (usage_skips_ > 0) {
    --usage_skips_;
    return;
  }
  is_sampling_ = true;
  usage_.begin(host::now());
  step_usage(std::make_shared<UsageSampler>());
}

void HttpControl::step_usage(const std::shared_ptr<UsageSampler>& sampler) {
  ask<bool>([sampler](serve::Server& server) -> Result<bool> { return sampler->step(server); },
            [this, sampler](const Result<bool>& is_whole) {
              if (!is_whole) return;  // the server is shutting down
              sampler->hand_over(usage_);
              if (!*is_whole) return step_usage(sampler);
              if (lock_target_ != nullptr) sampler->add(*lock_target_, usage_);
              usage_skips_ = sampler->classes() / kUsageClasses;
              is_sampling_ = false;
            });
}

void HttpControl::checkpoint() {
  ask<Records>([](serve::Server& server) -> Result<Records> { return records_of(server); },
               [this](const Result<Records>& records) {
                 if (!records) return;
                 std::string text = print_records(*records);
                 if (text == records_text_) return;
                 if (auto written = replace_file(records_path_, text); !written) {
                   return serve::EventLog::say(written.error().message());
                 }
                 records_text_ = std::move(text);
               });
}

}  // namespace

Result<std::unique_ptr<Control>> Control::create(serve::Server& server,
                                                 const ControlOptions& options) {
  auto control = std::make_unique<HttpControl>(server, options);
  if (auto opened = control->open(options); !opened) return tl::unexpected(opened.error());
  return control;
}

}  // namespace weir::control
