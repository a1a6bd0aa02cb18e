// SPDX-License-Identifier: Apache-2.0
//
// A Target that another thread owns than the server's loop, such as that of the lock service, as
// control/ looks at it: control/ calls this, cluster/ implements it, and neither depends on the
// other.
//
//   port.look([&](const Target& target, Instant now) { ... });
//
// The function runs on the thread that owns the Target, between its turns, and the caller waits for
// it: milliseconds. So it looks at a bounded part of the Target at a time. May be called from every
// thread but that one.
#pragma once

#include <functional>
#include <string_view>

#include "weir/base/time.h"
#include "weir/target/target.h"

namespace weir::serve {

class TargetPort {
 public:
  using Look = std::function<void(const Target& target, Instant now)>;

  TargetPort() = default;
  TargetPort(const TargetPort&) = delete;
  TargetPort& operator=(const TargetPort&) = delete;
  virtual ~TargetPort() = default;

  // As the API, metrics and commands call it; no service of the server has this name.
  virtual std::string_view service() const = 0;
  // `now` is of the owner's clock. False: its thread has ended, and nothing was called.
  virtual bool look(const Look& visit) = 0;
};

}  // namespace weir::serve
