// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/reserve_bound.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/rule.h"
#include "weir/classify/rule_keys.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

// Rates are added and compared as tokens of this time.
constexpr Nanoseconds kTime = std::chrono::seconds{1000};

std::uint64_t amount(const std::optional<Reserve>& reserve) {
  return reserve ? tokens_in(reserve->rate, kTime).count() : 0;
}

std::string text_of(Wide amount, bool in_bytes) {
  const auto per_second = static_cast<std::uint64_t>(amount / (kTime / std::chrono::seconds{1}));
  return in_bytes ? print_size(Bytes{per_second}) + "/s" : std::to_string(per_second);
}

// Whether tokens of a rule with this cost are those of the capacity.
bool is_in_unit_of(const Reserve& reserve, const Cost& of_rule, const Cost& of_capacity) {
  if (reserve.in_bytes) return of_capacity.kind() == Cost::Kind::kBytes;
  return of_rule == of_capacity;
}

Wide reserved_by_others(std::string_view name, std::span<const RuleList* const> lists) {
  Wide sum = 0;
  for (const RuleList* const list : lists) {
    if (list == nullptr) continue;
    for (const Rule* const rule : list->rules()) {
      // A rule of both heads is in both lists.
      const bool counts = list == lists.front() || rule->heads() == Heads::kHigh;
      const bool is_here = rule->limits().scope != Scope::kCluster;
      if (counts && is_here && rule->name() != name) sum += amount(rule->limits().reserve);
    }
  }
  return sum;
}

tl::unexpected<Error> refuse_unit(const Limits& limits, const Cost& cost) {
  const std::string hint =
      cost.kind() == Cost::Kind::kBytes ? "give bytes per second, such as reserve=10MiB/s"
      : cost.kind() == Cost::Kind::kOp  ? "give operations per second, such as reserve=500"
                                        : "give tokens of the same cost: " + cost.print();
  return fail(std::errc::invalid_argument, {},
              fmt::format("a reservation of {} is not in the unit of the capacity",
                          limits.reserve->print()),
              hint);
}

}  // namespace

Result<void> ReserveBound::check(const RuleCommand& command,
                                 std::span<const RuleList* const> lists) const {
  if (command.verb == Verb::kStop) return {};
  Limits after = with_keys({}, command.keys, command.verb);
  std::uint64_t before = 0;
  for (const RuleList* const list : lists) {
    const Rule* const rule = list == nullptr ? nullptr : list->find(command.name);
    if (rule == nullptr) continue;
    before = std::max(before, amount(rule->limits().reserve));
    if (command.verb != Verb::kChange) continue;
    after = with_keys(rule->limits(), command.keys, command.verb);
  }
  if (!after.reserve) return {};
  if (cost && !is_in_unit_of(*after.reserve, after.cost, *cost)) return refuse_unit(after, *cost);
  if (after.scope == Scope::kCluster) return {};
  const std::uint64_t wanted = amount(after.reserve);
  if (!capacity || wanted <= before) return {};
  const Wide others = reserved_by_others(command.name, lists);
  const Wide most = Wide{tokens_in(*capacity, kTime).count()} * kPermille / 1000;
  if (others + wanted <= most) return {};
  const bool in_bytes = after.reserve->in_bytes;
  return fail(
      std::errc::invalid_argument, {},
      fmt::format("a reservation of {}, and {} of other rules, are more than 90 % of the "
                  "capacity of {}, which is {}",
                  after.reserve->print(), text_of(others, in_bytes),
                  text_of(tokens_in(*capacity, kTime).count(), in_bytes), text_of(most, in_bytes)),
      "give a smaller reserve=, or reduce those of other rules");
}

}  // namespace weir
