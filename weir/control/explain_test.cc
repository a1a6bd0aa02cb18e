// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain.h"

#include <string>
#include <vector>

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
    one.classes.back().key = Attributes{}.only({});
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
            "service ost_io is at its capacity of 4,000 operations/s, of which dd.0 gets all that "
            "other jobs leave");
  WaitView other{.waiting = 1, .begun = instant_at(0), .delays = {}};
  other.key.job = JobId("other");
  world.service().waits.push_back(other);
  told = world.verdict(world.waited(Delay::kRoot));
  EXPECT_EQ(told.text,
            "service ost_io is at its capacity of 4,000 operations/s, which dd.0 shares with other "
            "jobs");
  EXPECT_EQ(told.cure, "");
  told = world.verdict(world.waited(Delay::kSlot));
  EXPECT_EQ(told.text, "dd.0 waits for the device: all 16 slots of service ost_io are busy");
  WaitSpan busy = world.waited(Delay::kSlot);
  busy.device = {10, 30 * kMs};
  EXPECT_EQ(world.verdict(busy).text,
            "dd.0 waits for the device: all 16 slots of service ost_io are busy, 3.00 ms for each "
            "request");
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
  found.totals = {.served = 10, .bytes = 1'048'576};
  told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(told.text, "dd.0 is limited by rule 'dd' (5.6 MB/s); it asked for about 42.9 MB/s")
      << "410 operations/s of 104,857 bytes";
  EXPECT_EQ(told.cure, "weir rule change dd bps=11200kB");
  found.totals = {};
  found.is_of_cluster = true;
  world.service().rules.push_back({.name = "dd", .bps = 20'000'000});
  told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(
      told.text,
      "dd.0 is limited by rule 'dd' (this server's slice of the cluster's 20 MB/s: 5.6 MB/s)");
  EXPECT_EQ(told.cure, "weir cluster rule change dd bps=40MB") << "the limit, not the slice";
  found.rate = found.bps = 0;
  told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_NE(told.text.find("a rule in another layer"), std::string::npos);
  EXPECT_EQ(told.cure, "");
}

TEST(Explain, TheRuleWhoseBucketIsEmptyIsNamed) {
  World world;
  ServiceSnapshot& service = world.service();
  service.classes.front().level = 3;
  service.classes.push_back({.rule = "cap",
                             .key = Attributes{}.only({}),
                             .by = {},
                             .rate = 50,
                             .depth = 3,
                             .totals = {}});
  service.rules.push_back({.name = "cap", .layer = 2});
  WaitView wait{.waiting = 5, .begun = instant_at(0), .delays = {900}};
  wait.key.job = JobId("dd.0");
  service.waits.push_back(wait);
  service.wait_rules.push_back({"dd", "", "cap", ""});
  Verdict told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(told.text,
            "dd.0 is limited by rule 'cap' in layer 2 (50 operations/s for all its requests "
            "together); it asked for 410 operations/s");
  EXPECT_EQ(told.limited_by, "cap/*");
  EXPECT_EQ(told.cure, "weir rule change cap rate=100");
  service.classes.front().level = 0;
  service.classes.back().level = 2;
  EXPECT_EQ(world.verdict(world.waited(Delay::kLimit)).limited_by, "dd/dd.0");
}

TEST(Explain, AHigherLimitIsNotOfferedWhileAnotherRuleAllowsNoMore) {
  World world;
  ServiceSnapshot& service = world.service();
  service.classes.push_back({.rule = "cap",
                             .key = Attributes{}.only({}),
                             .by = {},
                             .rate = 100,
                             .depth = 3,
                             .level = 2,
                             .totals = {}});
  WaitView wait{.waiting = 5, .begun = instant_at(0), .delays = {900}};
  wait.key.job = JobId("dd.0");
  service.waits.push_back(wait);
  service.wait_rules.push_back({"dd", "", "cap", ""});
  Verdict told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(told.text,
            "dd.0 is limited by rule 'dd' (100 operations/s); it asked for 410 operations/s; rule "
            "'cap' allows no more than that either");
  EXPECT_EQ(told.cure, "");
  service.classes.back().rate = 101;
  told = world.verdict(world.waited(Delay::kLimit));
  EXPECT_EQ(told.cure, "weir rule change dd rate=410");
  service.classes.back().rate = 0;
  service.classes.back().bps = 5;  // of another kind
  service.classes.back().byte_level = service.classes.back().byte_depth = 5;
  EXPECT_EQ(world.verdict(world.waited(Delay::kLimit)).cure, "weir rule change dd rate=410");
}

