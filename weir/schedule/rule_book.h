// SPDX-License-Identifier: Apache-2.0
//
// A list of rules as values, independent of the type of the policy: the result of some changes, and
// the changes that create the same list again. So rules outlive the policy under which they were
// started, and a list can be turned into another one.
//
//   RuleBook book;
//   book.apply(*parse_rule("start a jobid={x} rate=5"), RuleBook::Origin::kFile);
//   book.apply(*parse_rule("change a rate=6"), RuleBook::Origin::kKept);
//   book.changes()                  start a jobid={x} rate=6
//   changes_between(now, wanted)    the changes from one book to the other
//
// Both heads are in one list: the rules of a head are the entries that name it, in order. A rule
// that was started for both heads is one entry until a command for one head splits it, as its
// buckets are. Names, ranks and existence are checked; conditions and values are not.
//
// Pure. O(1) per change; copies and comparisons are O(rules).
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
  // The source of a rule.
  enum class Origin : std::uint8_t { kFile, kCommandLine, kKept, kTemporary };
  // How to treat a rank= that names no rule: as an error, or as missing.
  enum class Ranks : std::uint8_t { kChecked, kAsFarAsTheyGo };

  // Whether a rule of both heads is one rule, or two of the same name.
  enum class Sharing : std::uint8_t { kTogether, kApart };

  // `default` has the conditions "*". The position of an entry is its place in the list, not
  // a rank.
  struct Entry : RuleSpec {
    Origin origin = Origin::kFile;

    // The change that starts it, or sets `default` to these limits.
    RuleChange change() const;
  };
  using Entries = std::list<Entry>;

  RuleBook();  // only `default`
  RuleBook(const RuleBook& other);
  RuleBook(RuleBook&&) = default;
  RuleBook& operator=(const RuleBook& other);
  RuleBook& operator=(RuleBook&&) = default;
  ~RuleBook() = default;

  // As RuleList::check: EEXIST, ENOENT, EPERM, ENOSPC.
  Result<void> check(const RuleChange& change, Ranks ranks = Ranks::kChecked) const;
  // Checks the change and applies it.
  Result<void> apply(const RuleChange& change, Origin origin, Ranks ranks = Ranks::kChecked);

  // Oldest first, including `default`.
  const Entries& entries() const { return entries_; }
  // The rule on this head; nullptr if there is none.
  const Entry* find(std::string_view name, Head head) const;
  // The rule on any head.
  const Entry* find(std::string_view name) const;

  // The changes that create this list from one with only `default`.
  std::vector<RuleChange> changes() const;
  // The rules of these heads; the others have only `default`.
  RuleBook part(std::span<const Head> heads, Sharing sharing) const;
  // Without the entries for which `passes` is false; `default` stays.
  template <class Passes>
  void keep_if(Passes passes) {
    for (auto it = entries_.begin(); it != entries_.end();) {
      it = it->is_default() || passes(std::as_const(*it)) ? std::next(it) : erase(it);
    }
  }

  // The same rules in the same order on both heads; sources are ignored.
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
  // The entry for one head alone; splits an entry for both.
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

// The changes that turn `now` into `wanted`; none if a change of default would have to be reverted,
// which no command can do. A rule of which only limits differ is changed, so that its classes keep
// their balances.
std::optional<std::vector<RuleChange>> changes_between(const RuleBook& now, const RuleBook& wanted);

}  // namespace weir
