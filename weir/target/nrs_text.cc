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

namespace weir {
namespace {

constexpr std::size_t kPoliciesMax = 1043;  // bytes of a write to nrs_policies
constexpr std::size_t kNameMax = 15;        // of a policy, and of its argument
constexpr std::string_view kTbf = "tbf";
constexpr std::string_view kRegularLabel = "reg_quantum:";
constexpr std::string_view kHighLabel = "hp_quantum:";
constexpr std::size_t kQuantumTextMax = 35;  // both labels with the largest values

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

// Lustre's name of the policy and of its quantum.
constexpr std::string_view kCrrn = "crrn";
constexpr std::string_view kQuantum = "quantum";
constexpr std::uint64_t kQuantumMax = 65535;

std::optional<std::uint64_t> quantum_of(const Target& target, Head head) {
  const Policy& policy = target.policy(head);
  return policy.name() == kCrrn ? policy.tunable(kQuantum) : std::nullopt;
}

tl::unexpected<Error> crrn_not_running() {
  return fail(std::errc::no_such_device, "nrs_crrn_quantum", "crrn is not running",
              "write crrn to nrs_policies first");
}

Result<std::uint16_t> parse_quantum(std::string_view digits, std::string_view text) {
  if (digits.ends_with('\n')) digits.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool whole = end == digits.data() + digits.size();
  if (error == std::errc::result_out_of_range && whole) {
    return fail(std::errc::result_out_of_range, quote(text), "quantum is beyond 64 bits",
                "give a number from 1 to 65535");
  }
  if (error != std::errc{} || !whole || value < 1 || value > kQuantumMax) {
    return refuse(text, "no quantum", "write N, reg_quantum:N or hp_quantum:N, 1 to 65535");
  }
  return static_cast<std::uint16_t>(value);
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

Result<std::string> read_nrs_crrn_quantum(const Target& target) {
  std::string text;
  const auto append = [&](Head head, std::string_view label) {
    if (const auto quantum = quantum_of(target, head)) {
      fmt::format_to(std::back_inserter(text), "{}{:<5}\n", label, *quantum);
    }
  };
  append(Head::kRegular, kRegularLabel);
  append(Head::kHigh, kHighLabel);
  if (text.empty()) return crrn_not_running();
  return text;
}

namespace {

struct QuantumCommand {
  std::vector<Head> heads;  // named heads that run crrn
  std::uint16_t quantum = 0;
};

Result<QuantumCommand> read_quantum_command(const Target& target, std::string_view text) {
  if (text.size() > kQuantumTextMax)
    return refuse(text, "too long", "write N alone for both priorities");
  std::string_view digits = text;
  bool regular = true, high = true;
  if (digits.starts_with(kRegularLabel)) {
    digits.remove_prefix(kRegularLabel.size());
    high = false;
  } else if (digits.starts_with(kHighLabel)) {
    digits.remove_prefix(kHighLabel.size());
    regular = false;
  }
  const auto quantum = parse_quantum(digits, text);
  if (!quantum) return tl::unexpected(quantum.error());
  QuantumCommand command{.heads = {}, .quantum = *quantum};
  for (const Head head : kHeads) {
    const bool is_named = head == Head::kRegular ? regular : high;
    if (is_named && quantum_of(target, head)) command.heads.push_back(head);
  }
  if (command.heads.empty()) return crrn_not_running();
  return command;
}

}  // namespace

Result<void> check_nrs_crrn_quantum(const Target& target, std::string_view text) {
  const auto command = read_quantum_command(target, text);
  if (!command) return tl::unexpected(command.error());
  return {};
}

Result<void> write_nrs_crrn_quantum(Target& target, std::string_view text, Instant now) {
  const auto command = read_quantum_command(target, text);
  if (!command) return tl::unexpected(command.error());
  for (const Head head : command->heads) {
    if (auto set = target.set_tunable(head, kQuantum, command->quantum, now); !set) return set;
  }
  return {};
}

}  // namespace weir
