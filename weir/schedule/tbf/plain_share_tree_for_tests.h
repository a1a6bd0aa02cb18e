// SPDX-License-Identifier: Apache-2.0
//
// A second implementation of share_tree.h, to check it against. Every question is answered from the
// definitions, by looking at all nodes; there is no heap, and nothing is kept up to date but tags
// and balances. Balances are exact numbers of 10^-9 tokens: rates are whole numbers of tokens per
// second without a common factor with 10^9, so that a change of rate rounds nothing in either.
//
//   PlainShareTree plain(unit, ahead_max);
//   const std::size_t job = plain.make(plain.make(0, false), true);     0 is the root
//   plain.offer(job, rank, now);   plain.first(rank, now) == job
//
// It can make typical mistakes on purpose, so that tests show that the comparison finds them. For
// tests only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "weir/base/time.h"

namespace weir::tbf {

class PlainShareTree {
 public:
  using Number = __int128;
  static constexpr Number kToken = 1'000'000'000;
  static constexpr std::size_t kNone = SIZE_MAX;

  struct Node {
    std::size_t parent = kNone;
    bool is_leaf = false;
    bool is_gone = false;
    int depth = 0;
    Number weight = 1;
    bool paces = false;
    Number rate = 0, deep = 0, level = 0, spill = 0;
    Instant at{};
    Number tag = 0, tag_part = 0, loan_tag = 0, loan_part = 0, virtual_time = 0;
    Number borrowed = 0, lent = 0, reserved = 0;
    int queues = 0;           // with requests, of a leaf
    std::set<int> offered{};  // ranks, of a leaf
    bool occupied = false, lacking = false;
  };

  // Mistakes that the comparison must find.
  bool lends_to_cousins_first = false;
  bool ignores_inner_buckets = false;
  bool forgets_virtual_time = false;
  bool lends_what_is_needed = false;

  PlainShareTree(Number unit, Number ahead_max) : unit_(unit), ahead_max_(ahead_max), nodes(1) {}

  std::size_t make(std::size_t parent, bool is_leaf) {
    nodes.push_back({.parent = parent, .is_leaf = is_leaf, .depth = nodes[parent].depth + 1});
    return nodes.size() - 1;
  }

  // ---- what is true now ----

  bool busy(std::size_t x) const {
    return any_leaf_below(x, [](const Node& leaf) { return leaf.queues > 0; });
  }
  bool occupied(std::size_t x) const {
    return any_leaf_below(x, [](const Node& leaf) { return !leaf.offered.empty(); });
  }
  Number balance(std::size_t x, Instant now) const {
    const Node& node = nodes[x];
    return node.level + node.rate * (now - node.at).count();
  }
  bool pays(std::size_t x, Instant now) const {
    const Node& node = nodes[x];
    if (!node.paces || (ignores_inner_buckets && !node.is_leaf)) return true;
    return balance(x, now) >= kToken;
  }
  bool eligible(std::size_t x, int rank, Instant now) const {
    return pays(x, now) && (nodes[x].is_leaf ? nodes[x].offered.contains(rank)
                                             : !eligible_children(x, rank, now).empty());
  }

  std::size_t first(int rank, Instant now) const {
    std::size_t at = 0;
    while (!nodes[at].is_leaf) {
      const auto able = eligible_children(at, rank, now);
      if (able.empty()) return kNone;
      at = *std::min_element(able.begin(), able.end(), [&](std::size_t a, std::size_t b) {
        return std::tuple(nodes[a].tag, a) < std::tuple(nodes[b].tag, b);
      });
    }
    return at;
  }

  // REQUIRES: no leaf is first in any rank.
  std::pair<std::size_t, int> borrower(Instant now) const {
    for (int rank = 0; rank < 3; ++rank) {
      const bool any =
          any_leaf_below(0, [&](const Node& leaf) { return leaf.offered.contains(rank); });
      if (any) return {choose(0, rank, now), rank};
    }
    return {kNone, 0};
  }

  // The earliest time after now at which a node that requests wait for pays.
  Instant next_wake(Instant now) const {
    Instant next = kNever;
    for (std::size_t x = 1; x < nodes.size(); ++x) {
      const Node& node = nodes[x];
      if (node.is_gone || !occupied(x) || pays(x, now)) continue;
      const Number wait = kToken - balance(x, now);
      const Number ns = (wait + node.rate - 1) / node.rate;
      next = std::min(next, now + Nanoseconds{static_cast<std::int64_t>(ns)});
    }
    return next;
  }

  // ---- changes; `now` never steps back ----

  void advance_to(Instant now) { update(now); }

