// SPDX-License-Identifier: Apache-2.0
//
// The driver against the model of a server, in virtual time: that it is safe beside an
// administrator, survives what servers do, and holds its figures.
#include "weir/lustre/driver.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/weir/model_tree.h"
#include "weir/classify/rule_spec.h"
#include "weir/coordinate/vectors.h"
#include "weir/lustre/job_limits.h"
#include "weir/lustre/names.h"
#include "weir/lustre/share_parts.h"
#include "weir/lustre/status.h"
#include "weir/sim/lustre_model.h"

namespace weir {
namespace {

using app::ModelTree;

constexpr Nanoseconds kPeriod = std::chrono::milliseconds{20};
const std::string kRules = lustre::kRulesPath;

// Fails from some operation on, as if the process had died there.
class DyingTree final : public lustre::Tree {
 public:
  DyingTree(lustre::Tree& tree, std::uint64_t lives) : tree_(tree), lives_(lives) {}

  Result<std::string> read(const std::string& path) override {
    if (is_dead()) return fail(std::errc::operation_canceled, path, "dead");
    return tree_.read(path);
  }
  Result<void> write(const std::string& path, std::string_view text) override {
    if (is_dead()) return fail(std::errc::operation_canceled, path, "dead");
    return tree_.write(path, text);
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    if (is_dead()) return fail(std::errc::operation_canceled, folder, "dead");
    return tree_.list(folder);
  }
  bool is_dead() { return used_++ >= lives_; }

 private:
  lustre::Tree& tree_;
  std::uint64_t lives_;
  std::uint64_t used_ = 0;
};

// Shows other text than the server's, or an error.
class EditedTree final : public lustre::Tree {
 public:
  using Edit = std::function<Result<std::string>(const std::string& path, std::string text)>;

  explicit EditedTree(lustre::Tree& tree) : tree_(tree) {}

  Result<std::string> read(const std::string& path) override {
    auto text = tree_.read(path);
    return text && edit ? edit(path, *text) : text;
  }
  Result<void> write(const std::string& path, std::string_view text) override {
    return tree_.write(path, text);
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    return tree_.list(folder);
  }

  Edit edit;

 private:
  lustre::Tree& tree_;
};

// A server with two CPTs, a job that never has enough and one that comes and goes.
class Site {
 public:
  explicit Site(std::uint32_t cpts = 2, std::uint32_t vanish_permille = 0)
      : server_(options(cpts, vanish_permille), Rng(7)), tree(server_) {
    EXPECT_TRUE(write(lustre::kPoliciesPath, "tbf jobid"));
    EXPECT_TRUE(write(kRules, "start admin jobid={backup.*} rate=77"));
    EXPECT_TRUE(write(kRules, "start weir00009 jobid={somebody} rate=5"));  // not ours
    for (std::size_t i = 0; i < 64; ++i) arrive("hog", i);
  }
  static sim::LustreServer::Options options(std::uint32_t cpts, std::uint32_t vanish_permille) {
    sim::LustreServer::Options options;
    options.cpts = cpts;
    options.late_timers = true;
    options.stats.vanish_permille = vanish_permille;
    return options;
  }

  Result<void> write(const std::string& path, std::string_view text) {
    return server_.write(path, text, now);
  }
  void arrive(const char* job, std::size_t tag) {
    server_.arrive({.job = JobId(job), .tag = tag, .cpt = static_cast<std::uint32_t>(tag)}, now);
  }
  // Whoever is done asks again; `big` only while it bursts.
  void run_to(Instant until) {
    while (now < until) {
      now = std::min(until, server_.next());
      server_.run(now, [&](const sim::Rpc& rpc, Instant, Instant) {
        if (rpc.job == JobId("hog") || bursts) again_.push_back(rpc);
      });
      for (const sim::Rpc& rpc : std::exchange(again_, {})) server_.arrive(rpc, now);
    }
    tree.set_now(now);
  }
  void burst() {
    bursts = true;
    for (std::size_t i = 0; i < 16; ++i) arrive("big", i);
  }

