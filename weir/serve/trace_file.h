// SPDX-License-Identifier: Apache-2.0
//
// The file of `weir serve --trace`: every call on every service's Target, written without delaying
// the server. Blocks of the TraceWriter are queued here; one at a time is written through the
// loop's own I/O, so the loop neither waits for the file nor copies.
//
//   Target --> TraceWriter --blocks of 64 KiB--> waiting, at most kWaitingMax --> IoLoop --> file
//
// A block that is not full goes out kLatency after its first record, so that a killed server loses
// only the last moment. When the file cannot keep up or cannot be written, the trace stops with a
// line on standard error; the server continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/io_loop.h"
#include "weir/target/recorder.h"
#include "weir/target/trace_writer.h"

namespace weir::serve {

class TraceFile {
 public:
  static constexpr std::size_t kWaitingMax = std::size_t{16} << 20;  // bytes
  static constexpr Nanoseconds kLatency = std::chrono::milliseconds{200};

  // Made anew; what was there is gone.
  static Result<std::unique_ptr<TraceFile>> create(const std::string& path, const TraceHead& head,
                                                   host::IoLoop& io);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  TargetRecorder& add_target(const TraceTarget& target) { return writer_.add_target(target); }

  // To be called at the end of each turn of the loop.
  void turn(Instant now);
  Instant wakes_at() const { return flush_at_; }
  // The last block; waits until everything is written. Nothing is recorded afterwards.
  void finish();

 private:
  struct Write : host::Operation {
    TraceFile* file = nullptr;
  };

  TraceFile(std::string path, const TraceHead& head, host::Fd fd, host::IoLoop& io);
  void take(std::string block);
  void write_next();
  static void written(host::Operation& io, const host::Completion& completion);
  void give_up(std::string_view why);

  std::string path_;
  host::Fd fd_;
  host::IoLoop& io_;
  TraceWriter writer_;
  Write write_;
  std::deque<std::string> waiting_;  // the first is with the kernel while is_writing_
  std::size_t waiting_bytes_ = 0;
  std::size_t done_ = 0;  // of the first
  std::uint64_t offset_ = 0;
  Instant flush_at_ = kNever;
  bool is_writing_ = false;
  bool is_over_ = false;
};

}  // namespace weir::serve
