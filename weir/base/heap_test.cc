// SPDX-License-Identifier: Apache-2.0
#include "weir/base/heap.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

struct Node {
  int id = 0;
  HeapHook hook;
};
using NodeHeap = Heap<Node, std::int64_t, &Node::hook>;

// ---- The checker: the same steps on a heap and on a plain sorted list. ----

enum class Act { kPush, kPop, kReplaceTop, kUpdate, kErase, kClear };

struct Step {
  Act act;
  std::size_t pick;  // which node, modulo their number
  std::int64_t key;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  static constexpr std::array<const char*, 6> kNames = {"push",   "pop",   "replace_top",
                                                        "update", "erase", "clear"};
  return out << kNames[static_cast<std::size_t>(step.act)] << "(" << step.pick << ", " << step.key
             << ")";
}

// Entries in the order in which they must leave. Every change removes its entry and inserts it,
// with a new sequence, after all entries that are not larger.
class SortedList {
 public:
  bool contains(int id) const { return find(id) != entries_.end(); }
  std::size_t size() const { return entries_.size(); }
  int top() const { return entries_.front().id; }
  std::int64_t top_key() const { return entries_.front().key; }

  void push(int id, std::int64_t key) {
    entries_.push_back({key, sequence_++, id});
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.key, a.sequence) < std::pair(b.key, b.sequence);
    });
  }
  void erase(int id) { entries_.erase(find(id)); }
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::int64_t key;
    std::uint64_t sequence;
    int id;
  };
  std::vector<Entry>::const_iterator find(int id) const {
    return std::find_if(entries_.begin(), entries_.end(),
                        [id](const Entry& entry) { return entry.id == id; });
  }

  std::vector<Entry> entries_;
  std::uint64_t sequence_ = 0;
};

// One step on both; steps that do not apply (pop of an empty heap, push of a node that is already
// in it) are skipped. Returns the id of the node that left, or -1, for each of the two.
template <class HeapUnderTest>
std::pair<int, int> take_step(HeapUnderTest& heap, SortedList& list, std::vector<Node>& nodes,
                              const Step& step) {
  Node& node = nodes[step.pick % nodes.size()];
  const bool is_in = list.contains(node.id);
  const bool has_top = list.size() > 0;
  const int top = has_top ? list.top() : -1;
  if (step.act == Act::kPush && !is_in) {
    heap.push(node, step.key);
    list.push(node.id, step.key);
  } else if (step.act == Act::kPop && has_top) {
    list.erase(top);
    return {heap.pop().id, top};
  } else if (step.act == Act::kReplaceTop && has_top) {
    heap.replace_top(step.key);
    list.erase(top);
    list.push(top, step.key);
  } else if (step.act == Act::kUpdate && is_in) {
    heap.update(node, step.key);
    list.erase(node.id);
    list.push(node.id, step.key);
  } else if (step.act == Act::kErase && is_in) {
    heap.erase(node);
    list.erase(node.id);
  } else if (step.act == Act::kClear) {
    heap.clear();
    list.clear();
  }
  return {-1, -1};
}

// The first difference between the two as text; empty if there is none. At the end both are emptied
// by pop.
template <class HeapUnderTest>
std::string first_difference(const std::vector<Step>& steps, std::size_t node_count) {
  std::vector<Node> nodes(node_count);
  for (std::size_t i = 0; i < node_count; ++i) nodes[i].id = static_cast<int>(i);
  HeapUnderTest heap;
  SortedList list;
  for (std::size_t turn = 0; turn < steps.size() || list.size() > 0; ++turn) {
    const Step step = turn < steps.size() ? steps[turn] : Step{Act::kPop, 0, 0};
    const auto [left, should_leave] = take_step(heap, list, nodes, step);
    if (left != should_leave) return fmt::format("step {}: {} left", turn, left);
    if (!heap.is_valid()) return fmt::format("step {}: not valid", turn);
    if (heap.size() != list.size() || heap.empty() != (list.size() == 0)) {
      return fmt::format("step {}: size {} for {}", turn, heap.size(), list.size());
    }
    if (list.size() > 0 && (heap.top().id != list.top() || heap.top_key() != list.top_key())) {
      return fmt::format("step {}: {} on top for {}", turn, heap.top().id, list.top());
    }
    for (const Node& node : nodes) {
      if (heap.contains(node) != list.contains(node.id)) {
        return fmt::format("step {}: contains({})", turn, node.id);
      }
    }
  }
  return "";
}

