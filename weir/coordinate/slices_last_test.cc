// SPDX-License-Identifier: Apache-2.0
//
// Slices without an end (Partition::kLast).
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/coordinate/slices.h"

namespace weir {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr std::int64_t kLimit = 1000 * kMilli;
constexpr std::int64_t kDivided = kLimit - kLimit / 200;  // the rest is for those without a slice
constexpr SliceTerms kLastTerms = {.partition = Partition::kLast};

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }
std::optional<std::int64_t> same_limit(std::string_view) { return kLimit; }

SliceLeader::Options options_of(std::uint32_t term) {
  return {.terms = kLastTerms, .term = term, .is_first = term == 1};
}

// Members that signal to a leader without delay; those that are away do not.
struct Cluster {
  explicit Cluster(std::size_t count) : leader(options_of(1), same_limit, at(0)) {
    for (std::size_t i = 0; i < count; ++i) start(i);
    away.resize(count);
  }
  void start(std::size_t i) {
    if (i == members.size()) members.emplace_back();
    members[i] = std::make_unique<SliceMember>(kLastTerms);
    members[i]->open("class", kLimit);
    members[i]->expect_members(static_cast<std::uint32_t>(members.size()));
  }
  void demand(const std::vector<std::int64_t>& per_second) {
    for (std::size_t i = 0; i < members.size(); ++i)
      members[i]->set_demand(0, per_second[i] * kMilli);
  }
  void elect(std::uint32_t term, std::int64_t ms) {
    leader.~SliceLeader();
    new (&leader) SliceLeader(options_of(term), same_limit, at(ms));
    for (const auto& member : members) member->lost();
    count_absent();
  }
  void count_absent() {
    std::uint32_t absent = 0;
    for (std::size_t i = 0; i < members.size(); ++i) absent += leader.knows(i) ? 0 : 1;
    leader.set_absent(absent - forgotten);
  }
  void round(std::int64_t ms) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (away[i]) {
        leader.gone(i);
      } else {
        ASSERT_TRUE(leader.ready(i, members[i]->demand(), members[i]->claim(at(ms)), at(ms)));
      }
    }
    leader.close(at(ms));
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (!away[i]) {
        ASSERT_TRUE(members[i]->granted(leader.grant(i), at(ms)));
      }
    }
    count_absent();
    ASSERT_LE(sum(ms), kLimit) << ms;
  }
  std::int64_t slice(std::size_t i, std::int64_t ms) const { return members[i]->slice(0, at(ms)); }
  std::int64_t sum(std::int64_t ms) const {
    std::int64_t all = 0;
    for (std::size_t i = 0; i < members.size(); ++i) all += slice(i, ms);
    return all;
  }

  SliceLeader leader;
  std::vector<std::unique_ptr<SliceMember>> members;
  std::vector<bool> away;
  std::uint32_t forgotten = 0;
};

constexpr std::int64_t kHour = 3'600'000;

TEST(SlicesLast, FollowDemandAsOtherSlicesDo) {
  Cluster cluster(3);
  cluster.demand({900, 100, 0});
  for (int round = 0; round < 30; ++round) cluster.round(round * 10);
  EXPECT_NEAR(static_cast<double>(cluster.slice(0, 300)), 0.9 * kDivided, 0.01 * kLimit);
  EXPECT_NEAR(static_cast<double>(cluster.slice(1, 300)), 0.1 * kDivided, 0.01 * kLimit);
  EXPECT_EQ(cluster.slice(2, 300), kLimit / 1200) << "without demand: what one without a slice has";
}

TEST(SlicesLast, HaveNoEnd) {
  Cluster cluster(2);
  cluster.demand({900, 100});
  for (int round = 0; round < 30; ++round) cluster.round(round * 10);
  const std::int64_t before = cluster.slice(0, 300);
  EXPECT_EQ(cluster.slice(0, kHour), before);
  EXPECT_TRUE(cluster.members[0]->is_leased(0, at(kHour)));
  EXPECT_EQ(cluster.members[0]->lease_end(), kNever);
  cluster.members[0]->lost();
  EXPECT_EQ(cluster.slice(0, kHour), before) << "without a leader";
}

