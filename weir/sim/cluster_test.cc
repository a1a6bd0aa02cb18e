// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <span>

#include <gtest/gtest.h>

#include "weir/base/time.h"
#include "weir/sim/cluster_parts.h"
#include "weir/sim/epoch_checkers.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string told(const ClusterResult& result) {
  std::string text;
  for (const std::string& finding : result.first_findings) text += finding + "\n";
  return text;
}

TEST(Cluster, MovesTogetherWhenAllIsWell) {
  const ClusterResult result = run_cluster({.servers = 5, .length = seconds{2}});
  EXPECT_EQ(result.findings, 0U) << told(result);
  EXPECT_EQ(result.leaders, 1U);
  EXPECT_EQ(result.evictions, 0U);
  EXPECT_GT(result.epochs, 5U * 170);
  EXPECT_LT(result.round_max, milliseconds{20});
}

TEST(Cluster, TheSameSeedGivesTheSameRun) {
  const ClusterResult one = run_cluster(rough_cluster(17));
  const ClusterResult two = run_cluster(rough_cluster(17));
  EXPECT_EQ(one.messages, two.messages);
  EXPECT_EQ(one.epochs, two.epochs);
  EXPECT_EQ(one.errors, two.errors);
}

// CLUSTER_SEEDS=FIRST-COUNT runs others.
void rough_seeds_find_nothing(Partition partition) {
  std::uint64_t first = 1;
  std::uint64_t count = 40;
  if (const char* const seeds = std::getenv("CLUSTER_SEEDS")) {
    char* rest = nullptr;
    first = std::strtoull(seeds, &rest, 10);
    count = std::strtoull(rest + 1, nullptr, 10);
  }
  ClusterResult all;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const ClusterResult result = run_cluster(rough_cluster(seed, partition));
    ASSERT_EQ(result.findings, 0U) << "seed " << seed << "\n" << told(result);
    all.crashes += result.crashes;
    all.partitions += result.partitions;
    all.stops += result.stops;
    all.evictions += result.evictions;
    all.leaders += result.leaders;
    all.forgotten += result.forgotten;
  }
  // Passing means little unless there were many faults.
  EXPECT_GT(all.crashes, count / 2);
  EXPECT_GT(all.partitions, count / 4);
  EXPECT_GT(all.stops, count / 2);
  EXPECT_GT(all.evictions, count / 2);
  EXPECT_GT(all.leaders, count);
  EXPECT_GT(all.forgotten, count / 4);
}
TEST(Cluster, RoughSeedsFindNothing) { rough_seeds_find_nothing(Partition::kSafe); }
TEST(Cluster, RoughSeedsFindNothingWithSlicesWithoutAnEnd) {
  rough_seeds_find_nothing(Partition::kLast);
}

// Nothing remains of servers that are permanently dead, whichever server leads then.
TEST(Cluster, WhoIsDeadAndForgottenIsNotCounted) {
  std::uint64_t forgotten = 0;
  std::uint64_t leaders = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    ClusterOptions options{.servers = 5, .seed = seed, .length = seconds{4}, .calm = seconds{2}};
    if (seed % 2 == 0) options.terms.partition = Partition::kLast;
    options.faults.death_every = milliseconds{500};
    const ClusterResult result = run_cluster(options);
    EXPECT_EQ(result.findings, 0U) << "seed " << seed << "\n" << told(result);
    EXPECT_EQ(result.counted, result.alive) << "seed " << seed;
    forgotten += result.forgotten;
    leaders += result.leaders;
  }
  EXPECT_GT(forgotten, 6U);
  EXPECT_GT(leaders, 7U);
}

// Seeds that failed once are tested again.
TEST(Cluster, SeedsThatFailedOnceFindNothing) {
  for (const std::uint64_t seed : std::initializer_list<std::uint64_t>{
           126, 263, 321, 677, 706, 731, 992, 1149, 2010, 2056, 3126}) {
    ClusterOptions options = rough_cluster(seed);
    options.faults.death_every = Nanoseconds{0};  // did not exist when the seeds were found
    const ClusterResult result = run_cluster(options);
    EXPECT_EQ(result.findings, 0U) << "seed " << seed << "\n" << told(result);
  }
}

// For a message of a few hundred bytes.
constexpr MessageCost kDear = {.receive = std::chrono::microseconds{25},
                               .send = std::chrono::microseconds{25},
                               .carried = std::chrono::microseconds{2}};

constexpr std::uint64_t kTwentyASecond = 50;  // rounds of 2.5 s

// All start at once, and none is evicted when they have joined.
TEST(Cluster, AThousandServersAreInOneEpochAndStay) {
  ClusterOptions options{.servers = 1000, .length = milliseconds{2500}};
  options.calm = milliseconds{400};
  options.cost = kDear;
  const ClusterResult result = run_cluster(options);
  EXPECT_EQ(result.findings, 0U) << told(result);
  EXPECT_EQ(result.late_evictions, 0U);
  EXPECT_EQ(result.counted, 1000U);
  EXPECT_GT(result.bundles, 32U * 20);
  EXPECT_GE(result.rounds, kTwentyASecond);
}

