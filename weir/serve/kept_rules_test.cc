// SPDX-License-Identifier: Apache-2.0
//
// With random commands, a journal and a file: weir/control/change_property_test.cc.
#include "weir/serve/kept_rules.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

using Texts = std::vector<std::string>;
using Keeping = KeptRules::Keeping;
constexpr Instant kNow{};

struct KeptRulesTest : testing::Test {
  KeptRulesTest() {
    EXPECT_TRUE(write_nrs_policies(target, "tbf jobid", {}));
    EXPECT_TRUE(rules.begin({rule("start file jobid={f} rate=1")},
                            {rule("start line jobid={l} rate=2")}, kNow));
  }
  static RuleChange rule(const char* text) { return parse_rule(text).value(); }
  std::errc keep(const char* command) {
    return code(rules.apply(rule(command), Keeping::kKept, kNow));
  }
  std::errc set(const char* command) {
    return code(rules.apply(rule(command), Keeping::kTemporary, kNow));
  }
  KeptRules::PolicySwitch policy(const char* text) {
    const auto started = rules.start_policy(text, kNow);
    EXPECT_TRUE(started);
    return started.value_or(KeptRules::PolicySwitch{});
  }
  std::string list(Head head = Head::kRegular) const {
    const RuleView* const seen = target.rules(head);
    std::string text;
    if (seen == nullptr) return "-";
    for (const Rule* const rule : seen->rules(head).rules()) {
      text += rule->name() + ":" + std::to_string(rule->limits().rate_in_force()) + " ";
    }
    return text;
  }
  static std::errc code(const Result<void>& done) { return done ? std::errc{} : done.error().code; }

  Target target{{}, {}};
  KeptRules rules{target};
};

TEST_F(KeptRulesTest, RulesComeBackWithTbfAndTemporaryOnesDoNot) {
  keep("start kept jobid={k} rate=3");
  keep("change file rate=10");
  set("start temp jobid={t} rate=4");
  set("change kept rate=30");
  EXPECT_EQ(list(), "temp:4 kept:30 line:2 file:10 default:10000 ");
  const auto away = policy("fifo");
  EXPECT_EQ(away.inactive, (Texts{"file", "line", "kept"}));
  EXPECT_EQ(away.gone, Texts{"temp"});
  EXPECT_EQ(
      away.message(),
      "rules file, line, kept are kept, but inactive under this policy; rule temp is removed with "
      "the policy (started by set_param without -P)");
  EXPECT_EQ(policy("tbf jobid").active, (Texts{"file", "line", "kept"}));
  EXPECT_EQ(list(), "kept:3 line:2 file:10 default:10000 ");
  set("start temp jobid={t} rate=4");
  EXPECT_EQ(policy("tbf jobid").message(), "") << "it was in force already";
  EXPECT_EQ(list(), "temp:4 kept:3 line:2 file:10 default:10000 ");
}

TEST_F(KeptRulesTest, ATypeHasTheRulesOfItsFields) {
  policy("tbf nid");
  EXPECT_EQ(list(), "default:10000 ");
  EXPECT_EQ(keep("start net nid={10.0.0.1@tcp} rate=5"), std::errc{});
  EXPECT_EQ(keep("start file nid={10.0.0.1@tcp} rate=5"), std::errc::file_exists)
      << "it is inactive, and would be there twice";
  EXPECT_EQ(keep("change file rate=5"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(keep("stop line"), std::errc{}) << "though it is inactive";
  EXPECT_EQ(policy("tbf").active, Texts{"file"});
  EXPECT_EQ(list(), "net:5 file:1 default:10000 ");
}

TEST_F(KeptRulesTest, OldFormsKeepTheirMeaningUnderOtherTypes) {
  policy("tbf uid");
  EXPECT_EQ(keep("start user {500} 7"), std::errc{});
  policy("tbf gid");
  EXPECT_EQ(list(), "default:10000 ");
  policy("tbf uid");
  EXPECT_EQ(list(), "user:7 default:10000 ");
}

TEST_F(KeptRulesTest, HeadsAreSwitchedOnTheirOwn) {
  keep("hp start urgent jobid={u} rate=9");
  set("start temp jobid={t} rate=4");
  EXPECT_EQ(policy("fifo reg").gone, Texts{}) << "the other head still has it";
  EXPECT_EQ(list(), "-");
  EXPECT_EQ(list(Head::kHigh), "temp:4 urgent:9 line:2 file:1 default:10000 ");
  policy("tbf reg jobid");
  EXPECT_EQ(list(), "line:2 file:1 default:10000 ");
  EXPECT_EQ(list(Head::kHigh), "temp:4 urgent:9 line:2 file:1 default:10000 ");
  EXPECT_EQ(keep("change line rate=8"), std::errc{}) << "on both, of which each has its own now";
  policy("fifo");
  policy("tbf jobid");
  EXPECT_EQ(list(), "line:8 file:1 default:10000 ");
  EXPECT_EQ(list(Head::kHigh), "urgent:9 line:8 file:1 default:10000 ");
}

TEST_F(KeptRulesTest, DefaultIsKeptToo) {
  keep("change default rate=77");
  set("change default rate=5");
  policy("fifo");
  policy("tbf jobid");
  EXPECT_EQ(list(), "line:2 file:1 default:77 ");
}

TEST_F(KeptRulesTest, WhatIsKeptDoesNotDependOnWhatIsNot) {
  set("start temp jobid={t} rate=4");
  set("stop line");
  EXPECT_EQ(keep("change temp rate=5"), std::errc::operation_not_permitted);
  EXPECT_EQ(keep("start a jobid={a} rank=temp"), std::errc::operation_not_permitted);
  EXPECT_EQ(keep("start line jobid={a}"), std::errc::file_exists);
  EXPECT_EQ(keep("stop temp"), std::errc{});
  EXPECT_EQ(keep("stop line"), std::errc{});
  EXPECT_EQ(keep("start line jobid={a} rate=9"), std::errc{});
  EXPECT_EQ(list(), "line:9 file:1 default:10000 ");
  EXPECT_EQ(rules.kept(), rules.running());
}

TEST_F(KeptRulesTest, ForgottenCommandsAreTemporary) {
  keep("start kept jobid={k} rate=3");
  rules.forget(rule("start kept jobid={k} rate=3"));
  EXPECT_EQ(list(), "kept:3 line:2 file:1 default:10000 ") << "until the end";
  EXPECT_EQ(policy("fifo").gone, Texts{"kept"});
}

TEST_F(KeptRulesTest, RestoredStartsGiveWayToTheFile) {
  const auto told =
      rules.restore({rule("start file jobid={other} rate=50"), rule("change line rate=20"),
                     rule("change nobody rate=1"), rule("start new jobid={n} rate=3 rank=gone")},
                    kNow);
  EXPECT_EQ(list(), "new:3 line:20 file:1 default:10000 ");
  EXPECT_EQ(print_all(told.conflicts), Texts{"start file jobid={other} rate=50"});
  EXPECT_EQ(told.mistakes.size(), 2U);
  keep("stop file");
  EXPECT_EQ(rules.kept(), rules.running());
}

TEST_F(KeptRulesTest, ARuleOfBothHeadsStaysOneForBoth) {
  keep("start kept jobid={k} rate=3");
  policy("fifo");
  policy("tbf jobid");
  const Rule* const rule = target.rules(Head::kRegular)->rules(Head::kRegular).find("kept");
  ASSERT_NE(rule, nullptr);
  EXPECT_EQ(rule->heads(), Heads::kBoth) << "its classes have one bucket for both";
}

}  // namespace
}  // namespace weir::serve
