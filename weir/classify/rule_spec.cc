// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_spec.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir {
namespace {

std::string_view verb_text(Verb verb) {
  return verb == Verb::kStart ? "start" : verb == Verb::kChange ? "change" : "stop";
}

// The change that turns one rule into the other, if there is one: it sets keys and removes none.
std::optional<RuleChange> change_between(const RuleSpec& from, const RuleSpec& to) {
  const bool same_rule = from.heads == to.heads && from.name == to.name && from.conds == to.conds &&
                         from.is_old_form == to.is_old_form;
  if (!same_rule || !covers(to.keys, from.keys)) return std::nullopt;
  RuleChange change = change_of(to.name, to.keys, to.heads);
  change.is_old_form = to.is_old_form;
  for (const RuleKey& key : rule_keys()) key.members.drop_same(change.keys, from.keys);
  RuleKeys reached = from.keys;
  merge_keys(reached, change.keys, Verb::kChange);
  if (reached != to.keys) return std::nullopt;
  return change;
}

// ---- lists ----

// Whether it can have a rank, and is in one order with all others.
bool can_be_ranked(const RuleChange& start) {
  return start.heads == Heads::kBoth && !start.keys.rank && !start.is_old_form;
}

// Whether its classes can continue with other limits. A rule that gains or loses a limit is
// started again.
bool can_be_changed(const RuleChange& from, const RuleChange& to) {
  return covers(from.keys, to.keys) && change_between(from, to).has_value();
}

struct RuleTable {
  explicit RuleTable(const std::vector<RuleChange>& changes) {
    for (const RuleChange& one : changes) {
      (one.verb == Verb::kStart ? starts : defaults).push_back(one);
    }
  }
  bool are_ranked() const { return std::all_of(starts.begin(), starts.end(), can_be_ranked); }

  std::vector<RuleChange> starts;
  std::vector<RuleChange> defaults;
};

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// For each new rule the old one that stays in its place, or kNone. Positions increase, so the
// order is kept. Without ranks nothing can be inserted before a rule that stays: only a common
// prefix does.
std::vector<std::size_t> find_kept(const std::vector<RuleChange>& before,
                                   const std::vector<RuleChange>& after, bool ranked) {
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < before.size(); ++i) places.emplace(before[i].name, i);
  std::vector<std::size_t> kept(after.size(), kNone);
  std::size_t next = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    std::size_t place = next;
    if (ranked) {
      const auto found = places.find(after[i].name);
      place = found == places.end() ? before.size() : found->second;
    }
    if (place < before.size() && place >= next && can_be_changed(before[place], after[i])) {
      kept[i] = place;
      next = place + 1;
    } else if (!ranked) {
      break;
    }
  }
  return kept;
}

// No command can unset keys of default.
bool default_is_taken_back(const std::vector<RuleChange>& before,
                           const std::vector<RuleChange>& after) {
  return std::any_of(before.begin(), before.end(), [&](const RuleChange& old) {
    RuleKeys set;
    for (const RuleChange& one : after) {
      if (one.heads != old.heads) continue;
      for (const RuleKey& key : rule_keys()) key.members.set(set, one.keys);
    }
    return !covers(set, old.keys);
  });
}

}  // namespace

// ---- changes ----

RuleChange start_of(RuleSpec rule) { return {std::move(rule), Verb::kStart}; }

RuleChange change_of(std::string name, RuleKeys keys, Heads heads) {
  return {{.heads = heads, .name = std::move(name), .keys = std::move(keys)}, Verb::kChange};
}

RuleChange stop_of(std::string name, Heads heads) {
  return {{.heads = heads, .name = std::move(name)}, Verb::kStop};
}

std::string_view head_prefix(Heads heads) {
  return heads == Heads::kBoth ? "" : heads == Heads::kRegular ? "reg " : "hp ";
}

std::string print(const RuleChange& change) {
  std::string text =
      fmt::format("{}{} {}", head_prefix(change.heads), verb_text(change.verb), change.name);
  if (change.verb == Verb::kStart) text += " " + change.conds;
  if (!change.is_old_form) return text + print_keys(change.keys);
  return fmt::format("{} {}", text, change.keys.rate.value_or(kDefaultRate));
}

std::vector<std::string> print_all(const std::vector<RuleChange>& changes) {
  std::vector<std::string> texts;
  texts.reserve(changes.size());
  for (const RuleChange& change : changes) texts.push_back(print(change));
  return texts;
}

RuleOrText read_or_keep(std::string text, std::size_t size_max) {
  if (text.size() > size_max) return text;
  if (auto change = parse_rule(text)) return *std::move(change);
  return text;
}

Result<RuleChange> rule_or_error(const RuleOrText& command) {
  const RuleChange* const change = change_in(command);
  return change != nullptr ? *change : parse_rule(std::get<std::string>(command));
}