  // Lines of the listing that are not ours, as they are.
  std::string foreign() {
    std::string text;
    std::string all = *server_.read(kRules, now);
    std::istringstream lines(all);
    std::string line;
    while (std::getline(lines, line)) {
      if (line.starts_with("weir") && !line.starts_with("weir00009")) continue;
      text += line.substr(0, line.find(", ref")) + "\n";
    }
    return text;
  }
  // How often each own rule is listed, and whether all say the same.
  std::map<std::string, int> own() {
    std::map<std::string, int> lines_of;
    std::string all = *server_.read(kRules, now);
    std::istringstream lines(all);
    std::string line;
    while (std::getline(lines, line)) {
      if (line.starts_with("weir") && !line.starts_with("weir00009")) {
        ++lines_of[line.substr(0, line.find(", ref"))];
      }
    }
    return lines_of;
  }

 private:
  sim::LustreServer server_;
  std::vector<sim::Rpc> again_;

 public:
  sim::LustreServer& server() { return server_; }
  ModelTree tree;
  Instant now{};
  bool bursts = false;
  std::string map;  // on disk
};

// A run of the driver: its life begins with the map that is on disk.
struct Drive {
  Drive(Site& at, lustre::Tree& through, bool dry = false)
      : site(at),
        names(*lustre::Names::read("weir", at.map)),
        driver(
            options(dry), through, names,
            [this](std::string_view text) {
              if (dies_saving) return Result<void>(fail(std::errc::operation_canceled, "map", ""));
              site.map = text;
              return Result<void>{};
            },
            [this](std::string_view command, std::string_view) { log.emplace_back(command); }) {
    EXPECT_TRUE(driver.set_nodes(JobId("big"), 3));
  }
  static lustre::Driver::Options options(bool dry) {
    lustre::Driver::Options options;
    options.dry_run = dry;
    options.controller.capacity = Rate::per_second(1000);
    options.controller.period = kPeriod;
    options.controller.cpts = 2;
    return options;
  }
  Result<void> round() {
    site.run_to(site.now + kPeriod);
    return driver.round(site.now);
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) EXPECT_TRUE(round());
  }

  Site& site;
  std::vector<std::string> log;
  bool dies_saving = false;
  lustre::Names names;
  lustre::Driver driver;
};

TEST(Driver, HoldsTheHogWhileABiggerJobWantsMore) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(20);
  EXPECT_TRUE(site.own().empty());  // alone
  site.burst();
  run.rounds(10);
  const auto own = site.own();
  ASSERT_EQ(own.size(), 1U);
  EXPECT_NE(own.begin()->first.find("jobid={hog}"), std::string::npos);
  EXPECT_EQ(own.begin()->second, 4);  // two CPTs, two heads
  site.bursts = false;
  run.rounds(30);
  EXPECT_TRUE(site.own().empty());
}

TEST(Driver, StandsBehindTheRulesOfOthersAndLeavesThemAlone) {
  Site site;
  const std::string before = site.foreign();
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  const std::string listing = *site.server().read(kRules, site.now);
  EXPECT_LT(listing.find("admin jobid"), listing.find("jobid={hog}"));
  EXPECT_EQ(site.foreign(), before);
  EXPECT_TRUE(run.driver.remove_all());
  EXPECT_TRUE(site.own().empty());
  EXPECT_EQ(site.foreign(), before);
  for (const std::string& command : run.log) EXPECT_EQ(command.find("clear"), std::string::npos);
}

// The map says weir00009 is ours if it ever was; what it asks for says that it is not now.
TEST(Driver, ANameThatSomebodyElseUsesIsNotTouched) {
  Site site;
  site.map = "weir lustre names 1\nweir00009\t\"hog\"\n";
  Drive run(site, site.tree);
  run.rounds(5);
  site.burst();
  run.rounds(10);
  EXPECT_NE(site.foreign().find("weir00009 jobid={somebody} 5"), std::string::npos);
  EXPECT_EQ(site.own().size(), 1U);
}