  void set(std::size_t x, Number rate, Number deep, Number weight, Instant now) {
    Node& node = nodes[x];
    settle_spill(x, now);
    if (node.weight != weight) node.tag_part = node.loan_part = 0;
    node.weight = weight;
    if (rate == 0) {
      node.paces = false;
    } else if (node.paces) {
      node.level = std::min(balance(x, now), deep * kToken);
    } else {
      node.level = deep * kToken;
      node.spill = 0;
    }
    if (rate != 0) {
      node.paces = true;
      node.rate = rate;
      node.deep = deep;
    }
    node.at = now;
    update(now);
  }

  void drop(std::size_t x, Instant now) {
    nodes[x].paces = false;
    nodes[x].borrowed = nodes[x].lent = nodes[x].reserved = 0;
    update(now);
  }

  // Tokens that spill from now on are lent, or no longer.
  void queue(std::size_t leaf, int more, Instant now) {
    const auto before = busy_nodes();
    nodes[leaf].queues += more;
    const auto after = busy_nodes();
    nodes[leaf].queues -= more;
    for (std::size_t x = 1; x < nodes.size(); ++x) {
      if (before.contains(x) != after.contains(x)) settle_spill(x, now);
    }
    nodes[leaf].queues += more;
  }
  void offer(std::size_t leaf, int rank, Instant now) {
    nodes[leaf].offered.insert(rank);
    update(now);
  }
  void withdraw(std::size_t leaf, int rank, Instant now) {
    nodes[leaf].offered.erase(rank);
    update(now);
  }

  void serve(std::size_t leaf, int rank, Number cost, bool more, Instant now) {
    if (!more) nodes[leaf].offered.erase(rank);
    for (const std::size_t x : path(leaf)) run(x, cost, now);
    update(now);
  }

  std::set<int> lend(std::size_t leaf, int rank, Number cost, bool more, Instant now) {
    std::set<int> depths;
    if (!more) nodes[leaf].offered.erase(rank);
    for (const std::size_t x : path(leaf)) {
      Node& node = nodes[x];
      if (pays(x, now)) {
        run(x, cost, now);
        continue;
      }
      depths.insert(node.depth);
      node.borrowed += cost;
      loan_time_[node.depth] = std::max(loan_time_[node.depth], node.loan_tag);
      node.loan_tag += weigh(cost, node.weight, node.loan_part);
      node.tag = std::max(node.tag, nodes[node.parent].virtual_time);
    }
    update(now);
    return depths;
  }

  bool charge_reserved(std::size_t leaf, Number cost, Instant now) {
    bool all = true;
    nodes[leaf].reserved += cost;
    for (const std::size_t x : path(leaf)) {
      Node& node = nodes[x];
      const Number most = std::max(node.tag, nodes[node.parent].virtual_time + ahead_max_);
      node.tag = std::min(node.tag + weigh(cost, node.weight, node.tag_part), most);
      if (!node.paces) continue;
      const Number owed = std::max<Number>(0, -balance(x, now));
      const Number debt = (owed + kToken - 1) / kToken;
      const Number room = std::max<Number>(0, node.deep - debt);
      take(x, std::min(cost, room), now);
      if (cost > room) all = false;
    }
    update(now);
    return all;
  }

  void charge(std::size_t leaf, Number cost, Instant now) {
    for (const std::size_t x : path(leaf)) {
      if (!nodes[x].paces) continue;
      if (!busy(x)) settle_spill(x, now);
      take(x, cost, now);
    }
    update(now);
  }

  void settle(std::size_t leaf, Number paid, Number due, const std::set<int>& borrowers,
              Instant now) {
    if (paid == due) return;
    for (const std::size_t x : path(leaf)) {
      Node& node = nodes[x];
      if (borrowers.contains(node.depth)) {
        node.borrowed = std::max<Number>(0, node.borrowed + due - paid);
      } else if (node.paces) {
        due > paid ? take(x, due - paid, now) : give(x, paid - due, now);
      }
    }
    update(now);
  }

  void move(std::size_t leaf, std::size_t parent, Instant now) {
    Node& node = nodes[leaf];
    if (node.parent == parent) return;
    const std::set<int> offered = node.offered;
    node.offered.clear();
    update(now);
    const std::size_t from = node.parent;
    const auto before = busy_nodes();
    node.parent = parent;
    const auto after = busy_nodes();
    node.parent = from;
    for (std::size_t x = 1; x < nodes.size(); ++x) {
      if (before.contains(x) != after.contains(x)) settle_spill(x, now);
    }
    node.parent = parent;
    node.tag = node.loan_tag = 0;
    node.borrowed = node.lent = 0;
    node.depth = nodes[parent].depth + 1;
    node.offered = offered;
    update(now);
  }

  // What spilled while nothing was waiting is lent.
  void settle_spill(std::size_t x, Instant now) {
    Node& node = nodes[x];
    if (x == 0 || !node.paces) return;
    const Number over = balance(x, now) - node.deep * kToken;
    if (over > 0) {
      node.spill += over;
      give(x, 0, now);
      node.level -= over;
    }
    const Number whole = node.spill / kToken;
    node.spill %= kToken;
    if (!busy(x) || lends_what_is_needed) node.lent += whole;
  }

