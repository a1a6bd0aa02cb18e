// SPDX-License-Identifier: Apache-2.0
//
// A component that runs on a server's loop: it sets a time at which it is called, between the
// commands of a turn and its requests. The member of a cluster is one
// (weir/cluster/cluster_member.h): rules may change only where requests are scheduled.
//
//   component.wakes_at()      read once per turn; kNever: no call until it sets another time
//   component.wake(now)       must not block: all clients would wait
//   component.stopping(now)   the server stops; wake() is called until all accepted requests are
//                             answered
//   component.describe(...)   its state, for status reports
//
// Called only by the loop.
#pragma once

#include "weir/base/time.h"

namespace weir::serve {

struct ClusterStatus;  // cluster_port.h

class LoopComponent {
 public:
  LoopComponent() = default;
  LoopComponent(const LoopComponent&) = delete;
  LoopComponent& operator=(const LoopComponent&) = delete;
  virtual ~LoopComponent() = default;

  virtual Instant wakes_at() const = 0;
  virtual void wake(Instant now) = 0;
  virtual void stopping(Instant now) = 0;
  // Adds the state of this server in its cluster.
  virtual void describe(ClusterStatus& status, Instant now) const = 0;
};

}  // namespace weir::serve
