// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes whole files that are read once at the start or written once at the end:
// scenarios, traces, results. Errors contain the path and the errno. A written file appears under
// its name only when it is complete; an older one stays until then.
//
//   Result<std::string> text = read_file("site.toml");
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "weir/base/result.h"

namespace weir::host {

// Larger than any trace that fits in memory; EFBIG above it.
inline constexpr std::size_t kFileMax = std::size_t{1} << 30;

Result<std::string> read_file(const std::string& path);
// For files that may be larger than memory: each call fills the span, less only at the end of
// the file.
using ByteSource = std::function<Result<std::size_t>(std::span<char>)>;
Result<ByteSource> open_source(const std::string& path);
Result<void> write_file(const std::string& path, std::string_view text);
// Creates parent folders too; an existing folder is not an error.
Result<void> make_folder(const std::string& path);

}  // namespace weir::host
