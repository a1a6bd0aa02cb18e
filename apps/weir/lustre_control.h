// SPDX-License-Identifier: Apache-2.0
//
// The control socket of weir lustre run: what the driver does, for people and for Prometheus; and
// the cluster, if it is in one. It changes only limits of the cluster. On TCP, requests need a
// token, except those for the files of the page.
//
//   GET /                            the console, which shows the services of this driver
//   GET /v1/lustre                   all services: load, counters, jobs
//   GET /v1/lustre/explain?job=JOB   a sentence for each service that knows the job
//   GET /metrics
//   /v1/cluster...                   as weir serve (weir/control/cluster_requests.h)
//
// publish() is called by the loop of the driver and passes a value to the thread of the server,
// which answers from the last one.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/control/http.h"
#include "weir/lustre/status.h"
#include "weir/serve/cluster_port.h"

namespace weir::app {

class LustreControl {
 public:
  // EADDRINUSE and others: the path or address cannot be used.
  // REQUIRES: the cluster outlives it, and is stopped before it is destroyed; nullptr: none.
  static Result<std::unique_ptr<LustreControl>> create(const control::HttpOptions& options,
                                                       serve::ClusterPort* cluster);
  ~LustreControl();
  LustreControl(const LustreControl&) = delete;
  LustreControl& operator=(const LustreControl&) = delete;

  // `wall`: the time of the statuses, since 1970.
  void publish(std::vector<lustre::Status> services, std::chrono::sys_time<Nanoseconds> wall);
  // The port of the TCP address, which the kernel chose for port 0.
  std::uint16_t tcp_port() const { return http_->tcp_port(); }

  // The answers, which need no server.
  struct Published {
    std::vector<lustre::Status> services;
    std::chrono::sys_time<Nanoseconds> wall;
  };
  static control::HttpResponse answer(const Published& published,
                                      const control::HttpRequest& request);

 private:
  LustreControl() = default;

  void answer_any(const control::HttpRequest& request, const control::HttpServer::Reply& reply);

  serve::ClusterPort* cluster_ = nullptr;
  std::shared_ptr<const Published> published_;  // used in the thread only
  std::unique_ptr<control::HttpServer> http_;
  std::thread thread_;
};

}  // namespace weir::app
