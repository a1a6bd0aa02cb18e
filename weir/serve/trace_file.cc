// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/trace_file.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/serve/event_log.h"

namespace weir::serve {

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path) {
  host::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.is_open()) return fail_errno(errno, "trace " + quote(path));
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  return std::unique_ptr<TraceFile>(new TraceFile(path, std::move(fd), *std::move(wake_fd)));
}

TraceFile::TraceFile(std::string path, host::Fd fd, host::Fd wake_fd)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      blocks_(std::move(wake_fd)),
      // A server uses no random numbers, so the seed has no meaning.
      writer_({.build = "weir " WEIR_VERSION, .seed = 0},
              [this](std::string block) { take(std::move(block)); }),
      thread_([this] { run(); }) {}

TraceFile::~TraceFile() { finish(); }

void TraceFile::turn(Instant now) {
  if (has_failed_.load(std::memory_order_relaxed)) writer_.stop();
  if (now >= flush_at_) writer_.flush();
  flush_at_ = !writer_.has_some()                       ? kNever
              : flush_at_ <= now || flush_at_ == kNever ? now + kLatency
                                                        : flush_at_;
}

void TraceFile::take(std::string block) {
  waiting_bytes_ += block.size();
  const bool is_put = blocks_.put_always(std::move(block));
  WEIR_ASSERT(is_put);
  if (waiting_bytes_ <= kWaitingMax || is_late_) return;
  EventLog::say(fmt::format("trace {} stopped: the disk is too slow", quote(path_)));
  is_late_ = true;
  writer_.end(true);  // calls this once more; queued blocks are still written
}

void TraceFile::finish() {
  if (!thread_.joinable()) return;
  writer_.end(false);
  flush_at_ = kNever;
  const bool is_put = blocks_.put_always({});
  WEIR_ASSERT(is_put);
  thread_.join();
}

void TraceFile::run() {
  for (;;) {
    blocks_.wait(kNever);
    for (const std::string& block : blocks_.take()) {
      if (block.empty()) return;
      if (!has_failed_) write(block);
      waiting_bytes_ -= block.size();
    }
  }
}

void TraceFile::write(std::string_view block) {
  std::size_t done = 0;
  while (done < block.size()) {
    const ssize_t count = ::write(fd_.get(), block.data() + done, block.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return give_up(count == 0 ? ENOSPC : errno);
    done += static_cast<std::size_t>(count);
  }
  offset_ += block.size();
}

// Truncates the file to its complete blocks.
void TraceFile::give_up(int error) {
  EventLog::say(
      fmt::format("trace {} stopped: {}", quote(path_), std::generic_category().message(error)));
  has_failed_ = true;
  if (ftruncate(fd_.get(), static_cast<off_t>(offset_)) != 0) {
    EventLog::say(fmt::format("trace {} ends with an incomplete block", quote(path_)));
  }
}

}  // namespace weir::serve
