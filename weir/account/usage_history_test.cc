// SPDX-License-Identifier: Apache-2.0
#include "weir/account/usage_history.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Resolution = UsageHistory::Resolution;
using Order = UsageHistory::Order;
using Numbers = std::vector<std::uint64_t>;

constexpr std::uint64_t kMs = 1'000'000;
Instant at(std::int64_t second) { return Instant{} + seconds{second}; }

Numbers served(const std::vector<UsageStep>& steps) {
  Numbers all;
  for (const UsageStep& one : steps) all.push_back(one.served());
  return all;
}
std::uint64_t sum(const std::vector<UsageStep>& steps) {
  const Numbers all = served(steps);
  return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
}
UsageHistory::View view(const UsageHistory& history, Resolution resolution,
                        const std::vector<std::string>& names = {}) {
  auto found = history.view("s", resolution, names);
  EXPECT_TRUE(found);
  return found.value_or(UsageHistory::View{});
}

TEST(UsageHistory, AStepHasTheDifferenceOfTwoSamples) {
  UsageHistory history;
  history.begin(at(100));
  history.total("s", {50, 5000, 7 * kMs});  // before the history began
  history.begin(at(101));
  history.total("s", {60, 5400, 9 * kMs});
  history.begin(at(102));
  history.total("s", {61, 5404, 9 * kMs});
  const auto seen = view(history, Resolution::kSeconds);
  EXPECT_EQ(served(seen.total), (Numbers{10, 1}));
  EXPECT_EQ(seen.total[0].bytes(), 400);
  EXPECT_EQ(seen.total[0].waited_us(), 2000);
  EXPECT_EQ(seen.end, at(103));
  EXPECT_EQ(seen.step, seconds{1});
  EXPECT_FALSE(history.view("t", Resolution::kSeconds, {}));
  EXPECT_FALSE(history.last_second("s", "c")) << "it is not kept";
}

TEST(UsageHistory, ALateSampleIsDividedAmongItsSteps) {
  UsageHistory history;
  history.begin(at(0));
  history.total("s", {});
  history.begin(at(3) + milliseconds{900});
  history.total("s", {10, 0, 0});
  EXPECT_EQ(served(view(history, Resolution::kSeconds).total), (Numbers{3, 3, 4}));
  history.begin(at(3) + milliseconds{950});  // in the same second
  history.total("s", {15, 0, 0});
  EXPECT_EQ(served(view(history, Resolution::kSeconds).total), (Numbers{3, 3, 9}));
  history.begin(at(1));  // a clock that went back
  history.total("s", {16, 0, 0});
  EXPECT_EQ(served(view(history, Resolution::kSeconds).total), (Numbers{3, 3, 10}));
}

TEST(UsageHistory, ASumThatStartsAgainIsThatOfANewClass) {
  UsageHistory history;
  history.begin(at(0));
  history.add("s", "a", {100, 100, 100});
  history.begin(at(1));
  history.add("s", "a", {7, 7, 7});
  EXPECT_EQ(served(view(history, Resolution::kSeconds, {"a"}).classes.at(0).steps), (Numbers{7}));
}

TEST(UsageHistory, AClassThatAppearsCountsFromItsBeginning) {
  UsageHistory history;
  history.begin(at(0));
  history.add("s", "old", {100, 0, 0});
  history.begin(at(1));
  history.add("s", "new", {7, 0, 0});
  const auto seen = view(history, Resolution::kSeconds, {"old", "new"});
  EXPECT_EQ(served(seen.classes.at(0).steps), (Numbers{0}));
  EXPECT_EQ(served(seen.classes.at(1).steps), (Numbers{7}));
}

