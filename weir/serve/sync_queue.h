// SPDX-License-Identifier: Apache-2.0
//
// The kernel reports a write-back error to one sync of an open file, whichever checks first. Of two
// concurrent syncs one may thus get the error of the other's data while the other succeeds. So a
// successful sync is not answered before all syncs that were in progress with it have ended: if one
// of those fails, it is reported to all clients (store_errors.h).
//
//   begin(a); begin(b);  end(a); holds(a): yes, b is in progress;  end(b);  release() == a
//
// A sync that ran alone is never held, nor is one that failed. Pure: no clock, no calls. One owner.
#pragma once

#include <cstdint>

#include "weir/base/ring.h"
#include "weir/serve/store.h"

namespace weir::serve {

class SyncQueue {
 public:
  // Its call is submitted to the kernel.
  void begin(StoreOperation& operation);
  // Its call has ended.
  void end(StoreOperation& operation);
  // Whether a sync that has just ended must wait for others; if so it is held.
  bool holds(StoreOperation& operation);
  // A sync that need not be held any longer; nullptr if there is none. Call after each end().
  StoreOperation* release();

 private:
  using List = Ring<StoreOperation, &StoreOperation::queue>;
  List under_way_;  // by ticket
  List held_;       // by ticket of the last call in progress when theirs ended
  std::uint64_t tickets_ = 0;
};

}  // namespace weir::serve
