// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/run_queue.h"

#include <gtest/gtest.h>

#include "weir/schedule/tbf/parts_for_tests.h"

namespace weir::tbf {
namespace {

using std::chrono::milliseconds;
using Place = Queue::Place;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

// Two queues of different jobs under one bucket of 100 a second that holds one token.
struct Common : Parts {
  Common() {
    rule("start r jobid={*} rate=100 burst=1 by=rule");
    first = &queue("a");
    second = &queue("b");
  }
  Queue* first;
  Queue* second;
};

void drain(Queue& queue, Instant now) {
  queue.limits->main.tokens.charge(Tokens{1}, *queue.limits->pace->shapes.ops, now);
}

TEST(RunQueue, AQueueThatCanPayIsReadyInOrderOfTags) {
  Parts parts;
  Queue& a = parts.queue("a");
  Queue& b = parts.queue("b");
  parts.tags.step(a.limits->tag, 5);
  parts.run.enter(a, at(0));
  parts.run.enter(b, at(0));
  EXPECT_EQ(a.place, Place::kReady);
  EXPECT_EQ(parts.run.ready(Head::kRegular), &a) << "equal tags: by arrival";
  parts.run.leave(a, at(0));
  EXPECT_EQ(a.place, Place::kIdle);
  EXPECT_EQ(parts.run.ready(Head::kRegular), &b);
  EXPECT_EQ(parts.run.ready(Head::kHigh), nullptr);
}

TEST(RunQueue, AQueueThatCannotPayWakesWhenItsBucketCan) {
  Parts parts;
  parts.rule("start a jobid={a} rate=100 burst=1");
  Queue& queue = parts.queue("a");
  drain(queue, at(0));
  parts.run.enter(queue, at(0));
  EXPECT_EQ(queue.place, Place::kFirst);
  EXPECT_EQ(parts.run.next_wake(), at(10));
  parts.run.wake(at(9));
  EXPECT_EQ(queue.place, Place::kFirst);
  parts.run.wake(at(10));
  EXPECT_EQ(queue.place, Place::kReady);
  EXPECT_EQ(parts.run.next_wake(), kNever);
}

TEST(RunQueue, AtACommonBucketOneAtATimeIsLetGo) {
  Common parts;
  drain(*parts.first, at(0));
  parts.run.enter(*parts.first, at(0));
  parts.run.enter(*parts.second, at(0));
  EXPECT_EQ(parts.first->place, Place::kFirst);
  EXPECT_EQ(parts.second->place, Place::kBehind);
  parts.run.wake(at(10));
  EXPECT_EQ(parts.first->place, Place::kReady);
  EXPECT_EQ(parts.second->place, Place::kBehind) << "nobody is woken in vain";
  parts.run.leave(*parts.first, at(10));
  EXPECT_EQ(parts.second->place, Place::kFirst) << "the next moves up";
}

TEST(RunQueue, TokensThatComeFromOutsideMoveTheWakeUp) {
  Parts parts;
  parts.rule("start a jobid={a} rate=100 burst=2");
  Queue& queue = parts.queue("a");
  drain(queue, at(0));
  drain(queue, at(0));
  drain(queue, at(0));
  parts.run.enter(queue, at(0));
  EXPECT_EQ(parts.run.next_wake(), at(20));
  queue.limits->main.tokens.give_back(Tokens{1}, *queue.limits->pace->shapes.ops);
  parts.run.bucket_changed(queue.limits->main, queue);
  EXPECT_EQ(parts.run.next_wake(), at(10));
}

TEST(RunQueue, AQueueWhoseTagAnotherMovedFallsBack) {
  Parts parts;
  parts.rule("start r jobid={a b} rate=1000 burst=100 by=rule");
  Queue& a = parts.queue("a");
  Queue& c = parts.queue("c");
  parts.run.enter(a, at(0));
  parts.run.enter(c, at(0));
  EXPECT_FALSE(parts.run.falls_back(a, at(0)));
  advance(a.limits->tag, 1'000'000'000);  // a request of b, which has the same class, has run
  EXPECT_TRUE(parts.run.falls_back(a, at(0)));
  EXPECT_EQ(parts.run.ready(Head::kRegular), &c);
}

TEST(RunQueue, ABucketThatSomebodyWaitsAtIsLacking) {
  Common parts;
  EXPECT_EQ(empty_limit(*parts.first, at(0)), nullptr);
  EXPECT_EQ(lacking_limit(*parts.first, at(0)), nullptr);
  drain(*parts.first, at(0));
  EXPECT_EQ(empty_limit(*parts.first, at(0)), &parts.first->limits->main);
  parts.run.enter(*parts.first, at(0));
  EXPECT_EQ(empty_limit(*parts.second, at(10)), nullptr);
  EXPECT_EQ(lacking_limit(*parts.second, at(10)), &parts.first->limits->main);
}

}  // namespace
}  // namespace weir::tbf
