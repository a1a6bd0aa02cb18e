// SPDX-License-Identifier: Apache-2.0
#include "weir/config/serve_reload.h"

#include <array>
#include <map>
#include <memory>

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/classify/rule_list.h"
#include "weir/classify/rule_spec.h"
#include "weir/config/serve_config.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Texts = std::vector<std::string>;

ServeOptions parsed(const std::string& text) {
  auto options = parse_serve_config(text, "f");
  EXPECT_TRUE(options) << options.error().front().message();
  return options ? *options : ServeOptions{};
}

ServeReload plan(const std::string& before, const std::string& after) {
  return plan_reload(parsed(before), parsed(after));
}

TEST(ServeReload, TheSameFileChangesNothing) {
  const std::string text =
      "[server]\nlisten = ':1'\n[[service]]\nrules = ['start a jobid={a}']\n"
      "[[export]]\nname = 'e'\nstore = 'memory:1MiB'\n";
  EXPECT_EQ(plan(text, text), ServeReload{});
  EXPECT_EQ(plan("", "[[service]]\nname = 'ost_io'\n"), ServeReload{});
}

TEST(ServeReload, SlurmIsAskedFromTheNextStartOn) {
  EXPECT_EQ(plan("", "[jobs]\nslurm = true\n").restart, Texts{"jobs.slurm"});
}

TEST(ServeReload, LimitsChangeAtOnce) {
  const ServeReload reload = plan("", "[server]\nconnections = 100\nmemory = '1GiB'\n");
  ASSERT_TRUE(reload.limits);
  EXPECT_EQ(reload.limits->connections, 100U);
  EXPECT_EQ(reload.changes, (Texts{"server.connections: 4096 -> 100",
                                   "server.memory: 512MiB -> "
                                   "1GiB"}));
  EXPECT_TRUE(reload.restart.empty());
  for (const auto& [line, change] : std::map<std::string, std::string>{
           {"connection_memory = '64MiB'", "server.connection_memory: 32MiB -> 64MiB"},
           {"connection_requests = 1", "server.connection_requests: 1024 -> 1"},
           {"handshake_timeout = '1s'", "server.handshake_timeout: 10s -> 1s"},
           {"drain_timeout = '0s'", "server.drain_timeout: 30s -> 0ns"}}) {
    EXPECT_EQ(plan("", "[server]\n" + line).changes, Texts{change});
  }
}

TEST(ServeReload, JobsChangeAtOnce) {
  const ServeReload reload = plan("[jobs]\nfile = '/a'\n",
                                  "[jobs]\nfile = '/b'\nnodes = { x = 2 }\n"
                                  "unknown = 'clients'\n");
  EXPECT_EQ(reload.jobs, (JobsReload{"/b", {{"x", 2}}, serve::UnknownJobs::kClients}));
  EXPECT_EQ(reload.changes, Texts{"jobs"});
  EXPECT_TRUE(plan("", "[jobs]\nnodes = { x = 2 }\n").jobs);
  EXPECT_TRUE(plan("", "[jobs]\nunknown = 'clients'\n").jobs);
  EXPECT_TRUE(reload.restart.empty());
}

