// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a value or an Error. For I/O and input errors (a bad option, an unreadable file),
// never for bugs in Weir, which are assertions (assert.h). No exception crosses a Weir header.
//
//   Result<Bytes> size = parse_bytes("64KB");
//   if (!size) return tl::unexpected(size.error());
//
// The text of an Error is for the person who has to act on it: the object, what is wrong, and what
// to try. Its code is an errno value, from which callers and exit statuses are derived.
#pragma once

#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <tl/expected.hpp>

namespace weir {

struct Error {
  std::errc code{};
  std::string where;  // the object: an option, a file, a value
  std::string what;   // what is wrong with it
  std::string hint;   // what to try; may be empty

  // "where: what; hint"
  std::string message() const;

  bool operator==(const Error&) const = default;
};

template <class T>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result(tl::expected<T, Error> other) : tl::expected<T, Error>(std::move(other)) {}
};

tl::unexpected<Error> fail(std::errc code, std::string_view where, std::string_view what,
                           std::string_view hint = {});

// For a failed system call, described by its errno value.
tl::unexpected<Error> fail_errno(int errno_value, std::string_view where,
                                 std::string_view hint = {});

}  // namespace weir
