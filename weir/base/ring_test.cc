// SPDX-License-Identifier: Apache-2.0
#include "weir/base/ring.h"

#include <deque>
#include <list>
#include <memory>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

struct Node {
  RingLink<Node> link;
};
using Nodes = Ring<Node, &Node::link>;
static_assert(sizeof(Nodes) == sizeof(void*));

TEST(Ring, FirstInFirstOut) {
  std::deque<Node> nodes(3);
  Nodes ring;
  EXPECT_TRUE(ring.empty());
  for (Node& node : nodes) ring.push_back(node);
  EXPECT_EQ(ring.behind(nodes[0]), &nodes[1]);
  EXPECT_EQ(ring.behind(nodes[2]), nullptr);
  for (Node& node : nodes) {
    EXPECT_EQ(&ring.front(), &node);
    ring.erase(node);
    EXPECT_FALSE(node.link.is_linked());
  }
  EXPECT_TRUE(ring.empty());
}

TEST(Ring, AgreesWithAListWhateverIsTakenOut) {
  Rng rng(1);
  std::deque<Node> nodes(20);
  std::list<Node*> expected;
  Nodes ring;
  for (int step = 0; step < 10'000; ++step) {
    Node& node = nodes[rng.below(nodes.size())];
    if (node.link.is_linked()) {
      ring.erase(node);
      expected.remove(&node);
    } else {
      ring.push_back(node);
      expected.push_back(&node);
    }
    Node* at = ring.empty() ? nullptr : &ring.front();
    for (Node* const wanted : expected) {
      ASSERT_EQ(at, wanted);
      at = ring.behind(*at);
    }
    ASSERT_EQ(at, nullptr);
  }
  while (!ring.empty()) ring.erase(ring.front());
}

TEST(RingDeath, ANodeStandsInOneRingAndLeavesItBeforeItDies) {
  Nodes ring;
  auto node = std::make_unique<Node>();
  ring.push_back(*node);
  EXPECT_DEATH(ring.push_back(*node), "is_linked");
  EXPECT_DEATH(node.reset(), "is_linked");
  ring.erase(*node);
}

}  // namespace
}  // namespace weir
