// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_spec.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/classify/command.h"

namespace weir {
namespace {

RuleChange parse(std::string_view text) {
  auto change = parse_rule(text);
  EXPECT_TRUE(change) << text << ": " << (change ? "" : change.error().message());
  return change.value_or(RuleChange{});
}

// ---- text ----

TEST(RuleSpec, PrintsWhatItRead) {
  for (const char* text :
       {"start dd jobid={dd.*} rate=100 bps=10MiB burst=9 burst=1MiB by=nid+uid layer=1 cost=bytes "
        "scope=cluster",
        "start dd  jobid = {a b  c },uid={5} rate=1", "hp start a nid={10.0.0.[1,3]@tcp}",
        "reg change dd rate=5 realtime=1", "change default rank=dd", "stop dd", "hp stop dd",
        "start a {500} 10", "change a 10", "start n nodemap={whatever} by=rule",
        "start g jobid={*} by=generic cost=affine:1:2"}) {
    EXPECT_EQ(print(parse(text)), text);
  }
}

TEST(RuleSpec, PrintsOneFormOfAValue) {
  EXPECT_EQ(print(parse("start a jobid={a} burst=1.5GiB rate=+007 bps=1024KiB/s")),
            "start a jobid={a} rate=7 bps=1MiB burst=1536MiB");
  EXPECT_EQ(print(parse("change a rate=1 realtime=7 rate=10\n")), "change a rate=10 realtime=1");
  EXPECT_EQ(print(parse("stop a realtime=1")), "stop a");
  EXPECT_EQ(parse("change a burst=20k").keys.burst_ops, Tokens{20'000}) << "tokens, as in full";
}

TEST(RuleSpec, ALongCommandCanBeReadBackFromItsPrint) {
  std::string text = "start a jobid={";
  const std::string keys = "} bps=0.3KiB burst=1.5MiB";
  text += std::string(kCommandMax - text.size() - keys.size(), 'x') + keys;
  const auto command = parse_command(text, FieldSet::generic());
  ASSERT_TRUE(command);
  const std::string printed = print(*command);
  EXPECT_GT(printed.size(), kCommandMax);
  EXPECT_EQ(parse(printed), static_cast<const RuleChange&>(*command));
  EXPECT_FALSE(parse_rule(std::string(kPrintedMax + 1, 'x')));
}

TEST(RuleSpec, WritesOldFormsInFull) {
  const FieldSet uid = *FieldSet::parse_type("uid");
  const auto full = [](const char* text, FieldSet type) {
    return print(in_full(parse(text), type));
  };
  EXPECT_EQ(full("start a {500 501} 10", uid), "start a uid={500 501} rate=10");
  EXPECT_EQ(full("hp change a 10", uid), "hp change a rate=10");
  for (const char* same : {"start a uid={500} rate=10", "change a rate=10", "stop a"}) {
    EXPECT_EQ(full(same, uid), same);
  }
  EXPECT_EQ(full("start a {500} 10", FieldSet::generic()), "start a {500} 10");
}

// ---- types ----

TEST(RuleSpec, BindsAsTheTextIsReadForAType) {
  const FieldSet uid = *FieldSet::parse_type("uid");
  for (const char* text :
       {"start a uid={500} rate=10", "start a {500} 10", "change a 10", "hp start a jobid={x}",
        "start a {x} 10", "reg start n nodemap={none}", "start n nodemap={default}", "stop a"}) {
    for (const FieldSet type : {uid, FieldSet::generic()}) {
      const auto read = parse_command(text, type);
      const auto bound = bind(parse(text), type);
      ASSERT_EQ(read.has_value(), bound.has_value()) << text;
      if (read) {
        EXPECT_EQ(print(*read), print(*bound));
        EXPECT_EQ(read->conditions.conjunctions().size(), bound->conditions.conjunctions().size());
        EXPECT_EQ(bound->type, type);
      } else {
        EXPECT_EQ(read.error().message(), bound.error().message()) << text;
      }
    }
  }
  RuleChange wrong = parse("change a rate=5");
  wrong.keys.rate = 0;
  EXPECT_FALSE(bind(wrong, uid)) << "as its text would be refused";
  wrong.keys.rate = 5;
  wrong.name = "a b";
  EXPECT_FALSE(bind(wrong, uid));
}

// ---- rules and changes ----

std::optional<RuleSpec> spec(const char* text) {
  const auto made = merge(std::nullopt, parse(text));
  EXPECT_TRUE(made);
  return made.value_or(std::nullopt);
}

TEST(RuleSpec, DiffIsOneChangeWhereOneIsEnough) {
  const auto a = spec("start a jobid={a} rate=5 burst=3");
  const auto texts = [&](const std::optional<RuleSpec>& b) { return print_all(diff(a, b)); };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts(a), Texts{});
  EXPECT_EQ(texts(spec("start a jobid={a} rate=6 burst=3")), Texts{"change a rate=6"});
  EXPECT_EQ(texts(spec("start a jobid={a} rate=5 burst=3 bps=1MB")), Texts{"change a bps=1MB"});
  EXPECT_EQ(texts(spec("start a jobid={a} rate=5")), (Texts{"stop a", "start a jobid={a} rate=5"}));
  EXPECT_EQ(texts(spec("start a jobid={a} rate=5 burst=3 realtime=1")),
            (Texts{"stop a", "start a jobid={a} rate=5 realtime=1 burst=3"}));
  EXPECT_EQ(texts(std::nullopt), Texts{"stop a"});
}

TEST(RuleSpec, MergeRefusesWhatDoesNotFit) {
  const auto a = spec("start a jobid={a} rate=5");
  EXPECT_EQ(merge(a, parse("start a jobid={b}")).error().code, std::errc::file_exists);
  EXPECT_EQ(merge(std::nullopt, parse("change a rate=5")).error().code,
            std::errc::no_such_file_or_directory);
  EXPECT_EQ(merge(a, parse("change b rate=5")).error().code, std::errc::invalid_argument);
  EXPECT_EQ(merge(a, parse("stop a")).value(), std::nullopt);
}

// Values of every key of the table, by its example and by random ones.
RuleKeys draw_keys() {
  RuleKeys keys;
  const auto maybe = [] { return *rc::gen::inRange(0, 3) == 0; };
  if (maybe()) keys.rate = *rc::gen::inRange<std::uint32_t>(1, kRateMax + 1);
  if (maybe()) {
    const auto bytes = *rc::gen::inRange<std::uint64_t>(1, 1 << 30);
    const auto time = *rc::gen::inRange<std::int64_t>(1, 1'000'000'000'000);
    if (bytes <= kTokensPerNanosecondMax * static_cast<std::uint64_t>(time)) {
      keys.bps = Rate(Tokens{bytes}, Nanoseconds{time});
    }
  }
  if (maybe()) keys.burst_ops = Tokens{*rc::gen::inRange<std::uint64_t>(1, kBurstTokensMax)};
  if (maybe()) keys.burst_bytes = Bytes{*rc::gen::inRange<std::uint64_t>(1, UINT64_MAX / 2)};
  for (const RuleKey& key : rule_keys()) {
    if (key.use == RuleKey::Use::kPlace || key.members.given(keys) || !maybe()) continue;
    if (key.name == "burst" || key.name == "reserve") continue;
    RC_ASSERT(key.read(key.example, keys).has_value());
  }
  // At most the limit, and not of a cluster.
  if (maybe() && !keys.scope) {
    keys.reserve.emplace();
    if (maybe()) *keys.reserve = Reserve{Rate::per_second(1), false};
    if (maybe() && keys.bps) *keys.reserve = Reserve{*keys.bps, true};
  }
  return keys;
}

RuleSpec draw_rule() {
  return {.heads = *rc::gen::element(Heads::kBoth, Heads::kRegular, Heads::kHigh),
          .name = *rc::gen::element<std::string>("a", "b"),
          .conds = *rc::gen::element<std::string>("jobid={a}", "uid={5 6},gid={7}"),
          .keys = draw_keys()};
}

RC_GTEST_PROP(RuleSpecProperty, ReadsWhatItPrints, ()) {
  RuleChange change{draw_rule(), *rc::gen::element(Verb::kStart, Verb::kChange, Verb::kStop)};
  if (*rc::gen::inRange(0, 4) == 0) change.keys.rank = "default";
  if (change.verb != Verb::kStart) change.conds.clear();
  if (change.verb == Verb::kStop) change.keys = {};
  if (!with_keys({}, change.keys, Verb::kStart).check()) change.keys.burst_bytes.reset();
  if (!with_keys({}, change.keys, Verb::kStart).check()) change.keys.burst_ops.reset();
  // Last, because the code above may have removed all keys of a change.
  if (change.verb == Verb::kChange && !can_change(change.keys)) change.keys.layer = 2;
  const auto again = parse_rule(print(change));
  if (!again) RC_FAIL(print(change) + ": " + again.error().message());
  RC_ASSERT(*again == change);
  RC_ASSERT(bind(change, FieldSet::generic()).has_value());
}

RC_GTEST_PROP(RuleSpecProperty, TheDifferenceLeadsToTheOther, ()) {
  const auto draw = []() -> std::optional<RuleSpec> {
    if (*rc::gen::inRange(0, 8) == 0) return std::nullopt;
    return draw_rule();
  };
  const std::optional<RuleSpec> from = draw();
  std::optional<RuleSpec> to = draw();
  // Often the same rule with other keys.
  if (from && *rc::gen::inRange(0, 2) == 0) {
    to = from;
    to->keys = *rc::gen::inRange(0, 2) == 0 ? draw_keys() : from->keys;
    merge_keys(to->keys, draw_keys(), Verb::kChange);
  }
  std::optional<RuleSpec> rule = from;
  for (const RuleChange& change : diff(from, to)) {
    auto merged = merge(rule, change);
    if (!merged) RC_FAIL(print(change) + ": " + merged.error().message());
    rule = *std::move(merged);
  }
  RC_ASSERT(rule == to);
}

// The comparison works: a key that is missing in a change is detected.
TEST(RuleSpecProperty, ALostKeyIsFound) {
  const auto from = spec("start a jobid={a} rate=5"), to = spec("start a jobid={a} rate=6 burst=3");
  std::vector<RuleChange> changes = diff(from, to);
  ASSERT_EQ(changes.size(), 1U);
  changes[0].keys.burst_ops.reset();
  EXPECT_NE(merge(from, changes[0]).value(), to);
}

TEST(RuleOrText, IsReadOnceAndKeptIfItCannotBe) {
  const RuleOrText read = read_or_keep("start a  jobid={a} burst=9 rate=5 ");
  ASSERT_NE(change_in(read), nullptr);
  EXPECT_EQ(print(read), "start a  jobid={a} rate=5 burst=9");
  EXPECT_EQ(rule_or_error(read), *change_in(read));
  const RuleOrText kept = read_or_keep("start a jobid={a} hue=5");
  EXPECT_EQ(change_in(kept), nullptr);
  EXPECT_EQ(print(kept), "start a jobid={a} hue=5");
  EXPECT_EQ(rule_or_error(kept).error().code, std::errc::invalid_argument);
  EXPECT_EQ(change_in(read_or_keep("stop a", 5)), nullptr) << "longer than 5 bytes";
}

TEST(RuleSpec, ConditionsForAJobAreReadBack) {
  for (const std::string job : {"dd.0", "a=b", "\"x\"", "jobid=5"}) {
    const std::string conds = conds_for_job(job);
    EXPECT_EQ(job_in_conds(conds), job);
    EXPECT_EQ(job_in_conds(conds.substr(conds.find('{'))), job) << "as lists of one field show it";
    const auto command = bind(start_of({.name = "a", .conds = conds}), {Field::kJobid});
    ASSERT_TRUE(command) << command.error().message();
    EXPECT_TRUE(command->conditions.matches({.job = JobId(job), .nid = {}, .export_name = {}}));
    EXPECT_FALSE(
        command->conditions.matches({.job = JobId("other"), .nid = {}, .export_name = {}}));
  }
  const auto all = bind(start_of({.name = "a", .conds = conds_for_all_jobs()}), {Field::kJobid});
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->conditions.matches({.job = JobId("other"), .nid = {}, .export_name = {}}));
  for (const char* const none : {"", "{}", "jobid={}", "uid={5}", "jobid=a", "jobid={a", "*"}) {
    EXPECT_EQ(job_in_conds(none), std::nullopt) << none;
  }
}

}  // namespace
}  // namespace weir
