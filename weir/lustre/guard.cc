// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/guard.h"

#include <cerrno>
#include <csignal>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace weir::lustre {
namespace {

constexpr char kBeat = '.';
constexpr char kGoodbye = 'q';

void watch(int pipe, Nanoseconds patience, const std::function<void(Guard::Reason)>& remove) {
  const auto patience_ms =
      static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
  bool hangs = false;
  for (;;) {
    pollfd waiting{pipe, POLLIN, 0};
    const int ready = poll(&waiting, 1, hangs ? -1 : patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      hangs = true;
      remove(Guard::Reason::kHangs);
      continue;
    }
    char words[64];
    const ssize_t got = read(pipe, words, sizeof words);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return remove(Guard::Reason::kGone);
    if (words[got - 1] == kGoodbye) return;
    hangs = false;
  }
}

}  // namespace

Result<Guard> Guard::start(Nanoseconds patience, const std::function<void(Reason)>& remove) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail_errno(errno, "guard");
  }
  host::Fd ours(ends[0]);
  const host::Fd theirs(ends[1]);
  const pid_t child = fork();
  if (child < 0) return fail_errno(errno, "guard");
  if (child == 0) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
    ours = host::Fd();
    watch(theirs.get(), patience, remove);
    _exit(0);
  }
  return Guard(std::move(ours));
}

// Continue even if the guard has died.
void Guard::say(char word) {
  if (pipe_.is_open()) (void)send(pipe_.get(), &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Guard::beat() { say(kBeat); }

void Guard::dismiss() { say(kGoodbye); }

}  // namespace weir::lustre
