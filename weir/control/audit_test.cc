// SPDX-License-Identifier: Apache-2.0
#include "weir/control/audit.h"

#include <gtest/gtest.h>

namespace weir::control {
namespace {

TEST(Audit, ALineHasTheSameKeysInTheSameOrder) {
  AuditEntry entry =
      audit_entry(param_change(Change::Kind::kParam, rule_path("ost_io"), "change dd rate=2"));
  entry.who = "token deploy";
  entry.before = "rate=1";
  entry.after = "rate=2";
  entry.generation = "1f-7";
  EXPECT_EQ(audit_line(entry),
            "audit: change who=\"token deploy\" what=\"change dd rate=2\" "
            "on=\"ost.OSS.ost_io.nrs_tbf_rule\" before=\"rate=1\" after=\"rate=2\" "
            "generation=1f-7 result=ok");
  entry.error = "no rule 'dd'";
  EXPECT_NE(audit_line(entry).find(" result=\"no rule 'dd'\""), std::string::npos);
}

TEST(Audit, HostileNamesStayInTheirQuotes) {
  AuditEntry entry = audit_entry(
      {.kind = Change::Kind::kJob, .target = "a\" b\n\x1b[2J", .value = {}, .nodes = 3});
  entry.who = "token \"x\\y\n";
  const std::string line = audit_line(entry);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_NE(line.find("who=\"token \\\"x\\\\y\\x0A\" what=\"nodes=3\""), std::string::npos) << line;
}

TEST(Audit, LongValuesAreCut) {
  AuditEntry entry;
  entry.what = std::string(100'000, 'x');
  EXPECT_LT(audit_line(entry).size(), 500U);
}

}  // namespace
}  // namespace weir::control