TEST(ServeReload, WeightsOfNodesChangeAtOnceAndTheLevelsAtTheNextStart) {
  const std::string tree = "[shares]\ntree = ['projid', 'uid', 'jobid']\nweights = ";
  const ServeOptions before = parsed(tree + "{ '1' = 2, '1/7' = 3, '2' = 4 }\n");
  const ServeOptions after = parsed(tree + "{ '1' = 5, '2' = 4, '3' = 2 }\n");
  const ServeReload reload = plan_reload(before, after);
  ASSERT_EQ(reload.services.size(), 1U);
  EXPECT_EQ(reload.services[0].weights,
            (std::map<std::string, std::uint64_t>{{"1", 5}, {"1/7", 0}, {"3", 2}}));
  EXPECT_EQ(reload.changes, (Texts{"service 'ost_io': weight of '1': 2 -> 5",
                                   "service 'ost_io': weight of '1/7': 3 -> 1",
                                   "service 'ost_io': weight of '3': 1 -> 2"}));
  EXPECT_TRUE(reload.restart.empty());
  EXPECT_EQ(reached(before, reload, after), after);
  const ServeReload other =
      plan_reload(before, parsed("[shares]\ntree = ['uid', 'jobid']\nweights = { '1' = 9 }\n"));
  EXPECT_EQ(other.restart, Texts{"service 'ost_io': tree of shares"});
  EXPECT_TRUE(other.services.empty());
  EXPECT_EQ(plan_reload(before,
                        parsed(tree + "{ '1' = 2, '1/7' = 3, '2' = 4 }\nnames = { '1' = 'bio' }\n"))
                .restart,
            Texts{"service 'ost_io': names of shares"});
}

TEST(ServeReload, CapacityChangesAtOnceUnlessTheCostDoes) {
  const ServeReload reload = plan("", "[[service]]\ncapacity = 4000\n");
  ASSERT_EQ(reload.services.size(), 1U);
  EXPECT_EQ(reload.services[0].service, serve::kDefaultService);
  EXPECT_EQ(reload.services[0].capacity,
            (serve::Capacity{serve::Capacity::Kind::kOps, Rate::per_second(4000)}));
  EXPECT_EQ(reload.changes, Texts{"service 'ost_io': capacity: auto -> 4k/s"});
  const ServeReload bytes = plan("", "[[service]]\ncapacity = '1MB/s'\n");
  EXPECT_EQ(bytes.restart, Texts{"service 'ost_io': capacity"});
  EXPECT_TRUE(bytes.services.empty());
  const ServeReload same_cost =
      plan("[[service]]\ncost = 'bytes'\n", "[[service]]\ncost = 'bytes'\ncapacity = '1MB/s'\n");
  EXPECT_TRUE(same_cost.restart.empty());
  EXPECT_EQ(same_cost.changes, Texts{"service 'ost_io': capacity: auto -> 1MB/s"});
}

TEST(ServeReload, WhatWasBoundOrBuiltAtTheStartWaitsForTheNext) {
  const std::map<std::string, std::string> restarts = {
      {"[server]\nlisten = ':1'", "server.listen"},
      {"[server]\nuser = 'x'", "server.user"},
      {"[server]\ncontrol_socket = 'x'", "server.control_socket"},
      {"[server]\ntrace = 'x'", "server.trace"},
      {"[server]\nio = 'epoll'", "server.io"},
      {"[server]\nthreads = 2", "server.threads"},
      {"[control]\njournal = 'x'", "control"},
      {"[tls]\ndirectory = 'x'", "tls"},
      {"[claims]\nlocal = false", "claims"},
      {"[[nodemap]]\nname = 'n'\nnids = '*@tcp'", "nodemap"},
      {"[groups]\nlength = '1s'", "groups"},
      {"[[group]]\nname = 'g'\nnids = '*@tcp'", "groups"},
      {"[[service]]\nname = 'x'", "service 'x'"},
      {"[[service]]\npolicy = 'fifo'", "service 'ost_io': policy"},
      {"[[service]]\nadaptive = 'off'", "service 'ost_io': adaptive"},
      {"[[service]]\nslots = 1", "service 'ost_io': slots"},
      {"[[service]]\nhp_slots = 1", "service 'ost_io': hp_slots"},
      {"[[service]]\nperiod = '1s'", "service 'ost_io': period"},
      {"[[service]]\ncost = 'bytes'", "service 'ost_io': cost"},
      {"[[service]]\nclasses = 100", "service 'ost_io': classes"},
      {"[[export]]\nname = 'e'\nstore = 'memory:1MiB'", "export 'e'"},
  };
  for (const auto& [text, key] : restarts) {
    for (const ServeReload& reload : {plan("", text), plan(text, "")}) {
      EXPECT_EQ(reload.restart, Texts{key}) << text;
      EXPECT_TRUE(reload.changes.empty() && reload.services.empty()) << text;
    }
  }
  EXPECT_EQ(
      plan("[[service]]\nslots = 'auto'", "[[service]]\nslots = 'auto'\nlatency_target = '1ms'")
          .restart,
      Texts{"service 'ost_io': latency_target"});
  EXPECT_EQ(plan("[[export]]\nname = 'e'\nstore = 'memory:1MiB'",
                 "[[export]]\nname = 'e'\nstore = 'memory:2MiB'")
                .restart,
            Texts{"export 'e'"});
}

