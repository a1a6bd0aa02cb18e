// SPDX-License-Identifier: Apache-2.0
//
// All output to standard error. Whatever happens to it (a full disk, a pipe that is closed or not
// read, a terminal that is stopped or gone), the program continues: writing never throws, raises no
// SIGPIPE and ends nothing, and text that could not be written is counted.
//
//   log_text("weir serve: the job sizes were not changed\n");
//
// Without a LogWriter the caller writes the text itself and waits for a slow reader: right for a
// command that prints one message and ends. A server holds a LogWriter as long as it runs. Then a
// separate thread writes, and no other thread ever waits: up to kLogTextsMax texts and kLogBytesMax
// bytes are queued, further ones are dropped. When it can write again, it first reports how many
// were lost.
//
//   const LogWriter writer;    at the end it waits up to kLogPatience for queued lines
//
// Events have a level and a name, and some have fields. A LogWriter sends them to the journal with
// these fields if systemd has connected standard error to it (journald.h). Otherwise, and if the
// journal does not accept one, it is the line "PROGRAM: TEXT".
//
//   log_event({.level = LogLevel::kWarning, .name = "tls", .text = "a certificate has expired"});
//
// Thread-safe. After fork() a child that does not exec creates its own LogWriter, or calls only
// write_stderr(), which is async-signal-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weir/host/journald.h"

namespace weir::host {

inline constexpr std::size_t kLogTextsMax = 1024;
inline constexpr std::size_t kLogBytesMax = std::size_t{1} << 20;
inline constexpr std::chrono::seconds kLogPatience{1};

// The numbers are those of syslog.
enum class LogLevel : std::uint8_t { kError = 3, kWarning = 4, kNotice = 5, kInfo = 6 };

struct LogEvent {
  std::string_view program = "weir serve";
  LogLevel level = LogLevel::kNotice;
  std::string_view name = "server";  // the kind of event
  std::string_view text;             // one line
  std::span<const LogField> fields = {};
};
void log_event(const LogEvent& event) noexcept;

// One or more whole lines, each with its newline.
void log_text(std::string_view text) noexcept;
// Waits up to kLogPatience until the queue is empty.
void flush_log() noexcept;
// Texts lost since the start of the process.
std::uint64_t log_dropped() noexcept;

// Writes at once, in the calling thread: for progress on a terminal, and for the child of a fork.
// False if not all of it could be written.
bool write_stderr(std::string_view text) noexcept;

class LogWriter {
 public:
  // To the journal if standard error is connected to it.
  LogWriter();
  // Events go to the journal at this socket.
  explicit LogWriter(const std::string& journal);
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

 private:
  bool is_started_;
};

}  // namespace weir::host
