// SPDX-License-Identifier: Apache-2.0
#include "weir/control/embedded.h"

namespace weir::control {

std::optional<std::string_view> embedded_file(std::string_view name) {
  for (const EmbeddedFile& file : embedded_files()) {
    if (file.name == name) return file.text;
  }
  return std::nullopt;
}

}  // namespace weir::control
