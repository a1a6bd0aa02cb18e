// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/binder.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/schedule/tbf/parts_for_tests.h"

namespace weir::tbf {
namespace {

using std::chrono::seconds;

Instant at(std::int64_t s) { return instant_at(0) + seconds{s}; }

TEST(Binder, TheSameAttributesFindTheSameQueueOnEachHead) {
  Parts parts;
  Queue& a = parts.idle_queue("a");
  EXPECT_EQ(&a, &parts.idle_queue("a"));
  EXPECT_NE(&a, &parts.idle_queue("b"));
  Queue& high = parts.idle_queue("a", Head::kHigh);
  EXPECT_NE(&a, &high);
  EXPECT_EQ(a.limits, high.limits) << "one bucket for both heads";
}

TEST(Binder, AHintIsCurrentUntilTheRulesChange) {
  Parts parts;
  ClassHint hint;
  Request request;
  request.attributes.job = JobId("a");
  request.hint = &hint;
  EXPECT_FALSE(parts.binder.is_current(hint, Head::kRegular));
  Queue& queue = parts.binder.find(request, Head::kRegular, at(0));
  EXPECT_TRUE(parts.binder.is_current(hint, Head::kRegular));
  EXPECT_FALSE(parts.binder.is_current(hint, Head::kHigh));
  EXPECT_EQ(&parts.binder.find(request, Head::kRegular, at(0)), &queue);
  parts.rule("start a jobid={a} rate=10");
  EXPECT_FALSE(parts.binder.is_current(hint, Head::kRegular));
  EXPECT_EQ(parts.binder.find(request, Head::kRegular, at(0)).limits->state()->by, Parts::type());
}

TEST(Binder, SaysWhichQueuesARuleAffects) {
  Parts parts;
  Queue& a = parts.queue("a");
  Queue& b = parts.queue("b");
  parts.rule("start a jobid={a} rate=10");
  EXPECT_TRUE(parts.binder.is_affected(a));
  EXPECT_FALSE(parts.binder.is_affected(b));
  parts.binder.bind(a, at(0));
  EXPECT_TRUE(parts.binder.is_bound(a));
  parts.binder.keep_bound(b);
  EXPECT_TRUE(parts.binder.is_bound(b));
  EXPECT_NE(a.limits->state(), b.limits->state());
}

TEST(Binder, BeyondTheBoundKeysShareOneClass) {
  Parts parts(few_classes(4));
  parts.rule("change default rate=1");
  for (int i = 0; i < 4; ++i) {
    Queue& queue = parts.queue(std::to_string(i));  // they have requests: none can go
    EXPECT_EQ(queue.limits, &queue.own);
  }
  Queue& one = parts.queue("one");
  Queue& other = parts.queue("other");
  EXPECT_EQ(one.limits, other.limits);
  EXPECT_TRUE(one.limits->is_lone);
  EXPECT_EQ(parts.binder.overflowed(), 2U);
}

TEST(Binder, AnIdleClassWithFullBucketsMakesRoom) {
  Parts parts(few_classes(4));
  for (int i = 0; i < 100; ++i) parts.idle_queue(std::to_string(i));
  EXPECT_EQ(parts.binder.overflowed(), 0U);
  EXPECT_LE(parts.classes.size(), 4U);
  EXPECT_LE(parts.binder.index().queues(), 8U);
}

TEST(Binder, AClassThatOwesIsNotForgotten) {
  Parts parts(few_classes(4));
  parts.rule("change default rate=1 burst=1");
  for (int i = 0; i < 4; ++i) {
    Queue& queue = parts.idle_queue(std::to_string(i));
    queue.limits->main.tokens.charge(Tokens{1}, *queue.limits->pace->shapes.ops, at(0));
  }
  parts.idle_queue("new");
  EXPECT_EQ(parts.binder.overflowed(), 1U);
  parts.idle_queue("later", Head::kRegular, at(2));
  EXPECT_EQ(parts.binder.overflowed(), 1U) << "their buckets are full by then";
}

TEST(Binder, MoreFieldsKeepTheBalances) {
  Parts parts;
  parts.rule("start a jobid={a} rate=1 burst=4");
  Queue& queue = parts.idle_queue("a");
  queue.limits->main.tokens.charge(Tokens{3}, *queue.limits->pace->shapes.ops, at(0));
  EXPECT_FALSE(parts.binder.distinguishes({Field::kNid}));
  parts.binder.distinguish_by({Field::kNid});
  EXPECT_TRUE(parts.binder.distinguishes({Field::kNid}));
  EXPECT_EQ(parts.binder.index().queues(), 0U);
  Queue& again = parts.idle_queue("a");
  const Class& limits = *again.limits;
  EXPECT_TRUE(limits.is_lone);
  EXPECT_EQ(limits.main.tokens.level(*limits.pace->shapes.ops, at(0)), Tokens{1});
}

}  // namespace
}  // namespace weir::tbf
