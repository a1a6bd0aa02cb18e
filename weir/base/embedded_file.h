// SPDX-License-Identifier: Apache-2.0
//
// A file that was compiled into the binary, so that one binary is enough wherever it runs. A module
// with such files declares embedded_files(); the build generates it from the files, ordered by path
// (cmake/WeirEmbed.cmake). Nothing is read at run time.
//
//   find_embedded(embedded_files(), "redistribution.toml")
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace weir {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

inline std::optional<std::string_view> find_embedded(std::span<const EmbeddedFile> files,
                                                     std::string_view name) {
  for (const EmbeddedFile& file : files) {
    if (file.name == name) return file.text;
  }
  return std::nullopt;
}

}  // namespace weir
