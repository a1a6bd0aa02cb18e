// SPDX-License-Identifier: Apache-2.0
//
// weir lock run: runs a command only while a lock is held. The command has its own process group,
// so that all of it can be terminated, and dies with this process (PR_SET_PDEATHSIG): otherwise it
// would continue without the lock if this process is killed.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/weir/command.h"
#include "apps/weir/lock.h"
#include "weir/base/quote.h"
#include "weir/host/clock.h"
#include "weir/host/mailbox.h"
#include "weir/host/signals.h"

namespace weir::app {
namespace {

using namespace std::chrono_literals;
using Kind = lock::LockClient::Event::Kind;

constexpr int kNotFound = 127;  // as shells have it
constexpr int kCannotRun = 126;
constexpr int kSignalled = 128;
// For a try: time to wait for an answer, and for a server that cannot be reached, which may
// be restarting.
constexpr Nanoseconds kTryPatience = 10s;
constexpr Nanoseconds kReachPatience = 2s;
constexpr Nanoseconds kComplainAfter = 2s;
constexpr Nanoseconds kLookAgain = 20ms;
// Time for the client to check its lease after a stopped process continues.
constexpr Nanoseconds kWakeUp = 200ms;

// Events of the lock, and a descriptor to wait for them.
class LockEvents : public lock::Listener {
 public:
  LockEvents() : events_(value_or_fail(host::make_wake_fd(), Exit::kIoErr, "")) {}

  void lock_event(const lock::LockClient::Event& event) override {
    (void)events_.put_always(event);  // two at most: held or refused, and lost
  }
  int fd() const { return events_.fd(); }
  void clear() const { events_.clear(); }
  // The last event, if any.
  std::optional<lock::LockClient::Event> read() {
    for (const lock::LockClient::Event& event : events_.take()) last_ = event;
    return last_;
  }

 private:
  host::Mailbox<lock::LockClient::Event> events_;
  std::optional<lock::LockClient::Event> last_;
};

class Runner {
 public:
  explicit Runner(const LockRun& run)
      : run_(run),
        signals_(value_or_fail(host::SignalFd::create({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}),
                               Exit::kIoErr, "")),
        client_(value_or_fail(lock::Client::create(run.connect), Exit::kUsage, "")) {}

  int run();

 private:
  std::optional<int> acquire();
  bool wait(Instant until);
  std::optional<int> give_up(int status, const std::string& why);
  std::string trouble() const;
  void complain();
  int supervise();
  void start();
  void end_command(int signal) const;
  void stop_too();
  bool reap(int& status);

