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
  return fail(std::errc::no_such_file_or_directory, {}, "there is no rule " + quote(name),
              "list the rules");
}

// Sets what the command sets. Lustre ignores realtime= of a change.
void set_keys(RuleBook::Entry& entry, const RuleText& text) {
  for (auto [key, value] : text.pairs) {
    if (key == "rank" || (key == "realtime" && !text.is_start())) continue;
    if (value.ends_with('\n')) value.remove_suffix(1);
    if (key.empty()) key = "rate";
    const bool is_bytes = value.find_first_not_of("0123456789") != std::string_view::npos;
    std::string sets = key == "burst" && is_bytes ? "burst_bytes" : std::string(key);
    std::string written = fmt::format("{}={}", key, value);
    const auto place = std::lower_bound(
        entry.keys.begin(), entry.keys.end(), sets,
        [](const auto& one, const std::string& wanted) { return one.first < wanted; });
    if (place != entry.keys.end() && place->first == sets) {
      place->second = std::move(written);
    } else {
      entry.keys.emplace(place, std::move(sets), std::move(written));
    }
  }
}

// `default` counts as one on both heads, wherever it was changed.
bool is_same(const RuleBook::Entry& a, const RuleBook::Entry& b) {
  return a.name == b.name && a.conds == b.conds && a.keys == b.keys &&
         (a.is_default() || a.heads == b.heads);
}

}  // namespace

std::string RuleBook::Entry::command() const {
  std::string text(head_prefix(heads));
  text += is_default() ? "change default" : fmt::format("start {} {}", name, conds);
  for (const auto& key : keys) text += " " + key.second;
  return text;
}