// Without relays the same servers have a fraction of the rounds: the count sees it.
TEST(Cluster, AStarOfAThousandServersIsTooSlow) {
  ClusterOptions options{.servers = 1000, .length = milliseconds{2500}};
  options.calm = milliseconds{400};
  options.cost = kDear;
  options.fanout = 1000;
  const ClusterResult result = run_cluster(options);
  EXPECT_EQ(result.bundles, 0U);
  EXPECT_LT(result.rounds, kTwentyASecond);
}

// Up to 32 servers are a star, whatever the fan-out could be.
TEST(Cluster, UpTo32ServersHaveNoRelays) {
  ClusterOptions options{.servers = 33, .length = seconds{2}};
  EXPECT_EQ(run_cluster(options).bundles, 0U) << "the leader's own server is none of the 32";
  options.servers = 34;
  EXPECT_GT(run_cluster(options).bundles, 100U);
}

// A third of the servers are relays, and all of them die at the same time, again and again.
TEST(Cluster, RelaysDieTogetherAndTheOthersGoOn) {
  std::uint64_t bundles = 0;
  std::uint64_t crashes = 0;
  for (const Partition partition : {Partition::kSafe, Partition::kLast}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      ClusterOptions options{.servers = 12, .seed = seed, .length = seconds{4}};
      options.terms.partition = partition;
      options.fanout = 3;
      options.faults.relays_every = milliseconds{400};
      const ClusterResult result = run_cluster(options);
      EXPECT_EQ(result.findings, 0U) << "seed " << seed << "\n" << told(result);
      bundles += result.bundles;
      crashes += result.crashes;
    }
  }
  EXPECT_GT(bundles, 1000U);
  EXPECT_GT(crashes, 40U);
}

// Relays that lose, invent and spoil what they carry harm nobody: members use their own streams.
TEST(Cluster, RelaysThatLieHarmNobody) {
  struct Liars : ClusterParts {
    EpochBundle carry(std::size_t relay, EpochBundle bundle) const override {
      if (relay % 3 == 0) std::erase_if(bundle, [&](auto& one) { return one.member != relay; });
      if (relay % 3 == 1) {
        EpochBundle twice = bundle;
        twice.insert(twice.end(), bundle.rbegin(), bundle.rend());
        for (std::size_t i = 0; i < bundle.size(); ++i) bundle[i].member = 1000 + i;
        bundle.insert(bundle.end(), twice.begin(), twice.end());
      }
      if (relay % 3 == 2 && bundle.size() > 2) bundle.back().message.resize(5);
      return bundle;
    }
  };
  for (const Partition partition : {Partition::kSafe, Partition::kLast}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      ClusterOptions options{.servers = 12, .seed = seed, .length = seconds{3}};
      options.terms.partition = partition;
      options.fanout = 3;
      const ClusterResult result = run_cluster(options, Liars());
      EXPECT_EQ(result.findings, 0U) << "seed " << seed << "\n" << told(result);
      EXPECT_GT(result.epochs, 12U * 30);
    }
  }
}

// It continues an hour later, as if no time had passed. With slices that end nothing of it holds;
// with slices without an end the others have a leader that knows what it held.
TEST(Cluster, ALeaderThatReturnsAfterAnHour) {
  for (const Partition partition : {Partition::kSafe, Partition::kLast}) {
    ClusterOptions options{.servers = 4, .length = std::chrono::hours{1} + seconds{90}};
    options.terms.partition = partition;
    options.terms.lease = seconds{20};
    options.epoch = seconds{2};
    options.timeout = seconds{5};
    options.leader_lease = seconds{5};
    options.leader_stops_at = seconds{30};
    options.leader_goes_on_at = std::chrono::hours{1} + seconds{30};
    const ClusterResult result = run_cluster(options);
    EXPECT_EQ(result.findings, 0U) << told(result);
    EXPECT_EQ(result.leaders, 2U);
    EXPECT_EQ(result.stops, 1U);
    EXPECT_GT(result.epochs, 3U * 1000);
  }
}

// ---- every checker works: on servers with a defect ----

std::uint64_t findings_with(const ClusterParts& parts, std::string_view expected,
                            Partition partition = Partition::kSafe) {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options = rough_cluster(seed, partition);
    options.servers = 5;
    options.faults.crash_every = milliseconds{400};
    options.faults.partition_every = milliseconds{500};
    for (const std::string& finding : run_cluster(options, parts).first_findings)
      found += finding.find(expected) != std::string::npos;
    if (found > 0) break;
  }
  return found;
}

