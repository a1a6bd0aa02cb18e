// SPDX-License-Identifier: Apache-2.0
//
// A server that does not run, for tests: no client connects, and its store is not used.
//
//   ServerForTests test({"start dd jobid={dd.*} rate=100"});
//   test.serve("dd.0", 3);              requests of a job, which go to its Target
//   sampler.step(test.server());
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "weir/classify/command.h"
#include "weir/schedule/request.h"
#include "weir/serve/protocol.h"
#include "weir/serve/server.h"

namespace weir::control {

class ServerForTests {
 public:
  explicit ServerForTests(const std::vector<std::string>& rules) {
    std::array<char, 32> name{"/tmp/weir-control-XXXXXX"};
    folder_ = mkdtemp(name.data());
    (void)serve::add_protocol(
        {.name = "none", .help = "", .begin = [](serve::SessionPort&) { return nullptr; }},
        serve::Standard::kYes);
    serve::ServeOptions options;
    options.listen = {*serve::parse_listen("unix:" + folder_ + "/s")};
    options.exports = {*serve::parse_export("a=memory:1MiB")};
    serve::ServiceOptions& service = options.services.emplace_back();
    service.adaptive = serve::Adaptive::kOff;
    for (const std::string& rule : rules) {
      service.more_rules.push_back(parse_rule(rule).value());
    }
    auto created = serve::Server::create(std::move(options));
    EXPECT_TRUE(created) << created.error().message();
    server_ = std::move(*created);
  }
  ServerForTests(const ServerForTests&) = delete;
  ServerForTests& operator=(const ServerForTests&) = delete;
  ~ServerForTests() {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  serve::Server& server() { return *server_; }
  // Requests of 4 KiB that are served at once. REQUIRES: no rule delays them.
  void serve(const std::string& job, int count) {
    Target& target = server_->find_service("ost_io")->target;
    for (int i = 0; i < count; ++i) {
      Request request;
      request.attributes.job = JobId(job);
      request.bytes = Bytes{4096};
      target.admit(request, Head::kRegular, server_->now());
      const Decision decision = target.next(server_->now());
      ASSERT_EQ(decision.kind(), Decision::Kind::kRun);
      target.complete(decision.request(), server_->now());
    }
  }

 private:
  std::string folder_;
  std::unique_ptr<serve::Server> server_;
};

}  // namespace weir::control
