// SPDX-License-Identifier: Apache-2.0
//
// The file of `weir serve --trace`: every call to the Targets of one thread, written without
// delaying that thread. Blocks of the TraceWriter go to a second thread that only writes them. The
// two share a mailbox and two numbers; no block is copied.
//
//   Target --> TraceWriter --blocks of 64 KiB--> mailbox, at most kWaitingMax --> thread --> file
//
// A block that is not full is written kLatency after its first record, so that a killed server
// loses only the last moment. If the disk is too slow or the file cannot be written, the trace
// stops with a log message; the server continues.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/mailbox.h"
#include "weir/target/recorder.h"
#include "weir/target/trace_writer.h"

namespace weir::serve {

class TraceFile {
 public:
  static constexpr std::size_t kWaitingMax = std::size_t{16} << 20;  // bytes
  static constexpr Nanoseconds kLatency = std::chrono::milliseconds{200};

  // Replaces an existing file. The error names it.
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // ---- for the thread that owns the Targets ----

  TargetRecorder& add_target(const TraceTarget& target) { return writer_.add_target(target); }
  // Call at the end of each turn of the loop.
  void turn(Instant now);
  Instant wakes_at() const { return flush_at_; }
  // Writes the last block and waits until everything is written. Nothing is recorded afterwards.
  void finish();

 private:
  TraceFile(std::string path, host::Fd fd, host::Fd wake_fd);
  void take(std::string block);

  // ---- in the thread that writes ----
  void run();
  void write(std::string_view block);
  void give_up(int error);

  const std::string path_;
  const host::Fd fd_;
  host::Mailbox<std::string> blocks_;  // an empty one ends the thread
  std::atomic<std::size_t> waiting_bytes_ = 0;
  std::atomic<bool> has_failed_ = false;
  std::uint64_t offset_ = 0;  // of the writing thread: end of the last complete block
  TraceWriter writer_;
  Instant flush_at_ = kNever;
  bool is_late_ = false;  // the disk was too slow
  std::thread thread_;
};

}  // namespace weir::serve
