// SPDX-License-Identifier: Apache-2.0
//
// The live page and what it is drawn with, compiled into the binary
// (weir/base/embedded_file.h), in the order of their paths.
//
//   find_embedded(embedded_files(), "live.html")
#pragma once

#include <span>

#include "weir/base/embedded_file.h"

namespace weir::control {

std::span<const EmbeddedFile> embedded_files();

}  // namespace weir::control
