// SPDX-License-Identifier: Apache-2.0
//
// Which reservations (reserve=) a device can keep: all rules together reserve at most nine tenths
// of its capacity, in the unit of the capacity. A rule that reserves more is refused.
//
// Each rule counts once, whatever the number of its classes; while more classes use their
// reservations than the capacity allows, all are scaled down (RuleEngine::set_reserve_scale). Rules
// of a cluster do not count: what a server gets of them changes with every slice.
//
// Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/classify/command.h"
#include "weir/classify/limits.h"
#include "weir/classify/rule_list.h"

namespace weir {

struct ReserveBound {
  std::optional<Rate> capacity = std::nullopt;  // none: unknown, nothing is refused for it
  std::optional<Cost> cost = std::nullopt;      // of the capacity; none: any unit

  // The part of the capacity that may be reserved, in 1/1000.
  static constexpr std::uint32_t kPermille = 900;

  // Whether the command keeps within it, given the rules of each head; nullptr: no rules. EINVAL
  // with the sum otherwise. A command that does not raise a reservation always does. REQUIRES: the
  // lists would accept the command.
  Result<void> check(const RuleCommand& command, std::span<const RuleList* const> lists) const;
};

}  // namespace weir