// Pushes are as frequent as all removals, so the heap holds about half of the nodes. Few keys cause
// many ties.
Act act_of(std::uint64_t number) {
  static constexpr std::array<Act, 10> kActs = {
      Act::kPush,   Act::kPush, Act::kPush,  Act::kPop,    Act::kReplaceTop,
      Act::kUpdate, Act::kPush, Act::kErase, Act::kUpdate, Act::kReplaceTop};
  return number % 200 == 0 ? Act::kClear : kActs[number % kActs.size()];
}

std::vector<Step> random_steps(std::uint64_t seed, std::size_t count, std::int64_t key_max) {
  Rng rng(seed);
  std::vector<Step> steps(count);
  for (Step& step : steps) {
    step = {act_of(1 + rng.below(400)), rng.below(1000), rng.between(-key_max, key_max)};
  }
  return steps;
}

// ---- Properties ----

RC_GTEST_PROP(HeapProperty, LeavesInTheOrderOfASortedList, ()) {
  // Few keys, for many ties. Full ranges in small cases too, otherwise short runs use only one
  // node.
  const auto step = rc::gen::resize(
      rc::kNominalSize,
      rc::gen::build<Step>(
          rc::gen::set(&Step::act,
                       rc::gen::map(rc::gen::inRange(1, 401),
                                    [](int n) { return act_of(static_cast<std::uint64_t>(n)); })),
          rc::gen::set(&Step::pick, rc::gen::inRange<std::size_t>(0, 30)),
          rc::gen::set(&Step::key, rc::gen::inRange<std::int64_t>(-3, 4))));
  const auto steps = *rc::gen::container<std::vector<Step>>(step);
  RC_ASSERT(first_difference<NodeHeap>(steps, 30) == "");
}

TEST(Heap, LongRandomRunsLeaveInTheOrderOfASortedList) {
  for (const std::int64_t key_max : {0, 2, 1000}) {
    EXPECT_EQ(first_difference<NodeHeap>(random_steps(1, 1500, key_max), 100), "");
  }
}

// All runs of three steps over three nodes and two keys, after a push.
TEST(Heap, EveryShortRunLeavesInTheOrderOfASortedList) {
  std::vector<Step> all = {
      {Act::kPop, 0, 0}, {Act::kReplaceTop, 0, 0}, {Act::kReplaceTop, 0, 1}, {Act::kClear, 0, 0}};
  for (std::size_t pick = 0; pick < 3; ++pick) {
    all.push_back({Act::kErase, pick, 0});
    for (std::int64_t key = 0; key < 2; ++key) {
      all.push_back({Act::kPush, pick, key});
      all.push_back({Act::kUpdate, pick, key});
    }
  }
  for (const Step& second : all) {
    for (const Step& third : all) {
      for (const Step& fourth : all) {
        const std::vector<Step> steps = {{Act::kPush, 0, 0}, second, third, fourth};
        ASSERT_EQ(first_difference<NodeHeap>(steps, 3), "")
            << second << " " << third << " " << fourth;
      }
    }
  }
}

// Six nodes fill two levels and start a third. Tries all assignments of three keys, and in each of
// them changes or removes every node.
TEST(Heap, EverySmallHeapSurvivesEveryChange) {
  for (int keys = 0; keys < 3 * 3 * 3 * 3 * 3 * 3; ++keys) {
    std::vector<Step> steps;
    for (std::size_t pick = 0, digits = static_cast<std::size_t>(keys); pick < 6; ++pick) {
      steps.push_back({Act::kPush, pick, static_cast<std::int64_t>(digits % 3)});
      digits /= 3;
    }
    for (std::size_t pick = 0; pick < 6; ++pick) {
      const std::int64_t key = static_cast<std::int64_t>(pick) % 3;
      for (const Act act : {Act::kUpdate, Act::kErase}) {
        std::vector<Step> run = steps;
        run.push_back({act, pick, key});
        ASSERT_EQ(first_difference<NodeHeap>(run, 6), "") << run.back() << " keys " << keys;
      }
    }
  }
}

