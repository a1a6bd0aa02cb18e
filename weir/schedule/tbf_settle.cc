// SPDX-License-Identifier: Apache-2.0
//
// Surcharges and refunds outside the decisions: requests that moved more or less than they were
// charged, requests that never started, and exempt requests. Also the expected wait, which uses the
// same sums.
#include <algorithm>

#include "weir/schedule/tbf.h"

namespace weir {

// What a request was charged, and its final charge.
struct Tbf::Settling {
  Tokens paid(const Cost& cost) const { return charged ? cost.of(*charged) : Tokens{0}; }
  Tokens due(const Cost& cost) const { return moved ? cost.of(*moved, operations) : Tokens{0}; }
  // For a bucket of bytes, which is not charged without bytes.
  Tokens paid_bytes() const { return Tokens{charged.value_or(Bytes{0}).count()}; }
  Tokens due_bytes() const { return Tokens{moved.value_or(Bytes{0}).count()}; }

  std::optional<Bytes> charged;  // none: nothing
  std::optional<Bytes> moved;
  std::uint64_t operations = 1;
  bool may_refund = true;  // its limits are those that paid
};

void Tbf::settle(const Request& request, Head head, const Outcome& outcome, Instant now) {
  settle(request, head,
         Settling{.charged = request.bytes,
                  .moved = outcome.bytes.value_or(request.bytes),
                  .operations = outcome.operations},
         now);
}

void Tbf::refund(const Request& request, Head head, Instant now) {
  settle(request, head, Settling{.charged = request.bytes, .moved = std::nullopt}, now);
}

void Tbf::settle(const Request& request, Head head, const Settling& settling, Instant now) {
  const Receipt receipt = Receipt::of(request.policy_turn);
  if (!receipt.paid(Receipt::kLimits | Receipt::kSlices)) return;
  Queue& queue = binder_.find(request.attributes, head, now);
  Settling of_limits = settling;
  of_limits.may_refund = receipt.payers() == payers_;
  settle_limits(queue, of_limits, receipt.paid(Receipt::kSlices), now);
  if (receipt.paid(Receipt::kReserve)) settle_reserve(queue, of_limits, now);
  if (receipt.paid(Receipt::kRoot) && root_.exists()) {
    root_.settle(settling.paid(root_.cost()), settling.due(root_.cost()), now);
  }
  if (!options_.sharing) return;
  const Tokens paid = settling.paid(options_.sharing->cost);
  const Tokens due = settling.due(options_.sharing->cost);
  Share& share = *queue.share();
  if (share.leaf != nullptr) {
    if (!receipt.paid(Receipt::kShare | Receipt::kLoan)) return;
    return shares_.tree()->tree().settle(*share.leaf, paid, due, receipt.borrowers(), now);
  }
  if (receipt.paid(Receipt::kShare) && share.paces()) {
    adjust(share.bucket, *share.shape, paid, due, queue, now);
  }
  if (receipt.paid(Receipt::kLoan)) {
    // Loans of an earlier period are already settled and not reduced.
    share.borrowed = due > paid ? share.borrowed + (due - paid)
                                : share.borrowed - std::min(share.borrowed, paid - due);
  }
}

void Tbf::settle_limits(Queue& queue, const Settling& settling, bool slices_only, Instant now) {
  const auto settle_one = [&](Bucket& bucket, const BucketShape& shape, Tokens paid, Tokens due) {
    if (due > paid || settling.may_refund) adjust(bucket, shape, paid, due, queue, now);
  };
  queue.each_class([&](Class& used) {
    const Shapes& shapes = used.pace->shapes;
    if (slices_only && !shapes.is_sliced) return;
    if (shapes.ops) {
      settle_one(used.main, *shapes.ops, settling.paid(shapes.cost), settling.due(shapes.cost));
    }
    if (shapes.bytes) {
      settle_one(shapes.ops ? *used.second : used.main, *shapes.bytes, settling.paid_bytes(),
                 settling.due_bytes());
    }
  });
}

void Tbf::settle_reserve(Queue& queue, const Settling& settling, Instant now) {
  const Class* const used = queue.reserving();
  if (used == nullptr) return;
  const Shapes& shapes = used->pace->shapes;
  const bool in_bytes = shapes.reserve->in_bytes;
  const Tokens paid = in_bytes ? settling.paid_bytes() : settling.paid(shapes.cost);
  const Tokens due = in_bytes ? settling.due_bytes() : settling.due(shapes.cost);
  if (due > paid || (due < paid && settling.may_refund)) {
    run_.reserves().settle(queue, paid, due, now);
  }
}

void Tbf::adjust(Bucket& bucket, const BucketShape& shape, Tokens paid, Tokens due, Queue& queue,
                 Instant now) {
  if (due == paid) return;
  if (due > paid) {
    bucket.tokens.charge(due - paid, shape, now);
  } else {
    bucket.tokens.give_back(paid - due, shape);
  }
  run_.bucket_changed(bucket, queue);
}

void Tbf::charge(const Request& request, Head head, Instant now) {
  Queue& queue = binder_.find(request.attributes, head, now);
  if (!queue.has_requests()) binder_.touch(queue);
  const Settling settling{.charged = std::nullopt, .moved = request.bytes};
  settle_limits(queue, settling, false, now);
  queue.each_class([&](Class& used) {
    ++used.totals.served;
    used.totals.bytes += request.bytes.count();
  });
  if (root_.exists()) root_.pay(root_.cost_of(request.bytes), now);
  if (!options_.sharing) return;
  const Tokens cost = options_.sharing->cost.of(request.bytes);
  Share& share = *queue.share();
  if (share.leaf != nullptr) return shares_.tree()->charge(queue, cost, now);
  if (share.paces()) {
    // Tokens that have spilled so far are lent, and must not be lost.
    if (share.busy == 0) tbf::Shares::settle_spill(share, now);
    share.bucket.tokens.charge(cost, *share.shape, now);
    run_.bucket_changed(share.bucket, queue);
  }
}

// Requests of the same tag owner run in order of arrival, so a request waits for all waiting
// requests of its class; under shares for those of its queue.
Instant Tbf::ready_at(const Request& request, Head head, Instant now) const {
  const Queue* const queue = binder_.known(request.attributes, head);
  const Backlog before = queue == nullptr ? Backlog{} : queue->waiting;
  Instant ready = now;
  const auto ask = [&](const Bucket& bucket, const BucketShape& shape, Tokens first, Tokens cost) {
    TokenBucket then = bucket.tokens;
    then.charge(first, shape, now);
    ready = std::max(ready, then.ready_at(cost, shape));
  };
  std::optional<Instant> reserved;  // when a reservation can pay
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Class* const used = binder_.class_in_force(request.attributes, head, layer);
    if (used == nullptr) {
      const Rule* const rule = rules_.match(request.attributes, head, layer);
      if (!reserved && rule != nullptr && rule->limits().reserve) reserved = now;
      continue;
    }
    if (!reserved && used->reservation != nullptr) {
      reserved = used->reservation->tokens.ready_at(used->reserve_cost(request.bytes),
                                                    used->pace->shapes.reserve->rested);
    }
    const bool is_owner = layer == 0 && used->is_lone && !options_.sharing;
    const Backlog& first = is_owner ? static_cast<const tbf::LoneClass*>(used)->waiting : before;
    const Shapes& shapes = used->pace->shapes;
    if (shapes.ops) {
      ask(used->main, *shapes.ops, first.cost(shapes.cost), shapes.cost.of(request.bytes));
    }
    if (shapes.bytes) {
      ask(shapes.ops ? *used->second : used->main, *shapes.bytes, Tokens{first.bytes},
          Tokens{request.bytes.count()});
    }
  }
  if (reserved) reserved = std::max(*reserved, ready);  // it waits for neither root nor share
  ready = std::max(ready, root_ready_at(request));
  if (options_.sharing && !options_.sharing->lending) {
    const Cost& cost = options_.sharing->cost;
    const Share* const share = shares_.find(request.attributes.job);
    if (share != nullptr && share->leaf != nullptr) {
      ready = std::max(ready, tbf::TreeQueues::pays_at(*share->leaf, before.cost(cost), now));
    } else if (share != nullptr && share->paces()) {
      ask(share->bucket, *share->shape, before.cost(cost), cost.of(request.bytes));
    }
  }
  return reserved ? std::min(*reserved, ready) : ready;
}

}  // namespace weir
