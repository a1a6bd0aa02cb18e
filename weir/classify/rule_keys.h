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
  // kStart: only for start; change ignores it. kPlace: position of the rule, not a property of
  // its own.
  enum class Use : std::uint8_t { kAlways, kStart, kPlace };
  // Operations on the members of RuleKeys that the key sets.
  struct Members {
    bool (*given)(const RuleKeys& keys);
    // Sets those that `from` has.
    void (*set)(RuleKeys& keys, const RuleKeys& from);
    // Removes those that `other` has with the same value.
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
  // Positions of errors are relative to the value.
  Parsed<void> (*read)(std::string_view value, RuleKeys& keys);
  // The given values, each to be printed after its own "name=".
  std::vector<std::string> (*print)(const RuleKeys& keys);
  // Members of a JSON object, such as "rate":5; nullptr: none.
  std::string (*json)(const Rule& rule);
  // Sets its value in the limits of a rule; nullptr: sets nothing.
  void (*limit)(const RuleKeys& keys, Limits& limits);
};

// In the order of the manual, which is also the order of printing.
std::span<const RuleKey> rule_keys();
const RuleKey* find_rule_key(std::string_view name);

// Whether all names differ; checked at compile time.
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

// " rate=5 burst=9": a space before each.
std::string print_keys(const RuleKeys& keys);
// Sets the keys of a start or change in `keys`, except positions and keys that the verb ignores.
void merge_keys(RuleKeys& keys, const RuleKeys& change, Verb verb);
// Whether `keys` gives every key that `other` gives.
bool covers(const RuleKeys& keys, const RuleKeys& other);
// Whether a change command would change anything.
bool can_change(const RuleKeys& keys);
// Whether a Lustre server supports all of them.
bool are_of_lustre(const RuleKeys& keys);
// The limits of a rule after these keys are set.
Limits with_keys(Limits limits, const RuleKeys& keys, Verb verb);
// Whether each value can be parsed again, for values that were not parsed from text. Positions
// are 0.
Parsed<void> check_keys(const RuleKeys& keys);
// Members of a JSON object: all keys of a rule with their current values.
std::string json_keys(const Rule& rule);

// The name of a rule, also as a rank: 1 to 15 letters, digits and underscores.
inline constexpr std::size_t kRuleNameMax = 15;  // bytes
Parsed<void> check_rule_name(std::string_view name);

}  // namespace weir
