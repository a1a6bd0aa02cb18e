// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_state.h"

#include <charconv>

#include <fmt/format.h>

#include "weir/lock/lock_table.h"

namespace weir::cluster {

Result<LockState> parse_lock_state(std::string_view text) {
  LockState state;
  if (text.empty()) return state;
  constexpr std::string_view kKey = "incarnation ";
  if (text.starts_with(kKey)) {
    const std::string_view number = text.substr(kKey.size());
    std::from_chars(number.data(), number.data() + number.size(), state.incarnation);
    for (const bool is_clean : {false, true}) {
      state.is_clean = is_clean;
      const bool counts = state.incarnation > 0 && state.incarnation <= lock::kIncarnationMax;
      if (counts && text == print_lock_state(state)) return state;
    }
  }
  return fail(std::errc::invalid_argument, {}, "does not hold the state of a lock server",
              "name another file; a damaged one needs a number above the last: incarnation N");
}

std::string print_lock_state(const LockState& state) {
  return fmt::format("incarnation {}\nclean {}\n", state.incarnation, state.is_clean ? 1 : 0);
}

}  // namespace weir::cluster
