// SPDX-License-Identifier: Apache-2.0
#include "weir/host/fd.h"

#include <unistd.h>

namespace weir::host {

Fd::~Fd() {
  if (is_open()) close(fd_);
}

}  // namespace weir::host