TEST(SlicesLast, WhatOneHoldsThatIsAwayIsNotHandedOutUntilItIsForgotten) {
  Cluster cluster(3);
  cluster.demand({0, 0, 5000});
  for (int round = 0; round < 5; ++round) cluster.round(round * 10);
  EXPECT_EQ(cluster.slice(2, 50), kDivided);
  cluster.away[2] = true;
  cluster.demand({5000, 5000, 5000});
  for (int hour = 0; hour < 5; ++hour) cluster.round(hour * kHour);
  EXPECT_EQ(cluster.slice(2, 5 * kHour), kDivided);
  EXPECT_EQ(cluster.slice(0, 5 * kHour), kLimit / 1200);
  cluster.leader.forget(2);
  cluster.members[2] = std::make_unique<SliceMember>(kLastTerms);  // it is dead
  cluster.members[2]->open("class", kLimit);
  cluster.forgotten = 1;
  cluster.round(6 * kHour);
  cluster.round(6 * kHour + 10);
  EXPECT_FALSE(cluster.leader.knows(2));
  EXPECT_GE(cluster.slice(0, 6 * kHour) + cluster.slice(1, 6 * kHour), kDivided - 2);
}

TEST(SlicesLast, ANewLeaderDividesWhatIsReportedAndAllOfItOnlyWhenAllHaveReported) {
  Cluster cluster(3);
  cluster.demand({300, 300, 300});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  const std::int64_t two = cluster.slice(0, 200) + cluster.slice(1, 200);
  const std::int64_t third = cluster.slice(2, 200);
  cluster.away[2] = true;
  cluster.elect(2, 200);
  cluster.demand({5000, 0, 0});
  for (std::int64_t ms = 210; ms < 20'000; ms += 10) cluster.round(ms);
  EXPECT_TRUE(cluster.leader.is_quiet());
  EXPECT_EQ(cluster.slice(2, 20'000), third);
  EXPECT_GE(cluster.slice(0, 20'000), two - 2) << "the demand is followed with what is reported";
  cluster.away[2] = false;
  for (std::int64_t ms = 20'000; ms < 20'050; ms += 10) cluster.round(ms);
  EXPECT_FALSE(cluster.leader.is_quiet());
  EXPECT_EQ(cluster.slice(0, 20'050), kDivided);
}

TEST(SlicesLast, ANewLeaderDividesAllOfItWhenTheMissingOneIsForgotten) {
  Cluster cluster(2);
  cluster.demand({300, 300});
  for (int round = 0; round < 20; ++round) cluster.round(round * 10);
  cluster.away[1] = true;
  cluster.elect(2, 200);
  cluster.demand({5000, 0});
  for (std::int64_t ms = 210; ms < 400; ms += 10) cluster.round(ms);
  EXPECT_LE(cluster.slice(0, 400), kDivided / 2);
  cluster.members[1] = std::make_unique<SliceMember>(kLastTerms);  // it is dead
  cluster.members[1]->open("class", kLimit);
  cluster.forgotten = 1;
  cluster.count_absent();
  for (std::int64_t ms = 400; ms < 430; ms += 10) cluster.round(ms);
  EXPECT_EQ(cluster.slice(0, 430), kDivided);
}

// A restarted server cannot know what became of its slice.
TEST(SlicesLast, ARestartedHolderHasNoSliceAndItsOldOneIsFree) {
  Cluster cluster(2);
  cluster.demand({5000, 0});
  for (int round = 0; round < 5; ++round) cluster.round(round * 10);
  EXPECT_EQ(cluster.slice(0, 50), kDivided);
  cluster.away[0] = true;
  cluster.round(60);
  cluster.start(0);
  EXPECT_EQ(cluster.slice(0, 70), kLimit / 800);
  EXPECT_FALSE(cluster.members[0]->is_leased(0, at(70)));
  cluster.away[0] = false;
  cluster.demand({0, 5000});
  cluster.round(80);
  EXPECT_EQ(cluster.slice(1, 80), kDivided);
}

// Tokens that a server releases while no leader hears it would be unused.
TEST(SlicesLast, AServerThatIsCutOffReleasesNothingMore) {
  Cluster cluster(2);
  cluster.demand({5000, 0});
  for (int round = 0; round < 5; ++round) cluster.round(round * 10);
  SliceMember& member = *cluster.members[0];
  ASSERT_EQ(cluster.slice(0, 50), kDivided);
  EXPECT_TRUE(member.may_release());
  member.set_demand(0, kDivided / 4);
  (void)member.claim(at(60));  // not answered
  EXPECT_EQ(cluster.slice(0, 60), kDivided / 4 * 2);
  EXPECT_FALSE(member.may_release());
  member.set_demand(0, 0);
  for (int i = 0; i < 10; ++i) (void)member.claim(at(70 + i * 10));
  EXPECT_EQ(cluster.slice(0, 200), kDivided / 4 * 2);
  member.lost();
  (void)member.claim(at(210));
  EXPECT_EQ(cluster.slice(0, 210), kDivided / 4 * 2) << "nor to a leader that has not answered yet";
}

// Its classes are reported in several claims; nothing is free before the last one.
TEST(SlicesLast, ANewLeaderWaitsForAllClassesOfAMember) {
  const auto wide = std::make_unique<SliceMember>(kLastTerms);
  SliceMember other(kLastTerms);
  constexpr int kClasses = 700;
  SliceLeader first(options_of(1), same_limit, at(0));
  for (int i = 0; i < kClasses; ++i)
    wide->set_demand(wide->open(std::to_string(i), kLimit), kLimit);
  const auto round = [&](SliceLeader& leader, std::int64_t ms, bool with_other) {
    ASSERT_TRUE(leader.ready(1, wide->demand(), wide->claim(at(ms)), at(ms)));
    if (with_other) {
      ASSERT_TRUE(leader.ready(2, other.demand(), other.claim(at(ms)), at(ms)));
    }
    leader.close(at(ms));
    ASSERT_TRUE(wide->granted(leader.grant(1), at(ms)));
    if (with_other) {
      ASSERT_TRUE(other.granted(leader.grant(2), at(ms)));
    }
    leader.set_absent(leader.knows(2) ? 0 : 1);
  };
  for (int i = 0; i < 6; ++i) round(first, i * 10, true);
  constexpr std::size_t kLastClass = kClasses - 1;
  ASSERT_EQ(wide->slice(kLastClass, at(100)), kDivided);
  wide->lost();
  other.lost();
  SliceLeader second(options_of(2), same_limit, at(100));
  other.set_demand(other.open(std::to_string(kLastClass), kLimit), kLimit);
  for (int i = 0; i < 8; ++i) {
    round(second, 110 + i * 10, true);
    ASSERT_LE(wide->slice(kLastClass, at(200)) + other.slice(0, at(200)), kLimit) << i;
  }
  EXPECT_FALSE(second.is_quiet());
  EXPECT_NEAR(static_cast<double>(other.slice(0, at(200))), kDivided / 2.0, kLimit * 0.2);
}

TEST(SlicesLast, ASlotThatOneHoldsThatIsAwayIsNotGivenToAnotherClass) {
  SliceLeader::Options options = options_of(1);
  options.slots_max = 1;
  SliceLeader leader(options, same_limit, at(0));
  SliceMember away(kLastTerms);
  away.set_demand(away.open("first", kLimit), kLimit);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(leader.ready(1, away.demand(), away.claim(at(i)), at(i)));
    leader.close(at(i));
    ASSERT_TRUE(away.granted(leader.grant(1), at(i)));
  }
  ASSERT_EQ(away.slice(0, at(10)), kDivided);
  leader.gone(1);
  SliceMember member(kLastTerms);
  member.set_demand(member.open("second", kLimit), kLimit);
  ASSERT_TRUE(leader.ready(2, member.demand(), member.claim(at(kHour)), at(kHour)));
  EXPECT_EQ(leader.refused(), 1U);
  leader.forget(1);
  leader.close(at(kHour));
  ASSERT_TRUE(member.granted(leader.grant(2), at(kHour)));
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(leader.ready(2, member.demand(), member.claim(at(kHour + i)), at(kHour + i)));
    leader.close(at(kHour + i));
    ASSERT_TRUE(member.granted(leader.grant(2), at(kHour + i)));
  }
  EXPECT_EQ(member.slice(0, at(kHour + 300)), kDivided);
}

// A new leader must believe what members report, but not more than the limit in all.
TEST(SlicesLast, FalseReportsToANewLeaderDoNotExceedTheLimit) {
  SliceLeader leader(options_of(2), same_limit, at(0));
  leader.set_absent(1);  // one more is silent
  for (MemberId id = 1; id <= 3; ++id) {
    SliceClaim claim{.table = 0, .members = 4, .is_leased = true, .asks = {}, .held = {}};
    claim.asks.push_back({"class", INT64_MAX, kLimit, true});
    ASSERT_TRUE(leader.ready(id, {}, pack_claim(claim), at(0)));
  }
  leader.close(at(0));
  std::int64_t sum = 0;
  for (MemberId id = 1; id <= 3; ++id) sum += leader.slice(id, "class");
  EXPECT_LE(sum, kDivided);
}

// ---- property: whatever is lost, late, restarted, elected or forgotten ----

// Servers and leaders with messages that are delivered in any order, or not at all. Old leaders
// continue beside new ones, as without etcd, and all clocks show any time.
class RoughCluster {
 public:
  RoughCluster(std::uint64_t seed, std::size_t count) : rng_(seed), nodes_(count) {
    elect();
    for (Node& node : nodes_) boot(node);
  }

  void step() {
    Node& node = nodes_[rng_.below(nodes_.size())];
    switch (rng_.below(12)) {
      case 0:
      case 1:
      case 2:
        return signal(node);
      case 3:
      case 4:
        return close(
            leaders_[leaders_.size() - 1 - rng_.below(std::min<std::size_t>(leaders_.size(), 2))]);
      case 5:
      case 6:
      case 7:
        return deliver();
      case 8:
        if (node.member) {
          node.member->set_demand(0, static_cast<std::int64_t>(rng_.below(3 * kLimit)) *
                                         static_cast<std::int64_t>(rng_.below(2)));
        }
        return;
      case 9:
        return follow(node);
      case 10:
        if (rng_.chance(1, 8)) elect();
        return;
      default:
        if (!rng_.chance(1, 6)) return;
        return node.member ? kill(node) : rng_.chance(1, 2) ? boot(node) : forget(node);
    }
  }
  std::int64_t sum() {
    std::int64_t all = 0;
    for (Node& node : nodes_) {
      if (node.member) all += node.member->slice(0, any_time());
    }
    return all;
  }
  // All alive servers signal to the newest leader, and it hears of no others.
  void recover() {
    for (Node& node : nodes_) {
      if (!node.member) forget(node);
      node.calls = false;
    }
    starts_.clear();
    for (int i = 0; i < 60; ++i) {
      for (Node& node : nodes_) {
        if (!node.member) continue;
        follow(node);
        node.member->set_demand(0, kLimit);
        signal(node, Delivery::kSure);
      }
      close(leaders_.back());
      while (!starts_.empty()) deliver(Delivery::kSure);
    }
  }
  bool is_alive() const {
    for (const Node& node : nodes_) {
      if (node.member) return true;
    }
    return false;
  }

 private:
  enum class Delivery : std::uint8_t { kSure, kUnsure };
  struct Node {
    std::unique_ptr<SliceMember> member;
    MemberId id = 0;  // of this life
    std::size_t leader = 0;
    std::uint64_t serial = 0;
    bool calls = false;
    bool has_name = false;
  };
  struct Leader {
    std::unique_ptr<SliceLeader> slices;
    std::map<std::size_t, MemberId> greeted;  // by node
    std::map<MemberId, std::uint64_t> ready;  // serials
  };
  struct Start {
    std::size_t node = 0;
    MemberId id = 0;
    std::uint64_t serial = 0;
    EpochBytes grant;
  };

  Instant any_time() {
    return instant_at(static_cast<std::int64_t>(rng_.below(1U << 30))) + hours{5};
  }
  std::size_t index_of(const Node& node) const {
    return static_cast<std::size_t>(&node - nodes_.data());
  }
  void elect() {
    const auto term = static_cast<std::uint32_t>(leaders_.size() + 1);
    leaders_.push_back(
        {std::make_unique<SliceLeader>(options_of(term), same_limit, any_time()), {}, {}});
    count_absent(leaders_.back());
  }
  void count_absent(Leader& leader) {
    std::uint32_t absent = 0;
    std::uint32_t running = 0;
    for (const Node& node : nodes_) {
      const auto found = leader.greeted.find(index_of(node));
      const bool is_known = found != leader.greeted.end() && leader.slices->knows(found->second);
      if (!node.has_name || is_known) continue;
      ++absent;
      if (node.member) ++running;
    }
    leader.slices->set_absent(absent, running);
  }
  void boot(Node& node) {
    node.member = std::make_unique<SliceMember>(kLastTerms);
    node.member->open("class", kLimit);
    node.member->expect_members(static_cast<std::uint32_t>(nodes_.size()));
    node.id = next_id_++;
    node.calls = false;
    node.has_name = true;
    node.leader = leaders_.size() - 1;
    count_absent(leaders_.back());
  }
  void kill(Node& node) { node.member.reset(); }
  void forget(Node& node) {
    node.has_name = false;
    Leader& leader = leaders_.back();
    const auto found = leader.greeted.find(index_of(node));
    if (found != leader.greeted.end()) leader.slices->forget(found->second);
    count_absent(leader);
  }
  void follow(Node& node) {
    if (!node.member || node.leader == leaders_.size() - 1) return;
    node.leader = leaders_.size() - 1;
    node.calls = false;
    node.member->lost();
  }
  void signal(Node& node, Delivery delivery = Delivery::kUnsure) {
    if (!node.member) return;
    const EpochBytes demand = node.member->demand();
    const EpochBytes claim = node.member->claim(any_time());
    node.calls = true;
    ++node.serial;
    if (delivery == Delivery::kUnsure && rng_.chance(1, 5)) return;
    Leader& leader = leaders_[node.leader];
    const auto before = leader.greeted.find(index_of(node));
    if (before != leader.greeted.end() && before->second != node.id) {
      leader.slices->forget(before->second);
      leader.slices->gone(before->second);
      leader.ready.erase(before->second);
    }
    leader.greeted[index_of(node)] = node.id;
    ASSERT_TRUE(leader.slices->ready(node.id, demand, claim, any_time()));
    leader.ready[node.id] = node.serial;
    count_absent(leader);
  }
  void close(Leader& leader) {
    for (auto one = leader.ready.begin(); one != leader.ready.end();) {
      const bool is_evicted = rng_.chance(1, 10);
      if (is_evicted) leader.slices->gone(one->first);
      one = is_evicted ? leader.ready.erase(one) : std::next(one);
    }
    leader.slices->close(any_time());
    for (const auto& [id, serial] : std::exchange(leader.ready, {})) {
      for (const auto& [node, greeted] : leader.greeted) {
        if (greeted == id) starts_.push_back({node, id, serial, leader.slices->grant(id)});
      }
    }
  }
  void deliver(Delivery delivery = Delivery::kUnsure) {
    if (starts_.empty()) return;
    std::swap(starts_[rng_.below(starts_.size())], starts_.back());
    const Start start = std::move(starts_.back());
    starts_.pop_back();
    if (delivery == Delivery::kUnsure && rng_.chance(1, 8)) return;
    Node& node = nodes_[start.node];
    if (!node.member || node.id != start.id || !node.calls || node.serial != start.serial) return;
    node.calls = false;
    ASSERT_TRUE(node.member->granted(start.grant, any_time()));
  }

  Rng rng_;
  std::vector<Node> nodes_;
  std::vector<Leader> leaders_;
  std::vector<Start> starts_;
  MemberId next_id_ = 1;
};

TEST(SlicesLastProperty, NeverExceedTheLimitAndRecover) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const std::size_t count = 2 + seed % 7;
    RoughCluster cluster(seed, count);
    const auto slack = static_cast<std::int64_t>(count) * kLeastSlice;
    for (int i = 0; i < 2000; ++i) {
      cluster.step();
      ASSERT_LE(cluster.sum(), kLimit + slack) << "seed " << seed << " step " << i;
    }
    if (!cluster.is_alive()) continue;
    cluster.recover();
    ASSERT_LE(cluster.sum(), kLimit + slack) << "seed " << seed;
    ASSERT_GE(cluster.sum(), kLimit * 98 / 100) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weir
