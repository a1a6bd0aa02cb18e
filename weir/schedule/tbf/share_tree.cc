// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/share_tree.h"

#include <algorithm>
#include <bit>

#include "weir/base/assert.h"
#include "weir/schedule/tbf/shares.h"

namespace weir::tbf {
namespace {

constexpr std::uint8_t bit(std::size_t rank) { return static_cast<std::uint8_t>(1U << rank); }
constexpr std::uint8_t bit(Rank rank) { return bit(static_cast<std::size_t>(rank)); }
// The first rank of some.
constexpr std::size_t first_of(std::uint8_t ranks) {
  return static_cast<std::size_t>(std::countr_zero(ranks));
}

constexpr std::uint64_t kDepths = ShareTree::kLevelsMax + 1;

// Of a loan for a request of this rank below a node of this depth, which lacks tokens.
std::uint64_t loan_place(std::size_t rank, std::uint8_t depth) {
  return rank * kDepths + (ShareTree::kLevelsMax - depth);
}
std::size_t rank_of(const LoanKey& key) { return key.place / kDepths; }

std::optional<LoanKey> first_loan(const ShareInner& inner) {
  if (inner.borrowers.empty()) return std::nullopt;
  return inner.borrowers.top_key();
}

template <class Heap, class Node, class Key>
void stand(Heap& heap, Node& node, bool is_linked, const Key& key, std::uint64_t turn) {
  is_linked ? heap.update(node, key, turn) : heap.push(node, key, turn);
}

}  // namespace

ShareTree::ShareTree(std::size_t levels, std::uint64_t unit, std::uint64_t ahead_max, bool lending)
    : levels_(levels),
      unit_(unit),
      ahead_max_(ahead_max),
      lending_(lending),
      root_(&make(nullptr)) {
  root_->inner = std::make_unique<ShareInner>();
}

ShareTree::~ShareTree() {
  waking_.clear();
  for (ShareNode& node : nodes_) {
    if (node.inner == nullptr) continue;
    for (auto& order : node.inner->order) order.clear();
    node.inner->borrowers.clear();
  }
}

// ---- nodes ----

ShareNode& ShareTree::make(ShareNode* parent) {
  ShareNode* node = nullptr;
  if (free_.empty()) {
    node = &nodes_.emplace_back();
  } else {
    node = free_.back();
    free_.pop_back();
    *node = {};
  }
  for (Standing& standing : node->standings) standing.node = node;
  node->turn = created_++;
  if (parent == nullptr) return *node;
  WEIR_ASSERT(parent->depth < kLevelsMax, parent->depth);
  node->parent = parent;
  node->depth = static_cast<std::uint8_t>(parent->depth + 1);
  ++parent->users;
  return *node;
}

ShareNode* ShareTree::find(const ShareNode& parent, const JobId& value) const {
  const auto found = inner_.find(ChildKey{&parent, value});
  return found == inner_.end() ? nullptr : found->second;
}

ShareNode& ShareTree::inner(ShareNode& parent, const JobId& value) {
  if (ShareNode* const known = find(parent, value)) return *known;
  ShareNode& node = make(&parent);
  node.inner = std::make_unique<ShareInner>();
  node.value = value;
  inner_.emplace(ChildKey{&parent, value}, &node);
  return node;
}

std::vector<JobId> ShareTree::path_of(const ShareNode& inner) {
  std::vector<JobId> path(inner.depth);
  for (const ShareNode* node = &inner; !node->is_root(); node = node->parent) {
    path[node->depth - 1U] = node->value;
  }
  return path;
}

ShareNode& ShareTree::leaf(ShareNode& parent) { return make(&parent); }

void ShareTree::move(ShareNode& leaf, ShareNode& parent, Instant now) {
  if (leaf.parent == &parent) return;
  const std::uint8_t offered = std::exchange(leaf.offered, std::uint8_t{0});
  place(leaf, now);
  ShareNode& before = *leaf.parent;
  if (leaf.busy > 0) become_idle_above(before, now);
  --before.users;
  leaf.parent = &parent;
  leaf.depth = static_cast<std::uint8_t>(parent.depth + 1);
  leaf.tag = 0;
  leaf.loan_tag = 0;
  leaf.borrowed = leaf.lent = {};  // between its earlier siblings
  ++parent.users;
  if (leaf.busy > 0) become_busy_above(parent, now);
  prune(before);
  leaf.offered = offered;
  place(leaf, now);
}

void ShareTree::remove(ShareNode& leaf) {
  WEIR_ASSERT(leaf.busy == 0 && !leaf.occupied, leaf.busy);
  ShareNode& parent = *leaf.parent;
  free(leaf);
  prune(parent);
}

void ShareTree::free(ShareNode& node) {
  --node.parent->users;
  node.parent = nullptr;
  node.inner.reset();
  free_.push_back(&node);
}

// Removes inner nodes that are not used any more.
void ShareTree::prune(ShareNode& node) {
  ShareNode* gone = &node;
  while (!gone->is_root() && gone->users == 0 && !gone->active) {
    ShareNode& parent = *gone->parent;
    inner_.erase(ChildKey{&parent, gone->value});
    free(*gone);
    gone = &parent;
  }
}

void ShareTree::rebalance(ShareNode& node) {
  node.pays_at = node.paces() ? node.tokens.ready_at(Tokens{1}, *node.shape) : Instant::min();
}

void ShareTree::set(ShareNode& node, std::optional<Rate> rate, Tokens depth, std::uint64_t weight,
                    Instant now) {
  WEIR_ASSERT(weight > 0, weight);
  settle_spill(node, now);
  if (node.weight != weight) {
    node.weight = weight;
    node.tag_part = 0;
    node.loan_part = 0;
  }
  if (!rate) {
    node.shape.reset();
  } else {
    const BucketShape shape(*rate, depth);
    if (node.paces()) {
      node.tokens.reshape(*node.shape, shape, now);
      node.spill.reshape(*node.shape, shape);
    } else {
      node.tokens = TokenBucket::full(shape, now);
      node.spill = {};
    }
    node.shape = shape;
  }
  node.active = true;
  rebalance(node);
  place(node, now);
}

void ShareTree::drop(ShareNode& node, Instant now) {
  node.active = false;
  node.shape.reset();
  node.borrowed = node.lent = node.reserved = {};
  rebalance(node);
  place(node, now);
  if (!node.is_leaf()) prune(node);
}

// ---- requests ----

void ShareTree::settle_spill(ShareNode& node, Instant now) {
  if (!node.paces()) return;
  node.tokens.trim(*node.shape, now, node.spill);
  const Tokens spilled = node.spill.collect();
  if (node.busy != 0) return;
  // It is not collected while the device is idle, possibly for months.
  node.lent += std::min(spilled, Tokens{UINT64_MAX} - node.lent);
}

// A child of the node has become busy.
void ShareTree::become_busy_above(ShareNode& node, Instant now) {
  for (ShareNode* at = &node; !at->is_root(); at = at->parent) {
    if (at->busy == 0) settle_spill(*at, now);
    if (at->busy++ > 0) return;
  }
}

void ShareTree::become_idle_above(ShareNode& node, Instant now) {
  for (ShareNode* at = &node; !at->is_root(); at = at->parent) {
    if (at->busy == 1) settle_spill(*at, now);
    if (--at->busy > 0) return;
  }
}

void ShareTree::offer(ShareNode& leaf, Rank rank, Instant now) {
  if ((leaf.offered & bit(rank)) != 0) return;
  leaf.offered = static_cast<std::uint8_t>(leaf.offered | bit(rank));
  place(leaf, now);
}

void ShareTree::withdraw(ShareNode& leaf, Rank rank, Instant now) {
  if ((leaf.offered & bit(rank)) == 0) return;
  leaf.offered = static_cast<std::uint8_t>(leaf.offered & ~bit(rank));
  place(leaf, now);
}

// ---- places ----

// The ranks in which a leaf at or below the node may be first, if the node pays.
std::uint8_t ShareTree::candidates(const ShareNode& node) {
  if (node.is_leaf()) return node.offered;
  std::uint8_t ranks = 0;
  for (std::size_t rank = 0; rank < kRanks.size(); ++rank) {
    if (!node.inner->order[rank].empty()) ranks = static_cast<std::uint8_t>(ranks | bit(rank));
  }
  return ranks;
}

// Its place among the borrowers of its parent; none if every leaf below it that has requests is
// eligible below it, and it pays.
std::optional<LoanKey> ShareTree::loan_key(const ShareNode& node) {
  if (!node.lacking) return node.is_leaf() ? std::nullopt : first_loan(*node.inner);
  const std::uint8_t ranks = candidates(node);
  std::size_t rank = ranks == 0 ? kRanks.size() : first_of(ranks);
  if (!node.is_leaf() && !node.inner->borrowers.empty()) {
    rank = std::min(rank, rank_of(node.inner->borrowers.top_key()));
  }
  return LoanKey{.place = loan_place(rank, node.parent->depth), .tag = node.loan_tag};
}

void ShareTree::place_loan(ShareNode& node) {
  auto& borrowers = node.parent->inner->borrowers;
  const std::optional<LoanKey> key = loan_key(node);
  const bool is_linked = node.borrow_hook.is_linked();
  if (key && is_linked && node.loan_key == *key) return;
  if (key) {
    stand(borrowers, node, is_linked, *key, node.turn);
    node.loan_key = *key;
  } else if (is_linked) {
    borrowers.erase(node);
  }
}

// Puts the node where it belongs below its parent. Returns whether that may change the place of the
// parent.
bool ShareTree::place_here(ShareNode& node, Instant now) {
  ShareInner& above = *node.parent->inner;
  const std::uint8_t had_ranks = candidates(*node.parent);
  const std::optional<LoanKey> had_loan = first_loan(above);
  bool is_changed = false;

  const bool occupied = node.is_leaf() ? node.offered != 0 : node.inner->occupied != 0;
  if (occupied != node.occupied) {
    node.occupied = occupied;
    occupied ? ++above.occupied : --above.occupied;
    is_changed = above.occupied == (occupied ? 1U : 0U);
    if (occupied) node.tag = std::max(node.tag, above.virtual_time);
  }
  const bool lacks = occupied && node.pays_at > now;
  if (lacks && !node.lacking) {
    node.loan_tag = std::max(node.loan_tag, loan_time_[node.depth]);
  }
  node.lacking = lacks;

  const std::uint8_t wanted = lacks ? std::uint8_t{0} : candidates(node);
  for (unsigned left = wanted | node.listed; left != 0; left &= left - 1) {
    const std::size_t rank = first_of(static_cast<std::uint8_t>(left));
    Standing& standing = node.standings[rank];
    auto& order = above.order[rank];
    const bool is_linked = (node.listed & bit(rank)) != 0;
    if ((wanted & bit(rank)) == 0) {
      order.erase(standing);
    } else if (!is_linked || standing.tag != node.tag) {
      stand(order, standing, is_linked, node.tag, node.turn);
      standing.tag = node.tag;
    }
  }
  node.listed = wanted;
  if (lending_) place_loan(node);

  const bool is_waking = node.wake_hook.is_linked();
  if (lacks && (!is_waking || node.wakes_at != node.pays_at)) {
    stand(waking_, node, is_waking, node.pays_at, node.turn);
    node.wakes_at = node.pays_at;
  } else if (!lacks && is_waking) {
    waking_.erase(node);
  }
  return is_changed || candidates(*node.parent) != had_ranks || first_loan(above) != had_loan;
}

void ShareTree::place(ShareNode& node, Instant now) {
  for (ShareNode* at = &node; !at->is_root(); at = at->parent) {
    if (!place_here(*at, now)) return;
  }
}

// ---- deciding ----

// REQUIRES: it pays.
void ShareTree::pay(ShareNode& node, Tokens cost, Instant now) {
  if (cost != Tokens{1} || !node.tokens.take(cost, *node.shape, now)) {
    node.tokens.charge(cost, *node.shape, now);
  }
  node.pays_at = node.tokens.ready_at(Tokens{1}, *node.shape);
}

// A request at or below the node runs in order.
void ShareTree::advance_order(ShareNode& node, Tokens cost) const {
  std::uint64_t& virtual_time = node.parent->inner->virtual_time;
  virtual_time = std::max(virtual_time, node.tag);
  advance(node.tag, weigh(cost, unit_, node.weight, node.tag_part));
}

void ShareTree::serve(ShareNode& leaf, Rank rank, Tokens cost, bool more, Instant now) {
  if (!more) leaf.offered = static_cast<std::uint8_t>(leaf.offered & ~bit(rank));
  bool is_next = more;        // whether it still has a candidate of this rank
  bool is_below_same = true;  // nothing but the order has changed below it
  for (ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    auto& order = node->parent->inner->order[static_cast<std::size_t>(rank)];
    advance_order(*node, cost);
    if (node->paces()) pay(*node, cost, now);
    if (is_next && is_below_same && node->listed == bit(rank) && node->pays_at <= now) [[likely]] {
      node->standings[static_cast<std::size_t>(rank)].tag = node->tag;
      order.replace_top(node->tag, node->turn);
    } else {
      is_below_same = !place_here(*node, now);
    }
    is_next = !order.empty();
  }
}

std::pair<ShareNode*, Rank> ShareTree::borrower() const {
  if (!has_borrowers()) return {nullptr, Rank::kRegular};
  const std::size_t rank = rank_of(root_->inner->borrowers.top_key());
  ShareNode* node = root_;
  while (!node->is_leaf()) {
    const Standing* const eligible = node->inner->order[rank].peek();
    node = eligible != nullptr ? eligible->node : &node->inner->borrowers.top();
  }
  return {node, static_cast<Rank>(rank)};
}

std::uint8_t ShareTree::lend(ShareNode& leaf, Rank rank, Tokens cost, bool more, Instant now) {
  if (!more) leaf.offered = static_cast<std::uint8_t>(leaf.offered & ~bit(rank));
  unsigned borrowers = 0;
  for (ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    if (node->lacking) {
      borrowers |= 1U << (node->depth - 1U);
      node->borrowed += cost;
      std::uint64_t& time = loan_time_[node->depth];
      time = std::max(time, node->loan_tag);
      advance(node->loan_tag, weigh(cost, unit_, node->weight, node->loan_part));
      node->tag = std::max(node->tag, node->parent->inner->virtual_time);
    } else {
      advance_order(*node, cost);
      if (node->paces()) pay(*node, cost, now);
    }
    place_here(*node, now);
  }
  return static_cast<std::uint8_t>(borrowers);
}

bool ShareTree::charge_reserved(ShareNode& leaf, Tokens cost, Instant now) {
  bool is_paid = true;
  leaf.reserved += cost;
  for (ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    const std::uint64_t ahead = node->parent->inner->virtual_time + ahead_max_;
    const std::uint64_t most = std::max(node->tag, ahead);
    advance(node->tag, weigh(cost, unit_, node->weight, node->tag_part));
    node->tag = std::min(node->tag, most);
    if (node->paces()) {
      const BucketShape& shape = *node->shape;
      const Tokens debt = node->tokens.debt(shape, now);
      const Tokens room = shape.depth() - std::min(shape.depth(), debt);
      node->tokens.charge(std::min(cost, room), shape, now);
      rebalance(*node);
      is_paid = is_paid && cost <= room;
    }
    place_here(*node, now);
  }
  return is_paid;
}

void ShareTree::charge(ShareNode& leaf, Tokens cost, Instant now) {
  for (ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    if (!node->paces()) continue;
    // Tokens that have spilled so far are lent, and must not be lost.
    if (node->busy == 0) settle_spill(*node, now);
    node->tokens.charge(cost, *node->shape, now);
    rebalance(*node);
    place(*node, now);
  }
}

void ShareTree::settle(ShareNode& leaf, Tokens paid, Tokens due, std::uint8_t borrowers,
                       Instant now) {
  if (due == paid) return;
  for (ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    if ((borrowers >> (node->depth - 1U) & 1U) != 0) {
      // Loans of an earlier period are already settled and not reduced.
      node->borrowed = due > paid ? node->borrowed + (due - paid)
                                  : node->borrowed - std::min(node->borrowed, paid - due);
    } else if (node->paces()) {
      due > paid ? node->tokens.charge(due - paid, *node->shape, now)
                 : node->tokens.give_back(paid - due, *node->shape);
      rebalance(*node);
      place(*node, now);
    }
  }
}

// ---- for tests ----

bool ShareTree::is_valid(Instant now) const {
  for (const ShareNode& node : nodes_) {
    if (&node == root_ || node.parent == nullptr) continue;
    const bool occupied = node.is_leaf() ? node.offered != 0 : node.inner->occupied != 0;
    if (node.occupied != occupied || node.lacking != (occupied && node.pays_at > now)) return false;
    if (node.listed != (node.lacking ? 0 : candidates(node))) return false;
    for (std::size_t rank = 0; rank < kRanks.size(); ++rank) {
      const bool is_listed = (node.listed & bit(rank)) != 0;
      if (is_listed != node.parent->inner->order[rank].contains(node.standings[rank])) return false;
      if (is_listed && node.standings[rank].tag != node.tag) return false;
    }
    const std::optional<LoanKey> key = lending_ ? loan_key(node) : std::nullopt;
    if (key.has_value() != node.borrow_hook.is_linked()) return false;
    if (key && *key != node.loan_key) return false;
    if (node.lacking != node.wake_hook.is_linked()) return false;
    if (node.lacking && node.wakes_at != node.pays_at) return false;
  }
  return waking_.is_valid();
}

}  // namespace weir::tbf