// One request a second for three hours: five minutes by seconds, two hours by quarters of a minute.
TEST(UsageHistory, KeepsFiveMinutesAndTwoHours) {
  UsageHistory history;
  for (std::int64_t second = 0; second <= 3 * 3600; ++second) {
    history.begin(at(second));
    history.total("s", {static_cast<std::uint64_t>(second), 0, 0});
    history.add("s", "a", {static_cast<std::uint64_t>(2 * second), 0, 0});
  }
  const auto fine = view(history, Resolution::kSeconds, {"a"});
  EXPECT_EQ(served(fine.total), Numbers(300, 1));
  EXPECT_EQ(served(fine.classes.at(0).steps), Numbers(300, 2));
  const auto coarse = view(history, Resolution::kQuarters, {"a", "unknown"});
  EXPECT_EQ(served(coarse.total), Numbers(480, 15));
  ASSERT_EQ(coarse.classes.size(), 1);
  EXPECT_EQ(served(coarse.classes[0].steps), Numbers(480, 30));
  EXPECT_EQ(coarse.end, at(3 * 3600));
}

TEST(UsageHistory, AfterALongPauseOldStepsAreGone) {
  UsageHistory history;
  history.begin(at(0));
  history.total("s", {});
  history.begin(at(10));
  history.total("s", {1000, 0, 0});
  history.begin(at(100'000));  // more than a day: the machine was suspended
  history.total("s", {1000, 0, 0});
  EXPECT_EQ(sum(view(history, Resolution::kSeconds).total), 0);
  EXPECT_EQ(sum(view(history, Resolution::kQuarters).total), 0);
  history.begin(at(200'000));
  history.total("s", {1000 + 7215, 0, 0});  // of which the kept steps have equal parts
  EXPECT_LE(sum(view(history, Resolution::kQuarters).total), 7215);
}

TEST(UsageHistory, NumbersBeyondAStepAreCut) {
  UsageStep step;
  step.add({UINT64_MAX, UINT64_MAX, UINT64_MAX});
  step.add({UINT64_MAX, UINT64_MAX, UINT64_MAX});
  EXPECT_EQ(step.served(), UsageStep::kServedMax);
  EXPECT_EQ(step.bytes(), UsageStep::kMax);
  EXPECT_EQ(step.waited_us(), UsageStep::kMax);
  UsageStep small;
  small.add({1, std::uint64_t{5} << 32, 70'000 * (std::uint64_t{1} << 32)});
  EXPECT_EQ(small.bytes(), std::uint64_t{5} << 32);
  EXPECT_EQ(small.waited_us(), 70 * (std::uint64_t{1} << 32));
}

TEST(UsageHistory, TheMostDelayedClassesAreKept) {
  UsageHistory history;
  const auto sample = [&](std::int64_t second, const UsageSums& newcomer) {
    history.begin(at(second));
    for (std::size_t i = 0; i < UsageHistory::kSeriesMax; ++i) {
      history.add("s", "old." + std::to_string(i), {1, 1, 1000 + i});
    }
    history.add("s", "new", newcomer);
  };
  const auto has = [&](const std::string& name) {
    return view(history, Resolution::kSeconds, {name}).classes.size() == 1;
  };
  sample(0, {1, 1, 1999});
  sample(1, {1, 1, 1999});
  EXPECT_EQ(history.size(), UsageHistory::kSeriesMax);
  EXPECT_FALSE(has("new"));
  sample(2, {1, 1, 2002});
  EXPECT_TRUE(has("new"));
  EXPECT_FALSE(has("old.0"));
  EXPECT_TRUE(has("old.1"));
  EXPECT_EQ(history.size(), UsageHistory::kSeriesMax);
}

TEST(UsageHistory, AClassWithoutDelaysForTwoHoursGivesWay) {
  UsageHistory history;
  history.begin(at(0));
  for (std::size_t i = 0; i < UsageHistory::kSeriesMax; ++i) {
    history.add("s", "old." + std::to_string(i), {1, 1, 1'000'000 * kMs});
  }
  history.begin(at(7300));
  history.add("s", "new", {1, 1, 10});
  EXPECT_EQ(view(history, Resolution::kSeconds, {"new"}).classes.size(), 1);
  history.add("s", "idle", {1, 1, 0});
  EXPECT_EQ(view(history, Resolution::kSeconds, {"idle"}).classes.size(), 0);
}

TEST(UsageHistory, CountsItsMemory) {
  UsageHistory history;
  EXPECT_EQ(history.memory(), 0);
  history.begin(at(0));
  history.total("s", {});
  history.add("s", "c", {});
  const std::size_t empty = history.memory();
  EXPECT_GT(empty, 2 * 256);
  history.begin(at(1));
  history.add("s", "c", {7, 0, 0});
  const std::size_t piece = (history.memory() - empty) / 2;
  EXPECT_GE(piece, 32 * sizeof(UsageStep)) << "one of seconds, one of quarters of a minute";
  for (int second = 2; second < 7200; ++second) {
    history.begin(at(second));
    history.total("s", {static_cast<std::uint64_t>(second), 0, 0});
    for (int i = 0; i < 3; ++i) {
      history.add("s", "c" + std::to_string(i), {static_cast<std::uint64_t>(second), 0, 0});
    }
  }
  const std::size_t whole = history.memory();
  EXPECT_LE(whole, UsageHistory::kMemoryMax / 256) << "four lines and one that was used once";
  EXPECT_GT(whole, 4 * 25 * piece) << "all pieces of four lines";
}

TEST(UsageHistory, TheBusiestInEachSense) {
  UsageHistory history;
  for (std::uint64_t i = 0; i <= 2; ++i) {
    history.begin(at(static_cast<std::int64_t>(i)));
    history.add("s", "many", {100 * i, 1 * i, 0});
    history.add("s", "large", {1 * i, 1'000'000 * i, 0});
    history.add("s", "slow", {2 * i, 2 * i, 5 * kMs * i});
    history.add("s", "idle", {5, 5, 5 * kMs});
    history.add("other", "of another service", {500 * i, 0, 0});
  }
  const auto first = [&](Order order, std::size_t count) {
    return history.busiest("s", Resolution::kSeconds, order, count);
  };
  EXPECT_EQ(first(Order::kServed, 9), (std::vector<std::string>{"many", "slow", "large"}));
  EXPECT_EQ(first(Order::kBytes, 1), (std::vector<std::string>{"large"}));
  EXPECT_EQ(first(Order::kWait, 9), (std::vector<std::string>{"slow"}));
  EXPECT_TRUE(history.busiest("none", Resolution::kSeconds, Order::kWait, 9).empty());
}

TEST(UsageHistory, MarksAndNamesAreBounded) {
  UsageHistory history;
  history.begin(at(0));
  const std::string longest(UsageHistory::kNameMax, 'x');
  history.add("s", longest, {});
  history.add("s", longest + "x", {});
  EXPECT_EQ(history.size(), 1);
  for (std::size_t i = 0; i < 2 * UsageHistory::kServicesMax; ++i) {
    history.total("service." + std::to_string(i), {});
  }
  EXPECT_FALSE(history.view("service.64", Resolution::kSeconds, {}));
  for (std::size_t i = 0; i <= UsageHistory::kMarksMax; ++i) {
    history.mark(at(static_cast<std::int64_t>(i)), std::string(1000, 'm'));
  }
  ASSERT_EQ(history.marks().size(), UsageHistory::kMarksMax);
  EXPECT_EQ(history.marks().front().at, at(1));
  EXPECT_EQ(history.marks().front().text.size(), UsageHistory::kMarkMax);
}

// Nothing is lost or counted twice, whatever the times between samples.
TEST(UsageHistoryProperty, StepsAddUpToTheDifference) {
  Rng rng(7);
  for (int round = 0; round < 50; ++round) {
    UsageHistory history;
    Instant now = at(static_cast<std::int64_t>(rng.below(1000)));
    UsageSums sums{rng.below(1000), rng.below(1000), 0};
    const UsageSums begun = sums;
    history.begin(now);
    history.total("s", sums);
    const Instant end = now + seconds{290};
    while (now < end) {
      now += milliseconds{1000 + rng.below(4000)};
      sums.served += rng.below(1000);
      sums.bytes += rng.below(1'000'000);
      history.begin(now);
      history.total("s", sums);
    }
    const auto seen = view(history, Resolution::kSeconds);
    EXPECT_EQ(sum(seen.total), sums.served - begun.served) << "round " << round;
  }
}

}  // namespace
}  // namespace weir
