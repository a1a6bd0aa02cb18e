// SPDX-License-Identifier: Apache-2.0
//
// What a lock server must not forget: how often it was started, since fences count on it, and
// whether the last one left in order with no lock granted, which saves the grace period.
//
//   incarnation 7          the number of the last start
//   clean 0                1: nobody held a lock when it ended
//
// An empty file is a first start. One that says anything else is refused rather than guessed: a
// server that starts counting anew would give out fences that storage has seen already.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/result.h"

namespace weir::cluster {

struct LockState {
  std::uint64_t incarnation = 0;
  bool is_clean = true;

  bool operator==(const LockState&) const = default;
};

// EINVAL: neither empty nor what print() writes.
Result<LockState> parse_lock_state(std::string_view text);
std::string print_lock_state(const LockState& state);

}  // namespace weir::cluster