TEST(ServeReload, TheShapeOfAShapedStoreChangesAtOnce) {
  const auto with = [](const std::string& store) {
    return "[[export]]\nname = 'e'\nstore = '" + store + "'\n";
  };
  const ServeReload reload =
      plan(with("shaped:iops=2000:memory:1MiB"), with("shaped:bps=1MB,latency=1ms:memory:1MiB"));
  ASSERT_EQ(reload.shapes.size(), 1U);
  EXPECT_EQ(reload.shapes[0].exported, "e");
  EXPECT_EQ(reload.shapes[0].shape.latency, std::chrono::milliseconds{1});
  EXPECT_EQ(reload.changes, Texts{"export 'e': iops=2k/s -> bps=1MB/s,latency=1ms"});
  EXPECT_TRUE(reload.restart.empty());
  for (const char* store : {"memory:1MiB", "shaped:iops=2000:memory:2MiB"}) {
    EXPECT_EQ(plan(with("shaped:iops=2000:memory:1MiB"), with(store)).restart, Texts{"export 'e'"});
  }
}

// Keys that need a restart are compared with the running options in every reload.
TEST(ServeReload, WhatIsReachedIsWhatThePlanHasChanged) {
  const ServeOptions before = parsed(
      "[server]\nconnections = 10\n[[service]]\nrules = ['start a jobid={a}']\n"
      "[[export]]\nname = 'e'\nstore = 'shaped:iops=1:memory:1MiB'\n");
  const ServeOptions after = parsed(
      "[server]\nconnections = 20\nlisten = ':1'\n[[service]]\nslots = 3\ncapacity = 7\n"
      "[jobs]\nnodes = { x = 2 }\n[[export]]\nname = 'e'\n"
      "store = 'shaped:iops=2:memory:1MiB'\n");
  const ServeOptions now = reached(before, plan_reload(before, after), after);
  EXPECT_EQ(now.limits, after.limits);
  EXPECT_EQ(now.jobs, after.jobs);
  EXPECT_EQ(now.exports, after.exports);
  EXPECT_EQ(now.services[0].capacity, after.services[0].capacity);
  EXPECT_TRUE(now.services[0].rules.empty());
  const ServeReload again = plan_reload(now, after);
  EXPECT_TRUE(again.changes.empty());
  EXPECT_EQ(again.restart, (Texts{"server.listen", "service 'ost_io': slots"}));
}

TEST(ServeReload, RulesWaitWhereTheirMeaningChanges) {
  const std::string rule = "rules = ['start a jobid={a}']\n";
  const ServeReload policy = plan("[[service]]\n", "[[service]]\npolicy = 'tbf'\n" + rule);
  EXPECT_EQ(policy.restart, (Texts{"service 'ost_io': policy", "service 'ost_io': rules"}));
  const ServeReload nodemaps =
      plan("", "[[nodemap]]\nname = 'n'\nnids = '*@tcp'\n[[service]]\n" + rule);
  EXPECT_EQ(nodemaps.restart, (Texts{"nodemap", "service 'ost_io': rules"}));
  EXPECT_TRUE(nodemaps.services.empty());
}