// ---- The checker works: heaps that each have one defect must fail it. ----

// A valid heap, but ties are not broken by arrival: each key has a second part, which is compared
// before the sequence.
template <class Tie>
class TiesBy {
 public:
  void push(Node& node, std::int64_t key) { heap_.push(node, keyed(node, key)); }
  Node& pop() { return heap_.pop(); }
  void replace_top(std::int64_t key) { heap_.replace_top(keyed(heap_.top(), key)); }
  void update(Node& node, std::int64_t key) { heap_.update(node, keyed(node, key)); }
  void erase(Node& node) { heap_.erase(node); }
  void clear() { heap_.clear(); }
  Node& top() const { return heap_.top(); }
  std::int64_t top_key() const { return heap_.top_key().first; }
  bool contains(const Node& node) const { return heap_.contains(node); }
  std::size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }
  bool is_valid() const { return heap_.is_valid(); }

 private:
  using Key = std::pair<std::int64_t, std::uintptr_t>;
  Key keyed(Node& node, std::int64_t key) { return {key, Tie{}(node, turn_++)}; }

  Heap<Node, Key, &Node::hook> heap_;
  std::uint64_t turn_ = 0;
};

struct LastComeFirst {
  std::uintptr_t operator()(Node&, std::uint64_t turn) const { return ~turn; }
};

struct LowestAddressFirst {
  std::uintptr_t operator()(Node& node, std::uint64_t) const {
    return reinterpret_cast<std::uintptr_t>(&node);
  }
};

// A node that gets the same key again keeps its position among equal keys.
struct KeepsItsTurn : NodeHeap {
  void replace_top(std::int64_t key) {
    if (key != top_key()) NodeHeap::replace_top(key);
  }
};

// An update never moves a node back.
struct NeverMovesBack : NodeHeap {
  void update(Node& node, std::int64_t key) {
    if (key < top_key()) NodeHeap::update(node, key);
  }
};

// Removes the top instead of the given node.
struct ErasesTheTop : NodeHeap {
  void erase(Node&) { pop(); }
};

TEST(Heap, TheCheckerCatchesBrokenHeaps) {
  const std::vector<Step> steps = random_steps(2, 300, 2);
  ASSERT_EQ(first_difference<NodeHeap>(steps, 30), "");
  EXPECT_NE(first_difference<TiesBy<LastComeFirst>>(steps, 30), "");
  EXPECT_NE(first_difference<TiesBy<LowestAddressFirst>>(steps, 30), "");
  EXPECT_NE(first_difference<KeepsItsTurn>(steps, 30), "");
  EXPECT_NE(first_difference<NeverMovesBack>(steps, 30), "");
  EXPECT_NE(first_difference<ErasesTheTop>(steps, 30), "");
}

TEST(Heap, IsValidSeesDisorderAndLostPositions) {
  // A key that can be changed without the heap.
  struct Remote {
    const int* value;
    bool operator<(const Remote& other) const { return *value < *other.value; }
  };
  std::array<int, 12> values{};
  std::array<Node, 12> nodes{};
  Heap<Node, Remote, &Node::hook> heap;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    values[i] = static_cast<int>(i);
    heap.push(nodes[i], Remote{&values[i]});
  }
  EXPECT_TRUE(heap.is_valid());
  values[11] = -1;
  EXPECT_FALSE(heap.is_valid());
  values[11] = 11;
  EXPECT_TRUE(heap.is_valid());
  std::construct_at(&nodes[7].hook);  // loses its position
  EXPECT_FALSE(heap.is_valid());
}

// ---- Behaviours, one by one ----

