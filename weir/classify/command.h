// SPDX-License-Identifier: Apache-2.0
//
// Rule commands: the language of nrs_tbf_rule on Lustre servers, and what Weir adds to it.
//
//   [reg|hp] start NAME CONDITIONS [KEY=VALUE ...]      reg, hp: one priority only, else both
//   [reg|hp] change NAME KEY=VALUE ...
//   [reg|hp] stop NAME
//   start NAME {LIST} RATE, change NAME RATE            before 2.8; for types of a single field
//
//   start dd jobid={dd.*}&opcode={ost_write} rate=100 rank=default
//
// The keys are those of the table in rule_keys.cc. Commands that a Lustre server accepts are
// accepted; others are rejected with the same errno, with the exceptions listed in
// docs/design/rules.md. An Error names the column and what was expected there. Reading a command
// changes nothing: RuleList::apply does.
//
// This is the only parser of rule text. Other code holds the values of rule_spec.h, which bind()
// turns into commands for a list.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/attributes.h"
#include "weir/classify/conditions.h"
#include "weir/classify/rule_spec.h"

namespace weir {

// A rule change for policies of one type.
struct RuleCommand : RuleChange {
  Conditions conditions;  // of start
  FieldSet type;          // the type it was parsed for; also the key of rules without by=
};

// The id of a nodemap, or nothing if it does not exist.
using NodemapLookup = std::function<std::optional<std::uint32_t>(std::string_view name)>;

// Knows only the nodemap "default", which has id 0.
std::optional<std::uint32_t> default_nodemap_only(std::string_view name);
// Also knows these nodemaps, whose ids are their positions in the list, starting at 1.
NodemapLookup nodemaps_named(std::vector<std::string> names);

// EINVAL for every error, except ENAMETOOLONG for the name of the rule.
Result<RuleCommand> parse_command(std::string_view text, FieldSet type,
                                  const NodemapLookup& nodemaps = default_nodemap_only);
// The same from a value. Columns refer to print(change).
Result<RuleCommand> bind(const RuleChange& change, FieldSet type,
                         const NodemapLookup& nodemaps = default_nodemap_only);

// What can be determined of a command that may have errors: the heads it is for, whether it starts
// a rule, and whether it looks like a rule command at all.
struct RuleOutline {
  Heads heads = Heads::kBoth;
  bool starts = false;
  bool has_verb = false;
};
RuleOutline outline_of(std::string_view text);

}  // namespace weir
