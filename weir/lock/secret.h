// SPDX-License-Identifier: Apache-2.0
//
// Proof that a client is the one that was welcomed before: 128 bits that the server sends with
// the number of a session and requires with it later. Client numbers can be guessed; secrets
// cannot.
//
// A server derives them from its key, the number, and the principal: the name that the transport
// has authenticated, such as the subject of a certificate, or nothing. So it stores none of them,
// they stay the same after a restart, and a secret that is used by another principal fails.
//
// Pure values. is_same() takes constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace weir::lock {

using SessionSecret = std::array<std::byte, 16>;

using SecretOf = std::function<SessionSecret(std::uint64_t client, std::string_view principal)>;

inline bool is_same(const SessionSecret& a, const SessionSecret& b) {
  std::byte differs{};
  for (std::size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == std::byte{};
}

// For simulations and tests without attackers.
inline SessionSecret open_secret(std::uint64_t client, std::string_view principal) {
  SessionSecret secret{std::byte{1}};
  for (std::size_t i = 0; i < 8; ++i) secret[8 + i] = static_cast<std::byte>(client >> 8 * i);
  for (std::size_t i = 0; i < principal.size(); ++i) {
    secret[1 + i % 7] ^= static_cast<std::byte>(principal[i]);
  }
  return secret;
}

}  // namespace weir::lock
