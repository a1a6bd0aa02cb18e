// SPDX-License-Identifier: Apache-2.0
#include "weir/control/class_rates.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ClassSnapshot class_of(const std::string& rule, const std::string& job, std::uint64_t served) {
  ClassSnapshot one{.rule = rule, .key = {}, .by = {Field::kJobid}, .totals = {}};
  one.key.job = JobId(job);
  one.key = one.key.only(one.by);
  one.totals = {.served = served, .bytes = 10 * served, .waited_ns = 100 * served};
  return one;
}

Snapshot shot_at(Nanoseconds at, std::vector<ClassSnapshot> classes) {
  Snapshot shot;
  shot.moment.now = instant_at(0) + at;
  ServiceSnapshot& service = shot.services.emplace_back();
  service.name = "ost_io";
  service.classes = std::move(classes);
  return shot;
}

const UsageHistory kNoHistory;

const ClassSnapshot& first(const Snapshot& shot) { return shot.services[0].classes[0]; }

TEST(ClassRates, AreTheDifferenceToASnapshotOfASecondAgo) {
  ClassRates rates;
  Snapshot shot = shot_at(seconds{1}, {class_of("dd", "a", 100)});
  rates.update(shot, kNoHistory);
  EXPECT_EQ(first(shot).recent.window_ns, 0U) << "nothing is known yet";
  shot = shot_at(seconds{2}, {class_of("dd", "a", 130)});
  rates.update(shot, kNoHistory);
  EXPECT_EQ(first(shot).recent.window_ns, 1'000'000'000U);
  EXPECT_EQ(first(shot).recent.sums, (UsageSums{30, 300, 3000}));
  shot = shot_at(seconds{4}, {class_of("dd", "a", 180)});
  rates.update(shot, kNoHistory);
  EXPECT_EQ(first(shot).recent.sums.served, 80U) << "the older of two snapshots is the base";
  EXPECT_EQ(first(shot).recent.window_ns, 3'000'000'000U);
}

TEST(ClassRates, TheWindowDoesNotDependOnHowOftenReadersAsk) {
  ClassRates rates;
  std::uint64_t served = 0;
  for (Nanoseconds at = seconds{1}; at <= seconds{5}; at += milliseconds{200}) {
    Snapshot shot = shot_at(at, {class_of("dd", "a", served += 20)});
    rates.update(shot, kNoHistory);
    if (at < seconds{3}) continue;
    EXPECT_GE(first(shot).recent.window_ns, 1'000'000'000U);
    EXPECT_LE(first(shot).recent.window_ns, 2'000'000'000U);
    EXPECT_EQ(first(shot).recent.sums.served * 10'000'000, first(shot).recent.window_ns);
  }
}

TEST(ClassRates, AClassThatIsNewOrStartedAgainCountsFromZero) {
  ClassRates rates;
  Snapshot shot = shot_at(seconds{1}, {class_of("dd", "a", 100)});
  rates.update(shot, kNoHistory);
  shot = shot_at(seconds{2}, {class_of("dd", "a", 5), class_of("dd", "b", 7)});
  rates.update(shot, kNoHistory);
  EXPECT_EQ(shot.services[0].classes[0].recent.sums.served, 5U);
  EXPECT_EQ(shot.services[0].classes[1].recent.sums.served, 7U);
}

TEST(ClassRates, ABaseThatIsTooOldIsNotUsed) {
  ClassRates rates;
  Snapshot shot = shot_at(seconds{1}, {class_of("dd", "a", 100)});
  rates.update(shot, kNoHistory);
  shot = shot_at(seconds{12}, {class_of("dd", "a", 130)});
  rates.update(shot, kNoHistory);
  EXPECT_EQ(first(shot).recent.window_ns, 0U);
}

TEST(ClassRates, TheCauseIsTheLongestDelayOfItsQueuesInEveryLayer) {
  Snapshot shot = shot_at(
      seconds{1}, {class_of("dd", "a", 1), class_of("top", "a", 1), class_of("dd", "b", 1)});
  ServiceSnapshot& service = shot.services[0];
  const auto wait = [&](const std::string& job, const DelaySums& delays, Head head) {
    WaitView one{.head = head, .delays = delays};
    one.key.job = JobId(job);
    service.waits.push_back(one);
    service.wait_rules.push_back({"dd", "top", "", ""});
  };
  wait("a", {5, 0, 0, 0, 1}, Head::kRegular);
  wait("a", {0, 0, 0, 0, 7}, Head::kRegular);
  wait("a", {0, 0, 90, 0, 0}, Head::kHigh);
  ClassRates rates;
  rates.update(shot, kNoHistory);
  EXPECT_EQ(service.classes[0].cause, "order");
  EXPECT_EQ(service.classes[1].cause, "order") << "a class of layer 1";
  EXPECT_EQ(service.classes[2].cause, "") << "it has not waited";
}

TEST(ClassRates, TheFirstSnapshotHasTheLastSecondOfTheHistory) {
  UsageHistory history;
  const auto sample = [&](Nanoseconds at, std::uint64_t served) {
    history.begin(instant_at(0) + at);
    history.total("ost_io", {served, 0, 0});
    history.add("ost_io", "dd/a", {served, 10 * served, 1000 * served});
  };
  ClassRates rates;
  Snapshot shot = shot_at(seconds{1}, {class_of("dd", "a", 100), class_of("dd", "b", 5)});
  sample(seconds{1}, 100);
  rates.update(shot, history);
  EXPECT_EQ(first(shot).recent.window_ns, 0U) << "one sample has no difference";
  sample(seconds{2}, 130);
  shot = shot_at(milliseconds{2300}, {class_of("dd", "a", 140), class_of("dd", "b", 5)});
  ClassRates later;
  later.update(shot, history);
  EXPECT_EQ(first(shot).recent.sums, (UsageSums{30, 300, 30'000}));
  EXPECT_EQ(first(shot).recent.window_ns, 1'000'000'000U);
  EXPECT_EQ(shot.services[0].classes[1].recent.window_ns, 0U) << "it is not in the history";
}

TEST(ClassRates, WhatHasNotWaitedLatelyHasNoCause) {
  const auto cause_of = [](std::uint64_t waited_ns, std::uint32_t waiting) {
    ClassRates rates;
    Snapshot shot = shot_at(seconds{1}, {class_of("dd", "a", 0)});
    rates.update(shot, kNoHistory);
    shot = shot_at(seconds{2}, {class_of("dd", "a", 10)});
    shot.services[0].classes[0].totals.waited_ns = waited_ns;
    WaitView one{.waiting = waiting, .delays = {5'000'000'000}};
    one.key.job = JobId("a");
    shot.services[0].waits.push_back(one);
    shot.services[0].wait_rules.push_back({"dd", "", "", ""});
    rates.update(shot, kNoHistory);
    return std::string(first(shot).cause);
  };
  EXPECT_EQ(cause_of(0, 0), "") << "it waited long ago";
  EXPECT_EQ(cause_of(9'000, 0), "") << "900 ns each";
  EXPECT_EQ(cause_of(20'000, 0), "limit");
  EXPECT_EQ(cause_of(0, 1), "limit") << "a request waits now";
}

}  // namespace
}  // namespace weir::control
