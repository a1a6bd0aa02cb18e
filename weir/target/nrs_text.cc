// SPDX-License-Identifier: Apache-2.0
#include "weir/target/nrs_text.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/schedule/policy_kinds.h"

namespace weir {
namespace {

constexpr std::size_t kPoliciesMax = 1043;  // bytes of a write to nrs_policies
constexpr std::size_t kNameMax = 15;        // of a policy, and of its argument
constexpr std::string_view kTbf = "tbf";

std::string_view state_name(Gate::PolicyStatus::State state) {
  switch (state) {
    case Gate::PolicyStatus::State::kStopped:
      return "stopped";
    case Gate::PolicyStatus::State::kStopping:
      return "stopping";
    case Gate::PolicyStatus::State::kStarted:
      return "started";
  }
  return {};
}

void append_head(std::string& text, const Target& target, Head head) {
  for (const Gate::PolicyStatus& policy : target.policies(head)) {
    fmt::format_to(std::back_inserter(text),
                   "  - name: {}{}{}\n    state: {}\n    fallback: {}\n"
                   "    queued: {:<20}\n    active: {:<20}\n\n",
                   policy.name, policy.argument.empty() ? "" : " ", policy.argument,
                   state_name(policy.state), policy.is_fallback ? "yes" : "no", policy.queued,
                   policy.running);
  }
}

tl::unexpected<Error> refuse(std::string_view text, std::string_view what, std::string_view hint) {
  return fail(std::errc::invalid_argument, quote(text), what, hint);
}

std::string_view take_word(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  return word;
}

// "reg " or "hp " in front of an argument, or alone.
Heads take_heads(std::string_view& rest) {
  for (const auto& [word, heads] : {std::pair{std::string_view("reg"), Heads::kRegular},
                                    {std::string_view("hp"), Heads::kHigh}}) {
    if (rest.substr(0, rest.find(' ')) != word) continue;
    take_word(rest);
    return heads;
  }
  return Heads::kBoth;
}

// A tunable of a policy, and what its texts consist of.
struct FoundTunable {
  const PolicyKind& kind;
  const Tunable& tunable;