TEST(Driver, ADryRunWritesNothingAndSaysEverything) {
  Site site;
  Drive run(site, site.tree, true);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  EXPECT_TRUE(site.own().empty());
  EXPECT_TRUE(site.map.empty());
  ASSERT_FALSE(run.log.empty());
  EXPECT_TRUE(run.log.front().starts_with("start weir"));
  EXPECT_LE(run.log.size(), 6U);  // once each, not every round
}

TEST(Driver, RepairsWhatHeadsDisagreeAbout) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  const std::string line = site.own().begin()->first;
  const std::string name = line.substr(0, line.find(' '));
  // As a change whose rank does not exist leaves it: CPT 0's regular head only.
  EXPECT_FALSE(site.write(kRules, "change " + name + " rate=999 rank=nosuch"));
  ASSERT_EQ(site.own().size(), 2U);
  run.rounds(1);
  ASSERT_EQ(site.own().size(), 1U);
  EXPECT_EQ(site.own().begin()->second, 4);
  EXPECT_EQ(run.driver.counters().repairs, 1U);
  EXPECT_TRUE(site.write(kRules, "hp stop " + name));
  run.rounds(1);
  EXPECT_EQ(site.own().begin()->second, 4);
}

std::uint64_t served_of(const Drive& run, const char* job) {
  for (const JobDemand& demand : run.driver.controller().demands()) {
    if (demand.job == JobId(job)) return demand.served.count();
  }
  return 0;
}

Result<std::string> without_start_times(const std::string& path, std::string text) {
  for (std::size_t at = 0; path.ends_with("job_stats");) {
    at = text.find("  start_time:", at);
    if (at == std::string::npos) break;
    text.erase(at, text.find('\n', at) + 1 - at);
  }
  return text;
}

// enable_stats_header=0 takes the start times away; no job has begun anew by that.
TEST(Driver, CountersGoOnWithoutTheirStartTimes) {
  Site site;
  EditedTree tree(site.tree);
  Drive run(site, tree);
  run.rounds(50);
  const std::uint64_t usual = served_of(run, "hog");
  ASSERT_GT(usual, 0U);
  tree.edit = without_start_times;
  run.rounds(1);
  EXPECT_LE(served_of(run, "hog"), 2 * usual);
  tree.edit = nullptr;
  run.rounds(1);
  EXPECT_LE(served_of(run, "hog"), 2 * usual);
}

// A large job_stats is no snapshot: one read may miss an entry that the next one has. Releases up
// to 2.14 have no start times to know it by.
TEST(Driver, AnEntryThatOneReadMissesGoesOn) {
  for (const EditedTree::Edit& shown :
       {EditedTree::Edit(), EditedTree::Edit(without_start_times)}) {
    Site site;
    EditedTree tree(site.tree);
    tree.edit = shown;
    Drive run(site, tree);
    run.rounds(50);
    const std::uint64_t usual = served_of(run, "hog");
    tree.edit = [](const std::string& path, std::string text) {
      return path.ends_with("job_stats") ? std::string() : text;
    };
    run.rounds(1);
    tree.edit = shown;
    run.rounds(1);
    EXPECT_GT(served_of(run, "hog"), 0U);
    EXPECT_LE(served_of(run, "hog"), 3 * usual);
  }
}

TEST(Driver, RulesOfAServerThatCannotBeLookedAtAreRemoved) {
  Site site;
  const std::string before = site.foreign();
  EditedTree tree(site.tree);
  Drive run(site, tree);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  ASSERT_EQ(site.own().size(), 1U);
  tree.edit = [](const std::string& path, std::string text) -> Result<std::string> {
    if (path.ends_with("job_stats")) return fail(std::errc::io_error, path, "unreadable");
    return text;
  };
  const Instant since = site.now;
  while (site.now < since + std::chrono::seconds{4}) EXPECT_FALSE(run.round());
  EXPECT_EQ(site.own().size(), 1U);
  while (site.now < since + std::chrono::seconds{6}) {
    EXPECT_FALSE(run.round());
    EXPECT_TRUE(run.driver.glance(site.now));
  }
  EXPECT_TRUE(site.own().empty());
  EXPECT_EQ(site.foreign(), before);
  tree.edit = nullptr;
  run.rounds(20);
  EXPECT_EQ(site.own().size(), 1U);
}

