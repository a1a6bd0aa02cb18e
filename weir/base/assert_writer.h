// SPDX-License-Identifier: Apache-2.0
//
// Where the text of a failed assertion (assert.h) goes: to standard error, unless the process has
// another way to write it. A process that must never wait for the reader of its log sets one, so
// that an abort does not wait either.
//
//   detail::set_assertion_writer(write_last_words);
//
// The function must not throw. Any thread may call both.
#pragma once

#include <string_view>

namespace weir::detail {

void set_assertion_writer(void (*write)(std::string_view text));

}  // namespace weir::detail