std::string print(const RuleOrText& command) {
  const RuleChange* const change = change_in(command);
  return change != nullptr ? print(*change) : std::get<std::string>(command);
}

std::string conds_for_job(std::string_view job) {
  return fmt::format("{}={{{}}}", field_name(Field::kJobid), job);
}

std::string conds_for_all_jobs() { return conds_for_job("*"); }

std::optional<std::string_view> job_in_conds(std::string_view conds) {
  const std::string_view field = field_name(Field::kJobid);
  if (conds.starts_with(field) && conds.substr(field.size()).starts_with('=')) {
    conds.remove_prefix(field.size() + 1);
  }
  if (conds.size() < 3 || conds.front() != '{' || conds.back() != '}') return std::nullopt;
  return conds.substr(1, conds.size() - 2);
}

Error name_rule(Error error, std::string_view text) {
  error.where =
      fmt::format("rule {}{}{}", quote(text), error.where.empty() ? "" : ", ", error.where);
  return error;
}

RuleChange in_full(RuleChange change, FieldSet type) {
  if (!change.is_old_form || type.size() != 1) return change;
  change.is_old_form = false;
  const std::size_t brace = std::min(change.conds.find_first_not_of(' '), change.conds.size());
  if (change.verb == Verb::kStart) {
    change.conds = fmt::format("{}={}", field_name(type.first()), change.conds.substr(brace));
  }
  return change;
}

// ---- two rules ----

std::vector<RuleChange> diff(const std::optional<RuleSpec>& from,
                             const std::optional<RuleSpec>& to) {
  if (from == to) return {};
  if (from && to) {
    if (auto change = change_between(*from, *to)) return {*std::move(change)};
  }
  std::vector<RuleChange> changes;
  if (from) changes.push_back(stop_of(from->name, from->heads));
  if (to) changes.push_back(start_of(*to));
  return changes;
}

Result<std::optional<RuleSpec>> merge(std::optional<RuleSpec> rule, const RuleChange& change) {
  const bool starts = change.verb == Verb::kStart;
  if (starts && rule) {
    return fail(std::errc::file_exists, {}, "rule " + quote(rule->name) + " already exists",
                "change or stop it, or use another name");
  }
  if (starts) {
    RuleSpec started = change;
    started.keys = {};
    merge_keys(started.keys, change.keys, Verb::kStart);
    return std::optional(std::move(started));
  }
  if (rule && (rule->name != change.name || rule->heads != change.heads)) {
    return fail(std::errc::invalid_argument, quote(print(change)),
                "does not apply to the rule " + quote(rule->name));
  }
  if (change.verb == Verb::kStop) return std::optional<RuleSpec>();
  if (!rule) {
    return fail(std::errc::no_such_file_or_directory, {}, "no rule named " + quote(change.name),
                "list the rules");
  }
  merge_keys(rule->keys, change.keys, Verb::kChange);
  return rule;
}

// ---- two lists ----

std::optional<std::vector<RuleChange>> rule_changes(const std::vector<RuleChange>& before,
                                                    const std::vector<RuleChange>& after) {
  const RuleTable old(before);
  const RuleTable now(after);
  if (default_is_taken_back(old.defaults, now.defaults)) return std::nullopt;
  const bool ranked = old.are_ranked() && now.are_ranked();
  const std::vector<std::size_t> kept = find_kept(old.starts, now.starts, ranked);
  std::vector<RuleChange> changes;
  changes.reserve(before.size() + after.size());
  std::vector<bool> stays(old.starts.size());
  std::size_t last_kept = 0;  // one past it
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == kNone) continue;
    stays[kept[i]] = true;
    last_kept = i + 1;
  }
  // Newest first: a rule may have been ranked before an older one.
  for (std::size_t i = old.starts.size(); i-- > 0;) {
    if (!stays[i]) changes.push_back(stop_of(old.starts[i].name, old.starts[i].heads));
  }
  for (std::size_t i = 0; i < now.starts.size(); ++i) {
    const RuleChange& rule = now.starts[i];
    if (kept[i] != kNone) {
      if (old.starts[kept[i]] != rule) {
        changes.push_back(*change_between(old.starts[kept[i]], rule));
      }
      continue;
    }
    changes.push_back(rule);
    // A rule is put first; if newer rules of the file stay, it is ranked after them.
    if (i < last_kept) changes.back().keys.rank = i == 0 ? "default" : now.starts[i - 1].name;
  }
  // Later ones may repeat a key of earlier ones, so apply all or none.
  if (old.defaults != now.defaults) {
    changes.insert(changes.end(), now.defaults.begin(), now.defaults.end());
  }
  return changes;
}

}  // namespace weir
