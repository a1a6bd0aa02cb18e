// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/store_errors.h"

#include "weir/base/assert.h"

namespace weir::serve {

void SyncErrors::failed(int error) {
  WEIR_ASSERT(error > 0, error);
  const host::MutexLock lock(mutex_);
  ++failures_;
  error_ = error;
}

int SyncErrors::tell(Mark& mark) {
  const host::MutexLock lock(mutex_);
  if (mark == failures_) return 0;
  mark = failures_;
  told_ = failures_;
  return error_;
}

}  // namespace weir::serve
