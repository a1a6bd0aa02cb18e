// SPDX-License-Identifier: Apache-2.0
//
// Without an etcd: each call is answered once, whenever the membership stops. etcd_client_test.cc
// and tests/cluster cover answers of etcd.
#include "weir/cluster/membership.h"

#include <atomic>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/cluster/listener_for_tests.h"

namespace weir::cluster {
namespace {

struct MembershipTest : ::testing::Test {
  MembershipTest() {
    Membership::Listener listener = alone_listener();
    listener.heard = [](const MembershipView&) { ADD_FAILURE() << "of an etcd that is not there"; };
    listener.unheard = [this](const Error&) { ++unheard; };
    auto made = Membership::create({.name = "a",
                                    .incarnation = 1,
                                    .address = "127.0.0.1:1",
                                    .prefix = "/weir",
                                    .etcd = {.endpoints = {"127.0.0.1:1"},
                                             .user = {},
                                             .password = {},
                                             .tls_directory = {},
                                             .timeout = std::chrono::seconds{60}}},
                                   std::move(listener));
    EXPECT_TRUE(made) << made.error().message();
    membership = std::move(*made);
  }

  std::atomic<int> unheard = 0;
  std::unique_ptr<Membership> membership;
};

TEST_F(MembershipTest, TellsThatEtcdIsAway) {
  membership->start();
  std::promise<Result<void>> answer;
  membership->forget("b", [&](Result<void> done) { answer.set_value(std::move(done)); });
  const Result<void> done = answer.get_future().get();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, std::errc::host_unreachable);
  membership->stop();
  EXPECT_FALSE(membership->trouble().empty());
  EXPECT_GE(unheard, 1);
}

TEST_F(MembershipTest, AnswersEachQuestionOnceWheneverItEnds) {
  constexpr int kThreads = 4;
  constexpr int kEach = 50;
  membership->start();
  std::atomic<int> answered = 0, cancelled = 0;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int each = 0; each < kEach; ++each) {
        if (i == 0 && each == kEach / 2) membership->stop();
        membership->look_again();
        membership->forget("b", [&](const Result<void>& done) {
          ++answered;
          if (!done && done.error().code == std::errc::operation_canceled) ++cancelled;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, kThreads * kEach);
  EXPECT_GE(cancelled, kEach / 2);
}

}  // namespace
}  // namespace weir::cluster
