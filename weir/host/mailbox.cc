// SPDX-License-Identifier: Apache-2.0
#include "weir/host/mailbox.h"

namespace weir::host {

Result<Fd> make_wake_fd() {
  Fd fd(eventfd(0, EFD_CLOEXEC));
  if (!fd.is_open()) {
    return fail_errno(errno, "eventfd", "raise the limit of open files (ulimit -n)");
  }
  return fd;
}

}  // namespace weir::host
