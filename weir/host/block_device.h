// SPDX-License-Identifier: Apache-2.0
//
// The properties of a block device, and its users on this machine:
//
//   inspect_device(fd)    its size, the unit of discards and direct I/O, whether it is writable
//   system_use_of(device) "it is mounted at '/data'", "it is swap space", "it is part of dm-0"
//   process_with(device)  a process that has it open
//
// Opening a device with O_EXCL fails (EBUSY) while a file system, swap or another device uses it,
// and it cannot be mounted as long as it is open; mkfs(8) protects itself in the same way.
#pragma once

#include <cstdint>
#include <string>

#include <sys/types.h>

#include "weir/base/result.h"

namespace weir::host {

struct BlockDevice {
  std::uint64_t size = 0;
  std::uint32_t sector = 512;  // logical: 512 or 4096
  bool is_read_only = false;
};

Result<BlockDevice> inspect_device(int file, const std::string& where);

// Of the device or of its partitions. Empty: the system does not use it.
std::string system_use_of(dev_t device);

// A running process that has it open, preferably this one; 0: none is visible. Processes of other
// users are visible to root only. Checks every open file on the machine.
long process_with(dev_t device);

}  // namespace weir::host
