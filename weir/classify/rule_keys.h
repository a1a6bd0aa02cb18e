// SPDX-License-Identifier: Apache-2.0
//
// The keys of the rule language, one row each in one table:
//
//   rate=N   name, form, example, documentation line; how it is read, printed and shown as JSON;
//            what it sets in the limits of a rule
//
// Everything that reads, prints, compares or documents a key goes through its row: commands
// (command.h), values (rule_spec.h), `weir rules --json` and --help, weir-rules(7). A new key is
// a member of RuleKeys (limits.h), a row in rule_keys.cc and an item of the manual;
// docs/extending.md has an example.
//
// Pure; the table is constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/classify/limits.h"
#include "weir/classify/mistake.h"

namespace weir {

class Rule;

enum class Verb : std::uint8_t { kStart, kChange, kStop };

struct RuleKey {
  enum class Of : std::uint8_t { kLustre, kWeir };
  // kStart: for start alone, change ignores it. kPlace: where the rule stands, nothing of its own.
  enum class Use : std::uint8_t { kAlways, kStart, kPlace };
  // Of the members of RuleKeys that the key sets.
  struct Members {
    bool (*given)(const RuleKeys& keys);
    // Sets those that `from` has.
    void (*set)(RuleKeys& keys, const RuleKeys& from);
    // Takes away those that `other` has with the same value.
    void (*drop_same)(RuleKeys& keys, const RuleKeys& other);
    // Whether all that `other` has are given.
    bool (*cover)(const RuleKeys& keys, const RuleKeys& other);
  };

  std::string_view name;
  std::string_view form;     // "rate=N"
  std::string_view example;  // a value
  std::string_view doc;      // the first sentence of its item in weir-rules(7)
  Of of;
  Use use;
  Members members;
  // Places of mistakes count from the value.
  Parsed<void> (*read)(std::string_view value, RuleKeys& keys);
  // The values that are given, each to be printed behind its own "name=".
  std::vector<std::string> (*print)(const RuleKeys& keys);
  // Members of a JSON object, such as "rate":5; nullptr: none.
  std::string (*json)(const Rule& rule);
  // What it sets in the limits of a rule; nullptr: nothing.
  void (*limit)(const RuleKeys& keys, Limits& limits);
};

// In the order of the manual, which is the order they are printed in.
std::span<const RuleKey> rule_keys();
const RuleKey* find_rule_key(std::string_view name);

// Whether no name is in it twice; checked where the table is made.
constexpr bool are_distinct(std::span<const RuleKey> keys) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (keys[i].name == keys[j].name) return false;
    }
  }
  return true;
}

// "expected rate=, rank=, ... or scope=, one blank between them"; for an unknown key with the one
// that was probably meant before it.
const std::string& rule_key_hint();
std::string rule_key_hint(std::string_view unknown);

// " rate=5 burst=9": a blank before each.
std::string print_keys(const RuleKeys& keys);
// `keys` with those of a start or change set, but for what the verb ignores and places.
void merge_keys(RuleKeys& keys, const RuleKeys& change, Verb verb);
// Whether everything that `other` gives is given by `keys`.
bool covers(const RuleKeys& keys, const RuleKeys& other);
// Whether a change command would change anything.
bool can_change(const RuleKeys& keys);
// Whether a Lustre server knows all of them.
bool are_of_lustre(const RuleKeys& keys);
// The limits of a rule once these keys are set.
Limits with_keys(Limits limits, const RuleKeys& keys, Verb verb);
// Whether each can be read back, for values that were not read from text. Places are 0.
Parsed<void> check_keys(const RuleKeys& keys);
// Members of a JSON object: all keys of a rule with their values in force.
std::string json_keys(const Rule& rule);

// A rule's name, or one to rank before: 1 to 15 letters, digits and underscores.
inline constexpr std::size_t kRuleNameMax = 15;  // bytes
Parsed<void> check_rule_name(std::string_view name);

}  // namespace weir
