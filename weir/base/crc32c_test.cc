// SPDX-License-Identifier: Apache-2.0
#include "weir/base/crc32c.h"

#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace {

// RFC 3720, B.4, and the check value from the catalogue of CRCs.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

}  // namespace
}  // namespace weir
