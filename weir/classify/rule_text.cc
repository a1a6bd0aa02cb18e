// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_text.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include <fmt/format.h>

namespace weir {
namespace {

std::string_view take_word(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  return word;
}

// Whether a rank can be written behind it, and it stands in one order with all others.
bool can_be_ranked(const RuleText& rule) {
  return rule.head.empty() && !rule.has("rank") && !rule.has("");
}

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether a change command makes the one of the other: it sets keys and takes none away.
bool can_be_changed(const RuleText& from, const RuleText& to) {
  if (from.head != to.head || from.name != to.name || from.conds != to.conds ||
      from.pairs.size() != to.pairs.size()) {
    return false;
  }
  for (std::size_t i = 0; i < from.pairs.size(); ++i) {
    const auto& [key, value] = from.pairs[i];
    const auto& [key_to, value_to] = to.pairs[i];
    if (key != key_to) return false;
    if (value == value_to) continue;
    if (key == "rank" || key == "realtime") return false;
    // Tokens and bytes are two bursts.
    if (key == "burst" && is_number(value) != is_number(value_to)) return false;
  }
  return true;
}

struct WrittenRules {
  explicit WrittenRules(const std::vector<std::string>& commands) {
    for (const std::string& command : commands) {
      RuleText rule(command);
      (rule.is_start() ? starts : defaults).push_back(std::move(rule));
    }
  }
  bool are_ranked() const { return std::all_of(starts.begin(), starts.end(), can_be_ranked); }

  std::vector<RuleText> starts;
  std::vector<RuleText> defaults;
};

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// For each new rule the old one that stays in its place, or kNone. Places only grow, so what stays
// keeps its order. Without ranks nothing can be put before what stays: only a common beginning
// does.
std::vector<std::size_t> find_kept(const std::vector<RuleText>& before,
                                   const std::vector<RuleText>& after, bool ranked) {
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

std::string with_head(const RuleText& rule, std::string_view verb, std::string_view rest) {
  return fmt::format("{}{}{} {}{}{}", rule.head, rule.head.empty() ? "" : " ", verb, rule.name,
                     rest.empty() ? "" : " ", rest);
}

// Keys of default that were set and are not any more have no command that unsets them.
bool default_is_taken_back(const std::vector<RuleText>& before,
                           const std::vector<RuleText>& after) {
  for (const RuleText& old : before) {
    for (const RuleText::Pair& pair : old.pairs) {
      const bool stays = std::any_of(after.begin(), after.end(), [&](const RuleText& rule) {
        return rule.head == old.head && rule.has(pair.first);
      });
      if (!stays) return true;
    }
  }
  return false;
}

}  // namespace

RuleText::RuleText(std::string_view command) : text(command) {
  std::string_view rest = command;
  std::string_view word = take_word(rest);
  if (word == "reg" || word == "hp") {
    head = word;
    word = take_word(rest);
  }
  verb = word;
  name = take_word(rest);
  if (is_start()) {
    const std::size_t end = std::min(rest.rfind('}'), rest.size() - 1) + 1;
    conds = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  keys = rest;
  while (!rest.empty()) {
    const std::string_view pair = take_word(rest);
    const std::size_t equals = pair.find('=');
    if (pair.empty()) continue;
    pairs.push_back(equals == std::string_view::npos
                        ? Pair{{}, pair}
                        : Pair{pair.substr(0, equals), pair.substr(equals + 1)});
  }
}

Heads RuleText::heads() const {
  return head.empty() ? Heads::kBoth : head == "reg" ? Heads::kRegular : Heads::kHigh;
}

std::optional<std::string_view> RuleText::find(std::string_view key) const {
  const auto found = std::find_if(pairs.rbegin(), pairs.rend(),
                                  [&](const Pair& pair) { return pair.first == key; });
  if (found == pairs.rend()) return std::nullopt;
  return found->second;
}

std::string_view head_prefix(Heads heads) {
  return heads == Heads::kBoth ? "" : heads == Heads::kRegular ? "reg " : "hp ";
}

std::string in_full(std::string_view command, FieldSet type) {
  const RuleText rule(command);
  const std::size_t brace = rule.conds.find_first_not_of(' ');
  const bool is_old_list = brace != std::string_view::npos && rule.conds[brace] == '{';
  const bool is_old = type.size() == 1 && rule.verb != "stop" && (is_old_list || rule.has(""));
  if (!is_old) return std::string(command);
  std::string text = fmt::format("{}{} {}", head_prefix(rule.heads()), rule.verb, rule.name);
  if (rule.is_start()) {
    text += " " + (is_old_list
                       ? fmt::format("{}={}", field_name(type.first()), rule.conds.substr(brace))
                       : std::string(rule.conds));
  }
  for (const auto& [key, value] : rule.pairs) {
    text += fmt::format(" {}={}", key.empty() ? "rate" : key, value);
  }
  return text;
}

std::optional<std::vector<std::string>> rule_commands(const std::vector<std::string>& before,
                                                      const std::vector<std::string>& after) {
  const WrittenRules old(before);
  const WrittenRules now(after);
  if (default_is_taken_back(old.defaults, now.defaults)) return std::nullopt;
  const bool ranked = old.are_ranked() && now.are_ranked();
  const std::vector<std::size_t> kept = find_kept(old.starts, now.starts, ranked);
  std::vector<std::string> commands;
  commands.reserve(before.size() + after.size());
  std::vector<bool> stays(old.starts.size());
  std::size_t last_kept = 0;  // one behind it
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == kNone) continue;
    stays[kept[i]] = true;
    last_kept = i + 1;
  }
  // The newest first: a rule may have been ranked before an older one.
  for (std::size_t i = old.starts.size(); i-- > 0;) {
    if (!stays[i]) commands.push_back(with_head(old.starts[i], "stop", {}));
  }
  for (std::size_t i = 0; i < now.starts.size(); ++i) {
    const RuleText& rule = now.starts[i];
    if (kept[i] != kNone) {
      if (old.starts[kept[i]].text != rule.text) {
        commands.push_back(with_head(rule, "change", rule.keys));
      }
    } else if (i < last_kept) {
      // A rule is put first; where others stay that are newer in the file it goes behind them.
      const std::string_view older = i == 0 ? "default" : now.starts[i - 1].name;
      commands.push_back(fmt::format("{} rank={}", rule.text, older));
    } else {
      commands.emplace_back(rule.text);
    }
  }
  // Later ones may repeat a key of earlier ones, so all or none.
  const auto same_text = [](const RuleText& a, const RuleText& b) { return a.text == b.text; };
  if (!std::equal(old.defaults.begin(), old.defaults.end(), now.defaults.begin(),
                  now.defaults.end(), same_text)) {
    for (const RuleText& rule : now.defaults) commands.emplace_back(rule.text);
  }
  return commands;
}

}  // namespace weir