// Rules of one head only cannot be read, and what cannot be read is not said to be removed.
TEST(Driver, HeadsOfOtherTypesAreRefused) {
  Site site;
  ASSERT_TRUE(site.write(lustre::kPoliciesPath, "tbf hp nid"));
  const auto mixed = lustre::look(site.tree);
  ASSERT_FALSE(mixed);
  EXPECT_EQ(mixed.error().code, std::errc::not_supported);
  EXPECT_NE(mixed.error().message().find("'nid'"), std::string::npos);
  ASSERT_TRUE(site.write(lustre::kPoliciesPath, "fifo hp"));
  Drive run(site, site.tree);
  EXPECT_FALSE(run.round());
  EXPECT_FALSE(run.driver.remove_all());
  ASSERT_TRUE(site.write(lustre::kPoliciesPath, "fifo"));
  EXPECT_TRUE(run.driver.remove_all());
}

TEST(Driver, SurvivesARestartOfTheServer) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  site.server().restart();
  EXPECT_FALSE(run.round());  // tbf does not run; the message says so
  EXPECT_TRUE(site.write(lustre::kPoliciesPath, "tbf jobid"));
  run.rounds(12);
  EXPECT_EQ(site.own().size(), 1U);
}

TEST(Driver, AServerThatRefusesEveryWriteKeepsNothing) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  for (const int error : {EAGAIN, EBUSY, EIO, ENOSPC}) {
    site.server().set_write_error(error);
    for (int i = 0; i < 5; ++i) (void)run.round();
    EXPECT_TRUE(site.own().empty());
  }
  EXPECT_GT(run.driver.counters().failed_writes, 0U);
  site.server().set_write_error(0);
  run.rounds(3);
  EXPECT_EQ(site.own().size(), 1U);
}

// For two seconds, each rule of the driver as soon as it is seen. Returns how often.
int stop_again_and_again(Drive& run, std::vector<std::string>& news) {
  int stops = 0;
  for (int i = 0; i < 100; ++i) {
    run.rounds(1);
    for (std::string& each : run.driver.take_news()) news.push_back(std::move(each));
    if (run.site.own().empty()) continue;
    const std::string line = run.site.own().begin()->first;
    EXPECT_TRUE(run.site.write(kRules, "stop " + line.substr(0, line.find(' '))));
    ++stops;
  }
  return stops;
}

// Somebody who wants the hog to run free has the last word, for a while.
TEST(Driver, AJobWhoseRuleIsStoppedAgainAndAgainIsLeftAlone) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  std::vector<std::string> news;
  const int stops = stop_again_and_again(run, news);
  EXPECT_EQ(stops, lustre::Driver::kStolenMax);
  EXPECT_EQ(run.driver.counters().stolen, 3U);
  ASSERT_EQ(news.size(), 1U);
  EXPECT_NE(news[0].find("'hog' was stopped 3 times"), std::string::npos) << news[0];
  EXPECT_EQ(run.driver.holds().held(), 0U);
}

// One stop, or the restart of a server, is repaired.
TEST(Driver, ARuleThatIsStoppedOnceIsStartedAgain) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  const std::string line = site.own().begin()->first;
  EXPECT_TRUE(site.write(kRules, "stop " + line.substr(0, line.find(' '))));
  run.rounds(3);
  EXPECT_EQ(site.own().size(), 1U);
  EXPECT_EQ(run.driver.counters().stolen, 1U);
  EXPECT_TRUE(run.driver.take_news().empty());
}

// The slice of hog on this server, of a limit of a cluster.
struct Limited {
  Limited(Drive& drive, std::uint64_t slice) : run(drive), limits({.cpts = 2}) {
    const auto rule = parse_rule("start wide jobid={hog} rate=1000 scope=cluster");
    EXPECT_TRUE(limits.apply_rules({&*rule, 1}, run.site.now));
    limits.set_members(8);
    run.driver.set_limits(&limits);
    run.rounds(1);
    Attributes key;
    key.job = JobId("hog");
    const ClassSlice one{.rule = "wide",
                         .key = key.only({Field::kJobid}),
                         .slice = {.ops = Rate::per_second(slice), .bytes = {}}};
    limits.set_slices({&one, 1}, run.site.now);
    EXPECT_TRUE(run.driver.apply_limits(run.site.now));
  }
  // The rate in the listing; 0: it has no rule.
  std::uint32_t listed() const {
    const auto own = run.site.own();
    if (own.size() != 1 || own.begin()->second != 4) return 0;
    const std::string& line = own.begin()->first;
    return static_cast<std::uint32_t>(std::stoul(line.substr(line.rfind(' '))));
  }

