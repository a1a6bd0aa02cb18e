// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/classify/share_level.h"
#include "weir/config/serve_config_for_tests.h"

namespace weir::config {
namespace {

using serve::ServeOptions;

TEST(ServeConfig, ReadsTheTreeOfSharesOfAService) {
  const ServeOptions options = parsed(kEveryKeyOfShares);
  ASSERT_EQ(options.services.size(), 1U);
  const serve::SharesOptions& shares = options.services[0].shares;
  EXPECT_EQ(shares.levels, (std::vector<FieldSet>{{Field::kProjid}, {Field::kNodemap}}));
  EXPECT_EQ(shares.weights,
            (std::map<std::string, std::uint64_t>{{"(none)", 5}, {"1001", 2}, {"1001/1", 3}}));
  EXPECT_EQ(shares.accounts,
            (std::map<std::string, std::string>{{"1002", "physics"}, {"1002/1", "physics/alice"}}));
  EXPECT_EQ(shares.names, (std::map<std::string, std::string>{
                              {"1001", "bio"}, {"1001/1", "guests"}, {"1002", "chem"}}));
  EXPECT_EQ(options.slurm.sshare, "/opt/sshare");
  const ServeOptions plain = parsed("[shares]\ntree = ['uid', 'jobid']\n");
  ASSERT_EQ(plain.services.size(), 1U) << "the default service";
  EXPECT_EQ(plain.services[0].shares.levels, (std::vector<FieldSet>{{Field::kUid}}));
  const ServeOptions rules =
      parsed("[shares]\ntree = ['rule', 'jobid']\nweights = { 'gold' = 2 }\n");
  EXPECT_EQ(rules.services[0].shares.levels, std::vector<FieldSet>{kRuleLevel});
  EXPECT_EQ(rules.services[0].shares.weights, (std::map<std::string, std::uint64_t>{{"gold", 2}}));
  EXPECT_TRUE(parsed("[shares]\ntree = ['jobid']\n").services[0].shares.levels.empty())
      << "one level is no tree";
}

TEST(ServeConfig, RefusesTreesOfSharesThatCannotBe) {
  const auto refused_tree = [](const std::string& rest) {
    const auto messages = mistakes_of("[shares]\n" + rest);
    EXPECT_EQ(messages.size(), 1U) << rest;
    return messages.empty() ? "" : messages.front();
  };
  EXPECT_EQ(refused_tree("tree = ['prjid', 'jobid']\n"),
            "f:2:8: shares: tree: tree 'prjid,jobid': 'prjid' is not a level; did you mean "
            "projid?");
  EXPECT_EQ(refused_tree("tree = ['uid', 'uid', 'jobid']\n"),
            "f:2:8: shares: tree: tree 'uid,uid,jobid': 'uid' is given twice; give each level "
            "once");
  EXPECT_EQ(refused_tree("tree = ['uid']\n"),
            "f:2:8: shares: tree: tree 'uid': does not end with the jobs; write jobid as the last "
            "level");
  EXPECT_EQ(refused_tree("tree = ['rule', 'jobid']\nweights = { 'no rule' = 2 }\n"),
            "f:3:13: shares: the weight of 'no rule' cannot be set: 'no rule' is not a name of a "
            "rule");
  EXPECT_EQ(refused_tree("weights = { '1' = 2 }\n"),
            "f:1:1: shares: tree is missing; such as ['projid', 'uid', 'jobid']");
  EXPECT_EQ(refused_tree("service = 'other'\ntree = ['uid', 'jobid']\n"),
            "f:2:11: shares: service 'other' does not exist; add a [[service]] of that name");
  const auto refused_weight = [&](const std::string& weights) {
    return refused_tree("tree = ['projid', 'uid', 'jobid']\nweights = " + weights + "\n");
  };
  EXPECT_EQ(refused_weight("{ '1' = 0 }"),
            "f:3:13: shares: the weight of '1' must be a whole number from 1 to 1000000000");
  EXPECT_EQ(refused_weight("{ '1' = 1000000000000 }"),
            "f:3:13: shares: the weight of '1' must be a whole number from 1 to 1000000000");
  EXPECT_EQ(refused_weight("{ '1/2/ior' = 2 }"),
            "f:3:13: shares: the weight of '1/2/ior' has a path of 3 values; the tree has 2 levels "
            "above the jobs; the weight of a job is weight= of its rule, or its nodes");
  EXPECT_EQ(refused_weight("{ 'bio' = 2 }"),
            "f:3:13: shares: the weight of 'bio' cannot be set: 'bio' is not a projid; write its "
            "number, or (none)");
  EXPECT_EQ(refused_weight("{ '1' = 2, '01' = 3 }"),
            "f:3:22: shares: the weight of '01' is given twice; give each node once");
  EXPECT_EQ(refused_weight("3"),
            "f:3:11: shares: weights must be a table such as { '1001' = 2, '1001/5' = 3 }");
  EXPECT_EQ(refused_tree("tree = ['uid', 'jobid']\naccounts = { '7' = 'a/b/c' }\n"),
            "f:3:14: shares: the account of '7' is not valid; expected ACCOUNT, or ACCOUNT/USER");
  const auto refused_name = [&](const std::string& names) {
    return refused_tree("tree = ['projid', 'jobid']\nnames = " + names + "\n");
  };
  for (const char* name : {"''", "'a/b'", "'7'", "7", "'a name that is longer than 31 bytes'"}) {
    EXPECT_EQ(refused_name("{ '1' = " + std::string(name) + " }"),
              "f:3:11: shares: the name of '1' is not valid; expected 1 to 31 bytes without /, and "
              "not a number");
  }
  EXPECT_EQ(refused_name("{ '1' = 'bio', '2' = 'bio' }"),
            "f:3:24: shares: the name of '2' is given twice; give each node below the same parent "
            "a name of its own");
  EXPECT_EQ(refused_name("{ '1' = 'bio', 'bio' = 'x' }"),
            "f:3:24: shares: the name of 'bio' is given twice; give each node below the same "
            "parent a name of its own");
  EXPECT_EQ(mistakes_of("[[shares]]\ntree = ['uid', 'jobid']\n[[shares]]\ntree = ['gid', "
                        "'jobid']\n")
                .front(),
            "f:3:1: shares: service 'ost_io' has a tree of shares already");
  EXPECT_EQ(mistakes_of("[[service]]\nname = 'ost_io'\nadaptive = 'off'\n[shares]\ntree = ['uid', "
                        "'jobid']\n")
                .front(),
            "f:5:8: shares: tree has no effect with adaptive = \"off\"; set adaptive = \"on\" for "
            "the service, or remove the tree");
}

}  // namespace
}  // namespace weir::config
