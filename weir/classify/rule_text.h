// SPDX-License-Identifier: Apache-2.0
//
// Rule commands as text, before it is known which type of policy they are for: cut into words, and
// compared with each other. Whether a command is valid is for parse_command() to say (command.h).
//
//   RuleText text("reg start dd jobid={dd.*} rate=100");   text.head: reg, text.name: dd, ...
//   rule_commands(before, after)                           what turns one list into the other
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/classify/attributes.h"
#include "weir/classify/command.h"

namespace weir {

// [reg|hp] VERB NAME [CONDITIONS] [KEY=VALUE ...]. All members are views of the command.
struct RuleText {
  using Pair = std::pair<std::string_view, std::string_view>;

  explicit RuleText(std::string_view command);

  Heads heads() const;
  bool is_start() const { return verb == "start"; }
  bool has(std::string_view key) const { return find(key).has_value(); }
  std::optional<std::string_view> find(std::string_view key) const;  // the last one given

  std::string_view text;
  std::string_view head;    // "", "reg" or "hp"
  std::string_view verb;    // whatever stands there
  std::string_view name;    //
  std::string_view conds;   // of a start
  std::string_view keys;    // what follows
  std::vector<Pair> pairs;  // the same; a rate without its key, as before 2.8, has an empty one
};

// "reg ", "hp " or nothing.
std::string_view head_prefix(Heads heads);

// The command without the forms of before 2.8, which mean something else under another type:
// "start a {500} 10" is "start a uid={500} rate=10" for a policy of type uid. Others stay as they
// are.
std::string in_full(std::string_view command, FieldSet type);

// The commands that turn one list of rules into the other; nothing if that takes a restart, since a
// change of default was taken back. A list has commands that start rules, oldest first, or change
// default. A rule of which only limits differ is changed, so that its classes keep their balances.
std::optional<std::vector<std::string>> rule_commands(const std::vector<std::string>& before,
                                                      const std::vector<std::string>& after);

}  // namespace weir
