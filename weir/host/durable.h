// SPDX-License-Identifier: Apache-2.0
//
// A new or renamed file survives a power failure only if its directory was synced too: fsync(2) of
// the file does not cover its name. All code that creates permanent files (stores, journals,
// records, state files) calls this after it has created or renamed them.
//
//   rename(beside, path);
//   return sync_directory_of(path);
#pragma once

#include <string>

#include "weir/base/result.h"

namespace weir::host {

// The directory of `path`: "." for a plain name.
std::string directory_of(const std::string& path);

// Makes the name of a file durable. The error names the directory. File systems that cannot sync
// directories (EINVAL) are ignored.
Result<void> sync_directory_of(const std::string& path);

}  // namespace weir::host
