// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_tree.h"

#include <utility>

#include "weir/base/assert.h"

namespace weir {

EpochTree::EpochTree(std::size_t fanout) : fanout_(fanout) { WEIR_ASSERT(fanout >= 1, fanout); }

// Level n has fanout^(n + 1) places.
EpochTree::Place EpochTree::place_of(std::size_t position) const {
  Place place{.level = 0, .index = position};
  for (std::size_t size = fanout_; place.index >= size; size *= fanout_) {
    place.index -= size;
    ++place.level;
  }
  return place;
}

// The members of a level are distributed evenly over those of the level above.
std::optional<std::size_t> EpochTree::parent_position(std::size_t position) const {
  std::size_t begin = 0;  // of the level above
  std::size_t size = fanout_;
  if (position < size) return std::nullopt;
  while (position >= begin + size + size * fanout_) {
    begin += size;
    size *= fanout_;
  }
  return begin + (position - begin - size) % size;
}

std::size_t EpochTree::depth() const {
  return order_.empty() ? 0 : place_of(order_.size() - 1).level;
}

std::optional<MemberId> EpochTree::parent_of(MemberId member) const {
  const auto found = nodes_.find(member);
  if (found == nodes_.end()) return std::nullopt;
  const auto parent = parent_position(found->second.position);
  if (!parent) return std::nullopt;
  return order_[*parent];
}

bool EpochTree::is_above(MemberId relay, std::size_t position) const {
  for (auto up = parent_position(position); up; up = parent_position(*up)) {
    if (order_[*up] == relay) return true;
  }
  return false;
}

void EpochTree::add(MemberId member) {
  const auto [found, is_new] = nodes_.try_emplace(member);
  if (!is_new) return;
  found->second = {.position = order_.size(), .way = member};
  order_.push_back(member);
  if (parent_position(found->second.position)) tell(found->second.position);
}

// Places a member, and tells it and the members below it.
void EpochTree::put(MemberId member, std::size_t position) {
  order_[position] = member;
  Node& node = nodes_.at(member);
  node.position = position;
  node.failures = 0;
  node.by_itself = 0;
  tell(position);
  const Place place = place_of(position);
  const std::size_t level_begin = position - place.index;
  std::size_t level_size = fanout_;
  for (std::size_t i = 0; i < place.level; ++i) level_size *= fanout_;
  for (std::size_t i = 0; i < fanout_; ++i) {
    const std::size_t child = level_begin + level_size + place.index + i * level_size;
    if (child >= order_.size()) break;
    tell(child);
  }
}

// Members that were reached by this relay are reached by their own streams.
void EpochTree::forget_way(MemberId relay) {
  for (auto& [id, node] : nodes_) {
    if (node.way == relay) node.way = id;
  }
}

void EpochTree::remove(MemberId member) {
  const auto found = nodes_.find(member);
  if (found == nodes_.end()) return;
  const std::size_t position = found->second.position;
  forget_way(member);
  nodes_.erase(found);
  const MemberId last = order_.back();
  order_.pop_back();
  if (last != member) {
    forget_way(last);
    put(last, position);
  }
  changed_.erase(member);
}

void EpochTree::exchange_with_last(std::size_t position) {
  const std::size_t last = order_.size() - 1;
  if (position == last) return;
  const MemberId relay = order_[position];
  const MemberId other = order_[last];
  forget_way(relay);
  forget_way(other);
  order_[last] = relay;
  nodes_.at(relay).position = last;
  put(other, position);
  put(relay, last);
}

bool EpochTree::came(MemberId member, MemberId from, Copy copy) {
  const auto found = nodes_.find(member);
  if (found == nodes_.end()) return member == from;
  Node& node = found->second;
  if (member != from && !is_above(from, node.position)) {
    tell(node.position);
    return false;
  }
  if (copy == Copy::kAgain) return true;
  const bool has_failed = std::exchange(node.way, from) != member && member == from;
  const auto parent = parent_position(node.position);
  if (!parent) return true;
  Node& relay = nodes_.at(order_[*parent]);
  if (member != from) {
    node.by_itself = 0;
    relay.failures = 0;
    return true;
  }
  if (++node.by_itself % kTellAgain == 0) tell(node.position);
  if (has_failed && ++relay.failures >= kFailuresMax) exchange_with_last(*parent);
  return true;
}

MemberId EpochTree::way_to(MemberId member) const {
  const auto found = nodes_.find(member);
  return found == nodes_.end() ? member : found->second.way;
}

std::vector<EpochTree::Route> EpochTree::take_changes() {
  std::vector<Route> changes;
  changes.reserve(changed_.size());
  for (const MemberId member : changed_) changes.push_back({member, parent_of(member)});
  changed_.clear();
  return changes;
}

}  // namespace weir
