// SPDX-License-Identifier: Apache-2.0
//
// The tree by which a leader reaches more members than it can serve one by one. Some members are
// relays: they collect the messages of the members below them into one bundle (epoch_relay.h), and
// hand out the answers.
//
//   leader +-- member 0 (relay) +-- member 32        fan-out 32: up to 32 members are a star,
//          |                    '-- member 64        up to 1,056 have one relay on their way,
//          +-- member 1 (relay) +-- member 33        up to 33,824 two
//          ...                  '-- member 65
//
// The tree is only a shorter way. Every member keeps its own stream to the leader and uses it when
// its relay does not answer, and the leader answers the way the last message came. So a tree that
// is wrong costs time, and never an epoch. A relay is believed only about the members below it.
//
// A member that leaves is replaced by the last one, so that few members get another parent. A relay
// whose members came by themselves several times in succession, and that delivered nothing in
// between, exchanges its place with the last member.
//
// Members are numbers in the order in which they came; the leader's own member is not in the tree.
// Pure. One owner, no locks. Costs: a removal visits all members, all else is O(depth).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "weir/coordinate/round_payload.h"

namespace weir {

class EpochTree {
 public:
  static constexpr std::size_t kFanout = 32;
  // Failures in succession after which a relay is replaced. Lost messages cause single ones.
  static constexpr std::uint32_t kFailuresMax = 4;
  // A member with a relay that comes by itself this many times is told its relay again.
  static constexpr std::uint32_t kTellAgain = 16;

  struct Route {
    MemberId member = 0;
    std::optional<MemberId> parent;  // none: the leader itself
    bool operator==(const Route&) const = default;
  };

  // REQUIRES: fanout >= 1.
  explicit EpochTree(std::size_t fanout = kFanout);

  void add(MemberId member);
  void remove(MemberId member);
  bool contains(MemberId member) const { return nodes_.contains(member); }
  std::size_t size() const { return order_.size(); }
  // Relays on the longest way.
  std::size_t depth() const;
  std::optional<MemberId> parent_of(MemberId member) const;

  // Whether the leader has this message, and no answer to it yet: then it says nothing about the
  // way of the member. If the member repeats one that was answered, the answer was lost.
  enum class Copy : std::uint8_t { kFirst, kAgain };
  // A message of `member` has come on the stream of `from`. False: `from` is neither the member
  // nor above it, and the message must be ignored.
  bool came(MemberId member, MemberId from, Copy copy = Copy::kFirst);
  // The stream for its answers: its own or a relay's.
  MemberId way_to(MemberId member) const;
  // Members that must be told their parent, in the order of their numbers.
  std::vector<Route> take_changes();

 private:
  struct Place {
    std::size_t level = 0;
    std::size_t index = 0;  // within the level
  };
  struct Node {
    std::size_t position = 0;
    MemberId way = 0;
    std::uint32_t by_itself = 0;  // times in succession
    std::uint32_t failures = 0;   // as a relay
  };

  Place place_of(std::size_t position) const;
  std::optional<std::size_t> parent_position(std::size_t position) const;
  bool is_above(MemberId relay, std::size_t position) const;
  void put(MemberId member, std::size_t position);
  void exchange_with_last(std::size_t position);
  void tell(std::size_t position) { changed_.insert(order_[position]); }
  void forget_way(MemberId relay);

  std::size_t fanout_;
  std::vector<MemberId> order_;  // by position
  std::map<MemberId, Node> nodes_;
  std::set<MemberId> changed_;  // must be told
};

}  // namespace weir
