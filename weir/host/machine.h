// SPDX-License-Identifier: Apache-2.0
//
// Resources of this machine, for defaults and bounds that depend on its size:
//
//   machine_memory()    physical memory, used or free
//   usable_cores()      processors that this process may use
//
// The memory limit of a container or a systemd unit is not detected: an administrator has to set
// it in the configuration.
#pragma once

#include <cstdint>

#include "weir/base/quantity.h"

namespace weir::host {

// 0: unknown.
Bytes machine_memory();

// At least 1.
std::uint32_t usable_cores();

}  // namespace weir::host
