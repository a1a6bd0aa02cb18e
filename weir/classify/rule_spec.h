// SPDX-License-Identifier: Apache-2.0
//
// Rules and changes of rules, as values. Text is parsed once on input (parse_rule(), command.h) and
// printed on output; all code in between passes these values:
//
//   RuleSpec     a whole rule: priorities, name, conditions, keys
//   RuleChange   start, change or stop of one
//
//   parse_rule("change dd rate=5")      text -> change
//   print(change)                       change -> text, which reads back as the same change
//   diff(a, b)                          two rules -> the changes that lead from one to the other
//   merge(a, change)                    rule and change -> rule;  all of diff(a, b): b
//   rule_changes(before, after)         the same for whole lists
//
// None of it depends on the type of a policy. Conditions are therefore kept as written; bind()
// (command.h) converts them to the form that a policy matches requests with. The position of a rule
// (rank=) is part of a change, not of the rule.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weir/base/result.h"
#include "weir/classify/attributes.h"
#include "weir/classify/limits.h"
#include "weir/classify/rule_keys.h"

namespace weir {

inline constexpr std::size_t kCommandMax = 4095;  // bytes
// The longest result of print() for a command of that length: a burst of 1.5GiB is printed as
// 1536MiB. One bandwidth and two bursts grow by less than this.
inline constexpr std::size_t kPrintedMax = kCommandMax + 128;

// Which heads a command is for.
enum class Heads : std::uint8_t { kBoth, kRegular, kHigh };

struct RuleSpec {
  Heads heads = Heads::kBoth;
  std::string name = {};
  std::string conds = {};  // as written; "*" for `default`, nothing in changes and stops
  // Written as before 2.8, "{LIST} RATE": what it means depends on the type of the policy.
  bool is_old_form = false;
  RuleKeys keys = {};

  bool is_default() const { return conds == "*"; }
  bool operator==(const RuleSpec&) const = default;
};

struct RuleChange : RuleSpec {
  Verb verb = Verb::kStart;

  bool operator==(const RuleChange&) const = default;
};

// The change that starts, changes or stops a rule.
RuleChange start_of(RuleSpec rule);
RuleChange change_of(std::string name, RuleKeys keys, Heads heads = Heads::kBoth);
RuleChange stop_of(std::string name, Heads heads = Heads::kBoth);

// As parse_command() (command.h) for a policy with all fields and any nodemap. bind() checks what
// depends on the type, such as the items of an old list.
Result<RuleChange> parse_rule(std::string_view text);
std::string print(const RuleChange& change);
std::vector<std::string> print_all(const std::vector<RuleChange>& changes);

// A command from outside, read once: the change that it means, or its text if it cannot be read.
// Journals may contain such text, for example of a newer version; it is kept, and reported when
// it would be applied.
using RuleOrText = std::variant<RuleChange, std::string>;
// Text that is longer than this cannot be read either.
RuleOrText read_or_keep(std::string text, std::size_t size_max = kPrintedMax);
// The change; nullptr if it could not be read.
inline const RuleChange* change_in(const RuleOrText& command) {
  return std::get_if<RuleChange>(&command);
}
// The change, or why it could not be read.
Result<RuleChange> rule_or_error(const RuleOrText& command);
std::string print(const RuleOrText& command);

// Conditions of rules that are not read from text. REQUIRES: the job has none of ,&{}* and blanks.
std::string conds_for_job(std::string_view job);
std::string conds_for_all_jobs();
// The job, if these are conditions for just one: "jobid={a}", or "{a}" as lists of one field show
// it. Nothing is said about the characters of the job.
std::optional<std::string_view> job_in_conds(std::string_view conds);

// An error of a rule, with its text: "rule 'start a ...', column 9: ...".
Error name_rule(Error error, std::string_view text);

// "reg ", "hp " or nothing.
std::string_view head_prefix(Heads heads);

// Replaces the forms from before 2.8, whose meaning depends on the type: "start a {500} 10" is
// "start a uid={500} rate=10" for a policy of type uid. Other forms are unchanged.
RuleChange in_full(RuleChange change, FieldSet type);

// The changes that turn one rule into the other; none stands for no rule. A single change if that
// is enough, which keeps the balances of its classes; otherwise a stop and a start.
std::vector<RuleChange> diff(const std::optional<RuleSpec>& from,
                             const std::optional<RuleSpec>& to);
// EEXIST: start of an existing rule. ENOENT: change of a rule that does not exist. EINVAL: the
// change is for another rule.
Result<std::optional<RuleSpec>> merge(std::optional<RuleSpec> rule, const RuleChange& change);

// The changes that turn one list of rules into the other; none if a restart is needed, because a
// change of default was reverted. A list has starts, oldest first, and changes of default. A rule
// of which only limits differ is changed, so that its classes keep their balances.
std::optional<std::vector<RuleChange>> rule_changes(const std::vector<RuleChange>& before,
                                                    const std::vector<RuleChange>& after);

}  // namespace weir
