// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/signal_watch.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include <poll.h>

#include "weir/host/clock.h"

namespace weir::serve {

SignalWatch::SignalWatch(host::SignalFd signals, host::Wake stop, Nanoseconds patience,
                         Received received, Expired expired)
    : signals_(std::move(signals)),
      stop_(std::move(stop)),
      patience_(patience.count()),
      received_(std::move(received)),
      expired_(std::move(expired)),
      thread_([this] { run(); }) {}

SignalWatch::~SignalWatch() {
  stop_.set();
  thread_.join();
}

void SignalWatch::run() {
  Instant expires = kNever;
  for (;;) {
    pollfd waits[] = {{signals_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
    int timeout = -1;
    if (expires != kNever) {
      const auto left = std::max(expires - host::now(), Nanoseconds{0});
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
      timeout = static_cast<int>(std::min<std::int64_t>(ms, 1 << 30));
    }
    poll(waits, 2, timeout);
    if (waits[1].revents != 0) return;
    if (expires != kNever && host::now() >= expires) {
      expires = kNever;
      expired_();
    }
    while (const auto signal = signals_.next()) {
      const bool ends = *signal == SIGTERM || *signal == SIGINT;
      if (ends && expires == kNever) expires = host::now() + Nanoseconds{patience_.load()};
      received_(*signal);
    }
  }
}

}  // namespace weir::serve
