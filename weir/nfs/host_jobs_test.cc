// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/host_jobs.h"

#include <map>

#include <gtest/gtest.h>

namespace weir::nfs {
namespace {

using std::chrono::minutes;

Nid nid(const char* text) { return parse_nid(text).value(); }

class HostJobsTest : public testing::Test {
 protected:
  HostJobs addresses(const std::vector<std::pair<std::string, std::string>>& hosts) {
    return resolver_.addresses(hosts, now_, unknown_);
  }

  std::map<std::string, HostResolver::Addresses> names_ = {
      {"n1", {nid("10.0.0.1@tcp"), nid("2001:db8::1@tcp")}},
      {"n2", {nid("10.0.0.2@tcp")}},
      {"alias", {nid("10.0.0.2@tcp")}}};
  int asked_ = 0;
  Instant now_{minutes{1000}};
  std::size_t unknown_ = 0;
  HostResolver resolver_{[this](const std::string& host) {
    ++asked_;
    return names_[host];
  }};
};

TEST_F(HostJobsTest, EveryAddressOfAHostBelongsToItsJob) {
  const HostJobs jobs = addresses({{"n1", "7"}, {"n2", "8"}, {"n3", "9"}});
  EXPECT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs.at(nid("10.0.0.1@tcp")), JobId("7"));
  EXPECT_EQ(jobs.at(nid("2001:db8::1@tcp")), JobId("7"));
  EXPECT_EQ(jobs.at(nid("10.0.0.2@tcp")), JobId("8"));
  EXPECT_EQ(unknown_, 1U);
}

TEST_F(HostJobsTest, AnAddressOfSeveralJobsBelongsToNone) {
  EXPECT_EQ(addresses({{"alias", "7"}, {"n2", "8"}}).size(), 0U);
  EXPECT_EQ(addresses({{"alias", "8"}, {"n2", "8"}}).size(), 1U);
}

TEST_F(HostJobsTest, TheResolverIsAskedOnceInAWhile) {
  addresses({{"n1", "7"}, {"n2", "8"}});
  now_ += HostResolver::kKeptFor - Nanoseconds{1};
  names_["n1"] = {nid("10.0.0.9@tcp")};
  EXPECT_TRUE(addresses({{"n1", "9"}}).contains(nid("10.0.0.1@tcp")));
  EXPECT_EQ(asked_, 2);
  now_ += Nanoseconds{1};
  EXPECT_TRUE(addresses({{"n1", "9"}}).contains(nid("10.0.0.9@tcp")));
  EXPECT_EQ(asked_, 3);
  addresses({{"n2", "9"}});
  EXPECT_EQ(asked_, 4) << "hosts that are no longer listed are forgotten";
}

TEST(HostResolver, AsksTheSystem) {
  const auto found = HostResolver::resolve_host("127.0.0.1");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(print_nid(found[0]), "127.0.0.1@tcp");
  EXPECT_TRUE(HostResolver::resolve_host("no such host").empty());
}

}  // namespace
}  // namespace weir::nfs
