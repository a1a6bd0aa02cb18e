// SPDX-License-Identifier: Apache-2.0
//
// Weir's built-in scenarios and the pages of reports, compiled into the binary
// (weir/base/embedded_file.h), ordered by path.
//
//   find_embedded(embedded_files(), "redistribution.toml")
#pragma once

#include <span>

#include "weir/base/embedded_file.h"

namespace weir::study {

std::span<const EmbeddedFile> embedded_files();

}  // namespace weir::study
