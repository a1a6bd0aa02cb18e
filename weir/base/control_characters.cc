// SPDX-License-Identifier: Apache-2.0
#include "weir/base/control_characters.h"

#include <cstddef>

namespace weir {

bool has_control(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next <= 0x9f) return true;
  }
  return false;
}

}  // namespace weir
