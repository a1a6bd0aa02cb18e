// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_course.h"

#include <cerrno>
#include <vector>

#include <gtest/gtest.h>

#include "weir/coordinate/leader.h"
#include "weir/coordinate/vectors.h"

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;

struct EpochCourseTest : ::testing::Test {
  void call() {
    course.next_epoch(
        kFirstEpoch, pack_vector(EpochVector{1}),
        [this](std::int64_t epoch, EpochView, Instant) { called.push_back(epoch); }, now);
  }

  Instant now = instant_at(1'000'000'000);
  std::vector<EpochMessage> sent;
  std::vector<std::int64_t> called;
  EpochCourse course{milliseconds{200},
                     [this](EpochMessage message) { sent.push_back(std::move(message)); }};
};

TEST_F(EpochCourseTest, WithoutALeaderItIsAnsweredAtOnce) {
  call();
  EXPECT_EQ(called, std::vector<std::int64_t>{-ENOTCONN});
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(course.next_wake(), kNever);
}

TEST_F(EpochCourseTest, WhatIsToBeSentIsSentInTheCall) {
  course.follow(true, now);
  call();
  ASSERT_EQ(sent.size(), 1U);
  EpochLeader leader({.term = 2, .combine = add_vectors});
  leader.receive(1, sent[0], now);
  for (const auto& out : leader.take_outgoing()) course.receive(out.message, now);
  EXPECT_EQ(called, std::vector<std::int64_t>{epoch_number(2, 1)});
  EXPECT_EQ(course.next_wake(), now + EpochMember::kConfirmWithin);
  course.tick(course.next_wake());
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<Taken>(sent[1]));
  course.last_epoch(epoch_number(2, 1), now);
  ASSERT_EQ(sent.size(), 3U);
  EXPECT_TRUE(std::holds_alternative<Leave>(sent[2]));
}

TEST_F(EpochCourseTest, AnotherLeaderEndsTheCall) {
  course.follow(true, now);
  call();
  course.follow(true, now);
  EXPECT_EQ(called, std::vector<std::int64_t>{-ENOTCONN});
  call();
  EXPECT_EQ(sent.size(), 2U) << "to the new one";
}

TEST_F(EpochCourseTest, ALeaderThatDoesNotAnswerIsAskedAgainAndGivenUp) {
  course.follow(true, now);
  call();
  now += milliseconds{100};
  course.tick(now);
  EXPECT_EQ(sent.size(), 2U);
  now += milliseconds{150};
  course.tick(now);
  EXPECT_EQ(called, std::vector<std::int64_t>{-ETIMEDOUT});
}

}  // namespace
}  // namespace weir::cluster
