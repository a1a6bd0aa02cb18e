// SPDX-License-Identifier: Apache-2.0
//
// Random keys, and digests derived from them.
//
//   auto key = random_key();                         once; stored in a file for its owner only
//   Digest proof = keyed_digest(*key, "client 7");   always the same for the same key and text
//
// Random bits are from the kernel (getrandom(2)); the digest is HMAC-SHA256 (RFC 2104) of
// GnuTLS. Any number of known digests reveals neither the key nor another digest. Plain
// functions, thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "weir/base/result.h"

namespace weir::host {

using Key = std::array<std::byte, 32>;
using Digest = std::array<std::byte, 32>;

// EIO and others: the kernel provides no random bytes.
Result<Key> random_key();

Digest keyed_digest(const Key& key, std::string_view text);

}  // namespace weir::host
