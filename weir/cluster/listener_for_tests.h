// SPDX-License-Identifier: Apache-2.0
//
// A listener of a Membership for tests: a server that is alone, may lead and accepts every rule.
// What a test wants to know it sets itself:
//
//   Membership::Listener listener = alone_listener();
//   listener.heard = [&](const MembershipView& view) { ... };
#pragma once

#include <string>
#include <string_view>

#include "weir/cluster/membership.h"

namespace weir::cluster {

inline Membership::Listener alone_listener() {
  return {.heard = [](const MembershipView&) {},
          .confirmed = [](Instant) {},
          .deposed = [] {},
          .may_lead = [] { return true; },
          .connected = [] { return Membership::Connected{}; },
          .is_led = [] { return false; },
          .check = [](const std::string&, const RuleChange&) -> Result<void> { return {}; },
          .say = [](std::string_view) {},
          .unheard = [](const Error&) {}};
}

}  // namespace weir::cluster
