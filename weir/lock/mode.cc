// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/mode.h"

#include <algorithm>
#include <cctype>

namespace weir::lock {
namespace {

struct Names {
  std::string_view name;
  std::string_view letters;
};
constexpr std::array<Names, kModes> kNames = {{{"null", "nl"},
                                               {"concurrent-read", "cr"},
                                               {"concurrent-write", "cw"},
                                               {"shared", "pr"},
                                               {"protected-write", "pw"},
                                               {"exclusive", "ex"}}};

bool is_same_text(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char left, char right) {
    return std::tolower(static_cast<unsigned char>(left)) == right;
  });
}

}  // namespace

std::string_view mode_name(Mode mode) { return kNames[static_cast<std::size_t>(mode)].name; }

std::optional<Mode> mode_by(std::string_view name) {
  for (const Mode mode : kAllModes) {
    const Names& names = kNames[static_cast<std::size_t>(mode)];
    if (name == names.name || is_same_text(name, names.letters)) return mode;
  }
  return std::nullopt;
}

}  // namespace weir::lock
