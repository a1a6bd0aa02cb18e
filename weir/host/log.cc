// SPDX-License-Identifier: Apache-2.0
#include "weir/host/log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "weir/base/assert_writer.h"

namespace weir::host {
namespace {

// SIGPIPE is kept from the calling thread, whatever the process does with it.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    had_one_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutSigpipe() {
    const timespec now{};
    if (!had_one_) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool had_one_ = false;
};

bool write_all(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t wrote = write(STDERR_FILENO, text.data(), text.size());
    if (wrote > 0) {
      text.remove_prefix(static_cast<std::size_t>(wrote));
    } else if (wrote < 0 && errno == EAGAIN) {  // others may have made it so
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      if (poll(&room, 1, -1) < 0 && errno != EINTR) return false;
    } else if (wrote == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

// An assertion has failed: the process ends, now.
void write_last_words(std::string_view text) {
  const WithoutSigpipe without;
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, 0) == 1) (void)!write(STDERR_FILENO, text.data(), text.size());
}

// There is one, for ever: a thread that hangs in a write outlives everything else.
struct Queue {
  std::mutex mutex;
  std::condition_variable work;
  std::condition_variable idle;
  std::vector<std::string> texts;  // that wait
  std::size_t bytes = 0;           // of them
  std::size_t writers = 0;         // LogWriter objects
  bool is_running = false;         // the thread
  bool is_writing = false;
  std::uint64_t told = 0;  // of those that were dropped
  std::atomic<std::uint64_t> dropped{0};

  bool is_empty() const { return texts.empty() && !is_writing; }
  void add(std::string_view text);
  void run();
  void start();
  void stop();
};

Queue& queue() {
  static Queue* const it = new Queue;
  return *it;
}

// REQUIRES: the mutex is held.
void Queue::add(std::string_view text) {
  if (texts.size() >= kLogTextsMax || bytes + text.size() > kLogBytesMax) {
    ++dropped;
    return;
  }
  texts.emplace_back(text);
  bytes += text.size();
  if (texts.size() == 1) work.notify_one();
}

void Queue::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    work.wait(lock, [this] { return !texts.empty() || writers == 0; });
    if (texts.empty()) break;
    std::vector<std::string> batch = std::exchange(texts, {});
    bytes = 0;
    is_writing = true;
    const std::uint64_t lost = dropped - told;
    lock.unlock();
    std::uint64_t failed = 0;
    for (const std::string& text : batch) failed += write_all(text) ? 0 : 1;
    const bool tells = lost > 0 && failed == 0 &&
                       write_all(fmt::format("weir: {} log line{} could not be written\n", lost,
                                             lost == 1 ? "" : "s"));
    lock.lock();
    dropped += failed;
    if (tells) told += lost;
    is_writing = false;
    if (texts.empty()) idle.notify_all();
  }
  is_running = false;
  idle.notify_all();
}

void Queue::start() {
  const std::lock_guard lock(mutex);
  detail::set_assertion_writer(write_last_words);
  ++writers;
  if (is_running) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for others
  std::thread([this] { run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  is_running = true;
}

void Queue::stop() {
  std::unique_lock lock(mutex);
  if (--writers > 0) return;
  work.notify_one();
  const auto until = std::chrono::steady_clock::now() + kLogPatience;
  idle.wait_until(lock, until, [this] { return !is_running; });
  dropped += texts.size();
  texts.clear();
  bytes = 0;
}

}  // namespace

void log_text(std::string_view text) noexcept {
  Queue& all = queue();
  try {
    {
      const std::lock_guard lock(all.mutex);
      if (all.writers > 0) return all.add(text);
    }
    if (!write_stderr(text)) ++all.dropped;
  } catch (...) {  // there is no memory
    ++all.dropped;
  }
}

void flush_log() noexcept {
  Queue& all = queue();
  std::unique_lock lock(all.mutex);
  const auto until = std::chrono::steady_clock::now() + kLogPatience;
  all.idle.wait_until(lock, until, [&] { return all.is_empty(); });
}

std::uint64_t log_dropped() noexcept { return queue().dropped; }

bool write_stderr(std::string_view text) noexcept {
  const WithoutSigpipe without;
  return write_all(text);
}

LogWriter::LogWriter() { queue().start(); }
LogWriter::~LogWriter() { queue().stop(); }

}  // namespace weir::host
