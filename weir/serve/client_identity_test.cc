// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/client_identity.h"

#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace weir::serve {
namespace {

sockaddr_storage ipv4(const char* text) {
  sockaddr_storage address{};
  address.ss_family = AF_INET;
  inet_pton(AF_INET, text, &reinterpret_cast<sockaddr_in&>(address).sin_addr);
  return address;
}

sockaddr_storage ipv6(const char* text) {
  sockaddr_storage address{};
  address.ss_family = AF_INET6;
  inet_pton(AF_INET6, text, &reinterpret_cast<sockaddr_in6&>(address).sin6_addr);
  return address;
}

Attributes of(const ClientIdentity& identity, const Claims& claims = {}) {
  return *attributes_of(identity, claims, {}, {});
}

TEST(ClientIdentity, HasTheNidOfItsAddress) {
  EXPECT_EQ(print_nid(nid_of(ipv4("10.1.2.3"))), "10.1.2.3@tcp");
  EXPECT_EQ(nid_of(ipv4("10.1.2.3")), *parse_nid("10.1.2.3@tcp"));
  EXPECT_EQ(nid_of(ipv6("fd00::1")), *parse_nid("fd00::1@tcp"));
  EXPECT_EQ(nid_of(ipv6("::ffff:10.1.2.3")), *parse_nid("10.1.2.3@tcp"));
  EXPECT_EQ(unix_nid(), *parse_nid("0@lo"));
}

TEST(ClientIdentity, IsLocalOnLoopback) {
  EXPECT_TRUE(is_loopback(ipv4("127.0.0.1")));
  EXPECT_TRUE(is_loopback(ipv4("127.8.0.1")));
  EXPECT_TRUE(is_loopback(ipv6("::1")));
  EXPECT_TRUE(is_loopback(ipv6("::ffff:127.0.0.1")));
  EXPECT_FALSE(is_loopback(ipv4("10.0.0.1")));
  EXPECT_FALSE(is_loopback(ipv6("fd00::1")));
}

TEST(ClientIdentity, IsItsOwnJobUnlessItClaimsOne) {
  const ClientIdentity far{.nid = nid_of(ipv4("10.1.2.3"))};
  EXPECT_EQ(of(far).job.text(), "10.1.2.3@tcp");
  EXPECT_EQ(of(far).uid, kUnknownId);
  const ClientIdentity near{.nid = unix_nid(), .is_local = true, .uid = 500, .gid = 100};
  EXPECT_EQ(of(near).job.text(), "uid.500");
  EXPECT_EQ(of(near).gid, 100U);
  const Attributes claimed = of(near, {.job = JobId("ior"), .uid = 7, .project = 9});
  EXPECT_EQ(claimed.job.text(), "ior");
  EXPECT_EQ(claimed.uid, 7U);
  EXPECT_EQ(claimed.gid, 100U);
  EXPECT_EQ(claimed.projid, 9U);
}

// Two clients whose addresses differ only at the end must not become one job.
TEST(ClientIdentity, ALongAddressKeepsItsEnd) {
  const ClientIdentity one{.nid = nid_of(ipv6("2001:db8:1111:2222:3333:4444:5555:6666"))};
  const ClientIdentity two{.nid = nid_of(ipv6("2001:db8:1111:2222:3333:4444:5555:6667"))};
  EXPECT_NE(of(one).job, of(two).job);
  EXPECT_FALSE(of(one).job.empty());
}

TEST(ClientIdentity, ClaimsAreRefusedUnlessTheClientIsAllowedToMakeThem) {
  const ClientIdentity far{.nid = nid_of(ipv4("10.1.2.3"))};
  const Claims claims{.job = JobId("root")};
  const auto refused = attributes_of(far, claims, {}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::permission_denied);
  ClaimsOptions trusting;
  trusting.nids = *NidList::parse("10.1.2.[1-5]@tcp");
  EXPECT_TRUE(attributes_of(far, claims, trusting, {}));
  const ClientIdentity near{.nid = unix_nid(), .is_local = true};
  EXPECT_FALSE(attributes_of(near, claims, {.local = false, .nids = {}}, {}));
}

TEST(ClientIdentity, IsInTheFirstNodemapThatHoldsIt) {
  std::vector<NodemapOptions> nodemaps;
  nodemaps.push_back({"a", *NidList::parse("10.1.*.*@tcp")});
  nodemaps.push_back({"b", *NidList::parse("*@tcp")});
  EXPECT_EQ(attributes_of({.nid = nid_of(ipv4("10.1.2.3"))}, {}, {}, nodemaps)->nodemap, 1U);
  EXPECT_EQ(attributes_of({.nid = nid_of(ipv4("10.2.2.3"))}, {}, {}, nodemaps)->nodemap, 2U);
  EXPECT_EQ(attributes_of({.nid = unix_nid()}, {}, {}, nodemaps)->nodemap, 0U);
}

}  // namespace
}  // namespace weir::serve
