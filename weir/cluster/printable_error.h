// SPDX-License-Identifier: Apache-2.0
//
// Makes the error text of a peer or library safe for a log line: unprintable bytes become question
// marks, and long text is truncated. The limit is higher than that of weir/base/quote.h, because
// the reason of a TLS failure is at the end of a long sentence.
//
//   printable_error(status.error_message())
#pragma once

#include <string>

namespace weir::cluster {

inline constexpr std::size_t kPrintableErrorMax = 300;

inline std::string printable_error(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kPrintableErrorMax) text.resize(kPrintableErrorMax);
  return text;
}

}  // namespace weir::cluster
