// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

using serve::ServeOptions;

TEST(ServeConfig, AGatewayNeedsAServerAndAnAddress) {
  const ServeOptions options = parsed(kEveryKeyOfNfs);
  ASSERT_EQ(options.nfs.size(), 1U);
  EXPECT_EQ(options.nfs[0].listen[0].port, serve::NfsOptions::kPort);
  EXPECT_EQ(options.nfs[0].listen[1].port, 2050);
  EXPECT_EQ(options.nfs[0].source, serve::SourceMode::kReserved);
  EXPECT_TRUE(options.nfs[0].sends_proxy);
  EXPECT_TRUE(options.nfs[0].passes_tls);
  EXPECT_TRUE(options.nfs[0].delays_v3 && options.nfs[0].delays_v40);
  EXPECT_EQ(options.nfs[0].mount, (serve::RelayPorts{20048, 20048}));
  EXPECT_EQ(options.nfs[0].lock, (serve::RelayPorts{0, 4045}));
  ASSERT_EQ(options.nfs[0].export_handles.size(), 2U);
  EXPECT_EQ(options.nfs[0].export_handles[0].name, "home");
  EXPECT_EQ(options.nfs[0].export_handles[0].prefix,
            (std::vector{std::byte{0x43}, std::byte{0}, std::byte{0}, std::byte{7}}));
  EXPECT_EQ(options.nfs[0].export_handles[1].name, "/srv/a=b");
  for (const char* const wrong :
       {"mount_port = '0'", "mount_port = 'x'", "lock_port = '1:70000'", "status_port = '1:'",
        "rpc_tls = 'on'", "export_handles = ['home']", "export_handles = ['home=4']",
        "export_handles = ['=43']", "export_handles = ['home=4x']"}) {
    EXPECT_EQ(
        mistakes_of(std::string("[[nfs]]\nlisten = [':1']\nserver = 'a'\n") + wrong + "\n").size(),
        1U)
        << wrong;
  }
  EXPECT_TRUE(options.nfs[0].accepts_proxy.value().matches(parse_nid("10.0.1.1@tcp").value()));
  EXPECT_FALSE(options.nfs[0].accepts_proxy->matches(parse_nid("10.0.0.6@tcp").value()));
  EXPECT_EQ(mistakes_of("[[nfs]]\nlisten = [':1']\nserver = 'a'\nsource = 'low'\n"),
            (std::vector<std::string>{
                "f:4:10: nfs: source: 'low' is not a source; expected any, reserved or client"}));
  EXPECT_EQ(mistakes_of("[[nfs]]\n"),
            (std::vector<std::string>{"f:1:1: nfs: listen is missing; such as [':2049']",
                                      "f:1:1: nfs: server is missing; HOST[:PORT] of the NFS "
                                      "server"}));
  EXPECT_EQ(mistakes_of("[[nfs]]\nlisten = [':1']\nserver = 'a'\nmax_wait = '1h'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[nfs]]\nlisten = [':1']\nserver = 'a'\nservice = 'b'\n").size(), 1U);
}

}  // namespace
}  // namespace weir::config