TEST(ClusterCheckers, SeeNumbersThatAreGivenTwice) {
  struct EveryLeaderCountsFromTheSameNumber : ClusterParts {
    EpochLeader::Options leader(EpochLeader::Options options) const override {
      options.term = 1;
      return options;
    }
  };
  EXPECT_GT(findings_with(EveryLeaderCountsFromTheSameNumber(), "two different payloads"), 0U);
}
TEST(ClusterCheckers, SeeANewLeaderThatDoesNotWait) {
  struct ANewLeaderGivesOutSlicesAtOnce : ClusterParts {
    SliceLeader::Options slices(SliceLeader::Options options) const override {
      options.is_first = true;
      return options;
    }
  };
  EXPECT_GT(findings_with(ANewLeaderGivesOutSlicesAtOnce(), "slices under lease"), 0U);
}
TEST(ClusterCheckers, SeeANewLeaderThatDoesNotWaitForReports) {
  struct ANewLeaderGivesOutSlicesAtOnce : ClusterParts {
    SliceLeader::Options slices(SliceLeader::Options options) const override {
      options.is_first = true;
      return options;
    }
  };
  EXPECT_GT(findings_with(ANewLeaderGivesOutSlicesAtOnce(), "slices", Partition::kLast), 0U);
}
TEST(ClusterCheckers, SeeLeasesThatAreKeptTooLong) {
  struct HoldersKeepSlicesTooLong : ClusterParts {
    SliceTerms holder(SliceTerms terms) const override {
      terms.lease *= 10;
      return terms;
    }
  };
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ClusterOptions options{.servers = 5, .seed = seed, .length = seconds{6}};
    options.faults.partition_every = milliseconds{2500};
    found += run_cluster(options, HoldersKeepSlicesTooLong()).findings;
  }
  EXPECT_GT(found, 0U);
}
TEST(ClusterCheckers, SeeLateCallbacks) {
  struct MembersNeverGiveUp : ClusterParts {
    EpochMember::Options member(EpochMember::Options options) const override {
      options.grace = std::chrono::hours{1};
      return options;
    }
  };
  EXPECT_GT(findings_with(MembersNeverGiveUp(), "waited"), 0U);
}
TEST(ClusterCheckers, SeeAReductionThatDependsOnOrder) {
  struct TheLastWins : ClusterParts {
    EpochLeader::Options leader(EpochLeader::Options options) const override {
      options.combine = [](std::span<std::byte> out, EpochView, EpochView b) {
        std::copy(b.begin(), b.end(), out.begin());
      };
      return options;
    }
  };
  EXPECT_GT(findings_with(TheLastWins(), "depends on order"), 0U);
}
TEST(ClusterCheckers, SeeServersThatDoNotComeBack) {
  struct NobodyJoinsAgain : ClusterParts {
    EpochParticipant::Options participant(EpochParticipant::Options options) const override {
      options.retry = std::chrono::hours{1};
      return options;
    }
  };
  EXPECT_GT(findings_with(NobodyJoinsAgain(), "in no epoch"), 0U);
}
TEST(ClusterCheckers, SeeALeaderThatForgetsWhoStillHolds) {
  struct LeadersForgetWhomTheyCannotReach : ClusterParts {
    void confirmed(SliceLeader& slices, std::size_t nodes,
                   const std::function<bool(std::size_t)>& can_reach) const override {
      for (std::size_t node = 0; node < nodes; ++node) {
        if (!can_reach(node)) slices.left(node);
      }
    }
  };
  EXPECT_GT(findings_with(LeadersForgetWhomTheyCannotReach(), "slices under lease"), 0U);
}

TEST(EpochCheckers, SeeACallbackTwiceAndNumbersThatShrink) {
  Findings findings;
  EpochCheckers checkers(findings);
  checkers.called_back(1, 5, {}, instant_at(0));
  checkers.called_back(2, 5, {}, instant_at(0));
  EXPECT_EQ(findings.count(), 0U);
  checkers.called_back(1, 5, {}, instant_at(1));
  EXPECT_EQ(findings.count(), 1U);
  checkers.called_back(2, 4, {}, instant_at(1));
  EXPECT_EQ(findings.count(), 2U);
}

TEST(EpochCheckers, SeeTooLargeASumOfSlices) {
  Findings findings;
  EpochCheckers checkers(findings);
  checkers.slices(1000, 100, 1000, 5, instant_at(0));
  EXPECT_EQ(findings.count(), 0U);
  checkers.slices(1006, 0, 1000, 5, instant_at(0));
  EXPECT_EQ(findings.count(), 1U);
  checkers.slices(900, 206, 1000, 5, instant_at(0));
  EXPECT_EQ(findings.count(), 2U);
  checkers.slices(900, 106, 1000, 5, instant_at(0), Partition::kLast);
  EXPECT_EQ(findings.count(), 3U);
}

}  // namespace
}  // namespace weir::sim
