// SPDX-License-Identifier: Apache-2.0
//
// What this machine has, for defaults and bounds that follow its size:
//
//   machine_memory()    physical memory, used or free
//
// The memory limit of a container or a unit is not detected: set it in the
// configuration.
#pragma once

#include "weir/base/quantity.h"

namespace weir::host {

// 0: it cannot be told.
Bytes machine_memory();

}  // namespace weir::host