TEST(Explain, AWeightIsChangedWhereItWasSet) {
  World world;
  JobSnapshot& job = world.service().jobs.front();
  job.weight = 5;
  Verdict told = world.verdict(world.waited(Delay::kShare));
  EXPECT_EQ(told.text, "dd.0 uses all of its share of the capacity, 400 operations/s for weight 5");
  EXPECT_EQ(told.cure, "") << "it is not known which rule has set it";
  world.service().rules.push_back({.name = "dd", .weight = 5});
  told = world.verdict(world.waited(Delay::kShare));
  EXPECT_EQ(told.text,
            "dd.0 uses all of its share of the capacity, 400 operations/s for weight 5 of rule "
            "'dd'");
  EXPECT_EQ(told.cure, "weir rule change dd weight=10");
}

TEST(Explain, ABacklogThatHasJustFilledIsNoDemand) {
  World world;
  WaitSpan span = world.waited(Delay::kLimit);
  span.from = world.service().now - seconds{1};
  EXPECT_EQ(world.verdict(span).text, "dd.0 is limited by rule 'dd' (100 operations/s)");
}

TEST(Explain, AtTheCapacityAJobThatGetsItsShareUsesItUp) {
  World world;
  WaitSpan span = world.waited(Delay::kOrder);
  span.requests = 4200;
  span.waiting = 200;
  EXPECT_EQ(world.verdict(span).cause, "share");
  EXPECT_EQ(world.verdict(span).cure, "weir job set dd.0 2");
  span.waiting = 1000;
  EXPECT_EQ(world.verdict(span).cause, "order") << "it gets less than its share";
  span.waiting = 200;
  world.service().jobs.front().share = 4000;
  EXPECT_EQ(world.verdict(span).cause, "order") << "a larger share is impossible";
  const Verdict told = world.verdict(world.waited(Delay::kShare));
  EXPECT_EQ(told.cause, "root") << "the share is the whole capacity";
  EXPECT_EQ(told.cure, "");
}

TEST(Explain, ALargerShareHelpsOnlyWhileOtherJobsWantTheCapacity) {
  World world;
  ServiceSnapshot& service = world.service();
  service.adaptive = "on";
  const WaitSpan span = world.waited(Delay::kShare);
  Verdict told = world.verdict(span);
  EXPECT_EQ(told.cause, "root");
  EXPECT_EQ(told.text,
            "dd.0 has all of the capacity of service ost_io, 4,000 operations/s, that other jobs "
            "leave");
  EXPECT_EQ(told.cure, "");
  WaitView held{.waiting = 5, .begun = instant_at(0), .delays = {900}};
  held.key.job = JobId("held");
  service.waits.push_back(held);
  EXPECT_EQ(world.verdict(span).cause, "root") << "its own limit holds the other job";
  service.waits.front().delays[static_cast<std::size_t>(Delay::kOrder)] = 1000;
  told = world.verdict(span);
  EXPECT_EQ(told.cause, "share");
  EXPECT_EQ(told.cure, "weir job set dd.0 2");
  service.waits.front().waiting = 0;
  EXPECT_EQ(world.verdict(span).cause, "root") << "the other job is idle";
}

TEST(Explain, OnlyAJobBelowItsEntitlementRepays) {
  World world;
  world.service().share_weights = ShareWeights{.sum = 8, .jobs = 2};  // entitled to 500
  JobSnapshot& job = world.service().jobs.front();
  job.record = -1436;
  EXPECT_EQ(world.verdict(world.waited(Delay::kShare)).text,
            "dd.0 uses all of its share of the capacity, 400 operations/s for 1 node, and repays "
            "1,430 tokens to other jobs");
  job.share = 700;
  EXPECT_EQ(world.verdict(world.waited(Delay::kShare)).text,
            "dd.0 uses all of its share of the capacity, 700 operations/s for 1 node");
}

