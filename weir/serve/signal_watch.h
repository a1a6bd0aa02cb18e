// SPDX-License-Identifier: Apache-2.0
//
// Handles the signals of a server on a separate thread: they are received even if the loop hangs,
// so that a server always stops when told to.
//
//   SignalWatch watch(std::move(signals), patience, received, expired);
//     received(signal)    each signal, at once
//     expired()           after SIGTERM or SIGINT and `patience`, if the watch still exists: the
//                         server hangs. Called once; it must terminate the process
//
// Once a store hangs, no call in a server is certain to return: neither a system call on it, nor
// joining a thread that waits for one. So the watch uses nothing that other threads hold. Both
// functions are called on its thread; set_patience() is thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/mailbox.h"
#include "weir/host/signals.h"

namespace weir::serve {

class SignalWatch {
 public:
  using Received = std::function<void(int signal)>;
  using Expired = std::function<void()>;

  // `stop` is its own descriptor (host::make_wake_fd).
  SignalWatch(host::SignalFd signals, host::Wake stop, Nanoseconds patience, Received received,
              Expired expired);
  // `expired` is not called any more.
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  // For later signals.
  void set_patience(Nanoseconds patience) { patience_ = patience.count(); }

 private:
  void run();

  host::SignalFd signals_;
  host::Wake stop_;
  std::atomic<std::int64_t> patience_;
  Received received_;
  Expired expired_;
  std::thread thread_;
};

}  // namespace weir::serve