  Drive& run;
  lustre::JobLimits limits;
};

TEST(Driver, AJobAloneIsLimitedByTheSliceOfItsLimit) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(20);
  const std::string before = site.foreign();
  Limited limited(run, 100);
  run.rounds(200);
  EXPECT_GT(limited.listed(), 0U);
  EXPECT_EQ(site.foreign(), before);
  ASSERT_NE(run.driver.limit_of(JobId("hog")), nullptr);
  EXPECT_EQ(run.driver.limit_of(JobId("hog"))->rule, "wide");
  const auto stop = parse_rule("stop wide");
  EXPECT_TRUE(limited.limits.apply_rules({&*stop, 1}, site.now));
  run.rounds(1);
  EXPECT_TRUE(site.own().empty());
  EXPECT_EQ(run.driver.limit_of(JobId("hog")), nullptr);
}

// The limit allows more than the share: the share holds, as without a limit, and the limit
// continues when the others are gone.
TEST(Driver, AJobThatIsHeldAndLimitedHasTheLowerRate) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(20);
  Limited limited(run, 900);
  run.rounds(100);
  const std::uint32_t alone = limited.listed();
  EXPECT_GT(alone, 250U);
  site.burst();
  run.rounds(15);
  const std::uint32_t held = limited.listed();
  EXPECT_GT(held, 0U);
  EXPECT_LT(held, 200U);
  EXPECT_EQ(run.driver.limit_of(JobId("hog")), nullptr);
  site.bursts = false;
  run.rounds(50);
  EXPECT_GT(limited.listed(), 250U);
}

TEST(Driver, ALimitThatIsStoppedOnTheServerAgainAndAgainIsGivenUp) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(20);
  Limited limited(run, 100);
  std::vector<std::string> news;
  const int stops = stop_again_and_again(run, news);
  EXPECT_EQ(stops, lustre::Driver::kStolenMax);
  ASSERT_EQ(news.size(), 1U);
}

TEST(Driver, NodesOfAJobAreDividedByItsPart) {
  Site site;
  lustre::ShareParts parts;
  Drive run(site, site.tree);
  run.driver.set_parts(&parts);
  EXPECT_TRUE(run.driver.set_nodes(JobId("hog"), 5));
  EXPECT_FALSE(run.driver.set_nodes(JobId("hog"), 0));
  EXPECT_FALSE(run.driver.set_nodes(JobId("hog"), UINT64_MAX));
  run.rounds(20);
  EXPECT_EQ(run.driver.nodes_of(JobId("hog")), 5U);
  EXPECT_EQ(run.driver.controller().nodes_of(JobId("hog")), 5 * lustre::ShareParts::kWhole);
  // Three times as much elsewhere.
  EpochBytes sum = parts.ready(site.now);
  for (int i = 0; i < 2; ++i) {
    EpochBytes twice(sum.size());
    add_vectors(twice, sum, sum);
    sum = twice;
  }
  (void)parts.start_epoch(1, sum, site.now);
  run.rounds(2);
  EXPECT_EQ(run.driver.nodes_of(JobId("hog")), 5U);
  EXPECT_EQ(run.driver.controller().nodes_of(JobId("hog")), 5 * lustre::ShareParts::kWhole / 4);
}

