// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

using serve::ServeOptions;

TEST(ServeConfig, AClusterNeedsItsEtcdAndAnAddressThatOthersReach) {
  EXPECT_EQ(refused("etcd = [\"10.0.0.1:2379\", \"etcd2:2379\"]", "etcd = \"http://e:2379\""),
            "f:56:8: cluster: etcd: 'http://e:2379' is not HOST:PORT; such as '10.0.0.1:2379', "
            "without http://");
  EXPECT_EQ(refused("advertise = \"storage1:7420\"", ""),
            "f:54:1: cluster: advertise is missing; other servers need an address to connect to "
            "when listen has none");
  EXPECT_EQ(refused("name = \"a\"\netcd", "etcd"), "f:54:1: cluster: name is missing");
  EXPECT_EQ(refused("timeout = \"200ms\"", "timeout = \"20ms\""),
            "f:61:11: cluster: timeout must be longer than epoch, which is 20ms");
  EXPECT_EQ(refused("password_file = \"/etc/weir.password\"", ""),
            "f:54:1: cluster: password_file is missing; name a file that contains the "
            "user's password");
}

TEST(ServeConfig, AClusterNeedsAStateFileAndSaysHowItStartsWithoutRules) {
  EXPECT_EQ(refused("state = \"/var/lib/weir/cluster\"", ""),
            "f:54:1: cluster: state is missing; name a file that the server can write, such as "
            "'/var/lib/weir/cluster'");
  EXPECT_EQ(refused("start_without = \"rate\"", "start_without = \"open\""),
            "f:68:17: cluster: start_without must be 'closed' or 'rate'");
  EXPECT_EQ(refused("start_rate = 500", ""),
            "f:54:1: cluster: start_rate is missing; operations per second, for start_without = "
            "'rate'");
  EXPECT_EQ(refused("start_without = \"rate\"", ""),
            "f:69:14: cluster: start_rate requires start_without = 'rate'");
  EXPECT_NE(refused("start_rate = 500", "start_rate = 0"), "");
  ServeOptions options = parsed(kEveryKey);
  options.trace_file.clear();
  options.cluster.start_rate = 0;
  EXPECT_FALSE(serve::check(options));
  options.cluster.start_without = serve::ClusterOptions::StartWithout::kClosed;
  EXPECT_TRUE(serve::check(options));
  options.cluster.state_file.clear();
  EXPECT_FALSE(serve::check(options));
}

TEST(ServeConfig, WhatAServerUsesThatIsCutOffIsAChoice) {
  EXPECT_EQ(refused("partition = \"last\"", "partition = \"first\""),
            "f:70:13: cluster: partition must be 'safe' or 'last'");
}

TEST(ServeConfig, RulesOfTheClusterAreNotOfAFile) {
  ServeOptions options = parsed(kEveryKey);
  EXPECT_TRUE(serve::check(options));
  options.services[0].rules = {parse_rule("start b nid={*@tcp} rate=5 scope=cluster").value()};
  EXPECT_FALSE(serve::check(options));
  options.cluster = {};
  EXPECT_TRUE(serve::check(options));
}

}  // namespace
}  // namespace weir::config
