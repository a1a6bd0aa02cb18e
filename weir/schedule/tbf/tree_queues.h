// SPDX-License-Identifier: Apache-2.0
//
// The queues of a Tbf in a tree of shares (share_tree.h): the leaf of a job offers the queues that
// are within their limits, in order of arrival for each rank.
//
//   queue.extra->above = &queues.hold(attributes, rule);   bound: the node above its job
//   queues.become_busy(queue, now);                  its job moves there, if it was elsewhere
//   queues.enter(queue, now); leave(queue, now);     its limits can pay, or it leaves its place
//   Queue* queue = queues.first(rank);
//   const bool more = queues.detach(*queue);         it runs, and does not stay first
//
// A job has one leaf. Requests of a job whose fields change move the leaf, with all its queues: the
// tree has no job twice.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/heap.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/rule.h"
#include "weir/schedule/rule_engine.h"
#include "weir/schedule/tbf/share_tree.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class TreeQueues {
 public:
  TreeQueues(const Sharing& sharing, std::uint64_t unit, std::uint64_t ahead_max);

  ShareTree& tree() { return tree_; }
  const ShareTree& tree() const { return tree_; }

  // The node above the job of requests with these attributes, to which this rule of layer 0
  // applies; it stays until release().
  ShareNode& hold(const Attributes& attributes, const Rule& rule);
  void release(ShareNode& above) { tree_.release(above); }
  // The node of a path of values below the root, or nullptr.
  ShareNode* find(std::span<const JobId> path);
  ShareNode& find_or_make(std::span<const JobId> path);

  static Rank rank_of(const Queue& queue) {
    if (queue.head == Head::kHigh) return Rank::kHigh;
    return queue.is_later() ? Rank::kLater : Rank::kRegular;
  }
  void become_busy(Queue& queue, Instant now);
  // After a queue with requests was bound: its job moves, if it belongs elsewhere.
  void follow(Queue& queue, Instant now) {
    tree_.move(*queue.extra->leaf, *queue.extra->above, now);
  }
  static void become_idle(Queue& queue, Instant now) {
    ShareTree::become_idle(*queue.extra->leaf, now);
  }

  void enter(Queue& queue, Instant now);
  void leave(Queue& queue, Instant now);
  // The queue whose turn it is, or nullptr.
  Queue* first(Rank rank) const {
    const ShareNode* const leaf = tree_.first(rank);
    return leaf == nullptr ? nullptr : leaf->first[static_cast<std::size_t>(rank)];
  }
  // Whether the first queue needs nothing but the shares, and no other queue of the job waits
  // behind it.
  bool is_alone(const ShareNode& leaf, Rank rank) const {
    return (leaf.plain >> static_cast<unsigned>(rank) & 1U) != 0 &&
           (behind_.empty() || !behind_.contains(&leaf));
  }
  // The first queue will probably run next. Inlined, since GCC drops calls of functions that do
  // nothing but prefetch.
  [[gnu::always_inline]] void prefetch_queue(Rank rank) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(first(rank));
    if (bytes == nullptr) return;
    for (std::size_t line = 0; line < sizeof(Queue); line += 64) __builtin_prefetch(bytes + line);
  }
  // Takes the first queue of its leaf out of its place, for a request of it that runs. Returns
  // whether another one takes its place: the argument `more` of ShareTree.
  bool detach(const Queue& queue);

  // When a leaf and all nodes above it pay; may be in the past.
  static Instant pays_at(const ShareNode& leaf);
  // The same after requests of this cost.
  static Instant pays_at(const ShareNode& leaf, Tokens before, Instant now);
  // Charges an exempt request of a queue.
  void charge(Queue& queue, Tokens cost, Instant now);

 private:
  using Behind = std::array<Heap<Queue, std::uint64_t, &Queue::hook>, 3>;  // by rank

  using Behinds = absl::flat_hash_map<const ShareNode*, std::unique_ptr<Behind>>;

  static void stand_first(ShareNode& leaf, std::size_t rank, Queue* queue);
  Queue* next_behind(const ShareNode& leaf, std::size_t rank);
  void forget_empty(Behinds::iterator found);

  std::vector<FieldSet> levels_;
  ShareTree tree_;
  Behinds behind_;  // of jobs with several queues
};

}  // namespace weir::tbf