  std::string label(Head head) const {
    return fmt::format("{}_{}:", head == Head::kRegular ? "reg" : "hp", tunable.name);
  }
  std::size_t digits() const { return fmt::formatted_size("{}", tunable.most); }
  // Of a write: both labels with the largest values, a space and the end of a line.
  std::size_t text_max() const {
    return label(Head::kRegular).size() + label(Head::kHigh).size() + 2 * digits() + 2;
  }
  std::string range() const { return fmt::format("{} to {}", tunable.least, tunable.most); }
  std::optional<std::uint64_t> value(const Target& target, Head head) const {
    const Policy& policy = target.policy(head);
    return policy.name() == kind.name ? policy.tunable(tunable.name) : std::nullopt;
  }
};

Result<FoundTunable> find(const TunableName& name) {
  const auto kind = find_policy(name.policy);
  if (!kind) return tl::unexpected(kind.error());
  const auto tunable = find_tunable(**kind, name.tunable);
  if (!tunable) return tl::unexpected(tunable.error());
  return FoundTunable{**kind, **tunable};
}

tl::unexpected<Error> not_running(const TunableName& name) {
  return fail(std::errc::no_such_device, name.leaf(), name.policy + " is not running",
              fmt::format("write {} to nrs_policies first", name.policy));
}

Result<std::uint64_t> parse_value(const FoundTunable& found, std::string_view digits,
                                  std::string_view text) {
  if (digits.ends_with('\n')) digits.remove_suffix(1);
  const Tunable& tunable = found.tunable;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = end == digits.data() + digits.size();
  if (error == std::errc::result_out_of_range && whole) {
    return fail(std::errc::result_out_of_range, quote(text), tunable.name + " is beyond 64 bits",
                "give a number from " + found.range());
  }
  if (error != std::errc{} || !whole || value < tunable.least || value > tunable.most) {
    return refuse(text, "is not a valid " + tunable.name,
                  fmt::format("write N, {}N or {}N, {}", found.label(Head::kRegular),
                              found.label(Head::kHigh), found.range()));
  }
  return value;
}

struct TunableCommand {
  std::vector<Head> heads;  // named heads that run the policy
  std::uint64_t value = 0;
};

Result<TunableCommand> read_tunable_command(const Target& target, const TunableName& name,
                                            std::string_view text) {
  const auto found = find(name);
  if (!found) return tl::unexpected(found.error());
  if (text.size() > found->text_max()) {
    return refuse(text, "too long", "write N alone for both priorities");
  }
  std::string_view digits = text;
  Heads heads = Heads::kBoth;
  for (const Head head : kHeads) {
    const std::string label = found->label(head);
    if (heads != Heads::kBoth || !digits.starts_with(label)) continue;
    digits.remove_prefix(label.size());
    heads = head == Head::kRegular ? Heads::kRegular : Heads::kHigh;
  }
  const auto value = parse_value(*found, digits, text);
  if (!value) return tl::unexpected(value.error());
  TunableCommand command{.heads = {}, .value = *value};
  for (const Head head : kHeads) {
    if (names(heads, head) && found->value(target, head)) command.heads.push_back(head);
  }
  if (command.heads.empty()) return not_running(name);
  return command;
}

}  // namespace

std::string read_nrs_policies(const Target& target) {
  std::string text = "\nregular_requests:\n";
  append_head(text, target, Head::kRegular);
  text += "high_priority_requests:\n";
  append_head(text, target, Head::kHigh);
  return text;
}

Result<void> write_nrs_policies(Target& target, std::string_view text, Instant now) {
  if (text.size() > kPoliciesMax) return refuse(text, "command is too long", "at most 1043 bytes");
  std::string_view rest = text;
  const std::string_view name = take_word(rest);
  if (name.size() > kNameMax) return refuse(text, "policy name is too long", "at most 15 bytes");
  const Heads heads = take_heads(rest);
  if (rest.size() > kNameMax) return refuse(text, "argument is too long", "at most 15 bytes");
  if (name == kTbf && rest.empty() && text.ends_with(' ')) {
    return refuse(text, "no type after the space", "omit the space for all fields");
  }
  return target.set_policy(name, rest, heads, now);
}

Result<std::string> read_nrs_tbf_rule(const Target& target) {
  const auto block = [&](Head head) {
    const RuleView* const rules = target.rules(head);
    return rules == nullptr ? "" : "CPT 0:\n" + rules->rules(head).listing();
  };
  const std::string regular = block(Head::kRegular);
  const std::string high = block(Head::kHigh);
  if (regular.empty() && high.empty()) {
    return fail(std::errc::no_such_device, "nrs_tbf_rule", "tbf is not running",
                "write tbf to nrs_policies first");
  }
  return "regular_requests:\n" + regular + "high_priority_requests:\n" + high;
}

Result<void> write_nrs_tbf_rule(Target& target, std::string_view text, Instant now) {
  return target.write_rule(text, now);
}

std::vector<TunableName> nrs_tunables() {
  std::vector<TunableName> all;
  for (const auto& kind : policy_kinds()) {
    for (const Tunable& one : kind->tunables) all.push_back({kind->name, one.name});
  }
  return all;
}

Result<std::string> read_nrs_tunable(const Target& target, const TunableName& name) {
  const auto found = find(name);
  if (!found) return tl::unexpected(found.error());
  std::string text;
  for (const Head head : kHeads) {
    if (const auto value = found->value(target, head)) {
      fmt::format_to(std::back_inserter(text), "{}{:<{}}\n", found->label(head), *value,
                     found->digits());
    }
  }
  if (text.empty()) return not_running(name);
  return text;
}

Result<void> check_nrs_tunable(const Target& target, const TunableName& name,
                               std::string_view text) {
  const auto command = read_tunable_command(target, name, text);
  if (!command) return tl::unexpected(command.error());
  return {};
}

Result<void> write_nrs_tunable(Target& target, const TunableName& name, std::string_view text,
                               Instant now) {
  const auto command = read_tunable_command(target, name, text);
  if (!command) return tl::unexpected(command.error());
  for (const Head head : command->heads) {
    if (auto set = target.set_tunable(head, name.tunable, command->value, now); !set) return set;
  }
  return {};
}

Result<void> set_tunable(Target& target, std::string_view policy, std::string_view text,
                         Instant now) {
  const std::string name(policy.substr(0, policy.find(' ')));
  const std::size_t equals = std::min(text.find('='), text.size());
  const TunableName tunable{name, std::string(text.substr(0, equals))};
  auto set =
      write_nrs_tunable(target, tunable, text.substr(std::min(equals + 1, text.size())), now);
  if (set) return set;
  Error error = set.error();
  error.code = std::errc::invalid_argument;  // an error in the options
  error.where = fmt::format("tunable {} of policy {}", quote(text), quote(name));
  return tl::unexpected(error);
}

}  // namespace weir
