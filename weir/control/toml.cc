// SPDX-License-Identifier: Apache-2.0
#include "weir/control/toml.h"

#include <algorithm>

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

namespace weir::control {
namespace {

TomlPlace place(const toml::source_region& region) {
  // A table that only its children's headers name has no place of its own.
  return {std::max(region.begin.line, 1U), std::max(region.begin.column, 1U)};
}

TomlValue::Table copy_table(const toml::table& table);
TomlValue::Array copy_array(const toml::array& array);

// The library bounds how deep a document nests, and with it this recursion.
TomlValue copy(const toml::node& node) {
  TomlValue value;
  value.at = place(node.source());
  node.visit([&](const auto& held) {
    if constexpr (toml::is_table<decltype(held)>) {
      value.held = copy_table(held);
    } else if constexpr (toml::is_array<decltype(held)>) {
      value.held = copy_array(held);
    } else if constexpr (toml::is_string<decltype(held)> || toml::is_integer<decltype(held)> ||
                         toml::is_floating_point<decltype(held)> ||
                         toml::is_boolean<decltype(held)>) {
      value.held = held.get();
    }
  });
  return value;
}

TomlValue::Array copy_array(const toml::array& array) {
  TomlValue::Array values;
  values.reserve(array.size());
  for (const toml::node& node : array) values.push_back(copy(node));
  return values;
}

TomlValue::Table copy_table(const toml::table& table) {
  TomlValue::Table members;
  members.reserve(table.size());
  for (const auto& [key, node] : table) {
    members.push_back({{std::string(key.str()), place(key.source())}, copy(node)});
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const TomlMember& a, const TomlMember& b) { return a.key.at < b.key.at; });
  return members;
}

}  // namespace

std::string print_place(std::string_view file, TomlPlace at) {
  return fmt::format("{}:{}:{}", file, at.line, at.column);
}

Result<TomlValue> parse_toml(std::string_view text, std::string_view file) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return fail(std::errc::invalid_argument, print_place(file, place(parsed.error().source())),
                parsed.error().description());
  }
  return copy(parsed.table());
}

}  // namespace weir::control
