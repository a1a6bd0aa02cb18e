// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/tree_queues.h"

#include <algorithm>
#include <utility>

#include "weir/classify/share_level.h"

namespace weir::tbf {

TreeQueues::TreeQueues(const Sharing& sharing, std::uint64_t unit, std::uint64_t ahead_max)
    : levels_(sharing.levels), tree_(sharing.levels.size(), unit, ahead_max, sharing.lending) {}

ShareNode& TreeQueues::hold(const Attributes& attributes, const Rule& rule) {
  ShareNode* node = &tree_.root();
  for (const FieldSet level : levels_) {
    node = &tree_.inner(*node, node_name(level, attributes, rule.name()));
  }
  tree_.hold(*node);
  return *node;
}

ShareNode* TreeQueues::find(std::span<const JobId> path) {
  ShareNode* node = &tree_.root();
  for (const JobId& value : path) {
    node = tree_.find(*node, value);
    if (node == nullptr) return nullptr;
  }
  return node;
}

ShareNode& TreeQueues::find_or_make(std::span<const JobId> path) {
  ShareNode* node = &tree_.root();
  for (const JobId& value : path) node = &tree_.inner(*node, value);
  return *node;
}

void TreeQueues::become_busy(Queue& queue, Instant now) {
  ShareNode& leaf = *queue.extra->leaf;
  tree_.move(leaf, *queue.extra->above, now);  // usually it is there
  ShareTree::become_busy(leaf, now);
}

void TreeQueues::stand_first(ShareNode& leaf, std::size_t rank, Queue* queue) {
  leaf.first[rank] = queue;
  const bool is_plain = queue != nullptr && queue->is_unlimited() && queue->reserving() == nullptr;
  const unsigned bit = 1U << rank;
  leaf.plain = static_cast<std::uint8_t>(is_plain ? leaf.plain | bit : leaf.plain & ~bit);
}

void TreeQueues::enter(Queue& queue, Instant now) {
  queue.place = Queue::Place::kTree;
  ShareNode& leaf = *queue.extra->leaf;
  const auto rank = static_cast<std::size_t>(rank_of(queue));
  Queue* const first = leaf.first[rank];
  if (first == nullptr) {
    stand_first(leaf, rank, &queue);
    return tree_.offer(leaf, static_cast<Rank>(rank), now);
  }
  Queue* behind = &queue;
  if (queue.turn() < first->turn()) {
    behind = first;
    stand_first(leaf, rank, &queue);
  }
  auto& others = behind_[&leaf];
  if (others == nullptr) others = std::make_unique<Behind>();
  (*others)[rank].push(*behind, behind->turn());
}

// Removes and returns the queue that is behind the first one; nullptr if there is none.
Queue* TreeQueues::next_behind(const ShareNode& leaf, std::size_t rank) {
  if (behind_.empty()) [[likely]]
    return nullptr;
  const auto found = behind_.find(&leaf);
  if (found == behind_.end() || (*found->second)[rank].empty()) return nullptr;
  Queue& next = (*found->second)[rank].pop();
  forget_empty(found);
  return &next;
}

void TreeQueues::forget_empty(Behinds::iterator found) {
  for (const auto& heap : *found->second) {
    if (!heap.empty()) return;
  }
  behind_.erase(found);
}

void TreeQueues::leave(Queue& queue, Instant now) {
  ShareNode& leaf = *queue.extra->leaf;
  const auto rank = static_cast<std::size_t>(rank_of(queue));
  if (leaf.first[rank] != &queue) {
    const auto found = behind_.find(&leaf);
    (*found->second)[rank].erase(queue);
    return forget_empty(found);
  }
  stand_first(leaf, rank, next_behind(leaf, rank));
  if (leaf.first[rank] == nullptr) tree_.withdraw(leaf, static_cast<Rank>(rank), now);
}

bool TreeQueues::detach(const Queue& queue) {
  ShareNode& leaf = *queue.extra->leaf;
  const auto rank = static_cast<std::size_t>(rank_of(queue));
  stand_first(leaf, rank, next_behind(leaf, rank));
  return leaf.first[rank] != nullptr;
}

Instant TreeQueues::pays_at(const ShareNode& leaf) {
  Instant at = Instant::min();
  for (const ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    at = std::max(at, node->pays_at);
  }
  return at;
}

Instant TreeQueues::pays_at(const ShareNode& leaf, Tokens before, Instant now) {
  Instant at = Instant::min();
  for (const ShareNode* node = &leaf; !node->is_root(); node = node->parent) {
    if (!node->paces()) continue;
    TokenBucket then = node->tokens;
    then.charge(before, *node->shape, now);
    at = std::max(at, then.ready_at(Tokens{1}, *node->shape));
  }
  return at;
}

void TreeQueues::charge(Queue& queue, Tokens cost, Instant now) {
  ShareNode& leaf = *queue.extra->leaf;
  if (leaf.busy == 0) tree_.move(leaf, *queue.extra->above, now);
  tree_.charge(leaf, cost, now);
}

}  // namespace weir::tbf
