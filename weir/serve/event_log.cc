// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/event_log.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "weir/host/log.h"

namespace weir::serve {
namespace {

using host::LogLevel;

struct KindOfEvent {
  std::string_view name;
  LogLevel level;
};
// In the order of EventLog::Kind.
constexpr std::array<KindOfEvent, EventLog::kKinds> kKindsOfEvents = {
    {{"refusal", LogLevel::kWarning},
     {"protocol", LogLevel::kWarning},
     {"claim", LogLevel::kWarning},
     {"timeout", LogLevel::kWarning},
     {"store", LogLevel::kError},
     {"accept", LogLevel::kError},
     {"tls", LogLevel::kWarning},
     {"hung", LogLevel::kError},
     {"fault", LogLevel::kError},
     {"gateway", LogLevel::kWarning}}};

}  // namespace

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
  const std::string text_now = line(kind, text, now);
  if (text_now.empty()) return;
  const KindOfEvent& of = kKindsOfEvents[static_cast<std::size_t>(kind)];
  host::log_event({.level = of.level, .name = of.name, .text = text_now});
}

void EventLog::say(std::string_view text) { host::log_event({.text = text}); }

void EventLog::audit(std::string_view text, std::span<const host::LogField> fields) {
  host::log_event({.level = LogLevel::kInfo, .name = "audit", .text = text, .fields = fields});
}

}  // namespace weir::serve
