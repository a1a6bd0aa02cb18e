// SPDX-License-Identifier: Apache-2.0
//
// The files of the live page, compiled into the binary (weir/base/embedded_file.h), ordered
// by path.
//
//   find_embedded(embedded_files(), "live.html")
#pragma once

#include <span>

#include "weir/base/embedded_file.h"

namespace weir::control {

std::span<const EmbeddedFile> embedded_files();

}  // namespace weir::control