// ---- rules ----

std::optional<Texts> rule_commands(const Texts& before, const Texts& after) {
  const auto read = [](const Texts& texts) {
    std::vector<RuleChange> changes;
    for (const std::string& text : texts) changes.push_back(parse_rule(text).value());
    return changes;
  };
  const auto changes = rule_changes(read(before), read(after));
  if (!changes) return std::nullopt;
  return print_all(*changes);
}

Texts commands(const Texts& before, const Texts& after) {
  const auto found = rule_commands(before, after);
  EXPECT_TRUE(found);
  return found ? *found : Texts{};
}

TEST(ServeReloadRules, AChangeOfLimitsIsAChange) {
  EXPECT_EQ(commands({"start a jobid={a} rate=5 bps=1MB"}, {"start a jobid={a} rate=6 bps=2MB"}),
            Texts{"change a rate=6 bps=2MB"});
  EXPECT_TRUE(
      commands({"start a jobid={a} rate=5 bps=1MB"}, {"start a jobid={a} bps=1MB/s rate=05"})
          .empty())
      << "it says the same";
  EXPECT_EQ(commands({"start a {x} 5"}, {"start a {x} 6"}), Texts{"change a 6"});
  EXPECT_EQ(commands({"hp start a jobid={x} rate=5"}, {"hp start a jobid={x} rate=6"}),
            Texts{"hp change a rate=6"});
}

TEST(ServeReloadRules, WhatCannotBeChangedIsStoppedAndStarted) {
  const std::string a = "start a jobid={a} rate=5";
  for (const char* const other :
       {"start a jobid={b} rate=5", "start a jobid={a}", "start a jobid={a} rate=5 bps=1MB",
        "start a jobid={a} bps=1MB", "start a jobid={a} rate=5 realtime=1"}) {
    EXPECT_EQ(commands({a}, {other}), (Texts{"stop a", other}));
  }
  EXPECT_EQ(commands({"start a jobid={a} burst=5"}, {"start a jobid={a} bps=1MB burst=64KiB"}),
            (Texts{"stop a", "start a jobid={a} bps=1MB burst=64KiB"}));
  EXPECT_EQ(commands({"start a jobid={a} bps=1MB rate=5 burst=5"},
                     {"start a jobid={a} bps=1MB rate=5 burst=64KiB"}),
            (Texts{"stop a", "start a jobid={a} rate=5 bps=1MB burst=64KiB"}));
}

TEST(ServeReloadRules, WhatStaysIsNotTouched) {
  const std::string a = "start a jobid={a}";
  const std::string b = "start b jobid={b}";
  const std::string c = "start c jobid={c}";
  EXPECT_EQ(commands({a, b, c}, {a, c}), Texts{"stop b"});
  EXPECT_EQ(commands({a, c}, {a, b, c}), Texts{b + " rank=a"});
  EXPECT_EQ(commands({b, c}, {a, b, c}), Texts{a + " rank=default"});
  EXPECT_EQ(commands({a, b}, {a, b, c}), Texts{c});
}

TEST(ServeReloadRules, RanksAndHeadsKeepTheOrderOfTheFile) {
  const std::string a = "start a jobid={a}";
  const std::string b = "start b jobid={b} rank=a";
  const std::string c = "start c jobid={c}";
  EXPECT_EQ(commands({a, b, c}, {a, c}), (Texts{"stop c", "stop b", c}));
  EXPECT_EQ(commands({"reg start a jobid={a}", c}, {c}), (Texts{"stop c", "reg stop a", c}));
}

