// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/plain_text.h"

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

ServeOptions locks_on(const std::string& listen) {
  ServeOptions options;
  options.lock.listen = *parse_listen(listen, LockOptions::kPort);
  return options;
}

ServeOptions cluster_on(const std::string& listen, std::vector<std::string> etcd) {
  ServeOptions options;
  options.cluster.name = "a";
  options.cluster.listen = listen;
  options.cluster.etcd = std::move(etcd);
  return options;
}

bool has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

TEST(PlainText, LocksForOtherMachinesAreWarnedOf) {
  for (const char* const listen : {"10.0.0.1:1", ":1", "[::]:1", "0.0.0.0:1", "[fd00::1]:1"}) {
    const auto warnings = plain_text_warnings(locks_on(listen));
    ASSERT_EQ(warnings.size(), 1U) << listen;
    EXPECT_TRUE(has(warnings[0], "lock: ") && has(warnings[0], "--lock-insecure")) << warnings[0];
  }
  for (const char* const listen :
       {"127.0.0.1:1", "127.3.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "unix:/run/x"}) {
    EXPECT_TRUE(plain_text_warnings(locks_on(listen)).empty()) << listen;
  }
}

TEST(PlainText, LocksWithTlsOrSaidToBeInsecureAreNot) {
  ServeOptions options = locks_on("10.0.0.1:1");
  options.tls.mode = TlsOptions::Mode::kOn;
  EXPECT_TRUE(plain_text_warnings(options).empty());
  options.tls.mode = TlsOptions::Mode::kOff;
  options.lock.insecure = true;
  EXPECT_TRUE(plain_text_warnings(options).empty());
}

TEST(PlainText, AClusterAndItsEtcdAreWarnedOfEachForItself) {
  EXPECT_TRUE(plain_text_warnings(cluster_on("127.0.0.1:1", {"localhost:2", "[::1]:2"})).empty());
  auto warnings = plain_text_warnings(cluster_on("10.0.0.1:1", {"127.0.0.1:2"}));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(has(warnings[0], "10.0.0.1:1") && has(warnings[0], " tls_directory")) << warnings[0];
  warnings = plain_text_warnings(cluster_on("127.0.0.1:1", {"127.0.0.1:2", "etcd.example:2"}));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(has(warnings[0], "etcd.example:2") && has(warnings[0], "etcd_tls_directory"));
  EXPECT_FALSE(has(warnings[0], "password"));
  ServeOptions options = cluster_on("10.0.0.1:1", {"[fd00::1]:2"});
  options.cluster.user = "weir";
  warnings = plain_text_warnings(options);
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_TRUE(has(warnings[0], "can join"));
  EXPECT_TRUE(has(warnings[1], "password"));
  options.cluster.etcd_tls_directory = "/pki";
  warnings = plain_text_warnings(options);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_TRUE(has(warnings[0], "can join"));
  options.cluster.tls_directory = "/pki";
  EXPECT_TRUE(plain_text_warnings(options).empty());
}

TEST(PlainText, AClusterSaidToBeInsecureIsNot) {
  ServeOptions options = cluster_on("10.0.0.1:1", {"10.0.0.2:2"});
  EXPECT_EQ(plain_text_warnings(options).size(), 2U);
  options.cluster.insecure = true;
  EXPECT_TRUE(plain_text_warnings(options).empty());
}

TEST(PlainText, AServerWithoutEitherSaysNothing) { EXPECT_TRUE(plain_text_warnings({}).empty()); }

}  // namespace
}  // namespace weir::serve