TEST(Heap, EqualKeysLeaveInPushOrder) {
  std::array<Node, 50> nodes{};
  NodeHeap heap;
  // In reverse order of addresses, so that an order by address would be detected.
  for (std::size_t i = nodes.size(); i-- > 0;) heap.push(nodes[i], 7);
  for (std::size_t i = nodes.size(); i-- > 0;) EXPECT_EQ(&heap.pop(), &nodes[i]);
}

TEST(Heap, ANodeKeyedAnewStandsBehindItsEquals) {
  std::array<Node, 3> nodes{};
  NodeHeap heap;
  for (Node& node : nodes) heap.push(node, 5);
  heap.replace_top(5);
  EXPECT_EQ(&heap.top(), &nodes[1]);
  heap.update(nodes[1], 5);
  EXPECT_EQ(&heap.pop(), &nodes[2]);
  EXPECT_EQ(&heap.pop(), &nodes[0]);
  EXPECT_EQ(&heap.pop(), &nodes[1]);
}

TEST(Heap, ReservedRoomIsUsedInPlace) {
  std::array<Node, 100> nodes{};
  NodeHeap heap;
  heap.reserve(nodes.size());
  heap.push(nodes[0], 0);
  const std::int64_t* const first = &heap.top_key();  // where the array begins
  for (int round = 0; round < 3; ++round) {
    for (Node& node : nodes) {
      if (!heap.contains(node)) heap.push(node, 1);
      EXPECT_EQ(&heap.top_key(), first) << "the array moved, so it was allocated anew";
    }
    heap.clear();
    heap.push(nodes[0], 0);
  }
}

TEST(Heap, TellsItsOwnNodesFromThoseOfAnotherHeapOnTheSameHook) {
  Node node;
  Node other;
  NodeHeap ready;
  NodeHeap waiting;
  ready.push(node, 1);
  waiting.push(other, 1);
  EXPECT_TRUE(ready.contains(node));
  EXPECT_FALSE(waiting.contains(node));
  EXPECT_FALSE(ready.contains(other));
  waiting.push(ready.pop(), 2);
  EXPECT_FALSE(ready.contains(node));
  EXPECT_TRUE(waiting.contains(node));
}

TEST(Heap, ACopyOfANodeIsInNoHeap) {
  Node node{1, {}};
  Node other{2, {}};
  NodeHeap heap;
  heap.push(node, 10);
  heap.push(other, 20);
  const Node copy = node;
  EXPECT_FALSE(copy.hook.is_linked());
  EXPECT_FALSE(heap.contains(copy));
  other = node;  // copies the value, keeps its position
  EXPECT_TRUE(heap.is_valid());
  EXPECT_EQ(&heap.pop(), &node);
  EXPECT_EQ(&heap.pop(), &other);
}

TEST(Heap, LetsItsNodesGoWhenItGoes) {
  Node node;
  {
    NodeHeap heap;
    heap.push(node, 1);
    EXPECT_TRUE(node.hook.is_linked());
  }
  EXPECT_FALSE(node.hook.is_linked());
  NodeHeap next;
  next.push(node, 1);
  next.clear();
  EXPECT_TRUE(next.empty());
  next.push(node, 2);
  EXPECT_EQ(next.top_key(), 2);
}

TEST(HeapDeathTest, RefusesMisuse) {
  Node in;
  Node out;
  NodeHeap heap;
  EXPECT_DEATH(heap.pop(), "assertion failed");
  EXPECT_DEATH(heap.top(), "assertion failed");
  EXPECT_DEATH(heap.top_key(), "assertion failed");
  EXPECT_DEATH(heap.replace_top(1), "assertion failed");
  heap.push(in, 1);
  EXPECT_DEATH(heap.push(in, 2), "is_linked");
  EXPECT_DEATH(heap.erase(out), "contains\\(node\\)");
  EXPECT_DEATH(heap.update(out, 1), "contains\\(node\\)");
  NodeHeap other;
  EXPECT_DEATH(other.push(in, 1), "is_linked");
  EXPECT_DEATH(other.erase(in), "contains\\(node\\)");
  EXPECT_DEATH(
      {
        NodeHeap outlives;
        Node dies;
        outlives.push(dies, 1);
      },
      "is_linked");
}

}  // namespace
}  // namespace weir