 private:
  template <class Is>
  bool any_leaf_below(std::size_t x, Is is) const {
    for (std::size_t leaf = 1; leaf < nodes.size(); ++leaf) {
      if (nodes[leaf].is_gone || !nodes[leaf].is_leaf || !is(nodes[leaf])) continue;
      for (std::size_t at = leaf; at != kNone; at = nodes[at].parent) {
        if (at == x) return true;
      }
    }
    return false;
  }
  std::set<std::size_t> busy_nodes() const {
    std::set<std::size_t> found;
    for (std::size_t x = 1; x < nodes.size(); ++x) {
      if (busy(x)) found.insert(x);
    }
    return found;
  }
  std::vector<std::size_t> children(std::size_t x) const {
    std::vector<std::size_t> found;
    for (std::size_t c = 1; c < nodes.size(); ++c) {
      if (nodes[c].parent == x && !nodes[c].is_gone) found.push_back(c);
    }
    return found;
  }
  std::vector<std::size_t> eligible_children(std::size_t x, int rank, Instant now) const {
    std::vector<std::size_t> found;
    for (const std::size_t c : children(x)) {
      if (eligible(c, rank, now)) found.push_back(c);
    }
    return found;
  }
  // From the leaf up, without the root.
  std::vector<std::size_t> path(std::size_t leaf) const {
    std::vector<std::size_t> found;
    for (std::size_t at = leaf; at != 0; at = nodes[at].parent) found.push_back(at);
    return found;
  }

  // A loan below x: from the child that goes first.
  using Key = std::tuple<int, Number, std::size_t>;  // depth of the payer, loan tag, child
  std::optional<Key> key(std::size_t c, int rank, Instant now) const {
    const bool waits =
        any_leaf_below(c, [&](const Node& leaf) { return leaf.offered.contains(rank); });
    if (!waits) return std::nullopt;
    const int sign = lends_to_cousins_first ? 1 : -1;
    if (!pays(c, now)) {
      return Key{sign * nodes[nodes[c].parent].depth, nodes[c].loan_tag, c};
    }
    std::optional<Key> best;
    for (const std::size_t below : children(c)) {
      const auto one = key(below, rank, now);
      if (one && (!best || *one < *best)) best = one;
    }
    if (best) std::get<2>(*best) = c;
    return best;
  }
  std::size_t choose(std::size_t x, int rank, Instant now) const {
    while (!nodes[x].is_leaf) {
      auto able = eligible_children(x, rank, now);
      if (!able.empty()) {
        x = *std::min_element(able.begin(), able.end(), [&](std::size_t a, std::size_t b) {
          return std::tuple(nodes[a].tag, a) < std::tuple(nodes[b].tag, b);
        });
        continue;
      }
      std::optional<Key> best;
      for (const std::size_t c : children(x)) {
        const auto one = key(c, rank, now);
        if (one && (!best || *one < *best)) best = one;
      }
      x = std::get<2>(*best);
    }
    return x;
  }

  Number weigh(Number cost, Number weight, Number& part) const {
    const Number units = cost * unit_ + part;
    part = units % weight;
    return units / weight;
  }
  // Tokens above the depth are lost.
  void take(std::size_t x, Number cost, Instant now) {
    Node& node = nodes[x];
    node.level = std::min(balance(x, now), node.deep * kToken) - cost * kToken;
    node.at = now;
  }
  void give(std::size_t x, Number cost, Instant now) {
    Node& node = nodes[x];
    node.level = balance(x, now) + cost * kToken;
    node.at = now;
  }
  void run(std::size_t x, Number cost, Instant now) {
    Node& node = nodes[x];
    Number& virtual_time = nodes[node.parent].virtual_time;
    if (!forgets_virtual_time) virtual_time = std::max(virtual_time, node.tag);
    node.tag += weigh(cost, node.weight, node.tag_part);
    if (node.paces) take(x, cost, now);
  }
  // Tags start when requests begin to wait below a node, or begin to wait for its tokens.
  void update(Instant now) {
    for (std::size_t x = 1; x < nodes.size(); ++x) {
      Node& node = nodes[x];
      if (node.is_gone) continue;
      const bool is_occupied = occupied(x);
      const bool is_lacking = is_occupied && !pays(x, now);
      if (is_occupied && !node.occupied) {
        node.tag = std::max(node.tag, nodes[node.parent].virtual_time);
      }
      if (is_lacking && !node.lacking) {
        node.loan_tag = std::max(node.loan_tag, loan_time_[node.depth]);
      }
      node.occupied = is_occupied;
      node.lacking = is_lacking;
    }
  }

  Number unit_;
  Number ahead_max_;
  std::map<int, Number> loan_time_;

 public:
  std::vector<Node> nodes;  // the root is the first
};

}  // namespace weir::tbf
