// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_tree.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

EpochTree tree_of(std::size_t members, std::size_t fanout = EpochTree::kFanout) {
  EpochTree tree(fanout);
  for (MemberId member = 1; member <= members; ++member) tree.add(member);
  return tree;
}

TEST(EpochTree, UpTo32MembersAreAStar) {
  EpochTree tree = tree_of(32);
  EXPECT_EQ(tree.depth(), 0U);
  for (MemberId member = 1; member <= 32; ++member) EXPECT_FALSE(tree.parent_of(member));
  EXPECT_TRUE(tree.take_changes().empty()) << "nobody is told anything";
  tree.add(33);
  EXPECT_EQ(tree.parent_of(33), 1U);
  EXPECT_EQ(tree.take_changes(), (std::vector<EpochTree::Route>{{33, 1}}));
}

TEST(EpochTree, TheDepthFollowsTheSize) {
  EXPECT_EQ(tree_of(0).depth(), 0U);
  EXPECT_EQ(tree_of(33).depth(), 1U);
  EXPECT_EQ(tree_of(1000).depth(), 1U);
  EXPECT_EQ(tree_of(32 + 32 * 32).depth(), 1U);
  EXPECT_EQ(tree_of(32 + 32 * 32 + 1).depth(), 2U);
}

TEST(EpochTree, ARelayHasAtMostItsFanoutBelowItAndAllHaveAboutAsMany) {
  const EpochTree tree = tree_of(1000);
  std::map<MemberId, std::size_t> children;
  for (MemberId member = 33; member <= 1000; ++member) ++children[*tree.parent_of(member)];
  ASSERT_EQ(children.size(), 32U);
  for (const auto& [relay, count] : children) {
    EXPECT_TRUE(count == 30 || count == 31) << relay;
  }
}

TEST(EpochTree, OfThoseThatLeaveTheLastTakesThePlace) {
  EpochTree tree = tree_of(100);
  (void)tree.take_changes();
  tree.remove(1);
  EXPECT_FALSE(tree.parent_of(100)) << "it is a relay now";
  const auto changes = tree.take_changes();
  std::set<MemberId> told;
  for (const auto& [member, parent] : changes) {
    told.insert(member);
    EXPECT_EQ(tree.parent_of(member), parent);
  }
  EXPECT_EQ(told, (std::set<MemberId>{33, 65, 97, 100}));
  tree.remove(1);
  EXPECT_TRUE(tree.take_changes().empty());
}

TEST(EpochTree, AnswersGoTheWayTheMessageCame) {
  EpochTree tree = tree_of(40);
  EXPECT_EQ(tree.way_to(33), 33U);
  EXPECT_TRUE(tree.came(33, 1));
  EXPECT_EQ(tree.way_to(33), 1U);
  EXPECT_TRUE(tree.came(33, 33));
  EXPECT_EQ(tree.way_to(33), 33U);
  EXPECT_TRUE(tree.came(33, 1));
  tree.remove(1);
  EXPECT_EQ(tree.way_to(33), 33U) << "its relay is gone";
  EXPECT_EQ(tree.way_to(77), 77U) << "not in the tree";
  EXPECT_TRUE(tree.came(77, 77));
  EXPECT_FALSE(tree.came(77, 2));
}

// A member that repeats what its relay has delivered already does not say that it is slow.
TEST(EpochTree, ACopyChangesNoWay) {
  EpochTree tree = tree_of(40);
  EXPECT_TRUE(tree.came(33, 1));
  EXPECT_TRUE(tree.came(33, 33, EpochTree::Copy::kAgain));
  EXPECT_EQ(tree.way_to(33), 1U);
  EXPECT_FALSE(tree.came(33, 2, EpochTree::Copy::kAgain));
}

TEST(EpochTree, ARelaySpeaksOnlyForTheMembersBelowIt) {
  EpochTree tree = tree_of(40);
  EXPECT_FALSE(tree.came(34, 1)) << "below 2";
  EXPECT_FALSE(tree.came(2, 1)) << "beside it";
  EXPECT_FALSE(tree.came(1, 33)) << "above it";
  EXPECT_FALSE(tree.came(33, 99)) << "not in the tree";
  EXPECT_EQ(tree.way_to(34), 34U);
  EpochTree deep = tree_of(2 + 4 + 8, 2);
  EXPECT_EQ(deep.depth(), 2U);
  EXPECT_EQ(deep.parent_of(7), 3U);
  EXPECT_EQ(deep.parent_of(3), 1U);
  EXPECT_TRUE(deep.came(7, 1)) << "above its relay";
  EXPECT_TRUE(deep.came(7, 3));
  EXPECT_FALSE(deep.came(7, 2));
}

