// SPDX-License-Identifier: Apache-2.0
//
// Sets where the text of a failed assertion (assert.h) is written. The default is standard error. A
// process that must never wait for the reader of its log sets its own writer, so that an abort does
// not wait either.
//
//   detail::set_assertion_writer(write_last_words);
//
// The function must not throw. Any thread may call both.
#pragma once

#include <string_view>

namespace weir::detail {

void set_assertion_writer(void (*write)(std::string_view text));

}  // namespace weir::detail
