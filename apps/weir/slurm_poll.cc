// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/slurm_poll.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir/host/clock.h"

extern char** environ;

namespace weir::app {

bool SlurmPoll::start(Instant now) {
  next_ = now + every_;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  host::Fd ours(ends[0]);
  const host::Fd theirs(ends[1]);
  fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);  // signals are blocked in this process for the signalfd
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::vector<char*> words = {program_.data()};
  for (std::string& argument : arguments_) words.push_back(argument.data());
  words.push_back(nullptr);
  const int failed =
      posix_spawnp(&child_, program_.c_str(), &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    child_ = -1;
    return false;
  }
  started_ = now;
  pipe_ = std::move(ours);
  text_.clear();
  return true;
}

void SlurmPoll::end() {
  pipe_ = host::Fd();
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) continue;
  child_ = -1;
}

void SlurmPoll::tick(Instant now, const std::function<void(std::string_view)>& take) {
  if (child_ < 0) {
    if (now >= next_ && !start(now)) take({});
    return;
  }
  char part[65536];
  ssize_t got = 0;
  while ((got = read(pipe_.get(), part, sizeof part)) > 0) {
    text_.append(part, static_cast<std::size_t>(got));
    if (text_.size() > kTextMax) break;
  }
  const bool is_done = got == 0;
  if (!is_done && errno == EAGAIN && now - started_ < kPatience && text_.size() <= kTextMax) return;
  end();
  if (!is_done) text_.clear();
  take(text_);
}

namespace {

// For poll(2), which takes whole milliseconds; -1 for never.
int timeout_of(const AlsoWaitFor& also) {
  if (!also.wakes_at) return -1;
  const Instant at = also.wakes_at();
  if (at == kNever) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(at - host::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000));
}

}  // namespace

bool wait_for(host::TimerFd& timer, host::SignalFd& signals, std::optional<SlurmPoll>& slurm,
              const std::function<void(std::string_view)>& take, const AlsoWaitFor& also) {
  for (;;) {
    if (slurm) slurm->tick(host::now(), take);
    pollfd waiting[] = {{signals.fd(), POLLIN, 0},
                        {timer.fd(), POLLIN, 0},
                        {slurm ? slurm->fd() : -1, POLLIN, 0},
                        {also.fd, POLLIN, 0}};
    const int timeout = timeout_of(also);
    if (poll(waiting, std::size(waiting), timeout) < 0) continue;
    if (also.wake && (waiting[3].revents != 0 || also.wakes_at() <= host::now())) {
      also.wake(host::now());
    }
    if (signals.next()) return false;
    if (timer.acknowledge()) return true;
  }
}

}  // namespace weir::app