RuleBook::RuleBook() {
  entries_.push_back({.heads = Heads::kBoth,
                      .name = std::string(kDefault),
                      .conds = "*",
                      .keys = {},
                      .origin = Origin::kFile});
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

Result<void> RuleBook::check(std::string_view command, Ranks ranks) const {
  const RuleText text(command);
  const bool starts = text.is_start();
  if (!starts && text.verb != "change" && text.verb != "stop") {
    return fail(std::errc::invalid_argument, quote(command), "is no rule command");
  }
  const auto rank = text.find("rank");
  for (const Head head : kHeads) {
    if (!names(text.heads(), head)) continue;
    const Entry* const entry = find(text.name, head);
    if (text.verb == "stop") {
      if (text.name != kDefault) continue;
      return fail(std::errc::operation_not_permitted, {}, "'default' cannot be stopped",
                  "change its rate instead");
    }
    if (starts && entry != nullptr) {
      return fail(std::errc::file_exists, {}, "there is a rule " + quote(text.name) + " already",
                  "change or stop it, or use another name");
    }
    if (!starts && entry == nullptr) return no_such_rule(text.name);
    if (starts && places(head).size() >= kRulesMax) {
      return fail(std::errc::no_space_on_device, {},
                  fmt::format("there are {} rules, the most there can be", kRulesMax), "stop some");
    }
    if (rank && find(*rank, head) == nullptr && ranks == Ranks::kChecked) {
      return no_such_rule(*rank);
    }
  }
  return {};
}

Result<void> RuleBook::apply(std::string_view command, Origin origin, Ranks ranks) {
  if (auto checked = check(command, ranks); !checked) return checked;
  const RuleText text(command);
  if (text.is_start()) {
    start(text, origin);
  } else if (text.verb == "change") {
    change(text);
  } else {
    stop(text);
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

RuleBook::Place RuleBook::rank_place(std::optional<std::string_view> rank, Head head) {
  if (!rank) return entries_.end();
  const auto found = places(head).find(std::string(*rank));
  return found == places(head).end() ? entries_.end() : std::next(found->second);
}

void RuleBook::start(const RuleText& text, Origin origin) {
  Entry entry{.heads = text.heads(),
              .name = std::string(text.name),
              .conds = std::string(text.conds),
              .keys = {},
              .origin = origin};
  set_keys(entry, text);
  const auto rank = text.find("rank");
  const Place regular = rank_place(rank, Head::kRegular), high = rank_place(rank, Head::kHigh);
  if (entry.heads != Heads::kBoth || regular == high) {
    add(entry.heads == Heads::kHigh ? high : regular, std::move(entry));
    return;
  }
  // The rule it is to stand before has another place on each head.
  for (const Head head : kHeads) {
    Entry one = entry;
    one.heads = only(head);
    add(rank_place(rank, head), std::move(one));
  }
}

void RuleBook::change(const RuleText& text) {
  const auto rank = text.find("rank");
  const std::string name(text.name);
  const auto set = [&](Place place, Head head) {
    set_keys(*place, text);
    const bool is_moved = rank && *rank != name && find(*rank, head) != nullptr;
    if (is_moved) entries_.splice(rank_place(rank, head), entries_, place);
  };
  const bool is_whole = text.heads() == Heads::kBoth &&
                        places(Head::kRegular).at(name) == places(Head::kHigh).at(name) &&
                        rank_place(rank, Head::kRegular) == rank_place(rank, Head::kHigh);
  if (is_whole) return set(places(Head::kRegular).at(name), Head::kRegular);
  for (const Head head : kHeads) {
    if (names(text.heads(), head)) set(own(head, name), head);
  }
}

void RuleBook::stop(const RuleText& text) {
  const auto is_there = [&](Head head) { return find(text.name, head) != nullptr; };
  for (const Head head : kHeads) {
    if (!names(text.heads(), head) || !is_there(head)) continue;
    if (text.heads() == Heads::kBoth) {
      erase(places(head).at(std::string(text.name)));
    } else {
      erase(own(head, text.name));
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

// `default` stands last on a head unless it was moved: then directly before the rule behind it.
std::vector<std::string> RuleBook::default_ranks() const {
  std::array<const Entry*, 2> behind{};
  for (const Head head : kHeads) {
    const auto listed = of(head);
    const auto place = std::find_if(listed.begin(), listed.end(),
                                    [](const Entry* one) { return one->is_default(); });
    if (place != listed.begin() && place != listed.end()) {
      behind[static_cast<std::size_t>(head)] = *std::prev(place);
    }
  }
  std::vector<std::string> commands;
  if (behind[0] == behind[1] && behind[0] != nullptr) {
    commands.push_back("change default rank=" + behind[0]->name);
    return commands;
  }
  for (const Head head : kHeads) {
    const Entry* const one = behind[static_cast<std::size_t>(head)];
    if (one == nullptr) continue;
    commands.push_back(fmt::format("{}change default rank={}", head_prefix(only(head)), one->name));
  }
  return commands;
}

std::vector<std::string> RuleBook::commands() const {
  std::vector<std::string> commands;
  for (const Entry& entry : entries_) {
    if (!entry.is_default() || !entry.keys.empty()) commands.push_back(entry.command());
  }
  for (std::string& command : default_ranks()) commands.push_back(std::move(command));
  return commands;
}

std::optional<std::vector<std::string>> commands_between(const RuleBook& now,
                                                         const RuleBook& wanted) {
  const auto scripted = [](const RuleBook& book) {
    std::vector<std::string> commands = book.commands();
    const auto ranks = static_cast<std::ptrdiff_t>(book.default_ranks().size());
    commands.erase(commands.end() - ranks, commands.end());
    return commands;
  };
  const auto makes_it = [&](const std::vector<std::string>& commands) {
    RuleBook tried(now);
    return std::all_of(commands.begin(), commands.end(),
                       [&](const std::string& command) {
                         return tried.apply(command, RuleBook::Origin::kKept).has_value();
                       }) &&
           tried == wanted;
  };
  auto commands = rule_commands(scripted(now), scripted(wanted));
  if (!commands || makes_it(*commands)) return commands;
  const auto ranks = wanted.default_ranks();
  commands->insert(commands->end(), ranks.begin(), ranks.end());
  if (makes_it(*commands)) return commands;
  // All anew, which always does.
  commands->clear();
  for (auto entry = now.entries().rbegin(); entry != now.entries().rend(); ++entry) {
    if (!entry->is_default()) {
      commands->push_back(fmt::format("{}stop {}", head_prefix(entry->heads), entry->name));
    }
  }
  for (std::string& command : wanted.commands()) commands->push_back(std::move(command));
  return commands;
}

}  // namespace weir
