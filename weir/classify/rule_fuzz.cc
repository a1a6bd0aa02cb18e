// SPDX-License-Identifier: Apache-2.0
//
// No commands may crash parsing, applying, matching or explaining; and an accepted rule that is
// listed or printed must parse to a rule with the same conditions and the same matches. The first
// byte selects the type of the policy.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/classify/rule_list.h"

namespace {

using namespace weir;

Attributes sample() {
  return {JobId("dd.500"), parse_nid("10.0.0.1@tcp").value(), 4, 500, 500, 100, 0, {}};
}

// A rule as listed, with its rate in the form that its conditions require.
void check_round_trip(const RuleCommand& command) {
  const std::size_t first = command.conds.find_first_not_of(' ');
  const bool old_form = command.conds[first] == '{';
  const std::string text =
      "start " + command.name + " " + command.conds + (old_form ? " 5" : " rate=5");
  if (text.size() > kCommandMax) return;
  const auto again = parse_command(text, command.type);
  WEIR_ASSERT(again.has_value());
  WEIR_ASSERT(again->conds == command.conds);
  WEIR_ASSERT(again->conditions.matches(sample()) == command.conditions.matches(sample()));
}

// The value is the same command, and prints as text that parses to the same value.
void check_value(const RuleCommand& command) {
  const RuleChange& change = command;
  const auto again = parse_rule(print(change));
  WEIR_ASSERT(again.has_value() && *again == change);
  const auto bound = bind(change, command.type);
  WEIR_ASSERT(bound.has_value());
  WEIR_ASSERT(bound->conditions.matches(sample()) == command.conditions.matches(sample()));
}

void run(RuleList& list, std::string_view line) {
  const auto command = parse_command(line, list.type());
  if (!command) {
    WEIR_ASSERT(command.error().where.starts_with("column "));
    return;
  }
  if (command->verb == Verb::kStart) check_round_trip(*command);
  check_value(*command);
  const bool allowed = list.check(*command).has_value();
  WEIR_ASSERT(list.apply(*command).has_value() == allowed);
  WEIR_ASSERT(list.match(sample(), 0) != nullptr);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    const Rule* rule = list.match(sample(), layer);
    const std::string name = rule == nullptr ? "-" : rule->name();
    WEIR_ASSERT(list.explain(sample(), layer).starts_with(name + "\t"));
  }
  WEIR_ASSERT(!list.listing().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  if (size == 0) return 0;
  const FieldSet types[] = {
      FieldSet::generic(), {Field::kNid}, {Field::kJobid}, {Field::kUid, Field::kOpcode}};
  RuleList list(types[bytes[0] % 4]);
  std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    run(list, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return 0;
}