TEST(ServeReloadRules, AChangeOfDefaultCannotBeTakenBack) {
  const std::string line = "change default rate=5";
  EXPECT_EQ(commands({}, {line}), Texts{line});
  EXPECT_EQ(commands({"change default rate=6"}, {line}), Texts{line});
  EXPECT_EQ(commands({line, "change default rate=7"}, {line}), Texts{line});
  EXPECT_TRUE(commands({line}, {line}).empty());
  EXPECT_FALSE(rule_commands({line}, {}));
  EXPECT_FALSE(rule_commands({line}, {"hp change default rate=5"}));
  EXPECT_EQ(plan("[[service]]\nrules = ['change default rate=5']\n", "").restart,
            Texts{"service 'ost_io': rules"});
}

class ServeReloadProperty : public ::testing::Test {
 protected:
  using Lists = std::array<std::unique_ptr<RuleList>, 2>;

  static void apply(Lists& lists, const Texts& texts) {
    for (const std::string& text : texts) {
      const auto command = parse_command(text, {Field::kJobid});
      ASSERT_TRUE(command) << text << ": " << command.error().message();
      for (std::size_t head = 0; head < 2; ++head) {
        if (command->heads == (head == 0 ? Heads::kHigh : Heads::kRegular)) continue;
        const auto done = lists[head]->apply(*command);
        ASSERT_TRUE(done) << text << ": " << done.error().message();
      }
    }
  }
  static Lists empty_lists() {
    return {std::make_unique<RuleList>(FieldSet{Field::kJobid}),
            std::make_unique<RuleList>(FieldSet{Field::kJobid})};
  }
  static std::string listing(const Lists& lists) {
    return lists[0]->listing() + "--\n" + lists[1]->listing();
  }

  // Rules of some of eight names in some order, sometimes with ranks or for one head.
  static Texts draw(Rng& rng, bool plain) {
    Texts texts;
    std::vector<char> names = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
    std::vector<char> both;  // rules that others can be ranked before
    while (!names.empty() && rng.below(8) != 0) {
      const auto which = static_cast<std::ptrdiff_t>(rng.below(names.size()));
      const char name = names[static_cast<std::size_t>(which)];
      names.erase(names.begin() + which);
      std::string text = std::string("start ") + name + " jobid={" + name + "}";
      text += " rate=" + std::to_string(1 + rng.below(3));
      const bool one_head = !plain && rng.below(4) == 0;
      if (one_head) {
        text.insert(0, rng.below(2) == 0 ? "reg " : "hp ");
      } else if (!plain && !both.empty() && rng.below(3) == 0) {
        text += std::string(" rank=") + both[rng.below(both.size())];
      }
      if (!one_head) both.push_back(name);
      texts.push_back(text);
    }
    return texts;
  }
};

TEST_F(ServeReloadProperty, TheCommandsMakeTheListOfTheNewFile) {
  Rng rng(1);
  for (int round = 0; round < 1000; ++round) {
    const bool plain = round % 2 == 0;
    const Texts before = draw(rng, plain);
    const Texts after = draw(rng, plain);
    Lists lists = empty_lists();
    apply(lists, before);
    apply(lists, commands(before, after));
    Lists fresh = empty_lists();
    apply(fresh, after);
    ASSERT_EQ(listing(lists), listing(fresh)) << "round " << round;
  }
}

TEST_F(ServeReloadProperty, TheComparisonFindsACommandThatIsMissing) {
  Lists lists = empty_lists();
  apply(lists, {"start a jobid={a} rate=1"});
  Lists fresh = empty_lists();
  apply(fresh, {"start a jobid={a} rate=2"});
  EXPECT_NE(listing(lists), listing(fresh));
}

TEST_F(ServeReloadProperty, RulesOfOthersStay) {
  Rng rng(2);
  for (int round = 0; round < 100; ++round) {
    const Texts before = draw(rng, true);
    const Texts after = draw(rng, true);
    Lists lists = empty_lists();
    apply(lists, before);
    apply(lists, {"start other jobid={z} rate=9"});
    const Rule* other = lists[0]->find("other");
    apply(lists, commands(before, after));
    ASSERT_EQ(lists[0]->find("other"), other);
  }
}

}  // namespace
}  // namespace weir::config
