// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/rule_book.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/rule_list.h"

namespace weir {
namespace {

constexpr std::string_view kDefault = "default";

Heads only(Head head) { return head == Head::kRegular ? Heads::kRegular : Heads::kHigh; }

tl::unexpected<Error> no_such_rule(std::string_view name) {
  return fail(std::errc::no_such_file_or_directory, {}, "no rule named " + quote(name),
              "list the rules");
}

// `default` is one rule on both heads, wherever it was changed.
bool is_same(const RuleBook::Entry& a, const RuleBook::Entry& b) {
  return a.name == b.name && a.conds == b.conds && a.keys == b.keys &&
         (a.is_default() || a.heads == b.heads);
}

}  // namespace

RuleChange RuleBook::Entry::change() const {
  return is_default() ? change_of(name, keys, heads) : start_of(*this);
}

RuleBook::RuleBook() {
  entries_.push_back({{.name = std::string(kDefault), .conds = "*"}, Origin::kFile});
  index();
}

RuleBook::RuleBook(const RuleBook& other) : entries_(other.entries_) { index(); }

RuleBook& RuleBook::operator=(const RuleBook& other) {
  if (this == &other) return *this;
  entries_ = other.entries_;
  index();
  return *this;
}

void RuleBook::index() {
  for (const Head head : kHeads) {
    places(head).clear();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (names(it->heads, head)) places(head).emplace(it->name, it);
    }
  }
}

const RuleBook::Entry* RuleBook::find(std::string_view name, Head head) const {
  const auto found = places(head).find(std::string(name));
  return found == places(head).end() ? nullptr : &*found->second;
}

const RuleBook::Entry* RuleBook::find(std::string_view name) const {
  const Entry* const regular = find(name, Head::kRegular);
  return regular != nullptr ? regular : find(name, Head::kHigh);
}

// ---- commands ----

Result<void> RuleBook::check(const RuleChange& change, Ranks ranks) const {
  const bool starts = change.verb == Verb::kStart;
  const auto& rank = change.keys.rank;
  for (const Head head : kHeads) {
    if (!names(change.heads, head)) continue;
    const Entry* const entry = find(change.name, head);
    if (change.verb == Verb::kStop) {
      if (change.name != kDefault) continue;
      return fail(std::errc::operation_not_permitted, {}, "'default' cannot be stopped",
                  "change its rate instead");
    }
    if (starts && entry != nullptr) {
      return fail(std::errc::file_exists, {}, "rule " + quote(change.name) + " already exists",
                  "change or stop it, or use another name");
    }
    if (!starts && entry == nullptr) return no_such_rule(change.name);
    if (starts && places(head).size() >= kRulesMax) {
      return fail(std::errc::no_space_on_device, {},
                  fmt::format("the maximum of {} rules is reached", kRulesMax), "stop some rules");
    }
    if (rank && find(*rank, head) == nullptr && ranks == Ranks::kChecked) {
      return no_such_rule(*rank);
    }
  }
  return {};
}

Result<void> RuleBook::apply(const RuleChange& change, Origin origin, Ranks ranks) {
  if (auto checked = check(change, ranks); !checked) return checked;
  switch (change.verb) {
    case Verb::kStart:
      start(change, origin);
      break;
    case Verb::kChange:
      set(change);
      break;
    case Verb::kStop:
      stop(change);
      break;
  }
  return {};
}

RuleBook::Place RuleBook::add(Place before, Entry entry) {
  const Place place = entries_.insert(before, std::move(entry));
  for (const Head head : kHeads) {
    if (names(place->heads, head)) places(head)[place->name] = place;
  }
  return place;
}

RuleBook::Place RuleBook::erase(Place place) {
  for (const Head head : kHeads) {
    if (names(place->heads, head)) places(head).erase(place->name);
  }
  return entries_.erase(place);
}

RuleBook::Place RuleBook::own(Head head, std::string_view name) {
  const Place place = places(head).at(std::string(name));
  if (place->heads != Heads::kBoth) return place;
  Entry mine = *place;
  mine.heads = only(head);
  place->heads = only(head == Head::kRegular ? Head::kHigh : Head::kRegular);
  return add(std::next(place), std::move(mine));
}

RuleBook::Place RuleBook::rank_place(const std::optional<std::string>& rank, Head head) {
  if (!rank) return entries_.end();
  const auto found = places(head).find(*rank);
  return found == places(head).end() ? entries_.end() : std::next(found->second);
}

void RuleBook::start(const RuleChange& change, Origin origin) {
  Entry entry{change, origin};
  entry.keys = {};
  merge_keys(entry.keys, change.keys, Verb::kStart);
  const auto& rank = change.keys.rank;
  const Place regular = rank_place(rank, Head::kRegular), high = rank_place(rank, Head::kHigh);
  if (entry.heads != Heads::kBoth || regular == high) {
    add(entry.heads == Heads::kHigh ? high : regular, std::move(entry));
    return;
  }
  // The rule of its rank has another position on each head.
  for (const Head head : kHeads) {
    Entry one = entry;
    one.heads = only(head);
    add(rank_place(rank, head), std::move(one));
  }
}

