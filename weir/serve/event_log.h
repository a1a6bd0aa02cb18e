// SPDX-License-Identifier: Apache-2.0
//
// Logs events of connections and stores on standard error. The rate is limited: one line per second
// for each kind of event; the next one states how many were omitted. A server has one for its
// connections, and one for the store of each export.
//
//   log.note(EventLog::Kind::kBreak, "10.1.2.3@tcp: a request without the magic number", now);
//     weir serve: 10.1.2.3@tcp: a request without the magic number (and 41 more like it)
//
// Each kind has a level and a name, which the journal of systemd gets as fields (host/log.h). Quote
// texts from clients first. Lines are written through host/log.h, so a log that cannot be written
// delays nothing. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weir/base/time.h"
#include "weir/host/journald.h"
#include "weir/host/mutex.h"

namespace weir::serve {

class EventLog {
 public:
  enum class Kind : std::uint8_t {
    kRefusal,
    kBreak,
    kClaim,
    kTimeout,
    kStore,
    kAccept,
    kTls,
    kHung,
    kFault,
    kGateway,
  };
  static constexpr std::size_t kKinds = 10;

  // The line to write now, or empty.
  std::string line(Kind kind, std::string_view text, Instant now);
  // Writes it.
  void note(Kind kind, std::string_view text, Instant now);
  // Always written: what an operator has requested or must know.
  static void say(std::string_view text);
  // The audit log, with the values of the line as fields.
  static void audit(std::string_view text, std::span<const host::LogField> fields);

 private:
  struct State {
    Instant silent_until = Instant::min();
    std::uint64_t left_out = 0;
  };
  host::Mutex mutex_;
  std::array<State, kKinds> states_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::serve
