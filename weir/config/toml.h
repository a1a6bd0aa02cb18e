// SPDX-License-Identifier: Apache-2.0
//
// A TOML document as values, each with its position, so that a reader can report the line and
// column of an error. Only toml.cc uses the TOML library; values are views of the library's own
// tree.
//
//   Result<TomlDocument> document = parse_toml("slots = 4\n", "weir.conf");
//   *document->find("slots")->as<std::int64_t>() == 4
//
// Members of a table are in the order of the file, also if the file opens the table in several
// places. Dates and times of day are not supported: no setting of Weir uses them. A view is valid
// as long as a copy of its document exists.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"

namespace toml {
inline namespace v3 {
class node;
class table;
}  // namespace v3
}  // namespace toml

namespace weir::config {

// Both start at 1; columns are in characters.
struct TomlPlace {
  std::uint32_t line = 1;
  std::uint32_t column = 1;

  auto operator<=>(const TomlPlace&) const = default;
};

// "weir.conf:3:7"
std::string print_place(std::string_view file, TomlPlace at);

struct TomlMember;

class TomlValue {
 public:
  explicit TomlValue(const toml::node& node);

  TomlPlace at() const;
  // A bool, std::int64_t, double or std::string; nullptr if the value has another kind.
  template <class Kind>
  const Kind* as() const;
  bool is_table() const;
  // Of a table; nothing if the key does not exist, or the value is not a table. O(log n).
  std::optional<TomlValue> find(std::string_view key) const;
  // Of a table; empty if it is not a table.
  std::vector<TomlMember> members() const;
  // Of an array; nothing if it is not an array.
  std::optional<std::vector<TomlValue>> items() const;

 private:
  const toml::node* node_;
};

template <>
const bool* TomlValue::as() const;
template <>
const std::int64_t* TomlValue::as() const;
template <>
const double* TomlValue::as() const;
template <>
const std::string* TomlValue::as() const;

struct TomlKey {
  std::string name;
  TomlPlace at;
};

struct TomlMember {
  TomlKey key;
  TomlValue value;
};

// The top-level table.
class TomlDocument : public TomlValue {
 public:
  explicit TomlDocument(std::shared_ptr<const toml::table> table);

 private:
  std::shared_ptr<const toml::table> table_;
};

// EINVAL with the position of the error if the text is not TOML; `file` is the name used
// in messages.
Result<TomlDocument> parse_toml(std::string_view text, std::string_view file);

}  // namespace weir::config
