// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_list.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

constexpr FieldSet kJobid{Field::kJobid};

Result<void> apply(RuleList& list, std::string_view text) {
  auto command = parse_command(text, list.type());
  if (!command) return tl::unexpected(command.error());
  return list.apply(*command);
}

std::errc outcome(RuleList& list, std::string_view text) {
  const auto done = apply(list, text);
  return done ? std::errc{} : done.error().code;
}

void must(RuleList& list, std::string_view text) {
  const auto done = apply(list, text);
  ASSERT_TRUE(done) << text << ": " << done.error().message();
}

Attributes job(std::string_view id) {
  Attributes attributes;
  attributes.job = JobId(id);
  return attributes;
}

std::string names(const RuleList& list) {
  std::string text;
  for (const Rule* rule : list.rules()) text += (text.empty() ? "" : " ") + rule->name();
  return text;
}

TEST(RuleList, ACopyHasTheSameRulesAndGoesItsOwnWay) {
  RuleList list(kJobid);
  must(list, "start a jobid={a} rate=1");
  must(list, "start b jobid={b*} rate=2 layer=1");
  must(list, "change default rate=77");
  must(list, "start c jobid={c} rate=3 rank=default");
  const auto copy = list.copy();
  EXPECT_EQ(copy->listing(), list.listing());
  for (const Rule* rule : list.rules()) EXPECT_EQ(copy->find(rule->name())->id(), rule->id());
  EXPECT_EQ(copy->match(job("bbb"), 1)->name(), "b");
  EXPECT_EQ(copy->match(job("x"), 0)->limits(), list.default_rule().limits());
  const std::string before = list.listing();
  must(*copy, "stop a");
  must(*copy, "change c rate=4");
  must(*copy, "start d jobid={d} rate=5 rank=b");
  EXPECT_EQ(list.listing(), before);
  EXPECT_EQ(names(*copy), "d b c default");
}

// ---- as recorded from a running server ----

TEST(RuleList, LivesAsOnALustreServer) {
  RuleList list(kJobid);
  must(list, "start before jobid={jobid} rate=1000");
  EXPECT_EQ(list.listing(), "before jobid={jobid} 1000, ref 0\ndefault * 10000, ref 0\n");
  must(list, "start after jobid={jobid} rate=1000 rank=default");
  must(list, "start target jobid={a b  c } rate=500 rank=after");
  EXPECT_EQ(list.listing(),
            "before jobid={jobid} 1000, ref 0\n"
            "target jobid={a b  c } 500, ref 0\n"
            "after jobid={jobid} 1000, ref 0\n"
            "default * 10000, ref 0\n");
  must(list, "change target rate=250");
  must(list, "change target rank=before");
  EXPECT_EQ(names(list), "target before after default");
  must(list, "change target rank=target");
  EXPECT_EQ(names(list), "target before after default");
  must(list, "change target rate=10 rank=default");
  EXPECT_EQ(names(list), "before after target default");
  must(list, "stop before");
  must(list, "change default rate=9000");
  must(list, "change after rank=default rate=1");
  EXPECT_EQ(list.listing(),
            "target jobid={a b  c } 10, ref 0\n"
            "after jobid={jobid} 1, ref 0\n"
            "default * 9000, ref 0\n");
  must(list, "start rt jobid={x.*} rate=5 realtime=1");
  must(list, "start norate jobid={*.500},jobid={fio.*}&jobid={*.1}");
  EXPECT_TRUE(list.listing().starts_with(
      "norate jobid={*.500},jobid={fio.*}&jobid={*.1} 10000, ref 0\nrt jobid={x.*} 5, ref 0\n"));
  must(list, "stop nosuch");
  for (const char* name : {"rt", "norate", "target", "after"})
    must(list, "stop " + std::string(name));
  EXPECT_EQ(list.listing(), "default * 9000, ref 0\n");
}

TEST(RuleList, ListsConditionsWithTheBlanksTheyCameWith) {
  RuleList list(kJobid);
  must(list, "start dd  jobid = {dd.0} rate=1");
  EXPECT_EQ(list.find("dd")->listing_line(), "dd  jobid = {dd.0} 1, ref 0");
  RuleList nids(FieldSet{Field::kNid});
  must(nids, "start loginnode {192.168.1.1@tcp} 10000");
  EXPECT_EQ(nids.find("loginnode")->listing_line(), "loginnode {192.168.1.1@tcp} 10000, ref 0");
}

