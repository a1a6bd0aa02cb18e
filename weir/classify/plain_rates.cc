// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/plain_rates.h"

#include <algorithm>

#include "weir/base/units.h"

namespace weir {
namespace {

constexpr std::string_view kKey = "rate=";

// The value as digits, or unchanged.
std::string plain(std::string_view value) {
  const bool has_unit = !value.empty() && value.back() >= 'A';
  const auto count = has_unit ? parse_count(value) : Result<std::uint64_t>(0);
  return has_unit && count ? std::to_string(*count) : std::string(value);
}

}  // namespace

std::string with_plain_rates(std::string_view command) {
  std::string text;
  int depth = 0;  // of braces: lists contain arbitrary names of clients
  while (!command.empty()) {
    const bool begins = text.empty() || text.back() == ' ' || text.back() == '\t';
    if (depth == 0 && begins && command.starts_with(kKey)) {
      text += kKey;
      command.remove_prefix(kKey.size());
      const std::size_t end = std::min(command.find_first_of(" \t\n"), command.size());
      text += plain(command.substr(0, end));
      command.remove_prefix(end);
      continue;
    }
    depth += command.front() == '{' ? 1 : command.front() == '}' ? -1 : 0;
    text += command.front();
    command.remove_prefix(1);
  }
  return text;
}

}  // namespace weir
