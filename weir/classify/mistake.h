// SPDX-License-Identifier: Apache-2.0
//
// An error in a text, and its position. A parser of part of a text (a NID list inside a condition
// inside a command) reports the position in its part; the caller adds the offset of the part, and
// the outermost caller converts it into an Error that names the column:
//
//   column 23: 'ost_foo' is not an opcode; expected a wire name such as ost_read
//
// Columns are bytes counted from 1.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

#include "weir/base/result.h"

namespace weir {

struct Mistake {
  std::size_t at = 0;  // bytes before it
  std::string what;
  std::string hint{};  // what was expected; may be empty
  std::errc code = std::errc::invalid_argument;

  // The same error in a text in which this one starts after this many bytes.
  Mistake moved_by(std::size_t bytes) && {
    at += bytes;
    return std::move(*this);
  }
  Error to_error() const;
};

// The column named in an Error that to_error() created, so that the position can be shown.
std::optional<std::size_t> column_of(const Error& error);

template <class T>
using Parsed = tl::expected<T, Mistake>;

tl::unexpected<Mistake> mistake(std::size_t at, std::string what, std::string hint = {},
                                std::errc code = std::errc::invalid_argument);

}  // namespace weir
