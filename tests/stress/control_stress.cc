// SPDX-License-Identifier: Apache-2.0
//
// The control of a running server: its thread, the thread of its journal and the server's loop run
// concurrently, while administrators read and change at the same time, and while the server stops.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/stress/running_server.h"
#include "weir/control/client.h"
#include "weir/control/control.h"

namespace weir::control {
namespace {

// A server with a control and a journal, and a pointer to the control while both exist.
struct Controlled {
  Controlled()
      : running([this](serve::Server& server, const std::string& folder) {
          ControlOptions options;
          options.http.socket_path = folder + "/c";
          options.journal = folder + "/journal";
          auto made = Control::create(server, options);
          EXPECT_TRUE(made) << made.error().message();
          std::shared_ptr<Control> shared = *std::move(made);
          control = shared.get();
          shared->start();
          return shared;
        }) {}

  unsigned status_of(std::string_view method, std::string_view path, std::string_view body = {}) {
    const auto answer = ControlClient(running.folder() + "/c").send(method, path, body);
    return answer ? answer->status : 0;
  }

  Control* control = nullptr;
  serve::Running running;
};

constexpr std::string_view kRules = "/v1/services/ost_io/rules";

TEST(ControlStress, AdministratorsReadAndChangeAtTheSameTime) {
  constexpr int kThreads = 4;
  constexpr int kEach = 10;
  Controlled it;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&it, i] {
      const std::string start =
          fmt::format(R"({{"command": "start r{} jobid={{j{}}} rate=5"}})", i, i);
      for (int each = 0; each < kEach; ++each) {
        EXPECT_EQ(it.status_of("POST", kRules, start), 200U);
        for (const char* const path :
             {"/v1/status", "/metrics", "/v1/params?pattern=*", "/v1/services/ost_io/classes"}) {
          EXPECT_EQ(it.status_of("GET", path), 200U) << path;
        }
        EXPECT_EQ(it.status_of("GET", "/v1/explain?name=nobody"), 404U);
        EXPECT_EQ(it.status_of("DELETE", fmt::format("{}/r{}", kRules, i)), 200U);
      }
    });
  }
  int reloads = 0;
  for (int i = 0; i < kEach; ++i) {
    ASSERT_TRUE(it.running.server().ask([&](serve::Server&) -> Result<void> {
      it.control->change_elsewhere([&] { ++reloads; });
      return {};
    }));
    it.control->changed();
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(it.running.server().ask([&](serve::Server&) -> Result<void> {
    EXPECT_EQ(reloads, kEach);
    return {};
  }));
}

TEST(ControlStress, WhoeverAsksIsAnsweredOrDisconnectedWhenTheServerEnds) {
  Controlled it;
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (it.status_of("GET", "/v1/status") == 200) ++answered;
    });
  }
  while (answered < 10) std::this_thread::yield();
  EXPECT_TRUE(it.running.stop());
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weir::control
