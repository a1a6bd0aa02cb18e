// SPDX-License-Identifier: Apache-2.0
//
// Whole files in and out, for what is read once at the start and written once at the end:
// scenarios, traces, results. Errors carry the path and the errno. A written file appears under its
// name only when it is complete; an older one stays until then.
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

// More than any trace somebody would keep in memory; EFBIG above it.
inline constexpr std::size_t kFileMax = std::size_t{1} << 30;

Result<std::string> read_file(const std::string& path);
// For what may be larger than memory: each call fills the span, less only at the end of the file.
using ByteSource = std::function<Result<std::size_t>(std::span<char>)>;
Result<ByteSource> open_source(const std::string& path);
Result<void> write_file(const std::string& path, std::string_view text);
// With the folders above it; one that exists is fine.
Result<void> make_folder(const std::string& path);

}  // namespace weir::host
