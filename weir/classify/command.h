// SPDX-License-Identifier: Apache-2.0
//
// Rule commands: the language of nrs_tbf_rule on Lustre servers, and what Weir adds to it.
//
//   [reg|hp] start NAME CONDITIONS [KEY=VALUE ...]      reg, hp: for one head only, else for both
//   [reg|hp] change NAME KEY=VALUE ...
//   [reg|hp] stop NAME
//   start NAME {LIST} RATE, change NAME RATE            before 2.8; for types of a single field
//
//   start dd jobid={dd.*}&opcode={ost_write} rate=100 rank=default
//
// Keys are rate, rank, realtime (Lustre's), bps, burst, by, layer, cost and scope (ours). What a
// Lustre server accepts is accepted, what it refuses is refused with the same errno, with the
// exceptions that docs/design/rules.md lists. An Error names the column of the mistake and what was
// expected there. Reading a command changes nothing: RuleList::apply does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/attributes.h"
#include "weir/classify/conditions.h"
#include "weir/classify/limits.h"

namespace weir {

inline constexpr std::size_t kCommandMax = 4095;  // bytes
inline constexpr std::size_t kRuleNameMax = 15;   // bytes
inline constexpr unsigned kLayers = 4;            // layer=0 ... 3

// Which heads a command is for.
enum class Heads : std::uint8_t { kBoth, kRegular, kHigh };
enum class Verb : std::uint8_t { kStart, kChange, kStop };

// Keys that were given; the others stay as they are.
struct RuleKeys {
  std::optional<std::uint32_t> rate;
  std::optional<Rate> bps;
  std::optional<Tokens> burst_ops;
  std::optional<Bytes> burst_bytes;
  std::optional<Cost> cost;
  std::optional<Scope> scope;
  std::optional<bool> realtime;  // for start only: change ignores it, as on a Lustre server
  std::optional<FieldSet> by;    // empty: by=rule
  std::optional<std::uint8_t> layer;
  std::optional<std::string> rank;  // the rule to stand directly before
};

struct RuleCommand {
  Heads heads = Heads::kBoth;
  Verb verb = Verb::kStart;
  std::string name;
  std::string conds;      // of start: as written, for the listing
  Conditions conditions;  // of start
  FieldSet type;          // what it was read for; the key of rules without by=
  RuleKeys keys;
};

// The id of a nodemap, or nothing if there is none of that name.
using NodemapLookup = std::function<std::optional<std::uint32_t>(std::string_view name)>;

// No nodemap but "default", which has id 0.
std::optional<std::uint32_t> default_nodemap_only(std::string_view name);
// Besides it these, whose ids are their places in the list, from 1.
NodemapLookup nodemaps_named(std::vector<std::string> names);

// EINVAL for whatever is wrong, except ENAMETOOLONG for a rule's own name.
Result<RuleCommand> parse_command(std::string_view text, FieldSet type,
                                  const NodemapLookup& nodemaps = default_nodemap_only);

}  // namespace weir