void RuleBook::set(const RuleChange& change) {
  const auto& rank = change.keys.rank;
  const std::string& name = change.name;
  const auto set = [&](Place place, Head head) {
    merge_keys(place->keys, change.keys, Verb::kChange);
    const bool is_moved = rank && *rank != name && find(*rank, head) != nullptr;
    if (is_moved) entries_.splice(rank_place(rank, head), entries_, place);
  };
  const bool is_whole = change.heads == Heads::kBoth &&
                        places(Head::kRegular).at(name) == places(Head::kHigh).at(name) &&
                        rank_place(rank, Head::kRegular) == rank_place(rank, Head::kHigh);
  if (is_whole) return set(places(Head::kRegular).at(name), Head::kRegular);
  for (const Head head : kHeads) {
    if (names(change.heads, head)) set(own(head, name), head);
  }
}

void RuleBook::stop(const RuleChange& change) {
  const auto is_there = [&](Head head) { return find(change.name, head) != nullptr; };
  for (const Head head : kHeads) {
    if (!names(change.heads, head) || !is_there(head)) continue;
    if (change.heads == Heads::kBoth) {
      erase(places(head).at(change.name));
    } else {
      erase(own(head, change.name));
    }
  }
}

// ---- lists ----

std::vector<const RuleBook::Entry*> RuleBook::of(Head head) const {
  std::vector<const Entry*> listed;
  for (const Entry& entry : entries_) {
    if (names(entry.heads, head)) listed.push_back(&entry);
  }
  return listed;
}

bool RuleBook::operator==(const RuleBook& other) const {
  return std::all_of(kHeads.begin(), kHeads.end(), [&](Head head) {
    const auto mine = of(head), its = other.of(head);
    return std::equal(mine.begin(), mine.end(), its.begin(), its.end(),
                      [](const Entry* a, const Entry* b) { return is_same(*a, *b); });
  });
}

RuleBook RuleBook::part(std::span<const Head> heads, Sharing sharing) const {
  if (heads.empty()) return {};
  if (heads.size() == kHeads.size() && sharing == Sharing::kTogether) return *this;
  RuleBook made;
  made.entries_.clear();
  for (const Head head : kHeads) {
    if (std::find(heads.begin(), heads.end(), head) != heads.end()) continue;
    made.entries_.push_back(RuleBook().entries_.front());
    made.entries_.back().heads = only(head);
  }
  for (const Entry& entry : entries_) {
    for (const Head head : heads) {
      if (!names(entry.heads, head)) continue;
      made.entries_.push_back(entry);
      made.entries_.back().heads = only(head);
    }
  }
  made.index();
  return made;
}

// `default` is last on a head unless it was moved: then it is directly before the next rule.
std::vector<RuleChange> RuleBook::default_ranks() const {
  std::array<const Entry*, 2> behind{};
  for (const Head head : kHeads) {
    const auto listed = of(head);
    const auto place = std::find_if(listed.begin(), listed.end(),
                                    [](const Entry* one) { return one->is_default(); });
    if (place != listed.begin() && place != listed.end()) {
      behind[static_cast<std::size_t>(head)] = *std::prev(place);
    }
  }
  const auto ranked = [](const Entry& one, Heads heads) {
    RuleKeys keys;
    keys.rank = one.name;
    return change_of(std::string(kDefault), std::move(keys), heads);
  };
  std::vector<RuleChange> changes;
  if (behind[0] == behind[1] && behind[0] != nullptr) {
    changes.push_back(ranked(*behind[0], Heads::kBoth));
    return changes;
  }
  for (const Head head : kHeads) {
    const Entry* const one = behind[static_cast<std::size_t>(head)];
    if (one != nullptr) changes.push_back(ranked(*one, only(head)));
  }
  return changes;
}

std::vector<RuleChange> RuleBook::changes() const {
  std::vector<RuleChange> changes;
  for (const Entry& entry : entries_) {
    if (!entry.is_default() || entry.keys != RuleKeys{}) changes.push_back(entry.change());
  }
  for (RuleChange& change : default_ranks()) changes.push_back(std::move(change));
  return changes;
}

std::optional<std::vector<RuleChange>> changes_between(const RuleBook& now,
                                                       const RuleBook& wanted) {
  const auto scripted = [](const RuleBook& book) {
    std::vector<RuleChange> changes = book.changes();
    changes.resize(changes.size() - book.default_ranks().size());
    return changes;
  };
  const auto makes_it = [&](const std::vector<RuleChange>& changes) {
    RuleBook tried(now);
    return std::all_of(changes.begin(), changes.end(),
                       [&](const RuleChange& change) {
                         return tried.apply(change, RuleBook::Origin::kKept).has_value();
                       }) &&
           tried == wanted;
  };
  auto changes = rule_changes(scripted(now), scripted(wanted));
  if (!changes || makes_it(*changes)) return changes;
  const auto ranks = wanted.default_ranks();
  changes->insert(changes->end(), ranks.begin(), ranks.end());
  if (makes_it(*changes)) return changes;
  // Start again from an empty list, which always works.
  changes->clear();
  for (auto entry = now.entries().rbegin(); entry != now.entries().rend(); ++entry) {
    if (!entry->is_default()) changes->push_back(stop_of(entry->name, entry->heads));
  }
  for (RuleChange& change : wanted.changes()) changes->push_back(std::move(change));
  return changes;
}

}  // namespace weir