TEST(Driver, TellsWhatItWroteAndWhoIsHeldSinceWhen) {
  Site site;
  Drive run(site, site.tree);
  std::vector<std::string> written;
  run.driver.on_written([&](const lustre::Driver::Written& each) {
    written.push_back(fmt::format("{} {}", each.before ? *each.before : 0, each.command));
    EXPECT_EQ(each.error, nullptr);
    EXPECT_FALSE(each.reason.empty());
  });
  lustre::StatusKeeper keeper;
  run.rounds(10);
  site.burst();
  for (int i = 0; i < 60; ++i) {
    run.rounds(1);
    keeper.count(run.driver, site.now);
  }
  ASSERT_EQ(written.size(), run.driver.counters().writes);
  EXPECT_TRUE(written.front().starts_with("0 start weir")) << written.front();
  EXPECT_FALSE(written.back().starts_with("0 ")) << written.back();
  const lustre::Status status = keeper.status(run.driver, site.now);
  const lustre::JobStatus* const hog = status.find("hog");
  const lustre::JobStatus* const big = status.find("big");
  ASSERT_TRUE(hog != nullptr && big != nullptr);
  ASSERT_TRUE(hog->hold.rate);
  EXPECT_GT(big->per_second, 500U);
  EXPECT_EQ(
      lustre::explain(status, *hog, "14:02:11"),
      fmt::format("held at {}/s since 14:02:11 because big is entitled to {}/s ({} on each of "
                  "2 CPTs)",
                  2 * *hog->hold.rate, big->entitlement, *hog->hold.rate));
  EXPECT_EQ(
      lustre::explain(status, *big, ""),
      fmt::format("not held: no other job is entitled to more than its {}/s", big->entitlement));
  EXPECT_GT(big->entitlement, 2 * hog->entitlement);
}

// Whatever the clock does, rules follow the server.
TEST(Driver, AClockThatStepsBackOrFarAheadCostsRoundsOnly) {
  Site site;
  Drive run(site, site.tree);
  run.rounds(10);
  site.burst();
  run.rounds(10);
  const Instant real = site.now;
  EXPECT_TRUE(run.driver.round(real - std::chrono::hours{1}));
  EXPECT_TRUE(run.driver.round(real + std::chrono::hours{2}));
  EXPECT_TRUE(run.driver.round(real));
  run.rounds(30);
  EXPECT_LE(site.own().size(), 1U);
  EXPECT_TRUE(run.driver.remove_all());
  EXPECT_TRUE(site.own().empty());
}

TEST(Driver, WhatCannotBeSavedIsNotStarted) {
  Site site;
  Drive run(site, site.tree);
  run.dies_saving = true;
  run.rounds(10);
  site.burst();
  for (int i = 0; i < 10; ++i) (void)run.round();
  EXPECT_TRUE(site.own().empty());
}

TEST(Driver, AFreeHogThatVanishesFromJobStatsIsHeldAllTheSame) {
  Site site(1, 1000);  // every newcomer makes the others vanish
  Drive run(site, site.tree);
  run.rounds(20);
  site.burst();
  run.rounds(15);
  EXPECT_GT(run.driver.counters().vanished, 0U);
  ASSERT_EQ(site.own().size(), 1U);
  EXPECT_NE(site.own().begin()->first.find("jobid={hog}"), std::string::npos);
}

// The process dies at any operation of any round: the next one converges in its first round that
// has counts to compare, and what is not ours is as it was.
TEST(Driver, ACrashAnywhereCostsOneRound) {
  Rng rng(3);
  int with_rules = 0;
  for (int i = 0; i < 200; ++i) {
    Site site;
    const std::string before = site.foreign();
    {
      DyingTree dying(site.tree, 40 + rng.below(260));
      Drive run(site, dying);
      for (int round = 0; round < 25; ++round) {
        if (round == 5) site.burst();
        (void)run.round();
      }
    }
    with_rules += !site.own().empty();
    Drive next(site, site.tree);
    ASSERT_TRUE(next.round());
    EXPECT_TRUE(site.own().empty()) << "what a dead run left is not ours to go on with";
    ASSERT_EQ(site.foreign(), before);
    next.rounds(6);
    ASSERT_EQ(site.own().size(), 1U);
    EXPECT_EQ(site.own().begin()->second, 4);
    ASSERT_EQ(site.foreign(), before);
  }
  EXPECT_GT(with_rules, 50);
}

}  // namespace
}  // namespace weir
