// SPDX-License-Identifier: Apache-2.0
#include "weir/host/log.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include "weir/base/assert_writer.h"
#include "weir/host/mailbox.h"
#include "weir/host/mutex.h"

namespace weir::host {
namespace {

// Blocks SIGPIPE in the calling thread, whatever its disposition is.
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
    } else if (wrote < 0 && errno == EAGAIN) {  // another process may have made it non-blocking
      pollfd room{STDERR_FILENO, POLLOUT, 0};
      if (poll(&room, 1, -1) < 0 && errno != EINTR) return false;
    } else if (wrote == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

// An assertion has failed: the process aborts.
void write_last_words(std::string_view text) {
  const WithoutSigpipe without;
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, 0) == 1) (void)!write(STDERR_FILENO, text.data(), text.size());
}

// A singleton that is never destroyed: a thread that hangs in a write outlives everything else.
class LogThread {
 public:
  // False: no thread is running; the caller writes itself. `event` is the same as fields, if the
  // text is one.
  bool add(std::string_view text, const LogEvent* event = nullptr);
  // False: no descriptor for a mailbox; callers write themselves.
  bool start(std::shared_ptr<const JournalSocket> journal);
  void stop();
  void flush();

  std::atomic<std::uint64_t> dropped{0};

 private:
  struct Letter {
    std::string text;
    std::string entry{};                            // the same for the journal
    std::shared_ptr<std::promise<void>> reached{};  // instead of a text
  };
  using Letters = Mailbox<Letter>;

  void run(Letters& letters);
  struct Batch {
    std::vector<Letter> letters;
    std::shared_ptr<const JournalSocket> journal;
  };
  bool next(Batch& batch);
  void write(const Batch& batch);
  // Becomes ready when everything added before has been written.
  std::future<void> reach() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Letter> take() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::uint64_t told_ = 0;  // dropped texts that were reported; used by the thread
  Mutex mutex_;
  std::unique_ptr<Letters> letters_ ABSL_GUARDED_BY(mutex_);  // never destroyed once created
  std::shared_ptr<const JournalSocket> journal_ ABSL_GUARDED_BY(mutex_);
  std::size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;    // that wait
  std::size_t writers_ ABSL_GUARDED_BY(mutex_) = 0;  // LogWriter objects
  bool is_running_ ABSL_GUARDED_BY(mutex_) = false;  // the thread
};

LogThread& log_thread() {
  static LogThread* const it = new LogThread;
  return *it;
}

std::string entry_of(const LogEvent& event) {
  std::vector<LogField> fields = {{"MESSAGE", std::string(event.text)},
                                  {"PRIORITY", std::to_string(static_cast<int>(event.level))},
                                  {"SYSLOG_IDENTIFIER", "weir"},
                                  {"WEIR_EVENT", std::string(event.name)}};
  fields.insert(fields.end(), event.fields.begin(), event.fields.end());
  return journal_entry(fields);
}

bool LogThread::add(std::string_view text, const LogEvent* event) {
  const MutexLock lock(mutex_);
  if (writers_ == 0) return false;
  Letter letter{.text = std::string(text)};
  if (event != nullptr && journal_ != nullptr) letter.entry = entry_of(*event);
  const std::size_t size = letter.text.size() + letter.entry.size();
  if (bytes_ + size > kLogBytesMax || letters_->put(std::move(letter)) != Put::kDone) {
    ++dropped;
    return true;
  }
  bytes_ += size;
  return true;
}

std::vector<LogThread::Letter> LogThread::take() {
  bytes_ = 0;
  return letters_->take();
}

std::future<void> LogThread::reach() {
  auto promise = std::make_shared<std::promise<void>>();
  std::future<void> reached = promise->get_future();
  (void)letters_->put_always({.text = {}, .entry = {}, .reached = std::move(promise)});
  return reached;
}

// False: no LogWriter is left.
bool LogThread::next(Batch& batch) {
  const MutexLock lock(mutex_);
  batch = {take(), journal_};
  if (batch.letters.empty() && writers_ == 0) is_running_ = false;
  return is_running_;
}

void LogThread::write(const Batch& batch) {
  const std::uint64_t lost = dropped - told_;
  std::uint64_t failed = 0;
  for (const Letter& letter : batch.letters) {
    if (letter.reached != nullptr) continue;
    const bool is_sent =
        !letter.entry.empty() && batch.journal != nullptr && batch.journal->send(letter.entry);
    failed += is_sent || write_all(letter.text) ? 0 : 1;
  }
  const bool tells = lost > 0 && failed == 0 &&
                     write_all(fmt::format("weir: {} log line{} could not be written\n", lost,
                                           lost == 1 ? "" : "s"));
  dropped += failed;
  if (tells) told_ += lost;
  for (const Letter& letter : batch.letters) {
    if (letter.reached != nullptr) letter.reached->set_value();
  }
}

void LogThread::run(Letters& letters) {
  for (Batch batch; next(batch);) {
    batch.letters.empty() ? letters.wait(kNever) : write(batch);
  }
}

bool LogThread::start(std::shared_ptr<const JournalSocket> journal) {
  const MutexLock lock(mutex_);
  journal_ = std::move(journal);
  detail::set_assertion_writer(write_last_words);
  if (letters_ == nullptr) {
    auto wake_fd = make_wake_fd();
    if (!wake_fd) return false;
    letters_ = std::make_unique<Letters>(*std::move(wake_fd), kLogTextsMax);
  }
  ++writers_;
  if (is_running_) return true;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for others
  std::thread([this, letters = letters_.get()] { run(*letters); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  is_running_ = true;
  return true;
}

void LogThread::stop() {
  std::future<void> reached;
  {
    const MutexLock lock(mutex_);
    if (--writers_ > 0) return;
    reached = reach();
  }
  if (reached.wait_for(kLogPatience) == std::future_status::ready) return;
  const MutexLock lock(mutex_);
  for (const Letter& letter : take()) {
    if (letter.reached == nullptr) ++dropped;
  }
}

void LogThread::flush() {
  std::future<void> reached;
  {
    const MutexLock lock(mutex_);
    if (!is_running_) return;
    reached = reach();
  }
  reached.wait_for(kLogPatience);
}

}  // namespace

void log_text(std::string_view text) noexcept {
  LogThread& log = log_thread();
  try {
    if (!log.add(text) && !write_stderr(text)) ++log.dropped;
  } catch (...) {  // out of memory
    ++log.dropped;
  }
}

void log_event(const LogEvent& event) noexcept {
  LogThread& log = log_thread();
  try {
    const std::string text = fmt::format("{}: {}\n", event.program, event.text);
    if (!log.add(text, &event) && !write_stderr(text)) ++log.dropped;
  } catch (...) {  // out of memory
    ++log.dropped;
  }
}

void flush_log() noexcept { log_thread().flush(); }

std::uint64_t log_dropped() noexcept { return log_thread().dropped; }

bool write_stderr(std::string_view text) noexcept {
  const WithoutSigpipe without;
  return write_all(text);
}

LogWriter::LogWriter()
    : is_started_(log_thread().start(is_journal(STDERR_FILENO, std::getenv("JOURNAL_STREAM"))
                                         ? std::make_shared<const JournalSocket>(kJournalPath)
                                         : nullptr)) {}
LogWriter::LogWriter(const std::string& journal)
    : is_started_(log_thread().start(std::make_shared<const JournalSocket>(journal))) {}
LogWriter::~LogWriter() {
  if (is_started_) log_thread().stop();
}

}  // namespace weir::host
