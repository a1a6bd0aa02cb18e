// SPDX-License-Identifier: Apache-2.0
//
// Values that several tables of the configuration file have: names, texts, ranges of addresses, the
// service of an export. Each function reads one key; what is wrong goes to table.mistakes(), with
// its line and column, and reading goes on, so that all errors are reported at once.
//
// Private to this module: serve_config.h is the way in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "weir/base/result.h"
#include "weir/classify/nid.h"
#include "weir/config/toml_table.h"
#include "weir/serve/options.h"

namespace weir::config {

// Reports a parser's error for the value of a key.
void refuse_with(const TomlTable& table, TomlPlace at, std::string_view what, const Error& error);

// A text of at most this many bytes, without NUL bytes, as system calls require; "" after an error.
std::string bounded_text(const TomlTable& table, std::string_view key, std::size_t most);

// The name of a service or nodemap, or "" after an error.
std::string plain_name(const TomlTable& table, std::string without);

// Ranges of several texts, as one list; nothing if there are none, or after an error.
std::optional<NidList> read_nids(const TomlTable& table, std::string_view key);

// Whether it is HOST:PORT of another server.
bool is_reachable(std::string_view address);

// The service that an export or a gateway names; an error if the file has none of that name.
std::string service_name(const TomlTable& table, const serve::ServeOptions& options);

template <class List>
bool is_named_before(const List& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& each) { return each.name == name; });
}

// Whether there is room for one more; reports an error if not.
template <class List>
bool has_room(const TomlTable& table, const List& list, std::size_t most) {
  if (list.size() < most) return true;
  table.mistakes().add(table.at(), fmt::format("{}: the maximum is {}", table.name(), most));
  return false;
}

}  // namespace weir::config
