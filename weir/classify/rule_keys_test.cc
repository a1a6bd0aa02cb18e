// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_keys.h"

#include <array>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "weir/classify/command.h"
#include "weir/classify/rule_list.h"

namespace weir {
namespace {

// Tests every row of the table: a new key needs no line here.

RuleKeys example_of(const RuleKey& key) {
  RuleKeys keys;
  EXPECT_TRUE(key.read(key.example, keys)) << key.name;
  return keys;
}

TEST(RuleKeys, EachReadsAndPrintsItsExample) {
  for (const RuleKey& key : rule_keys()) {
    const RuleKeys keys = example_of(key);
    EXPECT_TRUE(key.members.given(keys)) << key.name;
    EXPECT_FALSE(key.members.given({})) << key.name;
    EXPECT_EQ(print_keys(keys), " " + std::string(key.name) + "=" + std::string(key.example));
    EXPECT_TRUE(key.form.starts_with(std::string(key.name) + "=")) << key.form;
    EXPECT_TRUE(key.doc.ends_with('.')) << key.doc;
    RuleKeys other;
    EXPECT_FALSE(key.read("\x01", other)) << key.name;
  }
}

TEST(RuleKeys, EachIsOfItsOwnMembers) {
  for (const RuleKey& key : rule_keys()) {
    for (const RuleKey& other : rule_keys()) {
      EXPECT_EQ(other.members.given(example_of(key)), &key == &other) << key.name << other.name;
    }
    RuleKeys set;
    key.members.set(set, example_of(key));
    EXPECT_EQ(set, example_of(key));
    EXPECT_TRUE(covers(set, {}) && covers(set, set) && !covers({}, set)) << key.name;
    key.members.drop_same(set, example_of(key));
    EXPECT_EQ(set, RuleKeys{});
  }
}

TEST(RuleKeys, EachIsSetByAStartAndShownAsJson) {
  for (const RuleKey& key : rule_keys()) {
    RuleList list(FieldSet::generic());
    std::string text =
        "start a jobid={a} " + std::string(key.name) + "=" + std::string(key.example);
    const auto plain = parse_command("start b jobid={a}", list.type());
    ASSERT_TRUE(list.apply(*plain));
    const auto started = parse_command(text, list.type());
    ASSERT_TRUE(started) << started.error().message();
    ASSERT_TRUE(list.apply(*started));
    if (key.json == nullptr) continue;
    EXPECT_NE(key.json(*list.find("a")), key.json(*list.find("b"))) << key.name;
    EXPECT_NE(json_keys(*list.find("a")).find(key.json(*list.find("a"))), std::string::npos);
  }
}

// ---- two rows with one name ----

constexpr RuleKey named(std::string_view name) {
  RuleKey key{};
  key.name = name;
  return key;
}

TEST(RuleKeys, AKeyTwiceInTheTableIsRefused) {
  static_assert(are_distinct(std::span<const RuleKey>()));
  constexpr std::array kOnce = {named("rate"), named("bps")};
  constexpr std::array kTwice = {named("rate"), named("bps"), named("rate")};
  static_assert(are_distinct(kOnce));
  static_assert(!are_distinct(kTwice), "or the table could have one twice");
  EXPECT_TRUE(are_distinct(rule_keys()));
}

// ---- verbs ----

TEST(RuleKeys, AChangeIgnoresWhatIsForStartAlone) {
  RuleKeys keys, change;
  change.realtime = true;
  change.rank = "a";
  merge_keys(keys, change, Verb::kChange);
  EXPECT_EQ(keys, RuleKeys{});
  merge_keys(keys, change, Verb::kStart);
  EXPECT_EQ(keys.realtime, true);
  EXPECT_EQ(keys.rank, std::nullopt) << "a place";
  EXPECT_FALSE(with_keys({}, change, Verb::kChange).realtime);
  EXPECT_TRUE(with_keys({}, change, Verb::kStart).realtime);
}

TEST(RuleKeys, AnUnknownKeyIsNamedWithTheNearest) {
  const auto unknown = parse_command("start a jobid={a} rat=5", FieldSet::generic());
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().message(),
            "column 19: 'rat=5' is not KEY=VALUE; did you mean rate=? " + rule_key_hint());
  EXPECT_TRUE(rule_key_hint().starts_with("expected rate=, rank=, realtime=, bps=, "));
  EXPECT_EQ(rule_key_hint("xyzzy"), rule_key_hint()) << "a wrong guess is worse than none";
}

TEST(RuleKeys, AWeightIsBounded) {
  for (const char* text : {"0", "1000001", "1000000000000", "-1", "1.5", "", "3x"}) {
    const auto command =
        parse_command("start a jobid={a} weight=" + std::string(text), FieldSet::generic());
    EXPECT_FALSE(command) << text;
  }
  EXPECT_TRUE(parse_command("start a jobid={a} weight=1000000", FieldSet::generic()));
}

TEST(RuleKeys, AReservationIsOperationsOrBytes) {
  for (const char* text : {"1000000", "-1", "1.5", "", "3x", "MiB"}) {
    EXPECT_FALSE(parse_command("start a jobid={a} bps=1PiB reserve=" + std::string(text),
                               FieldSet::generic()))
        << text;
  }
  const auto keys = [](const std::string& text) {
    return parse_command("start a jobid={a} reserve=" + text, FieldSet::generic())->keys.reserve;
  };
  EXPECT_EQ(keys("5"), std::optional(Reserve{Rate::per_second(5), false}));
  EXPECT_EQ(keys("5kB"), std::optional(Reserve{Rate::per_second(5000), true}));
  EXPECT_TRUE(keys("0").has_value() && !keys("0")->has_value());
}

TEST(RuleKeys, ValuesOutOfRangeAreFound) {
  RuleKeys keys;
  keys.rate = kRateMax;
  EXPECT_TRUE(check_keys(keys));
  keys.rate = kRateMax + 1;
  EXPECT_FALSE(check_keys(keys));
}

}  // namespace
}  // namespace weir
