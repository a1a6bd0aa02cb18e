// SPDX-License-Identifier: Apache-2.0
//
// Files that were compiled into the binary, found by name: the scenarios that come with Weir and
// the page of the simulator's report. So one binary is enough, wherever it runs. The list is made
// by the build (cmake/WeirEmbed.cmake) from the files themselves and is in the order of their
// paths; nothing is read at run time.
//
//   embedded_file("redistribution.toml")
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace weir::control {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

std::span<const EmbeddedFile> embedded_files();

std::optional<std::string_view> embedded_file(std::string_view name);

}  // namespace weir::control
