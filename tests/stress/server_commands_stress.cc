// SPDX-License-Identifier: Apache-2.0
//
// Threads that send commands to a running server: each command is called exactly once, on the loop,
// even if the server stops first.
#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/stress/running_server.h"
#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

TEST(ServerCommandsStress, AThreadReadsAndChangesWhatTheLoopOwns) {
  Running running;
  Server& server = running.server();
  const auto rules = server.ask([](Server& it) -> Result<std::string> {
    Target& target = it.find_service("ost_io")->target;
    if (auto set = write_nrs_tbf_rule(target, "start r1 jobid={x.*} rate=5", it.now()); !set) {
      return tl::unexpected(set.error());
    }
    return read_nrs_tbf_rule(target);
  });
  ASSERT_TRUE(rules) << rules.error().message();
  EXPECT_NE(rules->find("r1 jobid={x.*} 5"), std::string::npos) << *rules;
  const auto reshape = [](const std::string& name) {
    return [name](Server& it) {
      Shape shape;
      shape.iops = Rate::per_second(5);
      return it.reshape(name, shape);
    };
  };
  EXPECT_TRUE(server.ask(reshape("a")));
  const auto missing = server.ask(reshape("b"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, std::errc::no_such_file_or_directory);
  const auto alone = server.ask([](Server& it) -> Result<bool> {
    return it.find_service("other") == nullptr && it.connection_count() == 0 &&
           it.exports().size() == 1 && it.services().size() == 1;
  });
  EXPECT_TRUE(alone && *alone);
}

TEST(ServerCommandsStress, EachCommandIsCalledOnceWheneverTheServerEnds) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  std::atomic<int> accepted{0}, ran{0}, refused{0}, elsewhere{0};
  {
    Running running;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        for (int each = 0; each < kEach; ++each) {
          if (i == 0 && each == kEach / 2) {
            EXPECT_TRUE(running.stop());
          }
          const auto posted = running.server().post([&](const Result<Server*>& server) {
            ++(server ? ran : refused);
            if (!running.is_on_loop()) ++elsewhere;
          });
          if (posted) ++accepted;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(accepted, ran + refused);
  EXPECT_GT(ran, 0);
  EXPECT_EQ(elsewhere, 0);
}

TEST(ServerCommandsStress, AnOrderIsTakenHoweverManyMessagesWait) {
  Running running;
  Server& server = running.server();
  std::promise<void> held, go;
  ASSERT_TRUE(server.post([&](const Result<Server*>&) {
    held.set_value();
    go.get_future().wait();  // the loop hangs meanwhile
  }));
  held.get_future().wait();
  const auto nothing = [](const Result<Server*>&) {};
  for (std::size_t i = 0; i < kCommandsMax; ++i) ASSERT_TRUE(server.post(nothing));
  const auto refused = server.post(nothing);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::resource_unavailable_try_again);
  std::promise<bool> ran;
  EXPECT_TRUE(server.order([&](const Result<Server*>& it) { ran.set_value(it.has_value()); }));
  go.set_value();
  EXPECT_TRUE(ran.get_future().get());
}

TEST(ServerCommandsStress, AfterTheEndIsAskedForCommandsAreToldSo) {
  Running running;
  ASSERT_TRUE(running.stop());
  const auto late = running.stop();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, std::errc::operation_canceled);
}

}  // namespace
}  // namespace weir::serve
