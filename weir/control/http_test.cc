// SPDX-License-Identifier: Apache-2.0
#include "weir/control/http.h"

#include <gtest/gtest.h>

namespace weir::control {
namespace {

TEST(Http, SplitsATargetIntoPathAndQuery) {
  HttpRequest request;
  ASSERT_TRUE(split_target("/v1/a%20b?name=x%2Fy+z&flag&name=2", request));
  EXPECT_EQ(request.path, "/v1/a b");
  EXPECT_EQ(request.find("name"), "x/y z");
  EXPECT_EQ(request.find("flag"), "");
  EXPECT_EQ(request.find("none"), std::nullopt);
}

TEST(Http, RefusesTargetsThatAreNone) {
  for (const char* const bad : {"", "v1", "*", "/%", "/%2", "/%zz", "/?a=%f"}) {
    HttpRequest request;
    EXPECT_FALSE(split_target(bad, request)) << bad;
  }
}

TEST(Http, ComparesSecrets) {
  EXPECT_TRUE(is_same_secret("token", "token"));
  EXPECT_FALSE(is_same_secret("token", "tokem"));
  EXPECT_FALSE(is_same_secret("token", "toke"));
  EXPECT_FALSE(is_same_secret("toke", "token"));
  EXPECT_FALSE(is_same_secret("", "token"));
  EXPECT_FALSE(is_same_secret("aa", "a")) << "a repetition is not the same";
}

TEST(Http, RefusesTcpWithoutATokenAndBeyondLoopback) {
  const auto none = [](const HttpRequest&, const HttpServer::Reply&) {};
  EXPECT_FALSE(HttpServer::create({.socket_path = "", .tcp = "127.0.0.1:0", .token = ""}, none));
  for (const char* const bad : {"0.0.0.0:0", "192.0.2.1:80", "nonsense", "127.0.0.1", ":80",
                                "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:80x", "unix:/tmp/s"}) {
    EXPECT_FALSE(HttpServer::create({.socket_path = "", .tcp = bad, .token = "t"}, none)) << bad;
  }
  const auto bound =
      HttpServer::create({.socket_path = "", .tcp = "127.0.0.1:0", .token = "t"}, none);
  ASSERT_TRUE(bound);
  EXPECT_NE((*bound)->tcp_port(), 0);
}

}  // namespace
}  // namespace weir::control
