// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/mistake.h"

#include <fmt/format.h>

#include "weir/classify/number.h"

namespace weir {
namespace {

constexpr std::string_view kColumn = "column ";

}  // namespace

Error Mistake::to_error() const { return {code, fmt::format("{}{}", kColumn, at + 1), what, hint}; }

std::optional<std::size_t> column_of(const Error& error) {
  if (!error.where.starts_with(kColumn)) return std::nullopt;
  return read_decimal(std::string_view(error.where).substr(kColumn.size()));
}

tl::unexpected<Mistake> mistake(std::size_t at, std::string what, std::string hint,
                                std::errc code) {
  return tl::unexpected(Mistake{at, std::move(what), std::move(hint), code});
}

}  // namespace weir
