// SPDX-License-Identifier: Apache-2.0
//
// Reads a file of settings and reports all of its errors, not only the first. A TomlTable is a
// table with known keys: an unknown key is reported with the nearest known one, and reading a key
// gives its value, or the default if it is missing or not valid.
//
//   TomlMistakes mistakes("weir.conf");
//   TomlTable server(value, "server", mistakes, {"listen", "user"});
//   std::string user = server.text("user", "");
//   mistakes.in_order()      weir.conf:3:1: server: unknown key 'usr'; did you mean user?
//
// After an error, reading continues with the default, so that later errors are found too. A table
// refers to its document, which must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/limits.h"
#include "weir/config/toml.h"

namespace weir::config {

class TomlMistakes {
 public:
  // Bounds the output for a file that is not a configuration at all.
  static constexpr std::size_t kToldMax = 100;

  explicit TomlMistakes(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  void add(TomlPlace at, std::string_view what, std::string_view hint = {});
  bool empty() const { return found_.empty(); }
  // By position, at most kToldMax; then one that states how many more there are.
  std::vector<Error> in_order() const;

 private:
  struct Found {
    TomlPlace at;
    Error error;
  };
  std::string file_;
  std::vector<Found> found_;
};

class TomlTable {
 public:
  // `name` is the name of the table in messages. A value that is not a table is an error and reads
  // as an empty table.
  TomlTable(const TomlValue& value, std::string name, TomlMistakes& mistakes,
            std::vector<std::string_view> keys);

  const std::string& name() const { return name_; }
  TomlMistakes& mistakes() const { return mistakes_; }
  TomlPlace at() const { return value_.at(); }
  bool has(std::string_view key) const { return get(key).has_value(); }
  std::optional<TomlValue> get(std::string_view key) const { return value_.find(key); }
  // Position of the value of a key; of the table if the key is missing.
  TomlPlace place_of(std::string_view key) const;
  // "NAME: KEY WHAT; HINT", at the position of the key's value.
  void refuse(std::string_view key, std::string_view what, std::string_view hint = {}) const;
  // "NAME: KEY is missing; HINT", unless an unknown key was already reported that may have meant
  // this one.
  void miss(std::string_view key, std::string_view hint = {}) const;

  std::string text(std::string_view key, std::string without) const;
  bool flag(std::string_view key, bool without) const;
  // A whole number from least to most.
  std::uint64_t number(std::string_view key, std::uint64_t without, std::uint64_t least,
                       std::uint64_t most) const;
  std::uint32_t small(std::string_view key, std::uint32_t without, std::uint32_t least,
                      std::uint32_t most) const;
  // Strings with a unit: '16ms', '4KiB'; a bare number is a size in bytes.
  Nanoseconds time(std::string_view key, Nanoseconds without, Nanoseconds least,
                   Nanoseconds most) const;
  Bytes size(std::string_view key, Bytes without, Bytes least, Bytes most) const;
  // 'op', 'bytes' or 'affine:A:B'
  Cost cost(std::string_view key, Cost without) const;
  // One of several words, as an index.
  std::size_t word(std::string_view key, std::size_t without,
                   std::initializer_list<std::string_view> words) const;

  struct Item {
    std::string text;
    TomlPlace at;
  };
  // An array of strings; a single string counts as an array of one.
  std::vector<Item> texts(std::string_view key) const;

  // Each table of an array of tables; a single table counts as an array of one.
  template <class Visit>
  void each(std::string_view key, Visit visit) const {
    for (const TomlValue& table : tables(key)) visit(table);
  }

 private:
  std::vector<TomlValue> tables(std::string_view key) const;

  TomlValue value_;
  std::string name_;
  TomlMistakes& mistakes_;
  std::vector<std::string_view> keys_;
  std::vector<std::string_view> meant_;  // suggestions for keys that do not exist
};

}  // namespace weir::config