TEST(Explain, NamesInCommandsAreQuotedForTheShell) {
  World world;
  world.service().classes.front().key.job = JobId("$(reboot)'");
  world.service().jobs.front().job = JobId("$(reboot)'");
  const std::string name = printable_id("$(reboot)'");
  const Verdict told =
      verdict_of(world.service(), *find_class(world.shot, "", name), world.waited(Delay::kShare));
  EXPECT_EQ(told.cure, "weir job set '\\x24\\x28reboot\\x29\\x27' 2");
}

TEST(Explain, GroupsTakeTurnsAndLocksWaitForRoom) {
  World world;
  world.service().groups = {.groups = {{.name = "near", .turns = 0, .waiting = 2},
                                       {.name = "far", .turns = 0, .waiting = 1}},
                            .preferred = "far",
                            .step = "own"};
  EXPECT_EQ(
      world.verdict(world.waited(Delay::kOrder)).text,
      "dd.0 waits for its group's turn: groups of clients take turns; now it is that of group "
      "'far'");
  world.service().groups->groups.back().waiting = 0;
  EXPECT_NE(world.verdict(world.waited(Delay::kOrder)).text.find("which go first"),
            std::string::npos)
      << "the other group has no requests";
  world.service().groups->groups.back().waiting = 1;
  world.service().groups->step = "inactive";
  EXPECT_NE(world.verdict(world.waited(Delay::kOrder)).text.find("which go first"),
            std::string::npos);
  lock::NamespaceView full{.name = "locks", .limit = 100, .granted = 125, .parked = 7};
  const Explained explained = *find_class(world.shot, "", "dd.0");
  const auto verdict = [&](const WaitSpan& span) {
    return verdict_of(world.service(), explained, span, {&full, 1});
  };
  const Verdict told = verdict(world.waited(Delay::kLimit, 100));
  EXPECT_EQ(told.cause, "volume");
  EXPECT_EQ(
      told.text,
      "dd.0 waits for room in namespace 'locks': 125 locks are granted, its limit is 100, and "
      "7 requests wait until clients give up locks that they do not use");
  EXPECT_EQ(told.cure, "weir lctl set_param ldlm.namespaces.locks.pool.limit=200");
  EXPECT_EQ(verdict(world.waited(Delay::kLimit)).cause, "limit") << "a longer wait comes first";
  full.parked = 0;
  EXPECT_EQ(verdict(world.waited(Delay::kLimit, 100)).cause, "none");
}

TEST(Explain, TheStandingOfAJobInWords) {
  World world;
  ServiceSnapshot& service = world.service();
  service.share_weights = ShareWeights{.sum = 10, .jobs = 2};
  JobSnapshot& job = service.jobs.front();
  const auto standing = [&](std::string_view cause) {
    return standing_of(service, job, {.cause = std::string(cause), .text = "", .cure = ""});
  };
  EXPECT_EQ(standing("none"),
            (std::vector<std::string>{"1 of 10 nodes, entitled to 400 operations/s",
                                      "share now 400 operations/s"}));
  job.share = 100;
  EXPECT_EQ(standing("none")[1], "share now 100 operations/s; it lends the rest to other jobs");
  job.record = 54'723;
  EXPECT_EQ(
      standing("limit"),
      (std::vector<std::string>{
          "1 of 10 nodes, entitled to 400 operations/s",
          "share now 100 operations/s; its own limit holds it, so it neither lends nor borrows",
          "other jobs owe it 54,700 tokens"}));
  job.record = -5;
  job.lent = 7;
  EXPECT_EQ(standing("none")[1], "share now 100 operations/s; it repays other jobs with the rest");
  EXPECT_EQ(standing("none")[2], "it owes other jobs 5 tokens");
  EXPECT_EQ(standing("none")[3], "within periods, since the start, it has lent 7 tokens");
  job.borrowed = 1234;
  EXPECT_EQ(standing("none")[3],
            "within periods, since the start, it has lent 7 tokens and borrowed 1,230 tokens");
  job.share = 800;
  EXPECT_EQ(standing("none")[1],
            "share now 800 operations/s; it borrows the difference from other jobs");
  service.share_weights.reset();
  EXPECT_EQ(standing("none")[0], "1 node, share 800 operations/s");
}

