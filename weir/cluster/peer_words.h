// SPDX-License-Identifier: Apache-2.0
//
// Makes the error text of a peer or library safe for a log line: unprintable bytes become question
// marks, and long text is truncated. The limit is higher than that of weir/base/quote.h, because
// the reason of a TLS failure is at the end of a long sentence.
//
//   peer_words(status.error_message())
#pragma once

#include <string>

namespace weir::cluster {

inline constexpr std::size_t kPeerWordsMax = 300;

inline std::string peer_words(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > kPeerWordsMax) text.resize(kPeerWordsMax);
  return text;
}

}  // namespace weir::cluster
