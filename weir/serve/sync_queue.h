// SPDX-License-Identifier: Apache-2.0
//
// The kernel reports an error of writing back to one sync of an open file: to whichever looks
// first. Of two syncs that are under way together one may thus take the error of the other's data
// and the other succeed. So a sync that has succeeded is not answered before all syncs have ended
// that were under way with it: if one of those fails, all clients are told (store_errors.h).
//
//   begin(a); begin(b);  end(a); holds(a): yes, for b is under way;  end(b);  release() == a
//
// A sync that ran alone is never held, nor is one that failed. Pure: no clock, no calls. One
// owner.
#pragma once

#include <cstdint>

#include "weir/base/ring.h"
#include "weir/serve/store.h"

namespace weir::serve {

class SyncQueue {
 public:
  // Its call is handed to the kernel.
  void begin(StoreOperation& operation);
  // Its call has ended.
  void end(StoreOperation& operation);
  // Whether one whose call has just ended has to wait for others; if so it is kept.
  bool holds(StoreOperation& operation);
  // One that need not be kept any longer; nullptr if there is none. Call after each end().
  StoreOperation* release();

 private:
  using List = Ring<StoreOperation, &StoreOperation::queue>;
  List under_way_;  // by ticket
  List held_;       // by ticket: the last call that was under way when theirs ended
  std::uint64_t tickets_ = 0;
};

}  // namespace weir::serve
