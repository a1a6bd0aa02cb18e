// SPDX-License-Identifier: Apache-2.0
//
// A TOML document as a tree of plain values, each with the place where it stands, so that whoever
// reads one can point at the line and column of a mistake. The one source behind this header is the
// only one that sees the TOML library.
//
//   Result<TomlValue> document = parse_toml("slots = 4\n", "weir.conf");
//   document->as<TomlValue::Table>()->front().key.name == "slots"
//
// Members of a table stand in the order of the file, also when it opens the table in several
// places. Dates and times of day are of kind Other: nothing of Weir's has one.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weir/base/result.h"

namespace weir::config {

// Both counted from 1; columns in characters.
struct TomlPlace {
  std::uint32_t line = 1;
  std::uint32_t column = 1;

  auto operator<=>(const TomlPlace&) const = default;
};

// "weir.conf:3:7"
std::string print_place(std::string_view file, TomlPlace at);

struct TomlMember;

struct TomlValue {
  struct Other {};
  using Array = std::vector<TomlValue>;
  using Table = std::vector<TomlMember>;

  TomlPlace at;
  std::variant<Other, bool, std::int64_t, double, std::string, Array, Table> held;

  // nullptr if it is of another kind.
  template <class Kind>
  const Kind* as() const {
    return std::get_if<Kind>(&held);
  }
};

struct TomlKey {
  std::string name;
  TomlPlace at;
};

struct TomlMember {
  TomlKey key;
  TomlValue value;
};

// The table of the whole document. EINVAL with the place of what is no TOML; `file` is how messages
// call it.
Result<TomlValue> parse_toml(std::string_view text, std::string_view file);

}  // namespace weir::config
