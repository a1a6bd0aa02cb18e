// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/control/words.h"

namespace weir::control {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kMs = 1'000'000;

// One service with a class dd/dd.0 that waits 10 ms each for the cause, over 10 s.
struct World {
  World() {
    ServiceSnapshot& one = shot.services.emplace_back();
    one.name = "ost_io";
    one.now = instant_at(0) + seconds{10};
    one.has_rules = true;
    one.capacity = 4000;
    one.capacity_unit = "operations";
    one.slots.count = 16;
    one.classes.push_back(
        {.rule = "dd", .key = {}, .by = {Field::kJobid}, .rate = 100, .depth = 3, .totals = {}});
    one.classes.back().key.job = JobId("dd.0");
    one.jobs.push_back({.job = JobId("dd.0"), .device = {1000, 1000 * kMs}, .share = 400});
  }
  ServiceSnapshot& service() { return shot.services.front(); }
  WaitSpan waited(Delay cause, std::uint64_t each = 10 * kMs) const {
    WaitSpan span{.requests = 1000, .arrived = 4100, .from = instant_at(0), .device = {10, 0}};
    span.delays[static_cast<std::size_t>(cause)] = 1000 * each;
    return span;
  }
  Verdict verdict(const WaitSpan& span) {
    return verdict_of(service(), *find_class(shot, "", "dd.0"), span);
  }

  Snapshot shot;
};

TEST(Explain, TheVerdictNamesTheCauseAndTheCure) {
  World world;
  Verdict told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(told.text,
            "dd.0 is limited by rule 'dd' (100 operations/s); it asked for 410 operations/s");
  EXPECT_EQ(told.cure, "weir rule change dd rate=410");
  told = world.verdict(world.waited(Delay::kShare));
  EXPECT_EQ(told.text, "dd.0 uses all of its share of the capacity, 400 operations/s for 1 node");
  EXPECT_EQ(told.cure, "weir job set dd.0 2");
  told = world.verdict(world.waited(Delay::kRoot));
  EXPECT_EQ(told.text,
            "service ost_io is at its capacity of 4,000 operations/s, which dd.0 shares with other "
            "jobs");
  EXPECT_EQ(told.cure, "");
  told = world.verdict(world.waited(Delay::kSlot));
  EXPECT_EQ(told.text, "dd.0 waits for the device: all 16 slots of service ost_io are busy");
  EXPECT_EQ(world.verdict(world.waited(Delay::kOrder)).cause, "order");
}

TEST(Explain, ByteAndClusterLimitsAreNamedAsSuch) {
  World world;
  ClassSnapshot& found = world.service().classes.front();
  found.level = 3;
  found.bps = 5'600'000;
  found.byte_depth = 65'536;
  Verdict told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(told.text, "dd.0 is limited by rule 'dd' (5.6 MB/s)");
  EXPECT_EQ(told.cure, "weir rule change dd bps=11200kB");
  found.is_of_cluster = true;
  told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_TRUE(told.cure.starts_with("weir cluster rule change dd bps=")) << told.cure;
  found.rate = found.bps = 0;
  told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_NE(told.text.find("a rule of a higher layer"), std::string::npos);
  EXPECT_EQ(told.cure, "");
}

TEST(Explain, ASlowDeviceIsNotThrottling) {
  World world;
  WaitSpan span = world.waited(Delay::kLimit, 20'000);
  EXPECT_EQ(world.verdict(span).cause, "none");
  span.device = {10, 10 * 40 * kMs};
  EXPECT_EQ(world.verdict(span).text,
            "dd.0 is not throttled: its requests wait 20.0 us on average, and the device takes "
            "40.0 ms");
  span = world.waited(Delay::kSlot, 5 * kMs);
  span.device = {10, 10 * 20 * kMs};
  EXPECT_EQ(world.verdict(span).text,
            "dd.0 waits mostly for the device: 20.0 ms of 25.0 ms on average");
  EXPECT_EQ(world.verdict({.from = instant_at(0)}).text,
            "dd.0 has sent no requests in the last 10.0 s");
  EXPECT_EQ(world.verdict({}).cause, "unknown");
}

TEST(Explain, AJobUnderARuleWithOneClassIsFound) {
  World world;
  ServiceSnapshot& service = world.service();
  service.classes.front() = {
      .rule = "all", .key = {}, .by = {}, .rate = 50, .depth = 3, .totals = {}};
  auto found = find_class(world.shot, "", "dd.0");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->found, nullptr) << "its rule is not known yet";
  EXPECT_EQ(found->key.job, JobId("dd.0"));
  found = find_class(world.shot, "", "dd.0", "all");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->found, &service.classes.front());
  for (const char* const name : {"all", "rule=all", "all/*"}) {
    ASSERT_TRUE(find_class(world.shot, "", name)) << name;
    EXPECT_EQ(find_class(world.shot, "", name)->found->rule, "all");
  }
  EXPECT_FALSE(find_class(world.shot, "", "nobody"));
  EXPECT_EQ(not_explained(world.shot, "", "nobody").code, std::errc::no_such_file_or_directory);
  service.has_rules = false;
  EXPECT_EQ(not_explained(world.shot, "", "dd.0").code, std::errc::no_such_device);
}

TEST(Explain, TheWindowIsTheDifferenceToASample) {
  WaitHistory history;
  WaitView then{.key = {}, .waiting = 3, .left = 100, .begun = instant_at(0), .delays = {500}};
  history.add({{.at = instant_at(0) + seconds{5}, .waits = {then}, .devices = {{90, 900}}}});
  const WaitView now{
      .key = {}, .waiting = 5, .left = 150, .begun = instant_at(0), .delays = {800, 10}};
  const WaitSpan span = history.since(0, now, {140, 1500}, instant_at(0) + seconds{10});
  EXPECT_EQ(span.wait_ns(), 310U);
  EXPECT_EQ(span.requests, 55U);
  EXPECT_EQ(span.arrived, 52U);
  EXPECT_EQ(span.from, instant_at(0) + seconds{5});
  EXPECT_EQ(span.device.requests, 50U);
  EXPECT_EQ(span.device.ns, 600U);
}

TEST(Words, AreShort) {
  EXPECT_EQ(count_words(36'000), "36,000");
  EXPECT_EQ(count_words(999), "999");
  EXPECT_EQ(count_words(1'234'567), "1,234,567");
  EXPECT_EQ(time_words(0), "0 ns");
  EXPECT_EQ(time_words(25'000'000), "25.0 ms");
  EXPECT_EQ(time_words(28'700'000'000), "28.7 s");
  EXPECT_EQ(rate_words(200, "operations"), "200 operations/s");
  EXPECT_EQ(rate_words(1'250'000, "operations"), "1.2 M operations/s");
  EXPECT_EQ(bandwidth_words(500), "500 B/s");
  EXPECT_EQ(bandwidth_words(5'600'000), "5.6 MB/s");
}

}  // namespace
}  // namespace weir::control
