// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/share_tree.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/tbf/plain_share_tree_for_tests.h"

namespace weir::tbf {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kStart = instant_at(1'000'000'000);
constexpr std::uint64_t kUnit = 4096;
constexpr std::uint64_t kAhead = 8 * kUnit;

// ---- against the plain implementation ----

// Both trees, with the same random calls.
class Both {
 public:
  Both(PlainShareTree plain, std::uint64_t seed, int levels, bool lending)
      : rng_(seed),
        levels_(levels),
        lending_(lending),
        plain_(std::move(plain)),
        tree_(static_cast<std::size_t>(levels - 1), kUnit, kAhead, lending) {
    nodes_.push_back(&tree_.root());
    grow(0);
    for (std::size_t x = 1; x < nodes_.size(); ++x) set(x);
  }
  ~Both() {
    for (const std::size_t leaf : leaves_) {
      for (const Rank rank : kRanks) tree_.withdraw(*nodes_[leaf], rank, now_);
    }
  }

  // The first difference, or nothing.
  std::string run(int steps) {
    for (int i = 0; i < steps; ++i) {
      step();
      if (std::string difference = compare(); !difference.empty()) {
        return fmt::format("step {}: {}", i, difference);
      }
    }
    return {};
  }

  int loans = 0;

 private:
  void grow(std::size_t parent) {
    const int depth = plain_.nodes[parent].depth;
    const auto count = 1 + rng_.below(3);
    for (std::uint64_t i = 0; i < count; ++i) {
      const bool is_leaf = depth + 1 == levels_;
      const std::size_t x = plain_.make(parent, is_leaf);
      nodes_.push_back(is_leaf ? &tree_.leaf(*nodes_[parent])
                               : &tree_.inner(*nodes_[parent], JobId(std::to_string(i))));
      if (is_leaf) {
        leaves_.push_back(x);
      } else {
        inner_.push_back(x);
        grow(x);
      }
    }
  }
  std::size_t any_leaf() { return leaves_[rng_.below(leaves_.size())]; }

  void set(std::size_t x) {
    // Without a factor of 10^9, so that a change of rate rounds nothing.
    constexpr std::array<std::uint64_t, 8> kRates = {3, 7, 13, 39, 101, 333, 777, 2001};
    const std::uint64_t rate = rng_.chance(1, 8) ? 0 : kRates[rng_.below(kRates.size())];
    const std::uint64_t deep = 1 + rng_.below(6);
    const std::uint64_t weight = 1 + rng_.below(5);
    plain_.set(x, rate, deep, weight, now_);
    std::optional<Rate> per_second;
    if (rate > 0) per_second = Rate::per_second(rate);
    tree_.set(*nodes_[x], per_second, Tokens{deep}, weight, now_);
  }

  // A queue of the leaf has a request of this rank, or has lost the last one.
  void arrive(std::size_t leaf, Rank rank) {
    const int number = static_cast<int>(rank);
    if (plain_.nodes[leaf].offered.contains(number)) return;
    plain_.queue(leaf, 1, now_);
    ShareTree::become_busy(*nodes_[leaf], now_);
    plain_.offer(leaf, number, now_);
    tree_.offer(*nodes_[leaf], rank, now_);
  }
  void leave(std::size_t leaf) {
    plain_.queue(leaf, -1, now_);
    ShareTree::become_idle(*nodes_[leaf], now_);
  }

  void decide() {
    const std::uint64_t cost = rng_.chance(3, 4) ? 1 : 1 + rng_.below(5);
    const bool more = rng_.chance(2, 3);
    for (const Rank rank : kRanks) {
      const std::size_t first = plain_.first(static_cast<int>(rank), now_);
      if (first == PlainShareTree::kNone) continue;
      if (tree_.first(rank) != nodes_[first]) return;  // compare() reports it
      plain_.serve(first, static_cast<int>(rank), PlainShareTree::Number{cost}, more, now_);
      tree_.serve(*nodes_[first], rank, Tokens{cost}, more, now_);
      if (!more) leave(first);
      return;
    }
    if (!lending_) return;
    const auto [leaf, number] = plain_.borrower(now_);
    if (leaf == PlainShareTree::kNone) return;
    const auto [found, rank] = tree_.borrower();
    if (found != nodes_[leaf] || static_cast<int>(rank) != number) return;
    const auto depths = plain_.lend(leaf, number, PlainShareTree::Number{cost}, more, now_);
    borrowers_ = tree_.lend(*found, rank, Tokens{cost}, more, now_);
    lent_to_ = leaf;
    lent_depths_ = depths;
    if (!more) leave(leaf);
    ++loans;
  }

  void step() {
    switch (rng_.below(16)) {
      case 0:
      case 1:
      case 2:
        now_ += Nanoseconds{static_cast<std::int64_t>(rng_.below(20'000'000))};
        break;
      case 3:
        now_ = std::max(now_, std::min(tree_.next_wake(), now_ + seconds{2}));
        break;
      case 4:
      case 5:
      case 6:
        arrive(any_leaf(), rng_.chance(1, 5)   ? Rank::kHigh
                           : rng_.chance(1, 4) ? Rank::kLater
                                               : Rank::kRegular);
        break;
      case 7:
        if (rng_.chance(1, 4)) set(1 + rng_.below(nodes_.size() - 1));
        break;
      case 8:
        if (rng_.chance(1, 4)) cancel(any_leaf());
        break;
      case 9:
        if (rng_.chance(1, 4)) outside();
        break;
      case 10:
        if (rng_.chance(1, 8)) move();
        break;
      default:
        plain_.advance_to(now_);
        tree_.wake(now_);
        decide();
    }
    plain_.advance_to(now_);
    tree_.wake(now_);
  }

  void cancel(std::size_t leaf) {
    const auto offered = plain_.nodes[leaf].offered;
    if (offered.empty()) return;
    plain_.withdraw(leaf, *offered.begin(), now_);
    tree_.withdraw(*nodes_[leaf], static_cast<Rank>(*offered.begin()), now_);
    leave(leaf);
  }
  void outside() {
    const std::size_t leaf = any_leaf();
    const std::uint64_t cost = 1 + rng_.below(4);
    const PlainShareTree::Number number = cost;
    switch (rng_.below(4)) {
      case 0:
        plain_.charge(leaf, number, now_);
        return tree_.charge(*nodes_[leaf], Tokens{cost}, now_);
      case 1: {
        const bool paid = plain_.charge_reserved(leaf, number, now_);
        reserved_differs_ =
            reserved_differs_ || tree_.charge_reserved(*nodes_[leaf], Tokens{cost}, now_) != paid;
        return;
      }
      case 2:
        plain_.settle(leaf, 2, number, {}, now_);
        return tree_.settle(*nodes_[leaf], Tokens{2}, Tokens{cost}, 0, now_);
      default:
        if (lent_to_ == PlainShareTree::kNone) return;
        plain_.settle(lent_to_, 2, number, lent_depths_, now_);
        tree_.settle(*nodes_[lent_to_], Tokens{2}, Tokens{cost}, borrowers_, now_);
    }
  }
  void move() {
    if (levels_ < 2) return;
    const std::size_t leaf = any_leaf();
    const std::size_t parent = inner_[rng_.below(inner_.size())];
    if (plain_.nodes[parent].depth != levels_ - 1) return;
    // An inner node without children would be removed.
    int siblings = 0;
    for (const auto& node : plain_.nodes) siblings += node.parent == plain_.nodes[leaf].parent;
    if (siblings < 2 && !nodes_[plain_.nodes[leaf].parent]->active) return;
    plain_.move(leaf, parent, now_);
    tree_.move(*nodes_[leaf], *nodes_[parent], now_);
  }

  std::string compare() {
    using Number = PlainShareTree::Number;
    if (!tree_.is_valid(now_)) return "invariants";
    if (reserved_differs_) return "reserved";
    bool is_any_first = false;
    for (const Rank rank : kRanks) {
      const std::size_t first = plain_.first(static_cast<int>(rank), now_);
      const ShareNode* const wanted = first == PlainShareTree::kNone ? nullptr : nodes_[first];
      if (tree_.first(rank) != wanted) return "first";
      is_any_first = is_any_first || wanted != nullptr;
    }
    if (tree_.next_wake() != plain_.next_wake(now_)) return "next wake";
    if (lending_ && !is_any_first) {
      const auto [leaf, rank] = plain_.borrower(now_);
      const ShareNode* const wanted = leaf == PlainShareTree::kNone ? nullptr : nodes_[leaf];
      if (tree_.borrower().first != wanted) return "borrower";
    }
    for (std::size_t x = 1; x < nodes_.size(); ++x) {
      const PlainShareTree::Node& plain = plain_.nodes[x];
      const ShareNode& node = *nodes_[x];
      if (Number{node.tag} != plain.tag) return fmt::format("tag of {}", x);
      if (Number{node.borrowed.count()} != plain.borrowed) return fmt::format("borrowed of {}", x);
      if (Number{node.reserved.count()} != plain.reserved) return fmt::format("reserved of {}", x);
      if (lending_ && Number{node.loan_tag} != plain.loan_tag) return fmt::format("loans of {}", x);
    }
    std::string difference;
    if (rng_.chance(1, 20)) {
      tree_.each(now_, [](const ShareNode&) {});
      for (std::size_t x = 1; x < nodes_.size(); ++x) {
        plain_.settle_spill(x, now_);
        if (Number{nodes_[x]->lent.count()} != plain_.nodes[x].lent) return "lent";
      }
    }
    return difference;
  }

  Rng rng_;
  int levels_;
  bool lending_;
  PlainShareTree plain_;
  ShareTree tree_;
  Instant now_ = kStart;
  std::vector<ShareNode*> nodes_;
  std::vector<std::size_t> leaves_, inner_;
  std::uint8_t borrowers_ = 0;
  std::size_t lent_to_ = PlainShareTree::kNone;
  std::set<int> lent_depths_;
  bool reserved_differs_ = false;
};

const PlainShareTree kPlain{kUnit, kAhead};

TEST(ShareTreeProperty, DecidesAsThePlainTree) {
  int loans = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    const int levels = 1 + static_cast<int>(seed % 4);
    Both both(kPlain, seed, levels, seed % 5 != 0);
    ASSERT_EQ(both.run(500), "") << "seed " << seed;
    loans += both.loans;
  }
  EXPECT_GT(loans, 1000);
}

// The comparison finds every one of these mistakes.
std::string compare_mistaken(bool PlainShareTree::*mistake) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    PlainShareTree plain = kPlain;
    plain.*mistake = true;
    Both both(plain, seed, 3, true);
    if (std::string difference = both.run(500); !difference.empty()) return difference;
  }
  return {};
}

TEST(ShareTreeProperty, TheComparisonFindsMistakes) {
  EXPECT_NE(compare_mistaken(&PlainShareTree::lends_to_cousins_first), "");
  EXPECT_NE(compare_mistaken(&PlainShareTree::ignores_inner_buckets), "");
  EXPECT_NE(compare_mistaken(&PlainShareTree::forgets_virtual_time), "");
  EXPECT_NE(compare_mistaken(&PlainShareTree::lends_what_is_needed), "");
}

}  // namespace
}  // namespace weir::tbf
