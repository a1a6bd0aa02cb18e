// SPDX-License-Identifier: Apache-2.0
//
// Copies a file at a bandwidth and a rate of operations, from an event loop:
//
//   limiter FROM TO BANDWIDTH OPS       limiter a.img b.img 50MiB/s 1000
//
// The loop has one event here, the limiter's timer. A real program adds its sockets to the same
// epoll instance and does other work while the limiter is blocked.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "weir/base/units.h"
#include "weir/embed/limiter_timer.h"
#include "weir/host/fd.h"

using namespace weir;

namespace {

constexpr std::size_t kBlock = 65536;

int complain(const Error& error) {
  std::fprintf(stderr, "limiter: %s\n", error.message().c_str());
  return 1;
}

// A bucket that holds 10 ms of its rate, and at least one operation of our size.
LimiterSpec bucket(Rate rate, std::uint64_t least) {
  const Tokens depth = std::max(tokens_in(rate, std::chrono::milliseconds{10}), Tokens{least});
  return {.size = depth, .one_time_burst = Tokens{0}, .rate = rate};
}

bool write_all(int to, const char* bytes, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t wrote = write(to, bytes + done, size - done);
    if (wrote < 0) return std::perror("limiter: write"), false;
    done += static_cast<std::size_t>(wrote);
  }
  return true;
}

// Returns to the event loop until the limiter has tokens again.
bool wait_for_tokens(int loop, embed::LimiterTimer& limiter) {
  epoll_event event;
  while (epoll_wait(loop, &event, 1, -1) != 1) continue;
  return limiter.event_handler().has_value();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fputs("usage: limiter FROM TO BANDWIDTH OPS\n", stderr), 64;
  const auto bandwidth = parse_bandwidth(argv[3]);
  if (!bandwidth) return complain(bandwidth.error());
  const auto ops = parse_rate(argv[4]);
  if (!ops) return complain(ops.error());

  const host::Fd from(open(argv[1], O_RDONLY | O_CLOEXEC));
  const host::Fd to(open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!from.is_open() || !to.is_open()) return std::perror("limiter: open"), 1;

  auto limiter = embed::LimiterTimer::create(bucket(*bandwidth, kBlock), bucket(*ops, 2));
  if (!limiter) return complain(limiter.error());
  const host::Fd loop(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.fd = limiter->fd()}};
  if (epoll_ctl(loop.get(), EPOLL_CTL_ADD, limiter->fd(), &event) != 0) return 1;

  std::vector<char> block(kBlock);
  for (;;) {
    const ssize_t size = read(from.get(), block.data(), block.size());
    if (size < 0) return std::perror("limiter: read"), 1;
    if (size == 0) return 0;
    const auto bytes = static_cast<std::size_t>(size);
    while (!limiter->consume_op(Bytes{bytes})) {
      if (!wait_for_tokens(loop.get(), *limiter)) return 1;
    }
    if (!write_all(to.get(), block.data(), bytes)) return 1;
  }
}
