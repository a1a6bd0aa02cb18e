// SPDX-License-Identifier: Apache-2.0
//
// A second process that removes our rules when the driver cannot: it died (kill -9, out of memory)
// or hangs. The driver calls beat() once per round; when the beats stop for `patience`, or the
// driver ends without dismiss(), the guard calls its function.
//
//   auto guard = Guard::start(patience, [](Guard::Reason) { ... });   before threads and locks
//   guard->beat();        each round
//   guard->dismiss();     after the rules are removed in the ordinary way
//
// The function runs in the guard process, with a copy of its captures; it runs once if the driver
// dies and once each time the driver hangs. Signals that terminate the driver from a terminal do
// not terminate the guard: it exits with the driver.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"

namespace weir::lustre {

class Guard {
 public:
  enum class Reason : std::uint8_t { kGone, kHangs };

  static Result<Guard> start(Nanoseconds patience, const std::function<void(Reason)>& remove);

  void beat();
  void dismiss();

 private:
  explicit Guard(host::Fd pipe) : pipe_(std::move(pipe)) {}
  void say(char word);

  host::Fd pipe_;
};

}  // namespace weir::lustre
