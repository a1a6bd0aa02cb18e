// SPDX-License-Identifier: Apache-2.0
//
// Errors of a store that must be reported to all of its clients.
//
// A failed sync (a flush, or a durable write) means that earlier data may be lost, whichever client
// wrote it; the kernel reports it once for the open file that all sessions of an export share. So
// it is stored until it was reported to every session: the next sync of each session fails once, as
// fsync(2) does for each open file. A later session starts without it, unless it was not reported
// to any session yet.
//
//   SyncErrors errors;  auto mark = errors.begin();     a session
//   errors.failed(EIO);                                 the sync of another session
//   errors.tell(mark) == EIO;  errors.tell(mark) == 0;  its next two syncs
//
// Thread-safe: the sessions of an export may be on several loops.
#pragma once

#include <cstdint>

#include "weir/host/mutex.h"

namespace weir::serve {

class SyncErrors {
 public:
  using Mark = std::uint64_t;  // the last failure that was reported to a session

  Mark begin() const {
    const host::MutexLock lock(mutex_);
    return told_;
  }
  // REQUIRES: an errno value above 0.
  void failed(int error);
  // The error that was not reported to a session yet, which counts as reported now; 0: none.
  int tell(Mark& mark);
  // Number of failures so far.
  std::uint64_t count() const {
    const host::MutexLock lock(mutex_);
    return failures_;
  }

 private:
  mutable host::Mutex mutex_;
  std::uint64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  Mark told_ ABSL_GUARDED_BY(mutex_) = 0;  // reported to any session
  int error_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last failure
};

}  // namespace weir::serve
