// SPDX-License-Identifier: Apache-2.0
//
// Read access to a Target of a thread other than the server's loop, such as that of the lock
// service: control/ calls this, cluster/ implements it, and neither depends on the other.
//
//   port.look([&](const Target& target, Instant now) { ... });
//
// The function runs on the thread that owns the Target, between its turns, and the caller waits for
// it, for milliseconds. So it must visit a bounded part of the Target at a time. Thread-safe,
// except that the owner itself must not call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "weir/base/time.h"
#include "weir/target/target.h"

namespace weir::serve {

// Number of queues of a Target whose waits are measured by cause, for weir explain.
inline constexpr std::uint16_t kWatchedQueues = 1024;
// Jobs of a service with histograms of their own: two KiB each.
inline constexpr std::size_t kTimedJobs = 1024;

class TargetPort {
 public:
  using Look = std::function<void(const Target& target, Instant now)>;

  TargetPort() = default;
  TargetPort(const TargetPort&) = delete;
  TargetPort& operator=(const TargetPort&) = delete;
  virtual ~TargetPort() = default;

  // Its name in the API, metrics and commands; no service of the server has this name.
  virtual std::string_view service() const = 0;
  // `now` is from the owner's clock. False: its thread has ended, and the function was not called.
  virtual bool look(const Look& visit) = 0;
};

}  // namespace weir::serve