TEST(RuleList, AnswersMistakesWithTheErrnoOfALustreServer) {
  RuleList list(kJobid);
  must(list, "start dup jobid={dup} rate=11");
  EXPECT_EQ(outcome(list, "start dup jobid={z} rate=5"), std::errc::file_exists);
  EXPECT_EQ(outcome(list, "start default jobid={z} rate=5"), std::errc::file_exists);
  EXPECT_EQ(outcome(list, "start dd jobid={a} rank=nosuch rate=5"),
            std::errc::no_such_file_or_directory);
  EXPECT_EQ(outcome(list, "start dd jobid={a} rank=dd"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(outcome(list, "change nosuch rate=5"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(outcome(list, "change dup rank=nosuch"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(outcome(list, "stop nosuch"), std::errc{});
  EXPECT_EQ(outcome(list, "stop default"), std::errc::operation_not_permitted);
  EXPECT_EQ(outcome(list, "change default rate=8888"), std::errc{});
  EXPECT_EQ(outcome(list, "change default rank=dup"), std::errc{});
  EXPECT_EQ(outcome(list, "change dup rank=dup"), std::errc{});
  EXPECT_EQ(outcome(list, "change default layer=1"), std::errc::invalid_argument);
  EXPECT_EQ(list.listing(), "default * 8888, ref 0\ndup jobid={dup} 11, ref 0\n");
  const auto other = parse_command("start x uid={1}", FieldSet{Field::kUid}).value();
  EXPECT_EQ(list.apply(other).error().code, std::errc::invalid_argument);
}

TEST(RuleList, ACommandAppliesWhollyOrNotAtAll) {
  RuleList list(kJobid);
  must(list, "start dup jobid={dup} rate=11");
  const std::uint64_t generation = list.generation();
  // On a Lustre server the rate is 12 afterwards.
  EXPECT_EQ(outcome(list, "change dup rate=12 rank=nosuch"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(outcome(list, "change dup rate=12 burst=4KiB"), std::errc::invalid_argument);
  EXPECT_EQ(list.find("dup")->limits().rate, 11U);
  EXPECT_EQ(list.find("dup")->version(), 1U);
  EXPECT_EQ(list.generation(), generation);
  const auto command = parse_command("change dup rate=12", kJobid).value();
  EXPECT_TRUE(list.check(command));
  EXPECT_EQ(list.find("dup")->limits().rate, 11U);
}

// ---- matching ----

TEST(RuleList, TheFirstThatMatchesWinsAndDefaultIsTheLastResort) {
  RuleList list(kJobid);
  EXPECT_EQ(list.match(job("dd.0"), 0)->name(), "default");
  must(list, "start all jobid={*} rate=1");
  must(list, "start dd jobid={dd.*} rate=2");
  EXPECT_EQ(list.match(job("dd.0"), 0)->name(), "dd");
  EXPECT_EQ(list.match(job("cp.0"), 0)->name(), "all");
  EXPECT_EQ(list.match(job(""), 0)->name(), "all");
  must(list, "change all rank=dd");
  EXPECT_EQ(list.match(job("dd.0"), 0)->name(), "all");
  must(list, "stop all");
  EXPECT_EQ(list.match(job("dd.0"), 0)->name(), "dd");
  EXPECT_EQ(list.match(job("cp.0"), 0)->name(), "default");
  // Rules after default still work.
  must(list, "change default rank=dd");
  EXPECT_EQ(names(list), "default dd");
  EXPECT_EQ(list.match(job("dd.0"), 0)->name(), "dd");
}

TEST(RuleList, LiteralJobsAndPatternsMixInListOrder) {
  RuleList list(FieldSet::generic());
  must(list, "start last jobid={dd.1} rate=1");
  must(list, "start globs jobid={d*} rate=1");
  must(list, "start both jobid={dd.1}&uid={5},uid={7} rate=1");
  must(list, "start first jobid={dd.1 dd.2}&uid={9} rate=1");
  Attributes request = job("dd.1");
  EXPECT_EQ(list.match(request, 0)->name(), "globs");
  request.uid = 5;
  EXPECT_EQ(list.match(request, 0)->name(), "both");
  request.uid = 9;
  EXPECT_EQ(list.match(request, 0)->name(), "first");
  request.job = JobId("zz");
  request.uid = 7;
  EXPECT_EQ(list.match(request, 0)->name(), "both");
  must(list, "stop globs");
  EXPECT_EQ(list.match(job("dd.1"), 0)->name(), "last");
}

TEST(RuleList, ItemsLongerThanAnIdFitOnlyAsPatterns) {
  RuleList list(kJobid);
  const std::string long_id(40, 'x');
  must(list, "start exact jobid={" + long_id + "}");
  EXPECT_EQ(list.match(job(long_id), 0)->name(), "default");
  must(list, "start glob jobid={" + std::string(31, 'x') + std::string(40, '*') + "}");
  EXPECT_EQ(list.match(job(long_id), 0)->name(), "glob");
}

TEST(RuleList, AnyOpcodeNumberWorks) {
  RuleList list(FieldSet{Field::kOpcode});
  must(list, "start ping opcode={obd_ping lfsck_query} rate=1");
  Attributes request;
  for (const std::uint32_t opcode : {400U, 1102U}) {
    request.opcode = opcode;
    EXPECT_EQ(list.match(request, 0)->name(), "ping");
  }
  for (const std::uint32_t opcode : {0U, 400U + 128, 1U << 31, UINT32_MAX}) {
    request.opcode = opcode;
    EXPECT_EQ(list.match(request, 0)->name(), "default");
  }
}

TEST(RuleList, PreparingChangesNothingButTheTimeOfTheNextMatch) {
  RuleList list(kJobid);
  must(list, "start a jobid={a}");
  must(list, "start b jobid={b*}");
  list.prepare();
  EXPECT_EQ(list.match(job("a"), 0)->name(), "a");
  EXPECT_EQ(list.match(job("bb"), 0)->name(), "b");
  must(list, "stop a");
  EXPECT_EQ(list.match(job("a"), 0)->name(), "default");
}

TEST(RuleList, LayersAreMatchedEachOnItsOwn) {
  RuleList list(FieldSet::generic());
  EXPECT_TRUE(list.has_layer(0));
  EXPECT_FALSE(list.has_layer(1));
  EXPECT_EQ(list.match(job("a"), 1), nullptr);
  must(list, "start user uid={500} rate=5 layer=1 by=uid");
  must(list, "start node jobid={a} rate=7 by=nid");
  Attributes request = job("a");
  request.uid = 500;
  EXPECT_EQ(list.match(request, 0)->name(), "node");
  EXPECT_EQ(list.match(request, 1)->name(), "user");
  EXPECT_EQ(list.match(request, 2), nullptr);
  EXPECT_TRUE(list.has_layer(1));
  must(list, "change user layer=0");
  EXPECT_FALSE(list.has_layer(1));
  EXPECT_EQ(list.match(request, 1), nullptr);
  EXPECT_EQ(list.match(request, 0)->name(), "node");
  must(list, "change user rank=node");
  EXPECT_EQ(list.match(request, 0)->name(), "user");
}

// ---- versions and generations ----

TEST(RuleList, TheGenerationGrowsWithWhatCanChangeAMatch) {
  RuleList list(kJobid);
  std::uint64_t last = list.generation();
  const auto grew = [&] { return std::exchange(last, list.generation()) != last; };
  must(list, "start a jobid={a}");
  EXPECT_TRUE(grew());
  must(list, "start b jobid={b}");
  EXPECT_TRUE(grew());
  must(list, "change a rate=5 burst=9 cost=bytes scope=cluster");
  EXPECT_FALSE(grew());
  must(list, "change a rank=b");
  EXPECT_TRUE(grew());
  must(list, "change a rank=b");  // it is already there
  EXPECT_FALSE(grew());
  must(list, "change a rank=a");
  EXPECT_FALSE(grew());
  must(list, "change a layer=1");
  EXPECT_TRUE(grew());
  must(list, "change a by=rule");
  EXPECT_TRUE(grew());
  must(list, "stop a");
  EXPECT_TRUE(grew());
  must(list, "stop a");
  EXPECT_FALSE(grew());
}

TEST(RuleList, AVersionGrowsWhenLimitsReallyChange) {
  RuleList list(kJobid);
  must(list, "start a jobid={a} rate=5");
  const Rule& rule = *list.find("a");
  EXPECT_EQ(rule.version(), 1U);
  must(list, "change a rate=5");
  must(list, "change a rank=default");
  must(list, "change a rate=5 realtime=1");
  EXPECT_EQ(rule.version(), 1U);
  EXPECT_FALSE(rule.limits().realtime);
  must(list, "change a rate=6");
  EXPECT_EQ(rule.version(), 2U);
  must(list, "change a by=uid");
  EXPECT_EQ(rule.version(), 3U);
  EXPECT_EQ(rule.by(), FieldSet{Field::kUid});
}

TEST(RuleList, IdsAreNeverReused) {
  RuleList list(kJobid);
  EXPECT_EQ(list.default_rule().id(), 0U);
  must(list, "start a jobid={a}");
  const std::uint64_t first = list.find("a")->id();
  must(list, "stop a");
  must(list, "start a jobid={a}");
  EXPECT_GT(list.find("a")->id(), first);
}

TEST(RuleList, AStoppedRuleLivesUntilNobodyHoldsIt) {
  auto list = std::make_unique<RuleList>(kJobid);
  must(*list, "start a jobid={a} rate=5");
  RuleRef held(*list->match(job("a"), 0));
  EXPECT_EQ(list->find("a")->listing_line(), "a jobid={a} 5, ref 1");
  RuleRef second = held;
  EXPECT_EQ(held->refs(), 2U);
  second = RuleRef(list->default_rule());
  EXPECT_EQ(held->refs(), 1U);
  EXPECT_EQ(list->default_rule().listing_line(), "default * 10000, ref 1");
  must(*list, "stop a");
  EXPECT_FALSE(held->is_listed());
  EXPECT_EQ(held->limits().rate, 5U);
  must(*list, "start a jobid={a} rate=6");
  EXPECT_NE(list->find("a"), held.get());
  RuleRef moved = std::move(held);
  EXPECT_FALSE(held);  // NOLINT(bugprone-use-after-move): that is what is tested
  list.reset();
  EXPECT_EQ(moved->name(), "a");
  EXPECT_EQ(second->name(), "default");
}

TEST(RuleList, LimitsFollowTheirKeys) {
  RuleList list(kJobid);
  must(list, "start a jobid={a}");
  EXPECT_EQ(list.find("a")->limits().rate_in_force(), 10'000U);
  EXPECT_EQ(list.find("a")->by(), kJobid);
  must(list, "change a bps=1MiB");
  EXPECT_EQ(list.find("a")->listing_line(), "a jobid={a} 0, ref 0");
  must(list, "change a rate=7");
  EXPECT_EQ(list.find("a")->listing_line(), "a jobid={a} 7, ref 0");
  EXPECT_TRUE(list.find("a")->limits().bps);
  must(list, "hp start b jobid={b} realtime=1 by=rule");
  EXPECT_TRUE(list.find("b")->limits().realtime);
  EXPECT_EQ(list.find("b")->heads(), Heads::kHigh);
  EXPECT_TRUE(list.find("b")->by().empty());
}

TEST(RuleList, HoldsAtMostSoManyRules) {
  RuleList list(kJobid);
  RuleCommand command = parse_command("start x jobid={a*} rate=1", kJobid).value();
  for (std::size_t i = 1; i < kRulesMax; ++i) {
    command.name = "r" + std::to_string(i);
    ASSERT_TRUE(list.apply(command));
  }
  command.name = "more";
  const auto refused = list.apply(command);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::no_space_on_device);
  EXPECT_EQ(refused.error().message(), "the maximum of 65536 rules is reached; stop some rules");
  EXPECT_EQ(list.match(job("b"), 0)->name(), "default");
  EXPECT_EQ(list.match(job("a"), 0)->name(), "r65535");
  must(list, "stop r1");
  EXPECT_TRUE(list.apply(command));
}

TEST(RuleList, TenThousandRulesAreListedAndStoppedAgain) {
  RuleList list(kJobid);
  for (int i = 0; i < 10'000; ++i) {
    const std::string name = "r" + std::to_string(i);
    must(list, "start " + name + " jobid={job." + std::to_string(i) + "} rate=1");
  }
  EXPECT_EQ(list.match(job("job.0"), 0)->name(), "r0");
  EXPECT_EQ(list.match(job("job.9999"), 0)->name(), "r9999");
  for (int i = 0; i < 10'000; ++i) must(list, "stop r" + std::to_string(i));
  EXPECT_EQ(list.size(), 1U);
}

// ---- explaining ----

TEST(RuleList, ExplainsWhyThisRule) {
  RuleList list(FieldSet::generic());
  EXPECT_EQ(list.explain(job("dd.0"), 0), "default\tno rule matches");
  EXPECT_EQ(list.explain(job("dd.0"), 1), "-\tno rule matches");
  must(list, "start dd jobid={dd.*}&opcode={ost_write} rate=5");
  must(list, "start big uid={500 501} rate=5");
  Attributes request = job("dd.0");
  request.opcode = 4;
  EXPECT_EQ(list.explain(request, 0),
            "dd\t'jobid={dd.*}&opcode={ost_write}' matches; checked before it: big: uid is "
            "unknown, not in "
            "'uid={500 501}'");
  request.opcode = 3;
  EXPECT_EQ(list.explain(request, 0),
            "default\tno rule matches; big: uid is unknown, not in 'uid={500 501}'; dd: opcode is "
            "ost_read, not in 'opcode={ost_write}'");
  must(list, "start either nid={1@lo},gid={7} rate=5");
  request.gid = 7;
  EXPECT_EQ(list.explain(request, 0), "either\t'gid={7}' matches");
  request.gid = 8;
  EXPECT_TRUE(
      list.explain(request, 0)
          .starts_with("default\tno rule matches; either: nid is none, not in 'nid={1@lo}' (nor "
                       "does any other of its 2 conditions match); big: "));
}

TEST(RuleList, ExplainsInBoundedLength) {
  RuleList list(kJobid);
  for (int i = 0; i < 500; ++i) {
    must(list, "start r" + std::to_string(i) + " jobid={" + std::string(3000, 'x') + "}");
  }
  const std::string text = list.explain(job(std::string(31, '\x1b')), 0);
  EXPECT_TRUE(text.ends_with("; and 497 more")) << text;
  EXPECT_LT(text.size(), 1200U);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

// ---- against a naive model ----

// A random condition: its text, and its meaning.
struct DrawnTest {
  Field field;
  std::vector<std::string> items;
};
using DrawnConditions = std::vector<std::vector<DrawnTest>>;

bool fits(std::string_view pattern, std::string_view id) {
  if (pattern.empty()) return id.empty();
  if (pattern[0] == '*') {
    return fits(pattern.substr(1), id) || (!id.empty() && fits(pattern, id.substr(1)));
  }
  return !id.empty() && pattern[0] == id[0] && fits(pattern.substr(1), id.substr(1));
}

bool holds(const DrawnTest& test, const Attributes& attributes) {
  for (const std::string& item : test.items) {
    if (test.field == Field::kJobid && fits(item, attributes.job.text())) return true;
    if (test.field == Field::kUid && std::to_string(attributes.uid) == item) return true;
    if (test.field == Field::kNid && print_nid(attributes.nid) == item) return true;
  }
  return false;
}

bool holds(const DrawnConditions& conditions, const Attributes& attributes) {
  return std::any_of(conditions.begin(), conditions.end(), [&](const auto& conjunction) {
    return std::all_of(conjunction.begin(), conjunction.end(),
                       [&](const DrawnTest& test) { return holds(test, attributes); });
  });
}

std::string text_of(const DrawnConditions& conditions) {
  std::string text;
  for (const auto& conjunction : conditions) {
    if (!text.empty()) text += ",";
    for (std::size_t i = 0; i < conjunction.size(); ++i) {
      text += (i == 0 ? "" : "&") + std::string(field_name(conjunction[i].field)) + "={";
      for (const std::string& item : conjunction[i].items) text += item + " ";
      text += "}";
    }
  }
  return text;
}

constexpr const char* kJobs[] = {"a.1", "a.2", "b.1", "b.2", "c", ""};
constexpr const char* kJobItems[] = {"a.1", "a.2", "b.1", "c", "a.*", "*.1", "*", "*.*", "b*1"};
constexpr const char* kNids[] = {"0@lo", "10.0.0.1@tcp", "10.0.0.2@tcp"};

DrawnConditions any_conditions(Rng& rng) {
  DrawnConditions conditions(1 + rng.below(3));
  for (auto& conjunction : conditions) {
    conjunction.resize(1 + rng.below(2));
    for (DrawnTest& test : conjunction) {
      const std::uint64_t kind = rng.below(4);
      test.field = kind < 2 ? Field::kJobid : kind == 2 ? Field::kUid : Field::kNid;
      const std::uint64_t count = 1 + rng.below(3);
      for (std::uint64_t i = 0; i < count; ++i) {
        // Half of the lists of job ids are literal, so that both ways to find a rule are used.
        test.items.emplace_back(test.field == Field::kJobid
                                    ? kJobItems[rng.below(kind == 0 ? 4 : 9)]
                                : test.field == Field::kUid ? std::to_string(rng.below(4))
                                                            : kNids[rng.below(3)]);
      }
    }
  }
  return conditions;
}

struct ModelRule {
  std::string name;
  DrawnConditions conditions;
  unsigned layer = 0;
};

// The behaviour documented in the manual, with a plain vector.
class Model {
 public:
  void start(ModelRule rule, const std::optional<std::string>& rank) {
    if (find(rule.name) || (rank && !find(*rank))) return;
    rules_.insert(rules_.begin() + (rank ? *find(*rank) : 0), std::move(rule));
  }
  void change(const std::string& name, std::optional<unsigned> layer,
              const std::optional<std::string>& rank) {
    if (!find(name) || (rank && !find(*rank)) || (name == "default" && layer.value_or(0) != 0)) {
      return;
    }
    if (layer) rules_[static_cast<std::size_t>(*find(name))].layer = *layer;
    if (!rank || *rank == name) return;
    const ModelRule rule = rules_[static_cast<std::size_t>(*find(name))];
    rules_.erase(rules_.begin() + *find(name));
    rules_.insert(rules_.begin() + *find(*rank), rule);
  }
  void stop(const std::string& name) {
    if (name != "default" && find(name)) rules_.erase(rules_.begin() + *find(name));
  }
  std::string match(const Attributes& attributes, unsigned layer) const {
    for (const ModelRule& rule : rules_) {
      if (rule.layer == layer && holds(rule.conditions, attributes)) return rule.name;
    }
    return layer == 0 ? "default" : "-";
  }
  std::string names() const {
    std::string text;
    for (const ModelRule& rule : rules_) text += (text.empty() ? "" : " ") + rule.name;
    return text;
  }

 private:
  std::optional<std::ptrdiff_t> find(const std::string& name) const {
    for (std::size_t i = 0; i < rules_.size(); ++i) {
      if (rules_[i].name == name) return static_cast<std::ptrdiff_t>(i);
    }
    return std::nullopt;
  }

  std::vector<ModelRule> rules_ = {{"default", {}, 0}};
};

// The list under test, and lists with one mistake each.
struct Real {
  RuleList list{FieldSet::generic()};
  virtual ~Real() = default;
  virtual void apply(const RuleCommand& command) { static_cast<void>(list.apply(command)); }
  virtual const Rule* match(const Attributes& attributes, unsigned layer) {
    return list.match(attributes, layer);
  }
  virtual std::uint64_t generation() const { return list.generation(); }
};
struct AppendsNewRules : Real {
  void apply(const RuleCommand& command) override {
    RuleCommand other = command;
    if (other.verb == Verb::kStart && !other.keys.rank) other.keys.rank = "default";
    Real::apply(other);
  }
};
struct ForgetsRankOnChange : Real {
  void apply(const RuleCommand& command) override {
    RuleCommand other = command;
    if (other.verb == Verb::kChange) other.keys.rank.reset();
    Real::apply(other);
  }
};
struct MatchesDefaultByItsPlace : Real {
  const Rule* match(const Attributes& attributes, unsigned layer) override {
    for (const Rule* rule : list.rules()) {
      if (rule->layer() != layer) continue;
      if (rule->is_default() || rule->matches(attributes)) return rule;
    }
    return nullptr;
  }
};
struct FallsBackInEveryLayer : Real {
  const Rule* match(const Attributes& attributes, unsigned layer) override {
    const Rule* rule = list.match(attributes, layer);
    return rule == nullptr ? &list.default_rule() : rule;
  }
};
struct RemembersAMatch : Real {
  const Rule* match(const Attributes& attributes, unsigned layer) override {
    if (attributes == last && layer == 0) return rule.get();
    last = attributes;
    rule = RuleRef(*list.match(attributes, 0));
    return Real::match(attributes, layer);
  }
  Attributes last;
  RuleRef rule{list.default_rule()};
};

Attributes any_request(Rng& rng) {
  Attributes attributes = job(kJobs[rng.below(std::size(kJobs))]);
  attributes.uid = static_cast<std::uint32_t>(rng.below(4));
  attributes.nid = parse_nid(kNids[rng.below(3)]).value();
  return attributes;
}

// Applies one random command to both.
void step(Rng& rng, Real& subject, Model& model) {
  const auto name = [&] {
    return rng.chance(1, 8) ? "default" : "r" + std::to_string(rng.below(12));
  };
  const std::string target = name();
  const auto rank = rng.chance(1, 2) ? std::optional<std::string>(name()) : std::nullopt;
  const auto layer = static_cast<unsigned>(rng.below(3));
  const std::string keys =
      " layer=" + std::to_string(layer) + (rank ? " rank=" + *rank : std::string());
  std::string text;
  switch (rng.below(5)) {
    case 0:
    case 1: {
      const DrawnConditions conditions = any_conditions(rng);
      text = "start " + target + " " + text_of(conditions) + keys;
      model.start({target, conditions, layer}, rank);
      break;
    }
    case 2:
    case 3:
      text = "change " + target + keys;
      model.change(target, layer, rank);
      break;
    default:
      text = "stop " + target;
      model.stop(target);
  }
  subject.apply(parse_command(text, FieldSet::generic()).value());
}

// Empty if the subject agrees with the model after every command, otherwise the difference.
template <class Subject>
std::string disagreement() {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    Subject subject;
    Model model;
    Attributes request = any_request(rng);
    for (int i = 0; i < 60; ++i) {
      step(rng, subject, model);
      if (names(subject.list) != model.names()) return "order " + names(subject.list);
      for (int probe = 0; probe < 6; ++probe) {
        if (probe != 0) request = any_request(rng);
        for (unsigned layer = 0; layer < kLayers; ++layer) {
          const Rule* rule = subject.match(request, layer);
          const std::string found = rule == nullptr ? "-" : rule->name();
          if (found != model.match(request, layer)) {
            return found + " instead of " + model.match(request, layer);
          }
          std::string why = subject.list.explain(request, layer);
          if (!why.starts_with(model.match(request, layer) + "\t")) return why;
        }
      }
    }
  }
  return {};
}

TEST(RuleListProperty, OrderAndMatchesAreThoseOfANaiveList) { EXPECT_EQ(disagreement<Real>(), ""); }

TEST(RuleListProperty, TheNaiveListCatchesWrongOnes) {
  EXPECT_NE(disagreement<AppendsNewRules>(), "");
  EXPECT_NE(disagreement<ForgetsRankOnChange>(), "");
  EXPECT_NE(disagreement<MatchesDefaultByItsPlace>(), "");
  EXPECT_NE(disagreement<FallsBackInEveryLayer>(), "");
  EXPECT_NE(disagreement<RemembersAMatch>(), "");
}

// As on a Lustre server, where a change of rank does not affect existing matches.
struct CountsStartsOnly : Real {
  void apply(const RuleCommand& command) override {
    starts += command.verb == Verb::kStart ? 1U : 0U;
    Real::apply(command);
  }
  std::uint64_t generation() const override { return starts; }
  std::uint64_t starts = 0;
};
// Misses a rule that was stopped and started again between two checks.
struct CountsRules : Real {
  std::uint64_t generation() const override { return list.size(); }
};

// Empty if no match changed while the generation stayed the same, otherwise that match.
template <class Subject>
std::string stale_match() {
  std::size_t changes = 0;
  for (std::uint64_t seed = 100; seed < 130; ++seed) {
    Rng rng(seed);
    Subject subject;
    Model model;
    std::vector<Attributes> requests(20);
    for (Attributes& request : requests) request = any_request(rng);
    std::vector<std::uint64_t> before(requests.size(), 0);
    std::uint64_t generation = subject.generation();
    for (int i = 0; i < 80; ++i) {
      step(rng, subject, model);
      for (std::size_t r = 0; r < requests.size(); ++r) {
        const Rule* rule = subject.list.match(requests[r], 0);
        const std::uint64_t had = std::exchange(before[r], rule->id());
        if (had == before[r]) continue;
        if (subject.generation() == generation) return "now " + rule->name();
        ++changes;
      }
      generation = subject.generation();
    }
  }
  return changes > 0 ? "" : "no match ever changed";
}

TEST(RuleListProperty, MatchesChangeOnlyWithTheGeneration) { EXPECT_EQ(stale_match<Real>(), ""); }

TEST(RuleListProperty, AGenerationThatMissesACommandIsCaught) {
  EXPECT_NE(stale_match<CountsStartsOnly>(), "");
  EXPECT_NE(stale_match<CountsRules>(), "");
}

}  // namespace
}  // namespace weir
