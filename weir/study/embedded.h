// SPDX-License-Identifier: Apache-2.0
//
// The scenarios that come with Weir and the pages of reports, compiled into the binary
// (weir/base/embedded_file.h), in the order of their paths.
//
//   find_embedded(embedded_files(), "redistribution.toml")
#pragma once

#include <span>

#include "weir/base/embedded_file.h"

namespace weir::study {

std::span<const EmbeddedFile> embedded_files();

}  // namespace weir::study
