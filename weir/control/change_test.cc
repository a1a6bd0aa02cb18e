// SPDX-License-Identifier: Apache-2.0
#include "weir/control/change.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/control/job_sizes.h"
#include "weir/target/nrs_text.h"
#include "weir/target/target.h"

namespace weir::control {
namespace {

Change rule(const std::string& command) {
  return param_change(Change::Kind::kParam, rule_path("ost_io"), command);
}

std::vector<std::string> printed(const std::vector<Change>& changes) {
  std::vector<std::string> lines;
  lines.reserve(changes.size());
  for (const Change& change : changes) lines.push_back(print_change(change));
  return lines;
}

std::vector<Change> effective_of(const std::vector<Change>& changes) {
  std::vector<std::string> mistakes;
  auto kept = effective(printed(changes), mistakes);
  EXPECT_EQ(mistakes, std::vector<std::string>());
  return kept;
}

TEST(Change, ReadsBackWhatItPrinted) {
  const std::vector<Change> all = {
      rule("start dd jobid={\"a b\\x\"} rate=1"),
      {.kind = Change::Kind::kJob, .target = std::string("a\0\n\"\xFF", 5), .nodes = 7},
      {.kind = Change::Kind::kCapacity, .target = "ost_io", .value = "4000"},
      rule("start unreadable"),
      param_change(Change::Kind::kForget, rule_path("ost_io"), "start x"),
      {.kind = Change::Kind::kForget, .target = rule_path("ost_io")}};
  for (const Change& one : all) {
    const std::string line = print_change(one);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const auto read = parse_change(line);
    ASSERT_TRUE(read) << line;
    EXPECT_EQ(*read, one) << line;
  }
}

TEST(Change, WhatIsNoneIsNamedAndLeftOut) {
  std::vector<std::string> mistakes;
  EXPECT_TRUE(effective({"{}", "nonsense", "[1]", R"({"job":"a","nodes":"b"})"}, mistakes).empty());
  EXPECT_EQ(mistakes.size(), 4U);
}

TEST(Change, TunablesAreKeptForEachHeadUntilThePolicyIsReplaced) {
  const auto tune = [](const std::string& value) {
    return Change{.target = tunable_path("ost_io", "edf", "read_ms"), .value = value};
  };
  const auto policy = [](const std::string& value) {
    return Change{.target = policy_path("ost_io"), .value = value};
  };
  const Change started = policy("edf");
  const std::vector<Change> both = {started, tune("reg_read_ms:4"), tune("hp_read_ms:6")};
  EXPECT_EQ(effective_of(both), both);
  EXPECT_EQ(effective_of({started, tune("reg_read_ms:4"), tune("reg_read_ms:5")}),
            (std::vector<Change>{started, tune("reg_read_ms:5")}));
  EXPECT_EQ(effective_of({started, tune("reg_read_ms:4"), tune("9")}),
            (std::vector<Change>{started, tune("9")}));
  EXPECT_EQ(effective_of({started, tune("9"), policy("fifo")}),
            std::vector<Change>{policy("fifo")});
}

TEST(Change, OfEachJobTheLastSizeIsLeftAndNothingOfOneTakenBack) {
  const auto size = [](const std::string& job, std::uint64_t nodes) {
    return Change{.kind = Change::Kind::kJob, .target = job, .nodes = nodes};
  };
  EXPECT_EQ(effective_of({size("a", 1), size("b", 2), size("a", 3), size("c", 4), size("c", 0)}),
            (std::vector{size("b", 2), size("a", 3)}));
}

TEST(Change, AsManySizesAreLeftAsTheServerKeeps) {
  std::vector<std::string> records;
  for (std::size_t i = 0; i < JobSizes::kMax + 5; ++i) {
    records.push_back(fmt::format(R"({{"job":"j{}","nodes":2}})", i));
  }
  std::vector<std::string> mistakes;
  const auto kept = effective(records, mistakes);
  ASSERT_EQ(kept.size(), JobSizes::kMax);
  EXPECT_EQ(kept.front().target, "j5");
  EXPECT_EQ(kept.back().target, fmt::format("j{}", JobSizes::kMax + 4));
}

TEST(Change, ForgettingTakesOutOneValueOrAll) {
  const Change a = rule("start a jobid={a} rate=1"), b = rule("start b jobid={b} rate=1");
  Change forget =
      param_change(Change::Kind::kForget, rule_path("ost_io"), "start  a jobid={a } rate=1");
  EXPECT_EQ(effective_of({a, b, forget}), std::vector{b}) << "whatever the blanks";
  forget.rule.reset();
  EXPECT_EQ(effective_of({a, b, forget}), std::vector<Change>());
}

TEST(Change, TheSameIsKeptOnce) {
  const Change policy{
      .kind = Change::Kind::kParam, .target = policy_path("ost_io"), .value = "tbf nid"};
  const Change start = rule("start a nid={0@lo} rate=1");
  EXPECT_EQ(effective_of({policy, start, policy, start}), (std::vector{policy, start}));
}

using serve::KeptRules;

// A Gate, and the rules that result from changes.
struct Ruled {
  Ruled() { EXPECT_TRUE(write_nrs_policies(target, "tbf jobid", {})); }
  bool apply(const Change& change) {
    if (is_policy(change)) return rules.start_policy(*change.value, Instant{}).has_value();
    const RuleChange& rule = std::get<RuleChange>(*change.rule);
    return rules.apply(rule, KeptRules::Keeping::kKept, Instant{}).has_value();
  }
  std::string listing() const { return read_nrs_tbf_rule(target).value_or("no tbf"); }

  Target target{{}, {}};
  KeptRules rules{target};
};

std::string listing_after_restart(const std::vector<Change>& changes) {
  Ruled ruled;
  std::vector<RuleChange> commands;
  for (const Change& one : changes) {
    if (is_policy(one)) {
      EXPECT_TRUE(ruled.apply(one));
    } else {
      commands.push_back(std::get<RuleChange>(*one.rule));
    }
  }
  ruled.rules.restore(commands, Instant{});
  return ruled.listing();
}

// Whatever changes were made, the remaining records have the same effect.
TEST(ChangeProperty, WhatIsLeftMakesTheSameRules) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    std::vector<Change> done;
    Ruled ruled;
    for (int i = 0; i < 40; ++i) {
      const std::string name = "r" + std::to_string(rng.below(4));
      const std::string rate = " rate=" + std::to_string(1 + rng.below(1000));
      const std::string head = rng.below(4) == 0 ? "reg " : "";
      Change one;
      switch (rng.below(8)) {
        case 0:
        case 1:
        case 2:
          one = rule(head + "start " + name + " jobid={a}" + rate);
          break;
        case 3:
        case 4:
          one = rule(head + "change " + name + rate);
          break;
        case 5:
        case 6:
          one = rule(head + "stop " + name);
          break;
        default:
          one = {.kind = Change::Kind::kParam,
                 .target = policy_path("ost_io"),
                 .value = rng.below(2) == 0 ? "tbf jobid" : "fifo"};
      }
      // Only applied changes are journalled.
      if (ruled.apply(one)) done.push_back(one);
    }
    EXPECT_EQ(listing_after_restart(effective_of(done)), ruled.listing()) << "seed " << seed;
    EXPECT_EQ(effective_of(effective_of(done)), effective_of(done)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weir::control