TEST(EpochTree, ARelayThatDeliversNothingIsReplaced) {
  EpochTree tree = tree_of(200);
  (void)tree.take_changes();
  const std::vector<MemberId> children = {33, 65, 97, 129};
  ASSERT_EQ(children.size(), EpochTree::kFailuresMax);
  for (const MemberId child : children) EXPECT_TRUE(tree.came(child, 1));
  for (const MemberId child : children) {
    EXPECT_EQ(tree.parent_of(child), 1U);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(tree.came(child, child)) << "one failure";
  }
  for (const MemberId child : children) EXPECT_EQ(tree.parent_of(child), 200U);
  EXPECT_FALSE(tree.parent_of(200));
  EXPECT_EQ(tree.parent_of(1), 8U) << "it has the place of the last";
  EXPECT_FALSE(tree.came(33, 1));
}

TEST(EpochTree, FailuresBetweenDeliveriesAreLostMessages) {
  EpochTree tree = tree_of(100);
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(tree.came(33, 1));
    EXPECT_TRUE(tree.came(65, 1));
    EXPECT_TRUE(tree.came(33, 33));
    EXPECT_TRUE(tree.came(65, 65));
  }
  EXPECT_EQ(tree.parent_of(33), 1U);
}

TEST(EpochTree, AMemberThatDoesNotKnowItsRelayIsToldAgain) {
  EpochTree tree = tree_of(33);
  (void)tree.take_changes();
  for (std::uint32_t i = 1; i < EpochTree::kTellAgain; ++i) EXPECT_TRUE(tree.came(33, 33));
  EXPECT_TRUE(tree.take_changes().empty());
  EXPECT_TRUE(tree.came(33, 33));
  EXPECT_EQ(tree.take_changes(), (std::vector<EpochTree::Route>{{33, 1}}));
  EXPECT_FALSE(tree.came(33, 2)) << "it uses a relay that it had before";
  EXPECT_EQ(tree.take_changes(), (std::vector<EpochTree::Route>{{33, 1}}));
}

// Whatever joins and leaves: everyone is told its parent, no relay has too many members, and there
// is no circle.
TEST(EpochTreeProperty, WhatMembersWereToldIsTheTree) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Rng rng(seed);
    const std::size_t fanout = 1 + rng.below(5);
    EpochTree tree(fanout);
    std::set<MemberId> members;
    std::map<MemberId, std::optional<MemberId>> told;
    for (MemberId next = 1; next <= 400; ++next) {
      const auto any = [&] {
        return *std::next(members.begin(), static_cast<std::ptrdiff_t>(rng.below(members.size())));
      };
      const std::uint64_t action = rng.below(10);
      if (members.empty() || action < 5) {
        tree.add(next);
        members.insert(next);
      } else if (action < 8) {
        const MemberId gone = any();
        tree.remove(gone);
        members.erase(gone);
        told.erase(gone);
      } else {
        const MemberId member = any();
        if (const auto parent = tree.parent_of(member)) (void)tree.came(member, *parent);
        EXPECT_TRUE(tree.came(member, member));
      }
      for (const auto& [member, parent] : tree.take_changes()) told[member] = parent;
      std::map<MemberId, std::size_t> children;
      for (const MemberId member : members) {
        const auto parent = tree.parent_of(member);
        if (parent) ++children[*parent];
        ASSERT_EQ(told[member], parent) << "seed " << seed << ", member " << member;
        std::size_t steps = 0;
        for (auto up = parent; up; up = tree.parent_of(*up)) ASSERT_LT(++steps, members.size());
        ASSERT_TRUE(members.contains(tree.way_to(member)));
      }
      for (const auto& [relay, count] : children) ASSERT_LE(count, fanout);
      ASSERT_EQ(tree.size(), members.size());
    }
  }
}

}  // namespace
}  // namespace weir
