// SPDX-License-Identifier: Apache-2.0
#include "weir/host/secret.h"

#include <cstring>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weir::host {
namespace {

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte one : digest) text += fmt::format("{:02x}", std::to_integer<unsigned>(one));
  return text;
}

TEST(Secret, EveryKeyIsAnother) {
  const auto one = random_key();
  const auto other = random_key();
  ASSERT_TRUE(one);
  ASSERT_TRUE(other);
  EXPECT_NE(*one, *other);
  EXPECT_NE(*one, Key{});
}

// RFC 4231 has keys of other lengths; HMAC pads a key with zeroes, so those of 4 and 20 bytes can
// be used.
TEST(Secret, ADigestIsTheOneOfTheStandard) {
  Key jefe{};
  std::memcpy(jefe.data(), "Jefe", 4);
  EXPECT_EQ(hex(keyed_digest(jefe, "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  Key eleven{};
  std::memset(eleven.data(), 0x0b, 20);
  EXPECT_EQ(hex(keyed_digest(eleven, "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
}

}  // namespace
}  // namespace weir::host
