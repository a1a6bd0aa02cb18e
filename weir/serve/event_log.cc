// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/event_log.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "weir/host/log.h"

namespace weir::serve {

std::string EventLog::line(Kind kind, std::string_view text, Instant now) {
  const host::MutexLock lock(mutex_);
  State& state = states_[static_cast<std::size_t>(kind)];
  if (now < state.silent_until) {
    ++state.left_out;
    return {};
  }
  state.silent_until = now + std::chrono::seconds{1};
  const std::uint64_t left_out = std::exchange(state.left_out, 0);
  if (left_out == 0) return std::string(text);
  return fmt::format("{} (and {} more like it)", text, left_out);
}

void EventLog::note(Kind kind, std::string_view text, Instant now) {
  if (const std::string text_now = line(kind, text, now); !text_now.empty()) say(text_now);
}

void EventLog::say(std::string_view text) { host::log_text(fmt::format("weir serve: {}\n", text)); }

}  // namespace weir::serve
