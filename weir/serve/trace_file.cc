// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/trace_file.h"

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "weir/base/quote.h"
#include "weir/host/clock.h"
#include "weir/serve/event_log.h"

namespace weir::serve {

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path, const TraceHead& head,
                                                     host::IoLoop& io) {
  host::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.is_open()) return fail_errno(errno, "trace " + quote(path));
  return std::unique_ptr<TraceFile>(new TraceFile(path, head, std::move(fd), io));
}

TraceFile::TraceFile(std::string path, const TraceHead& head, host::Fd fd, host::IoLoop& io)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      io_(io),
      writer_(head, [this](std::string block) { take(std::move(block)); }) {
  write_.file = this;
  write_.done = written;
}

TraceFile::~TraceFile() = default;

void TraceFile::turn(Instant now) {
  if (now >= flush_at_) writer_.flush();
  flush_at_ = !writer_.has_some()                       ? kNever
              : flush_at_ <= now || flush_at_ == kNever ? now + kLatency
                                                        : flush_at_;
}

void TraceFile::take(std::string block) {
  waiting_bytes_ += block.size();
  waiting_.push_back(std::move(block));
  if (waiting_bytes_ > kWaitingMax && !is_over_) {
    EventLog::say(fmt::format("trace {} stopped: the file cannot keep up", quote(path_)));
    is_over_ = true;
    writer_.end(true);  // comes here once more; what waits is still written
  }
  write_next();
}

void TraceFile::write_next() {
  if (is_writing_ || waiting_.empty()) return;
  is_writing_ = true;
  const std::string& block = waiting_.front();
  io_.write(fd_.get(), std::as_bytes(std::span(block).subspan(done_)), offset_ + done_, 0, write_,
            host::IoLoop::Copy::kHere);
}

void TraceFile::written(host::Operation& io, const host::Completion& completion) {
  TraceFile& self = *static_cast<Write&>(io).file;
  self.is_writing_ = false;
  if (completion.result <= 0) {
    const int error = completion.result == 0 ? ENOSPC : -completion.result;
    return self.give_up(std::generic_category().message(error));
  }
  self.done_ += static_cast<std::size_t>(completion.result);
  const std::size_t size = self.waiting_.front().size();
  if (self.done_ == size) {
    self.offset_ += size;
    self.done_ = 0;
    self.waiting_bytes_ -= size;
    self.waiting_.pop_front();
  }
  self.write_next();
}

// The file is left with its whole blocks.
void TraceFile::give_up(std::string_view why) {
  if (!is_over_) EventLog::say(fmt::format("trace {} stopped: {}", quote(path_), why));
  is_over_ = true;
  writer_.stop();
  waiting_.clear();
  waiting_bytes_ = 0;
  if (ftruncate(fd_.get(), static_cast<off_t>(offset_)) != 0) {
    EventLog::say(fmt::format("trace {} ends with an incomplete block", quote(path_)));
  }
}

void TraceFile::finish() {
  writer_.end(false);
  flush_at_ = kNever;
  while (is_writing_) {
    io_.wait(kNever, host::now());
    io_.reap();
  }
}

}  // namespace weir::serve
