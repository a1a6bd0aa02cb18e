// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

using serve::ServeOptions;

TEST(ServeConfigLock, IsReadAndOffWithoutAnAddress) {
  const serve::LockOptions lock = parsed(kEveryKey).lock;
  ASSERT_TRUE(lock.listen);
  EXPECT_EQ(serve::print_listen(*lock.listen), "10.0.0.1:5");
  EXPECT_EQ(lock.state_file, "/s");
  EXPECT_EQ(lock.server.pool.limit, 500);
  EXPECT_EQ(lock.server.pool.preset, lock::Preset::kDld);
  EXPECT_EQ(lock.server.lease, std::chrono::seconds{10});
  EXPECT_EQ(lock.server.grace, std::chrono::seconds{20});
  EXPECT_FALSE(parsed("[lock]\nstate = '/s'\n").lock.listen);
  EXPECT_EQ(parsed("[lock]\nlease = '4s'\n").lock.server.grace, std::chrono::seconds{6});
  EXPECT_EQ(parsed("[lock]\nlisten = '10.0.0.1'\n").lock.listen->port, 10811);
}

TEST(ServeConfigLock, WhatWouldNotBeSafeIsRefused) {
  EXPECT_NE(refused("limit = 500", "limit = 0").find("limit"), std::string::npos);
  EXPECT_NE(refused("start a jobid={a} rate=5", "start a jobid={a} rate=none").find("rule 1: col"),
            std::string::npos);
  EXPECT_NE(refused("grace = \"20s\"", "grace = \"11s\"").find("quarter"), std::string::npos);
  EXPECT_NE(refused("preset = \"dld\"", "preset = \"none\"").find("preset"), std::string::npos);
  EXPECT_NE(refused("listen = \"10.0.0.1:5\"", "listen = \"nowhere:x\"").find("lock"),
            std::string::npos);
  ServeOptions options = parsed(kEveryKey);
  EXPECT_TRUE(serve::check(options));
  options.lock.rules = {parse_rule("start a uid={5} rate=5").value()};
  EXPECT_FALSE(serve::check(options));
  options = parsed(kEveryKey);
  options.trace_file.clear();
  options.lock.state_file.clear();
  EXPECT_FALSE(serve::check(options));
}

}  // namespace
}  // namespace weir::config
