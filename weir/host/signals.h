// SPDX-License-Identifier: Apache-2.0
//
// Signals as a descriptor for event loops, and notifications for a service manager.
//
//   auto signals = SignalFd::create({SIGTERM, SIGHUP});    they no longer terminate the process
//   ... signals->fd() is readable ...
//   while (auto signal = signals->next()) ...
//
//   notify_manager("READY=1");       systemd's protocol: a datagram to $NOTIFY_SOCKET, if it is set
//
// create() blocks the signals in the calling thread, so call it before threads are started.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

#include "weir/base/result.h"
#include "weir/host/fd.h"

namespace weir::host {

class SignalFd {
 public:
  static Result<SignalFd> create(std::initializer_list<int> signals);

  int fd() const { return fd_.get(); }
  // The next received signal, if any.
  std::optional<int> next();

 private:
  explicit SignalFd(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// Does nothing without a manager; errors are ignored.
void notify_manager(std::string_view state);

}  // namespace weir::host
