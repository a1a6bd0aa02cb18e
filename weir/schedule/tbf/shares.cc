// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/shares.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"
#include "weir/schedule/tbf/tree_queues.h"

namespace weir::tbf {
namespace {

// Virtual time of one token of a job with one node: fine enough for thousands of nodes, since
// remainders are carried, and enough for decades at a million operations a second.
constexpr std::uint64_t kUnitsPerOp = 4096;
// The same for a few large requests, if they cost their size.
constexpr std::uint64_t kAheadBytes = std::uint64_t{8} << 20;
// Loans to the high head go before those to the regular one.
constexpr std::uint64_t kRegularLoan = std::uint64_t{1} << 63;

}  // namespace

Shares::Shares(const std::optional<Sharing>& sharing)
    : unit_(sharing && sharing->cost.kind() == Cost::Kind::kOp ? kUnitsPerOp : 1) {
  if (!sharing || sharing->levels.empty()) return;
  tree_ = std::make_unique<TreeQueues>(*sharing, unit_, ahead_max(sharing->cost));
}

Shares::~Shares() = default;

Share& Shares::of(const JobId& job) {
  auto& share = shares_[job];
  if (share == nullptr) {
    share = std::make_unique<Share>();
    share->job = job;
    share->bucket.waiters = std::make_unique<BucketWaiters>();
    share->unit = unit_;
    // Its first request moves it to its place.
    if (tree_ != nullptr) share->leaf = &tree_->tree().leaf(tree_->tree().root());
  }
  return *share;
}

Share* Shares::find(const JobId& job) const {
  const auto found = shares_.find(job);
  return found == shares_.end() ? nullptr : found->second.get();
}

void Shares::release(Share& share) {
  if (--share.queues == 0 && !share.active) forget(share);
}

void Shares::forget(Share& share) {
  if (offers_.contains(share)) offers_.erase(share);
  if (share.leaf != nullptr) tree_->tree().remove(*share.leaf);
  shares_.erase(JobId(share.job));
}

std::uint64_t Shares::weigh(const Share& share, Tokens cost, std::uint64_t& part) {
  return tbf::weigh(cost, share.unit, share.nodes, part);
}

void Shares::settle_spill(Share& share, Instant now) {
  if (!share.paces()) return;
  share.bucket.tokens.trim(*share.shape, now, share.spill);
  const Tokens spilled = share.spill.collect();
  if (share.busy != 0) return;
  // It is not collected while the device is idle, possibly for months.
  share.lent += std::min(spilled, Tokens{UINT64_MAX} - share.lent);
}

bool Shares::is_in_use(const JobId& job, Instant now) const {
  const Share* const share = find(job);
  if (share != nullptr && share->leaf != nullptr) {
    const ShareNode& leaf = *share->leaf;
    return leaf.paces() && !leaf.tokens.can_take(leaf.shape->depth(), *leaf.shape, now);
  }
  if (share == nullptr || !share->paces()) return false;
  return !share->bucket.tokens.can_take(share->shape->depth(), *share->shape, now);
}

std::uint64_t Shares::ahead_max(const Cost& cost) {
  return cost.kind() == Cost::Kind::kOp ? 8 * kUnitsPerOp : kAheadBytes;
}

bool Shares::charge_reserved(Share& share, Tokens cost, Instant now) {
  if (share.leaf != nullptr) return tree_->tree().charge_reserved(*share.leaf, cost, now);
  share.reserved += cost;
  if (!share.paces()) return false;
  const Tokens debt = share.bucket.tokens.debt(*share.shape, now);
  const Tokens most = share.shape->depth() - std::min(share.shape->depth(), debt);
  share.bucket.tokens.charge(std::min(cost, most), *share.shape, now);
  return cost <= most;
}

Shares::Change Shares::set(Share& share, std::optional<Rate> rate, Tokens depth,
                           std::uint64_t nodes, Instant now) {
  WEIR_ASSERT(nodes > 0, nodes);
  if (share.leaf != nullptr) return set_leaf(share, rate, depth, nodes, now);
  settle_spill(share, now);
  const bool was_active = share.active;
  const bool was_paced = share.paces();
  if (share.nodes != nodes) {
    share.nodes = nodes;
    share.tag_part = 0;
    share.loan_part = 0;
  }
  if (!rate) {
    share.shape.reset();
  } else {
    const BucketShape shape(*rate, depth);
    if (was_paced) {
      share.bucket.tokens.reshape(*share.shape, shape, now);
      share.spill.reshape(*share.shape, shape);
    } else {
      share.bucket.tokens = TokenBucket::full(shape, now);
      share.spill = {};
    }
    share.shape = shape;
  }
  share.active = true;
  return was_active && was_paced == share.paces() ? Change::kBalance : Change::kKind;
}

// Its place does not depend on whether it is paced.
Shares::Change Shares::set_leaf(Share& share, std::optional<Rate> rate, Tokens depth,
                                std::uint64_t nodes, Instant now) {
  share.nodes = nodes;  // orders its queues at limits that jobs share
  share.tag_part = 0;
  tree_->tree().set(*share.leaf, rate, depth, nodes, now);
  return std::exchange(share.active, true) ? Change::kBalance : Change::kKind;
}

ShareReport Shares::collect(Share& share, Instant now) {
  Tokens& borrowed = share.leaf == nullptr ? share.borrowed : share.leaf->borrowed;
  Tokens& lent = share.leaf == nullptr ? share.lent : share.leaf->lent;
  Tokens& reserved = share.leaf == nullptr ? share.reserved : share.leaf->reserved;
  if (share.leaf != nullptr) ShareTree::settle_spill(*share.leaf, now);
  return {.job = share.job,
          .borrowed = std::exchange(borrowed, Tokens{0}),
          .lent = std::exchange(lent, Tokens{0}),
          .limit = std::nullopt,
          .reserved = std::exchange(reserved, Tokens{0})};
}

Shares::Change Shares::drop(const JobId& job, Instant now) {
  Share* const share = find(job);
  if (share == nullptr || !share->active) return Change::kNone;
  share->active = false;
  if (share->leaf != nullptr) tree_->tree().drop(*share->leaf, now);
  share->shape.reset();
  share->borrowed = {};
  share->lent = {};
  share->reserved = {};
  if (share->queues > 0) return Change::kKind;
  forget(*share);
  return Change::kNone;
}

void Shares::offer_loan(Share& share) {
  share.loan_tag = std::max(share.loan_tag, virtual_);
  const bool regular = share.bucket.waiters->first->head == Head::kRegular;
  const std::uint64_t key = share.loan_tag | (regular ? kRegularLoan : 0);
  if (offers_.contains(share)) {
    offers_.update(share, key);
  } else {
    offers_.push(share, key);
  }
}

Share* Shares::next_borrower() {
  while (!offers_.empty()) {
    Share& share = offers_.top();
    if (share.paces() && share.bucket.waiters->first != nullptr) return &share;
    offers_.pop();
  }
  return nullptr;
}

void Shares::lend(Share& share, Tokens cost) {
  share.borrowed += cost;
  virtual_ = std::max(virtual_, share.loan_tag);
  advance(share.loan_tag, weigh(share, cost, share.loan_part));
}

}  // namespace weir::tbf
