// SPDX-License-Identifier: Apache-2.0
//
// What a peer or a library says of an error, made fit for a line of the log: bytes that are not
// printable become a question mark, and what is too long is cut. Longer than weir/base/quote.h lets
// it be, since the reason of a TLS failure stands at the end of a long sentence.
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