  const LockRun& run_;
  host::SignalFd signals_;
  std::unique_ptr<lock::Client> client_;
  LockEvents news_;
  lock::Client::Ticket ticket_ = 0;
  std::uint64_t fence_ = 0;
  pid_t child_ = 0;
  bool has_terminal_ = false;
  bool has_complained_ = false;
};

// Waits for a signal, an event or the time. Returns whether there was a signal or an event.
bool Runner::wait(Instant until) {
  pollfd waits[] = {{signals_.fd(), POLLIN, 0}, {news_.fd(), POLLIN, 0}};
  const Nanoseconds left = std::max(until - host::now(), Nanoseconds{0});
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  const int ready = poll(waits, 2, until == kNever ? -1 : static_cast<int>(std::min(ms, 1L << 30)));
  if (ready > 0 && (waits[1].revents & POLLIN) != 0) news_.clear();
  return ready > 0;
}

std::optional<int> Runner::give_up(int status, const std::string& why) {
  client_->release(ticket_);
  if (!why.empty()) print_error("weir lock: {}\n", why);
  return status;
}

std::string Runner::trouble() const {
  const std::string why = client_->status().trouble;
  return fmt::format("{} does not answer{}{}", run_.connect.server, why.empty() ? "" : ": ", why);
}

void Runner::complain() {
  if (has_complained_ || client_->status().is_connected) return;
  has_complained_ = true;
  print_error("weir lock: {}; trying again\n", trouble());
}

// Waits until the lock is held. Returns an exit status if that fails.
std::optional<int> Runner::acquire() {
  const Instant begin = host::now();
  const auto got = client_->acquire(
      run_.resource, run_.mode,
      run_.only_try ? lock::Client::OrWait::kTry : lock::Client::OrWait::kWait, news_);
  ticket_ = got.ticket;
  fence_ = got.fence;
  if (got.is_held) return std::nullopt;
  const Instant until = run_.timeout    ? begin + *run_.timeout
                        : run_.only_try ? begin + kTryPatience
                                        : kNever;
  for (;;) {
    if (const auto event = news_.read()) {
      fence_ = event->fence;
      if (event->kind == Kind::kHeld) return std::nullopt;
      const bool is_lost = event->kind == Kind::kLost;
      if (!is_lost && event->why == lock::Refusal::kWouldWait) {
        return give_up(run_.conflict_status, "");
      }
      return give_up(static_cast<int>(Exit::kTempFail),
                     quote(run_.resource) + (is_lost ? " is lost" : ": the server refused it"));
    }
    while (const auto signal = signals_.next()) {
      if (*signal != SIGCHLD) return give_up(kSignalled + *signal, "");
    }
    const Instant now = host::now();
    const lock::Client::Status status = client_->status();
    if (status.is_refused) {
      return give_up(static_cast<int>(Exit::kTempFail),
                     fmt::format("{} refuses this client: {}; see --claims of weir-serve(1)",
                                 run_.connect.server, status.trouble));
    }
    const bool is_away =
        run_.only_try && !run_.timeout && !status.trouble.empty() && now >= begin + kReachPatience;
    if (now >= until || is_away) {
      if (status.is_connected) return give_up(run_.conflict_status, "");
      return give_up(static_cast<int>(Exit::kUnavailable),
                     trouble() + "; check that weir serve --lock runs there");
    }
    if (now >= begin + kComplainAfter) complain();
    wait(has_complained_ || now >= begin + kComplainAfter
             ? std::min(until, now + kComplainAfter)
             : std::min(until, begin + kComplainAfter));
  }
}

// ---- the command ----

// In the child. The parent may have died before PR_SET_PDEATHSIG was set. `complaint` names
// the command.
enum class Terminal : std::uint8_t { kNo, kYes };

// The command takes the terminal before it runs: if its guard gave it, a command that reads at once
// would be stopped, and its guard with it.
[[noreturn]] void become_command(char* const* words, char* const* environment, pid_t guard,
                                 std::string_view complaint, Terminal terminal) {
  setpgid(0, 0);
  if (terminal == Terminal::kYes) {
    const auto before = signal(SIGTTOU, SIG_IGN);
    tcsetpgrp(STDIN_FILENO, getpid());
    signal(SIGTTOU, before);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard) _exit(kCannotRun);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(words[0], words, environment);
  const int error = errno;
  for (const std::string_view part :
       {complaint, std::string_view(strerrordesc_np(error)), std::string_view("\n")}) {
    (void)host::write_stderr(part);
  }
  _exit(error == ENOENT ? kNotFound : kCannotRun);
}

void Runner::start() {
  std::vector<char*> words;
  words.reserve(run_.command.size() + 1);
  for (const std::string& word : run_.command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  // Other threads may read the environment, so a copy is changed.
  std::string fence = fmt::format("WEIR_LOCK_FENCE={}", fence_);
  std::vector<char*> environment;
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::strncmp(*each, "WEIR_LOCK_FENCE=", 16) != 0) environment.push_back(*each);
  }
  environment.push_back(fence.data());
  environment.push_back(nullptr);
  has_terminal_ = isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
  const pid_t guard = getpid();
  const std::string complaint = fmt::format("weir lock: {}: ", quote(run_.command[0]));
  child_ = fork();
  if (child_ < 0) {
    throw Failure{Exit::kTempFail,
                  fmt::format("cannot start {}: {}", quote(run_.command[0]), std::strerror(errno))};
  }
  if (child_ == 0) {
    become_command(words.data(), environment.data(), guard, complaint,
                   has_terminal_ ? Terminal::kYes : Terminal::kNo);
  }
  setpgid(child_, child_);
  if (has_terminal_) signal(SIGTTOU, SIG_IGN);
}

// The command was stopped at the terminal (^Z). This process stops with it, so that the shell gets
// the terminal; when both continue, the lock may be lost, which is checked first.
void Runner::stop_too() {
  tcsetpgrp(STDIN_FILENO, getpgrp());
  raise(SIGSTOP);
  wait(host::now() + kWakeUp);
  if (tcgetpgrp(STDIN_FILENO) == getpgrp()) tcsetpgrp(STDIN_FILENO, child_);
  kill(-child_, SIGCONT);
}

void Runner::end_command(int signal) const {
  kill(-child_, signal);
  if (signal == SIGTERM) kill(-child_, SIGCONT);  // a stopped process would not receive it
}

bool Runner::reap(int& status) {
  int raw = 0;
  if (waitpid(child_, &raw, has_terminal_ ? WNOHANG | WUNTRACED : WNOHANG) != child_) return false;
  if (WIFSTOPPED(raw)) {
    stop_too();
    return false;
  }
  status = WIFEXITED(raw) ? WEXITSTATUS(raw) : kSignalled + WTERMSIG(raw);
  if (has_terminal_) tcsetpgrp(STDIN_FILENO, getpgrp());
  return true;
}

int Runner::supervise() {
  Instant kill_at = kNever;
  bool is_lost = false;
  bool is_killed = false;
  for (;;) {
    int status = 0;
    const bool has_ended = reap(status);
    // Check the state itself: the event may arrive after the exit, and a command that exited
    // without the lock has not done its work under the lock.
    if (!is_lost && !client_->is_held(ticket_)) {
      is_lost = true;
      kill_at = host::now() + run_.kill_after;
      const std::string resource = quote(run_.resource);
      const std::string command = quote(run_.command[0]);
      print_error("weir lock: {}\n",
                  has_ended ? fmt::format("{} was lost before {} exited", resource, command)
                            : fmt::format("{} is lost; terminating {}", resource, command));
      end_command(SIGTERM);
    }
    if (has_ended) {
      if (!is_lost) return status;
      // Its children may still be running.
      while (!is_killed && kill(-child_, 0) == 0 && host::now() < kill_at) {
        wait(host::now() + kLookAgain);
      }
      kill(-child_, SIGKILL);
      return static_cast<int>(Exit::kTempFail);
    }
    if (is_lost && host::now() >= kill_at) {
      end_command(SIGKILL);
      is_killed = true;
      kill_at = kNever;
    }
    wait(kill_at);
    while (const auto signal = signals_.next()) {
      if (*signal != SIGCHLD) end_command(*signal);
    }
  }
}

int Runner::run() {
  if (const auto status = acquire()) return *status;
  start();
  const int status = supervise();
  client_->release(ticket_);
  return status;
}

}  // namespace

// A log that is not read must not delay terminating a command whose lock is lost.
int run_locked(const LockRun& run) {
  const host::LogWriter log;
  return Runner(run).run();
}

}  // namespace weir::app
