// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

TEST(ServeConfig, TcpWithoutATokenIsRefused) {
  EXPECT_EQ(refused("token = \"/etc/weir.token\"", ""),
            "f:51:7: control: tcp needs a token; name a file that contains it");
}

TEST(ServeConfig, TlsOfControlNeedsTcp) {
  const std::string tcp = "[control]\ntcp = '0.0.0.0:9810'\ntoken = '/t'\ntls = '/etc/weir/tls'\n";
  EXPECT_TRUE(mistakes_of(tcp).empty());
  EXPECT_EQ(
      mistakes_of("[control]\ntls = '/etc/weir/tls'\n"),
      (std::vector<std::string>{"f:2:7: control: tls encrypts nothing; name an address with tcp"}));
}

TEST(ServeConfig, RefusesAddressesThatAreNone) {
  EXPECT_EQ(refused("\"[::1]:10809\"", "\"myhost:10809\""),
            "f:2:30: server: listen: 'myhost:10809' contains no valid IPv4 address; expected "
            "ADDRESS:PORT such as 127.0.0.1:10809, [::1]:10809 or :10809, or unix:PATH");
  EXPECT_EQ(refused("\"[::1]:10809\"", "\"127.0.0.1:10810\""),
            "f:2:30: server: listen contains '127.0.0.1:10810' twice");
  EXPECT_EQ(refused("\"[::1]:10809\"", "5"), "f:2:30: server: listen must contain quoted strings");
  std::string many = "':1'";
  for (int port = 2; port <= 65; ++port) many += ", ':" + std::to_string(port) + "'";
  EXPECT_EQ(refused("\"[::1]:10809\"", many),
            "f:2:10: server: listen contains more than 64 addresses");
  EXPECT_EQ(refused("\"10.1.0.0/16@tcp\"", "\"10.1.0.0/33@tcp\"").substr(0, 42),
            "f:20:26: claims: allow '10.1.0.0/33@tcp': ");
  EXPECT_EQ(refused("\"192.168.[0-3].*@tcp\"", "\"somewhere\"").substr(0, 49),
            "f:27:8: nodemap 'visitors': nids 'somewhere': col");
}

TEST(ServeConfig, RefusesJobsThatAreNone) {
  EXPECT_EQ(refused("backup = 2", "backup = 0"),
            "f:23:25: jobs: nodes of 'backup' must be a whole number from 1 to 1000000");
  EXPECT_EQ(refused("\"ior.n1\" = 4", "ior.n1 = 4"),
            "f:23:11: jobs: nodes of 'ior' must not be a table; quote a job id that contains dots: "
            "'ior.n1' "
            "= 4");
  EXPECT_EQ(refused("backup = 2", std::string(32, 'x') + " = 2"),
            "f:23:25: jobs: nodes of 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' have no valid job id; a "
            "job id has 1 "
            "to 31 bytes");
  EXPECT_EQ(refused("nodes = { \"ior.n1\" = 4, backup = 2 }", "nodes = 4"),
            "f:23:9: jobs: nodes must be a table such as { 'ior.n1' = 4 }");
  EXPECT_EQ(refused("\"clients\"", "\"two\""),
            "f:24:11: jobs: unknown cannot be 'two'; expected one of 'one', 'clients'");
}

TEST(ServeConfig, SizesOfJobsFromSlurm) {
  EXPECT_EQ(parsed("").slurm, serve::SlurmOptions{});
  EXPECT_EQ(parsed("[jobs]\nslurm = true\njob_pattern = '%j.%u'\nslurm_every = '1min'\n"
                   "squeue = '/opt/squeue'\n")
                .slurm,
            (serve::SlurmOptions{.is_on = true,
                                 .pattern = "%j.%u",
                                 .squeue = "/opt/squeue",
                                 .every = std::chrono::minutes{1}}));
  EXPECT_EQ(mistakes_of("[jobs]\njob_pattern = '%e.%H'\n"),
            (std::vector<std::string>{"f:2:15: jobs: job_pattern has a code that has no meaning "
                                      "in Slurm; use %j and %u only"}));
  EXPECT_EQ(mistakes_of("[jobs]\nsqueue = ''\nslurm_every = '1ms'\n").size(), 2U);
}

}  // namespace
}  // namespace weir::config
