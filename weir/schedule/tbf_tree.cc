// SPDX-License-Identifier: Apache-2.0
//
// Decisions in a tree of shares. They differ from those in tbf.cc in the order of queues that can
// pay, and in loans; limits, reservations and the root are the same.
#include <algorithm>
#include <utility>

#include "weir/schedule/tbf.h"

namespace weir {
Pick Tbf::pick_in_tree(Head head, Instant now, Urge urge) {
  tbf::ShareTree& tree = shares_.tree()->tree();
  if (urge == Urge::kBorrow) {
    const Pick borrower = lend_in_tree(head, now);
    if (borrower.request != nullptr || borrower.until != kNever) return borrower;
    const Pick spare = serve_spare(head, now);
    if (spare.request != nullptr || spare.until != kNever) return spare;
    if (!tree.has_borrowers()) root_.rest();  // waiting queues wait for their own limits
    return borrower;
  }
  // A queue that could not pay may have released another one.
  for (;;) {
    run_.wake(now);
    tree.wake(now);
    Pick pick = {nullptr, kNever};
    if (head == Head::kRegular) {
      if (run_.reserves().next_at(head) <= now) pick = serve_reserved(head, now);
      if (pick.request == nullptr) pick = serve_in_tree(tbf::Rank::kRegular, now);
      if (pick.request == nullptr && tree.first(tbf::Rank::kRegular) == nullptr) {
        pick = serve_in_tree(tbf::Rank::kLater, now);
      }
    } else {
      pick = serve_in_tree(tbf::Rank::kHigh, now);
      if (pick.request == nullptr && run_.reserves().next_at(head) <= now) {
        pick = serve_reserved(head, now);
      }
    }
    if (pick.request != nullptr) return pick;
    pick.until = std::min(pick.until, run_.reserves().next_at(head));
    if (pick.until > now) return pick;
  }
}

// Serves the first queue in order that is still within its limits.
Pick Tbf::serve_in_tree(tbf::Rank rank, Instant now) {
  tbf::TreeQueues& queues = *shares_.tree();
  while (tbf::ShareNode* const leaf = queues.tree().first(rank)) {
    Queue& queue = *leaf->first[static_cast<std::size_t>(rank)];
    Request& first = queue.requests.front();
    if (const Instant at = root_ready_at(first); at > now) {
      waits_.root_refused(now, at);
      return {nullptr, at};
    }
    if (queues.is_alone(*leaf, rank)) [[likely]] {
      serve_alone(queue, first, *leaf, rank, now);
      return {&first, kNever};
    }
    // Others may have taken from a shared limit.
    if (tbf::empty_limit(queue, now) != nullptr) {
      run_.leave(queue, now);
      run_.enter(queue, now);
      continue;
    }
    pay_limits(queue, first, now);
    waits_.root_paid();
    count_all(queue, first, now);
    if (!queue.is_unlimited()) tags_.step(queue, first);
    run_.end_first(queue, now);
    leave_others(queue, now);
    const Tokens cost = options_.sharing->cost.of(first.bytes);
    queues.tree().serve(*leaf, rank, cost, queues.detach(queue), now);
    take_out(queue, first, now);
    first.policy_turn = receipt(Receipt::kShare).word();
    return {&first, kNever};
  }
  return {nullptr, std::min(run_.next_wake(), queues.tree().next_wake())};
}

// The usual case: the only queue of a job, without limits. Its next request takes the place of the
// first one.
void Tbf::serve_alone(Queue& queue, Request& first, tbf::ShareNode& leaf, tbf::Rank rank,
                      Instant now) {
  tbf::TreeQueues& queues = *shares_.tree();
  if (root_.exists()) root_.pay(root_.cost_of(first.bytes), now);
  waits_.root_paid();
  queue.limits->totals.start(first.starting(now));
  run_.end_first(queue, now);
  run_.depart(queue, now);
  const bool more = queue.requests.behind(first) != nullptr;
  queue.requests.erase(first);
  queue.part(first);
  if (!more) {
    queues.detach(queue);
    queue.place = Queue::Place::kIdle;
  }
  queues.tree().serve(leaf, rank, options_.sharing->cost.of(first.bytes), more, now);
  if (!more) become_idle(queue, now);
  queues.tree().prefetch_leaf(rank);
  first.policy_turn = receipt(Receipt::kShare).word();
}

// The queue, which is first at its leaf, leaves every other order.
void Tbf::leave_others(Queue& queue, Instant now) {
  run_.reserves().withdraw(queue, now);
  queue.place = Queue::Place::kIdle;
}

// A queue that lacks only tokens of shares runs on unused capacity.
Pick Tbf::lend_in_tree(Head head, Instant now) {
  tbf::TreeQueues& queues = *shares_.tree();
  for (;;) {
    queues.tree().wake(now);
    const auto [leaf, rank] = queues.tree().borrower();
    if (leaf == nullptr) return {};
    Queue& queue = *leaf->first[static_cast<std::size_t>(rank)];
    if (Bucket* const lacking = tbf::lacking_limit(queue, now)) {
      run_.leave(queue, now);
      run_.wait_at(*lacking, queue);
      continue;
    }
    if (queue.head != head) return {};
    Request& first = queue.requests.front();
    if (const Instant at = root_ready_at(first); at > now) return {nullptr, at};
    pay_limits(queue, first, now);
    count_all(queue, first, now);
    run_.count(queue, now);
    leave_others(queue, now);
    const bool more = queues.detach(queue);
    const Tokens cost = options_.sharing->cost.of(first.bytes);
    const std::uint8_t borrowers = queues.tree().lend(*leaf, rank, cost, more, now);
    take_out(queue, first, now);
    first.policy_turn = receipt(Receipt::kLoan).with_borrowers(borrowers).word();
    return {&first, kNever};
  }
}

// ---- shares of nodes above the jobs ----

void Tbf::set_node_share(std::span<const JobId> path, std::optional<Rate> rate, Tokens depth,
                         std::uint64_t weight, Instant now) {
  tbf::TreeQueues& queues = *shares_.tree();
  queues.tree().set(queues.find_or_make(path), rate, depth, weight, now);
}

void Tbf::drop_node_share(std::span<const JobId> path, Instant now) {
  tbf::TreeQueues& queues = *shares_.tree();
  if (tbf::ShareNode* const node = queues.find(path)) queues.tree().drop(*node, now);
}

std::vector<JobId> Tbf::path_of(const JobId& job) const {
  const Share* const share = shares_.find(job);
  return share == nullptr ? std::vector<JobId>{} : tbf::ShareTree::path_of(*share->leaf->parent);
}

void Tbf::report_nodes(Instant now, const std::function<void(const NodeReport&)>& visit) {
  shares_.tree()->tree().each(now, [&](tbf::ShareNode& node) {
    if (node.is_leaf() || !node.active) return;
    visit({tbf::ShareTree::path_of(node), std::exchange(node.borrowed, Tokens{0}),
           std::exchange(node.lent, Tokens{0})});
  });
}

}  // namespace weir
