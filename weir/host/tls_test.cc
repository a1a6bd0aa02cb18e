// SPDX-License-Identifier: Apache-2.0
#include "weir/host/tls.h"

#include <gtest/gtest.h>

namespace weir::host {
namespace {

// tests/clients/tls_test.py tests successful handshakes with real clients.
TEST(TlsKeys, NameTheFileThatIsMissing) {
  const auto keys = TlsKeys::load("/nonexistent", TlsKeys::Clients::kAny);
  ASSERT_FALSE(keys);
  EXPECT_EQ(keys.error().code, std::errc::no_such_file_or_directory);
  EXPECT_NE(keys.error().where.find("/nonexistent/ca-cert.pem"), std::string::npos);
  EXPECT_NE(keys.error().hint.find("server-key.pem"), std::string::npos);
}

}  // namespace
}  // namespace weir::host
