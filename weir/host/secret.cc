// SPDX-License-Identifier: Apache-2.0
#include "weir/host/secret.h"

#include <cerrno>

#include <gnutls/crypto.h>
#include <sys/random.h>

#include "weir/base/assert.h"

namespace weir::host {

// getrandom(2) returns up to 256 bytes completely.
Result<Key> random_key() {
  Key key;
  ssize_t got = 0;
  do {
    got = getrandom(key.data(), key.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(key.size())) {
    return fail_errno(got < 0 ? errno : EIO, "getrandom", "the kernel must provide random bytes");
  }
  return key;
}

Digest keyed_digest(const Key& key, std::string_view text) {
  Digest digest;
  static_assert(sizeof digest == 32);
  const int code = gnutls_hmac_fast(GNUTLS_MAC_SHA256, key.data(), key.size(), text.data(),
                                    text.size(), digest.data());
  // With a known algorithm it fails only if out of memory.
  WEIR_ASSERT(code == 0, code);
  return digest;
}

}  // namespace weir::host
