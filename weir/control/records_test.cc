// SPDX-License-Identifier: Apache-2.0
#include "weir/control/records.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/control/journal.h"

namespace weir::control {
namespace {

Ledger::Account account(const char* job, std::int64_t record) {
  Ledger::Account one;
  one.job = JobId(job);
  one.record = record;
  one.remainder = -3;
  one.allotted = 5;
  return one;
}

Records two_services() {
  Records records(2);
  records[0].service = "ost_io";
  records[0].state.allocator.ledger.accounts = {account("", 4), account("dd 1", -4)};
  records[0].state.allocator.ledger.period = 77;
  records[1].service = "other";
  records[1].levels = "projid,uid,jobid";
  auto& nodes = records[1].state.tree.nodes;
  nodes.resize(2);
  nodes[0].allocator.ledger.accounts = {account("(none)", 2), account("1001", -2)};
  nodes[1].path = {JobId("(none)"), JobId("7")};
  nodes[1].allocator.ledger.accounts = {account("ior/7", 0)};
  nodes[1].allocator.ledger.half_life = Nanoseconds{60};
  nodes[1].allocator.ledger.fade_carry = static_cast<unsigned __int128>(3) << 64 | 5;
  return records;
}

TEST(Records, AreReadAsTheyWereWritten) {
  const std::string text = print_records(two_services());
  const auto read = parse_records(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(print_records(*read), text);
  ASSERT_EQ(read->size(), 2U);
  const ServiceRecords& jobs = read->at(0);
  EXPECT_EQ(jobs.levels, "");
  EXPECT_EQ(jobs.state.allocator.ledger.accounts,
            two_services()[0].state.allocator.ledger.accounts);
  EXPECT_TRUE(jobs.state.tree.nodes.empty());
  const ServiceRecords& tree = read->at(1);
  EXPECT_EQ(tree.levels, "projid,uid,jobid");
  ASSERT_EQ(tree.state.tree.nodes.size(), 2U);
  EXPECT_TRUE(tree.state.tree.nodes[0].path.empty());
  EXPECT_EQ(tree.state.tree.nodes[1].path, two_services()[1].state.tree.nodes[1].path);
  EXPECT_EQ(tree.state.tree.nodes[1].allocator.ledger.accounts.front().job, JobId("ior/7"));
}

TEST(Records, DamagedOnesAreRefused) {
  const auto is_read = [](const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += journal_line(line);
    return parse_records(text).has_value();
  };
  const std::string service = "service a 1 0 0 0 0 0 0 1";
  const std::string node = "node - 1 0 0 0 0 0 0 1";
  EXPECT_TRUE(is_read({service, "tree uid,jobid", node, "end"}));
  EXPECT_FALSE(is_read({service, "tree uid,jobid", node})) << "it ends too early";
  EXPECT_FALSE(is_read({service, node, "end"})) << "a node without a tree";
  EXPECT_FALSE(is_read({service, "tree", "end"}));
  EXPECT_FALSE(is_read({"tree uid,jobid", "end"}));
  EXPECT_FALSE(is_read({service, "tree uid,jobid", "node =\\q 1 0 0 0 0 0 0 1", "end"}));
  EXPECT_FALSE(is_read({service, "account - 1 0", "end"}));
  EXPECT_FALSE(is_read({service, "twig", "end"}));
  std::string text = print_records(two_services());
  text[text.size() / 2] ^= 1;
  EXPECT_FALSE(parse_records(text)) << "its checksum differs";
}

}  // namespace
}  // namespace weir::control