TEST(Explain, ASlowDeviceIsNotThrottling) {
  World world;
  WaitSpan span = world.waited(Delay::kLimit, 20'000);
  EXPECT_EQ(world.verdict(span).cause, "none");
  span.device = {10, 400 * kMs};
  EXPECT_EQ(world.verdict(span).text,
            "dd.0 is not throttled: its requests wait 20.0 us on average, and the device takes "
            "40.0 ms");
  span = world.waited(Delay::kSlot, 5 * kMs);
  span.device = {10, 200 * kMs};
  EXPECT_EQ(world.verdict(span).text,
            "dd.0 waits mostly for the device: 20.0 ms of 25.0 ms on average");
  EXPECT_EQ(world.verdict({.from = instant_at(0)}).text,
            "dd.0 has sent no requests in the last 10.0 s");
}

TEST(Explain, AQueueThatIsNotMeasuredIsExplainedByItsBuckets) {
  World world;
  ClassSnapshot& found = world.service().classes.front();
  JobSnapshot& job = world.service().jobs.front();
  EXPECT_EQ(world.verdict({}).text, "dd.0 has no requests that wait");
  EXPECT_EQ(world.verdict({}).cause, "none");
  job.waiting = 40;
  EXPECT_EQ(world.verdict({}).text, "dd.0 is limited by rule 'dd' (100 operations/s)");
  EXPECT_EQ(world.verdict({}).cure, "weir rule change dd rate=200");
  found.level = 2;
  EXPECT_EQ(world.verdict({}).cause, "unknown");
  EXPECT_EQ(world.verdict({}).text,
            "what 40 requests of dd.0 wait for is not measured: causes are known for 1,024 queues "
            "with requests at a time");
  found.bps = 1'000'000;
  found.byte_depth = 65'536;
  EXPECT_EQ(world.verdict({}).text, "dd.0 is limited by rule 'dd' (1 MB/s)");
  found.rate = found.bps = 0;
  world.service().jobs.clear();
  EXPECT_EQ(world.verdict({}).text,
            "dd.0 is not measured: causes are known for 1,024 queues with requests at a time");
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
  service.rules = {
      {.name = "idle", .conditions = "jobid={x}", .limits = "rate=5", .heads = "both"}};
  EXPECT_EQ(not_explained(world.shot, "", "rule=idle").where, "rule 'idle'");
  service.has_rules = false;
  EXPECT_EQ(not_explained(world.shot, "", "dd.0").code, std::errc::no_such_device);
}

TEST(Explain, TheWindowIsTheDifferenceToASample) {
  WaitHistory history;
  WaitView then{.key = {}, .waiting = 3, .left = 100, .begun = instant_at(0), .delays = {500}};
  history.add({{.at = instant_at(0) + seconds{65}, .waits = {then}, .devices = {{90, 900}}}});
  const WaitView now{
      .key = {}, .waiting = 5, .left = 150, .begun = instant_at(0), .delays = {800, 10}};
  const WaitSpan span = history.since(0, now, {140, 1500}, instant_at(0) + seconds{70});
  EXPECT_EQ(span.wait_ns(), 310U);
  EXPECT_EQ(span.requests, 55U);
  EXPECT_EQ(span.arrived, 52U);
  EXPECT_EQ(span.from, instant_at(0) + seconds{65});
  EXPECT_EQ(span.device.requests, 50U);
  EXPECT_EQ(span.device.ns, 600U);
}

TEST(Explain, AYoungQueueIsCountedFromItsBeginning) {
  WaitHistory history;
  const WaitView then{.key = {}, .left = 99, .begun = instant_at(0), .delays = {500}};
  history.add({{.at = instant_at(0) + seconds{5}, .waits = {then}, .devices = {{90, 900}}}});
  const WaitView now{.key = {}, .left = 100, .begun = instant_at(0), .delays = {500}};
  const WaitSpan span = history.since(0, now, {91, 901}, instant_at(0) + seconds{6});
  EXPECT_EQ(span.requests, 100U) << "not those since the first sample, a moment ago";
  EXPECT_EQ(span.wait_ns(), 500U);
  EXPECT_EQ(span.from, instant_at(0));
}

TEST(Words, AreShort) {
  EXPECT_EQ(count_words(36'000), "36,000");
  EXPECT_EQ(count_words(999), "999");
  EXPECT_EQ(counted(1, "request"), "1 request");
  EXPECT_EQ(counted(36'000, "request"), "36,000 requests");
  EXPECT_EQ(count_words(1'234'567), "1,234,567");
  EXPECT_EQ(time_words(0), "0 ns");
  EXPECT_EQ(time_words(25'000'000), "25.0 ms");
  EXPECT_EQ(time_words(28'700'000'000), "28.7 s");
  EXPECT_EQ(rate_words(200, "operations"), "200 operations/s");
  EXPECT_EQ(rate_words(1'250'000, "operations"), "1.25 M operations/s");
  EXPECT_EQ(rate_words(2'000'000, "operations"), "2 M operations/s");
  EXPECT_EQ(bandwidth_words(500), "500 B/s");
  EXPECT_EQ(bandwidth_words(5'600'000), "5.6 MB/s");
  EXPECT_EQ(bandwidth_words(100'000), "100 kB/s");
  EXPECT_EQ(bandwidth_words(999'999), "999 kB/s") << "never above its value";
  EXPECT_EQ(size_words(5'472'300), "5.47 MB");
  EXPECT_EQ(size_words(54'723), "54.7 kB");
  EXPECT_EQ(size_words(7'000'000'000'000'000), "7,000 TB");
  EXPECT_EQ(time_words(1'234'000'000'000), "1,230 s");
  EXPECT_EQ(three_digits(5'472'300), 5'470'000U);
  EXPECT_EQ(three_digits(999), 999U);
}

// ---- a tree of shares ----

// The job is one of two with equal weights of user 1001 of project 7, which has 40 %.
World in_tree() {
  World world;
  ServiceSnapshot& service = world.service();
  service.adaptive = "on";
  service.tree =
      TreeSnapshot{.levels = "projid,uid,jobid",
                   .nodes = {{.path = "7", .level = "project", .weight = 2, .siblings = 5},
                             {.path = "7/1001", .level = "uid", .siblings = 3}},
                   .nodes_in_all = 4};
  JobSnapshot& job = service.jobs.front();
  job.path = "7/1001";
  job.siblings = 2;
  job.share = 266;
  return world;
}

std::vector<std::string> standing(World& world) {
  return standing_of(world.service(), world.service().jobs.front(), {});
}

TEST(ExplainTree, ShowsThePathAndWhatTheJobIsEntitledTo) {
  World world = in_tree();
  EXPECT_EQ(standing(world).front(),
            "project 7 40 % -> uid 1001 33.3 % -> dd.0 50 %, entitled to 266 operations/s");
  EXPECT_EQ(standing(world)[1], "share now 266 operations/s");
  world.service().tree->nodes[0].name = "bio";
  EXPECT_EQ(standing(world).front().substr(0, 37), "project bio 40 % -> uid 1001 33.3 % -");
  world.service().tree->nodes[0].name = "";
  world.service().jobs.front().siblings = 1;
  world.service().tree->nodes[0].siblings = 2'000'000;
  EXPECT_EQ(standing(world).front().substr(0, 45), "project 7 less than 0.1 % -> uid 1001 33.3 % ");
  EXPECT_NE(standing(world).front().find("-> dd.0 all"), std::string::npos);
}

TEST(ExplainTree, TheCureIsWhatGivesThePartThatIsTooSmall) {
  World world = in_tree();
  world.service().adaptive = "";  // whether others want the capacity is not asked
  Verdict told = world.verdict(world.waited(Delay::kShare));
  EXPECT_EQ(told.cure, "weir job set dd.0 2");
  world.service().jobs.front().siblings = 1;
  told = world.verdict(world.waited(Delay::kShare));
  EXPECT_EQ(told.cure, "");
  EXPECT_EQ(
      told.text,
      "dd.0 uses all of its share of the capacity, 266 operations/s for 1 node; the weight of "
      "uid '7/1001' in [[shares]] determines it");
  world.service().tree->nodes[1].siblings = 1;
  told = world.verdict(world.waited(Delay::kShare));
  EXPECT_NE(told.text.find("the weight of project '7'"), std::string::npos);
}

TEST(ExplainTree, APathThatIsNotKnownIsLeftOut) {
  World world = in_tree();
  world.service().tree->nodes.pop_back();
  EXPECT_EQ(standing(world).front(), "1 node, share 266 operations/s");
}

}  // namespace
}  // namespace weir::control
