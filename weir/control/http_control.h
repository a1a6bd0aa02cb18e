// SPDX-License-Identifier: Apache-2.0
//
// The Control of a server (control.h) as one object, in parts:
//
//   control.cc            starting and stopping, the journal, requests that read
//   control_explain.cc    GET /v1/explain
//   control_changes.cc    requests that change something, jobs, the cluster
//   control_snapshots.cc  snapshots, and what is sampled from time to time
//
// Private to this module.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/control/audit.h"
#include "weir/control/change.h"
#include "weir/control/change_queue.h"
#include "weir/control/change_request.h"
#include "weir/control/class_rates.h"
#include "weir/control/control.h"
#include "weir/control/job_sizes.h"
#include "weir/control/lock_params.h"
#include "weir/control/metrics.h"
#include "weir/control/params.h"
#include "weir/control/question.h"
#include "weir/control/rule_dry_run.h"
#include "weir/control/snapshot.h"
#include "weir/control/usage_sampler.h"
#include "weir/control/wait_history.h"
#include "weir/host/clock.h"

namespace weir::control {

// The outcome for a pattern that matches no parameter.
ParamOutcome not_found(const std::string& pattern, const std::string& value = {});

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
  std::chrono::steady_clock::time_point shot_at_;
  bool is_taking_ = false;
  std::vector<std::pair<std::uint64_t, WithSnapshot>>
      wanting_;                                   // and the number of changes that they must see
  std::atomic<std::uint64_t> shown_changes_ = 0;  // changes that readers must see
  std::uint64_t shot_changes_ = 0;
  ClassRates rates_;
  std::chrono::steady_clock::time_point classes_read_at_ =
      std::chrono::steady_clock::time_point::min();
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

}  // namespace weir::control
