// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/rule_book.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/gate.h"

namespace weir {
namespace {

using Texts = std::vector<std::string>;
constexpr RuleBook::Origin kAny = RuleBook::Origin::kKept;

RuleBook book_of(const Texts& commands) {
  RuleBook book;
  for (const std::string& command : commands) {
    EXPECT_TRUE(book.apply(parse_rule(command).value(), kAny)) << command;
  }
  return book;
}

Texts commands_of(const RuleBook& book) { return print_all(book.changes()); }

TEST(RuleBook, HasWhatCommandsComeTo) {
  EXPECT_EQ(commands_of(book_of({"start a jobid={x} rate=5 burst=2", "start b nid={0@lo} bps=1MB",
                                 "change a burst=4MiB rate=6 bps=1MB", "reg start c uid={1}",
                                 "stop b", "change default rate=9"})),
            (Texts{"change default rate=9", "start a jobid={x} rate=6 bps=1MB burst=2 burst=4MiB",
                   "reg start c uid={1}"}));
}

TEST(RuleBook, PutsRulesWhereTheirRankSays) {
  EXPECT_EQ(commands_of(book_of({"start a jobid={a}", "start b jobid={b}",
                                 "start c jobid={c} rank=a", "change b rank=a"})),
            (Texts{"start a jobid={a}", "start b jobid={b}", "start c jobid={c}"}))
      << "the oldest first";
  EXPECT_EQ(commands_of(book_of({"start a jobid={a}", "change default rank=a"})),
            (Texts{"start a jobid={a}", "change default rank=a"}));
}

TEST(RuleBook, RefusesWhatAListRefuses) {
  RuleBook book = book_of({"start a jobid={a}"});
  const auto code = [&](const char* command) {
    return book.check(parse_rule(command).value()).error().code;
  };
  EXPECT_EQ(code("start a jobid={b}"), std::errc::file_exists);
  EXPECT_EQ(code("change b rate=1"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(code("start b jobid={b} rank=c"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(code("stop default"), std::errc::operation_not_permitted);
  EXPECT_TRUE(book.apply(parse_rule("start b jobid={b} rank=c").value(), kAny,
                         RuleBook::Ranks::kAsFarAsTheyGo));
  EXPECT_EQ(commands_of(book).back(), "start b jobid={b}");
}

TEST(RuleBook, HasPartsForHeads) {
  const RuleBook book = book_of({"start a jobid={a}", "hp start h jobid={h}"});
  const Head regular = Head::kRegular;
  EXPECT_EQ(commands_of(book.part({&regular, 1}, RuleBook::Sharing::kApart)),
            Texts{"reg start a jobid={a}"});
  EXPECT_EQ(commands_of(book.part(kHeads, RuleBook::Sharing::kApart)),
            (Texts{"reg start a jobid={a}", "hp start a jobid={a}", "hp start h jobid={h}"}));
  EXPECT_EQ(commands_of(book.part({}, RuleBook::Sharing::kApart)), Texts{});
}

std::optional<Texts> commands_between(const RuleBook& now, const RuleBook& wanted) {
  const auto changes = changes_between(now, wanted);
  if (!changes) return std::nullopt;
  return print_all(*changes);
}

TEST(RuleBook, ChangesWhatOnlyHasOtherLimits) {
  const RuleBook now = book_of({"start a jobid={a} rate=1", "start b jobid={b} rate=1"});
  EXPECT_EQ(
      commands_between(now, book_of({"start a jobid={a} rate=2", "start b jobid={b} rate=1"})),
      (Texts{"change a rate=2"}));
  EXPECT_EQ(commands_between(now, book_of({"start a jobid={a} rate=1", "start n jobid={n}",
                                           "start b jobid={b} rate=1"})),
            (Texts{"start n jobid={n} rank=a"}));
  EXPECT_FALSE(commands_between(book_of({"change default rate=1"}), RuleBook()));
}

std::string random_command(Rng& rng) {
  const std::string head = rng.below(6) == 0 ? (rng.below(2) == 0 ? "reg " : "hp ") : "";
  const std::string name = "r" + std::to_string(rng.below(5));
  const std::string other = rng.below(5) == 0 ? "default" : "r" + std::to_string(rng.below(5));
  const std::string rank = rng.below(4) == 0 ? " rank=" + other : "";
  const std::string rate = " rate=" + std::to_string(1 + rng.below(9));
  switch (rng.below(4)) {
    case 0:
    case 1:
      return head + "start " + name + " jobid={" + name + "}" + rate +
             (rng.below(3) == 0 ? " realtime=1" : "") + rank;
    case 2:
      return head + "change " + (rng.below(6) == 0 ? "default" : name) + rate +
             (rng.below(3) == 0 ? " burst=1" + std::to_string(rng.below(9)) : "") + rank;
    default:
      return head + "stop " + name;
  }
}

std::string listing_of(const Gate& gate) {
  std::string text;
  for (const Head head : kHeads) text += gate.engine(head)->rules(head).listing() + "\n";
  return text;
}

std::string listing_after(const Texts& commands) {
  Gate gate({});
  EXPECT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  for (const std::string& command : commands) {
    EXPECT_TRUE(gate.write_rule(command, Instant{})) << command;
  }
  return listing_of(gate);
}

// A book accepts and rejects the same commands as a Gate, builds the same list from them, and finds
// changes from any list to any other.
TEST(RuleBookProperty, AgreesWithAGate) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    Gate gate({});
    ASSERT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
    RuleBook book, before;
    for (int i = 0; i < 40; ++i) {
      const std::string command = random_command(rng);
      const auto applied = gate.write_rule(command, Instant{});
      ASSERT_EQ(book.apply(parse_rule(command).value(), kAny).has_value(), applied.has_value())
          << "seed " << seed << ": " << command;
      if (i % 10 == 0) before = book;
    }
    ASSERT_EQ(listing_after(commands_of(book)), listing_of(gate)) << "seed " << seed;
    const auto way = commands_between(before, book);
    if (!way) continue;  // default was changed on one head, then on both
    Texts all = commands_of(before);
    all.insert(all.end(), way->begin(), way->end());
    ASSERT_EQ(listing_after(all), listing_of(gate)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace weir
