// SPDX-License-Identifier: Apache-2.0
#include "weir/control/api_path.h"

#include <gtest/gtest.h>

namespace weir::control {
namespace {

TEST(ApiPath, EveryPathHasItsMethods) {
  EXPECT_EQ(allowed_methods("/v1/status"), "GET, HEAD");
  EXPECT_EQ(allowed_methods("/v1/services/ost_io/rules"), "GET, HEAD, POST");
  EXPECT_EQ(allowed_methods("/v1/services/ost_io/rules/dd"), "DELETE");
  for (const char* path : {"", "/", "/v1", "/v1/", "/v1/status/", "/v1/services//rules",
                           "/v1/services/a/b/c/d", "/v1/statuses", "v1/status"}) {
    EXPECT_EQ(allowed_methods(path), "") << path;
  }
  // The end of these paths is one name, which may contain slashes. An empty one has methods too, so
  // that its error says that the name is empty.
  for (const char* path : {"/v1/jobs/ior.1", "/v1/jobs/a/b", "/v1/jobs/"}) {
    EXPECT_EQ(allowed_methods(path), "PUT, DELETE") << path;
  }
}

TEST(ApiPath, AMethodIsAllowedAsAWholeWord) {
  EXPECT_TRUE(is_allowed("GET", "GET, HEAD, POST"));
  EXPECT_TRUE(is_allowed("POST", "GET, HEAD, POST"));
  EXPECT_FALSE(is_allowed("POS", "GET, HEAD, POST"));
  EXPECT_FALSE(is_allowed("", "GET"));
  EXPECT_FALSE(is_allowed("DELETE", ""));
}

}  // namespace
}  // namespace weir::control
