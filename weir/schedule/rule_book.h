// SPDX-License-Identifier: Apache-2.0
//
// A list of rules as values, whatever type of policy it is for: what some changes come to, and the
// changes that make the same list again. So rules outlive the policy that they were started under,
// and a list can be turned into another one.
//
//   RuleBook book;
//   book.apply(*parse_rule("start a jobid={x} rate=5"), RuleBook::Origin::kFile);
//   book.apply(*parse_rule("change a rate=6"), RuleBook::Origin::kKept);
//   book.changes()                  start a jobid={x} rate=6
//   changes_between(now, wanted)    what turns one book into the other
//
// Both heads are in one list: what a head has, in its order, are the entries that name it. A rule
// that was started for both is one entry until a command for one head parts it, just as its buckets
// are. Names, ranks and what exists are checked; conditions and values are not.
//
// Pure. O(1) a change; copies and comparisons are O(rules).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/rule_spec.h"
#include "weir/schedule/policy.h"

namespace weir {

class RuleBook {
 public:
  // Who started a rule.
  enum class Origin : std::uint8_t { kFile, kCommandLine, kKept, kTemporary };
  // What becomes of a rank= that names no rule: an error, or as if it was not there.
  enum class Ranks : std::uint8_t { kChecked, kAsFarAsTheyGo };

  // Whether a rule of both heads is one, or two of the same name.
  enum class Sharing : std::uint8_t { kTogether, kApart };

  // `default` has the conditions "*". Where an entry stands is its place in the list, not a rank.
  struct Entry : RuleSpec {
    Origin origin = Origin::kFile;

    // What starts it, or changes `default` to be so.
    RuleChange change() const;
  };
  using Entries = std::list<Entry>;

  RuleBook();  // `default` alone
  RuleBook(const RuleBook& other);
  RuleBook(RuleBook&&) = default;
  RuleBook& operator=(const RuleBook& other);
  RuleBook& operator=(RuleBook&&) = default;
  ~RuleBook() = default;

  // As RuleList::check has it: EEXIST, ENOENT, EPERM, ENOSPC.
  Result<void> check(const RuleChange& change, Ranks ranks = Ranks::kChecked) const;
  // The same, and then does it.
  Result<void> apply(const RuleChange& change, Origin origin, Ranks ranks = Ranks::kChecked);

  // Oldest first, `default` among them.
  const Entries& entries() const { return entries_; }
  // Of the head; nullptr: none.
  const Entry* find(std::string_view name, Head head) const;
  // Of any head.
  const Entry* find(std::string_view name) const;

  // What makes this of a list that has `default` alone.
  std::vector<RuleChange> changes() const;
  // That part of it which these heads have; the others have `default` alone.
  RuleBook part(std::span<const Head> heads, Sharing sharing) const;
  // Without the entries that do not pass; `default` stays.
  template <class Passes>
  void keep_if(Passes passes) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      it = it->is_default() || passes(std::as_const(*it)) ? std::next(it) : erase(it);
    }
  }

  // The same rules in the same order on both heads; origins do not count.
  bool operator==(const RuleBook& other) const;

 private:
  using Place = Entries::iterator;
  using Places = std::unordered_map<std::string, Place>;

  void index();
  Places& places(Head head) { return places_[static_cast<std::size_t>(head)]; }
  const Places& places(Head head) const { return places_[static_cast<std::size_t>(head)]; }
  Place add(Place before, Entry entry);
  Place erase(Place place);
  void start(const RuleChange& change, Origin origin);
  void set(const RuleChange& change);
  void stop(const RuleChange& change);
  // The entry of one head alone, which it is made if it was for both.
  Place own(Head head, std::string_view name);
  // Directly before (newer than) the rule of this name on the head; the end if there is none.
  Place rank_place(const std::optional<std::string>& rank, Head head);
  std::vector<RuleChange> default_ranks() const;
  std::vector<const Entry*> of(Head head) const;

  Entries entries_;
  std::array<Places, 2> places_;

  friend std::optional<std::vector<RuleChange>> changes_between(const RuleBook& now,
                                                                const RuleBook& wanted);
};

// What turns `now` into `wanted`; nothing if a change of default was taken back, which no command
// can. Where limits alone differ a rule is changed, so that its classes keep their balances.
std::optional<std::vector<RuleChange>> changes_between(const RuleBook& now, const RuleBook& wanted);

}  // namespace weir
