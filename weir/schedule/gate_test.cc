// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/gate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/schedule/crrn.h"

namespace weir {
namespace {

constexpr Instant kNow = instant_at(1000);

Nid client(std::uint64_t number) {
  Nid nid;
  nid.low = number;
  nid.net = NetType::kTcp;
  nid.family = AddressFamily::kIpv4;
  return nid;
}

// Requests by number, and a log of those that ran.
class Bench {
 public:
  explicit Bench(const Gate::Options& options = {.slots = 1'000'000}) : gate(options) {}
  ~Bench() {
    gate.shutdown(kNow);
    do {
      for (auto& [number, request] : requests_) end(*request);
      for (auto& [number, request] : others_) end(*request);
    } while (run_one());
  }

  Request& admit(int number, Head head = Head::kRegular, std::uint64_t from = 0) {
    auto& request = requests_[number] = std::make_unique<Request>();
    request->attributes.nid = client(from);
    gate.admit(*request, head, kNow);
    return *request;
  }
  // Admits a request that the caller owns.
  Request& admit_as(int number, Request& request) {
    others_[number] = &request;
    gate.admit(request, Head::kRegular, kNow);
    return request;
  }
  bool run_one() {
    const Decision decision = gate.next(kNow);
    if (decision.kind() != Decision::Kind::kRun) return false;
    const auto is_it = [&](const auto& numbered) {
      return &*numbered.second == &decision.request();
    };
    const auto found = std::find_if(requests_.begin(), requests_.end(), is_it);
    ran.push_back(found == requests_.end()
                      ? std::find_if(others_.begin(), others_.end(), is_it)->first
                      : found->first);
    return true;
  }
  void run_all() {
    while (run_one()) continue;
  }

  Gate gate;
  std::vector<int> ran;

 private:
  void end(Request& request) {
    if (request.place() == Request::Place::kRunning) gate.complete(request, kNow);
    if (request.place() == Request::Place::kDeferred) gate.withdraw(request, kNow);
  }

  std::map<int, std::unique_ptr<Request>> requests_;
  std::map<int, Request*> others_;
};

using Order = std::vector<int>;

TEST(Gate, ServesInOrderOfArrivalAndThenIdles) {
  Bench bench;
  EXPECT_EQ(bench.gate.next(kNow).kind(), Decision::Kind::kIdle);
  for (const int number : {1, 2, 3}) bench.admit(number);
  EXPECT_EQ(bench.gate.queued(), 3U);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3}));
  EXPECT_EQ(bench.gate.running(), 3U);
  EXPECT_EQ(bench.gate.next(kNow).kind(), Decision::Kind::kIdle);
}

TEST(Gate, RunsNoMoreThanItsSlots) {
  Bench bench({.slots = 2});
  Request& first = bench.admit(1);
  for (const int number : {2, 3}) bench.admit(number);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2}));
  bench.gate.complete(first, kNow);
  EXPECT_EQ(first.place(), Request::Place::kOutside);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3}));
}

TEST(Gate, TheNumberOfSlotsCanChange) {
  Bench bench({.slots = 3, .hp_slots = 1});
  Request& first = bench.admit(1);
  Request& second = bench.admit(2);
  for (const int number : {3, 4}) bench.admit(number);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2}));
  bench.gate.set_slots(2);  // one of them for the high head
  bench.gate.complete(first, kNow);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2})) << "2 still runs";
  bench.gate.hold_regular(true);
  bench.gate.complete(second, kNow);
  bench.gate.set_slots(9);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2})) << "still held";
  bench.gate.hold_regular(false);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3, 4}));
}

TEST(Gate, HighPriorityGoesFirstButTenInARowAtMost) {
  Bench bench;
  for (int number = 0; number < 25; ++number) bench.admit(100 + number, Head::kHigh);
  for (const int number : {1, 2}) bench.admit(number);
  bench.run_all();
  EXPECT_EQ(bench.ran[9], 109);
  EXPECT_EQ(bench.ran[10], 1);
  EXPECT_EQ(bench.ran[20], 119);
  EXPECT_EQ(bench.ran[21], 2);
  EXPECT_EQ(bench.ran.back(), 124);
}

TEST(Gate, HighPriorityIsNotHeldBackWhenRegularHasNothing) {
  Bench bench;
  for (int number = 0; number < 30; ++number) bench.admit(number, Head::kHigh);
  bench.run_all();
  EXPECT_EQ(bench.ran.size(), 30U);
}

TEST(Gate, KeepsSlotsFromTheRegularHeadOnlyWhenTold) {
  Bench bench({.slots = 3, .hp_slots = 1});
  for (const int number : {1, 2, 3}) bench.admit(number);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2}));
  bench.admit(9, Head::kHigh);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 9}));
}

TEST(Gate, WithdrawsWhatIsQueued) {
  Bench bench;
  bench.admit(1);
  Request& gone = bench.admit(2);
  bench.admit(3);
  bench.gate.withdraw(gone, kNow);
  EXPECT_EQ(gone.place(), Request::Place::kOutside);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 3}));
}

TEST(Gate, PromotesWhatIsQueuedAndLeavesTheRest) {
  Bench bench;
  bench.admit(1);
  Request& urgent = bench.admit(2);
  bench.gate.promote(urgent, kNow);
  bench.gate.promote(urgent, kNow);
  EXPECT_EQ(urgent.head(), Head::kHigh);
  ASSERT_TRUE(bench.run_one());
  bench.gate.promote(urgent, kNow);  // it is already running
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{2, 1}));
}

TEST(Gate, TimeThatStepsBackStandsStill) {
  Bench bench;
  bench.admit(1);
  EXPECT_EQ(bench.gate.next(instant_at(5)).kind(), Decision::Kind::kRun);
  Request late;
  bench.gate.admit(late, Head::kRegular, instant_at(-7));
  EXPECT_EQ(late.admitted_at(), kNow);
  bench.gate.withdraw(late, kNow);
}

TEST(Gate, HandsEverythingOutAfterShutdown) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  for (const int number : {1, 2}) bench.admit(number);
  bench.admit(3, Head::kHigh);
  bench.gate.shutdown(kNow);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{3, 1, 2}));
  EXPECT_DEATH(bench.admit(4), "assertion failed");
}

TEST(Gate, ASwitchDrainsTheOldPolicyBesideTheNewOne) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  for (const int number : {1, 2, 3}) bench.admit(number);
  ASSERT_TRUE(bench.gate.start_policy("crrn", "other", Heads::kBoth));
  for (const int number : {11, 12}) bench.admit(number);
  ASSERT_TRUE(bench.gate.start_policy("fifo", "", Heads::kBoth));
  bench.admit(21);
  bench.run_all();
  EXPECT_EQ(bench.ran.size(), 6U);
  const auto at = [&](int number) { return std::find(bench.ran.begin(), bench.ran.end(), number); };
  EXPECT_TRUE(at(1) < at(2) && at(2) < at(3));
  EXPECT_TRUE(at(11) < at(12));
  EXPECT_TRUE(at(11) < at(3)) << "they take turns";
}

TEST(Gate, AnUnknownPolicyChangesNothing) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  const Policy* const running = &bench.gate.policy_in_force(Head::kRegular);
  for (const char* name : {"orr", "trr", "delay", "tbf\n", "CRRN", ""}) {
    const auto started = bench.gate.start_policy(name, "", Heads::kBoth);
    ASSERT_FALSE(started) << name;
    EXPECT_EQ(started.error().code, std::errc::no_such_file_or_directory);
  }
  EXPECT_EQ(&bench.gate.policy_in_force(Head::kRegular), running);
}

TEST(Gate, ARuleForBothHeadsNeedsTheSameFieldsOnBoth) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("tbf", "jobid", Heads::kRegular));
  ASSERT_TRUE(bench.gate.start_policy("tbf", "nid", Heads::kHigh));
  const auto read = bench.gate.read_rule("start a rate=5");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message(),
            "rule: tbf has other fields for regular than for high-priority requests; write reg or "
            "hp before the command");
  EXPECT_TRUE(bench.gate.read_rule("reg start a jobid={x} rate=5"));
}

TEST(Gate, TheSamePolicyGoesOnAsItIs) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kRegular));
  const Policy* const regular = &bench.gate.policy_in_force(Head::kRegular);
  EXPECT_EQ(bench.gate.policy_in_force(Head::kHigh).name(), "fifo");
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  EXPECT_EQ(&bench.gate.policy_in_force(Head::kRegular), regular);
  EXPECT_EQ(bench.gate.policy_in_force(Head::kHigh).name(), "crrn");
}

// ---- hostile input ----

TEST(Gate, RefusesHostileRuleCommandsAndKeepsItsRules) {
  using namespace std::string_literals;
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("tbf", "jobid", Heads::kBoth));
  // Of the maximum length, with a name that is not ASCII among its items.
  std::string longest = "start long jobid={uml\xc3\xa4ut ";
  longest += std::string(4095 - longest.size() - 1, 'x') + "}";
  ASSERT_TRUE(bench.gate.write_rule(longest, kNow));
  const RuleList& rules = bench.gate.engine(Head::kRegular)->rules(Head::kRegular);
  const std::string before = rules.listing();
  for (const std::string& text :
       {longest + " ", longest.substr(0, longest.size() - 1) + "x}", std::string(1'000'000, 'x'),
        "start a jobid={x\0y}"s, "start a jobid={x} rate=5\0"s, "stop long\0"s, "\0"s, ""s,
        "start \xc3\xa4 jobid={x}"s, "change long r\xc3\xa4te=5"s,
        "start a jobid={x} rate=\xd9\xa1"s, "\xff\xfe"s, "reg "s, "hp "s,
        "start a jobid={x\ny}"s}) {
    const auto applied = bench.gate.write_rule(text, kNow);
    ASSERT_FALSE(applied) << text.substr(0, 40);
    EXPECT_EQ(applied.error().code, std::errc::invalid_argument) << text.substr(0, 40);
    EXPECT_EQ(rules.listing(), before) << text.substr(0, 40);
  }
}

TEST(Gate, HoldsTenThousandRulesAndEachLimits) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("tbf", "jobid", Heads::kBoth));
  constexpr int kRules = 10'000;
  for (int i = 0; i < kRules; ++i) {
    const std::string text = fmt::format("start r{} jobid={{job{}}} rate=1", i, i);
    ASSERT_TRUE(bench.gate.write_rule(text, kNow));
  }
  const auto runs = [&](const std::string& job) {
    std::vector<std::unique_ptr<Request>> requests(5);
    for (auto& request : requests) {
      request = std::make_unique<Request>();
      request->attributes.job = JobId(job);
      bench.gate.admit(*request, Head::kRegular, kNow);
    }
    int ran = 0;
    while (bench.gate.next(kNow).kind() == Decision::Kind::kRun) ++ran;
    for (auto& request : requests) {
      if (request->place() == Request::Place::kRunning) {
        bench.gate.complete(*request, kNow);
      } else {
        bench.gate.withdraw(*request, kNow);
      }
    }
    return ran;
  };
  EXPECT_EQ(runs("job0"), 3);
  EXPECT_EQ(runs("job9999"), 3);
  EXPECT_EQ(runs("job10000"), 5);
  EXPECT_FALSE(bench.gate.write_rule("start r77 jobid={x}", kNow));
  ASSERT_TRUE(bench.gate.write_rule("stop r9999", kNow));
  EXPECT_EQ(runs("job9999"), 5);
}

#ifdef __OPTIMIZE__
constexpr std::size_t kInventedJobs = 1'000'000;
#else
constexpr std::size_t kInventedJobs = 50'000;  // a million would take half a minute
#endif

// One request of each invented job: none waits, since each is new; beyond the bound they share a
// class, and get only the tokens that it has saved.
TEST(Gate, AMillionInventedJobsTakeBoundedMemoryAndBuyNoBursts) {
  constexpr std::size_t kClasses = 1000;
  Gate gate({.rules = {.classes_max = kClasses}});
  ASSERT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  ASSERT_TRUE(gate.write_rule("start all jobid={*} rate=1", kNow));
  const RuleEngine& tbf = *gate.engine(Head::kRegular);
  std::size_t ran = 0;
  Request request;
  for (std::size_t i = 0; i < kInventedJobs; ++i) {
    request.attributes.job = JobId(std::to_string(i));
    gate.admit(request, Head::kRegular, kNow);
    if (gate.next(kNow).kind() == Decision::Kind::kRun) {
      ++ran;
      gate.complete(request, kNow);
    } else {
      gate.withdraw(request, kNow);
    }
    ASSERT_LE(tbf.classes(), kClasses + 1);
    ASSERT_LE(tbf.queues(), 2 * kClasses + 1);
  }
  EXPECT_EQ(ran, kClasses + 3);
  EXPECT_EQ(tbf.overflowed(), kInventedJobs - kClasses);
}

TEST(Gate, TimeThatStandsStillOrStepsBackMakesNoTokens) {
  Gate gate({.slots = 1000});
  ASSERT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  ASSERT_TRUE(gate.write_rule("start a jobid={*} rate=10", kNow));
  std::vector<std::unique_ptr<Request>> requests(100);
  for (auto& request : requests) {
    request = std::make_unique<Request>();
    gate.admit(*request, Head::kRegular, kNow);
  }
  int ran = 0;
  const auto run_at = [&](Instant now) {
    while (gate.next(now).kind() == Decision::Kind::kRun) ++ran;
  };
  for (int i = 0; i < 1000; ++i) run_at(kNow);
  EXPECT_EQ(ran, 3);
  // A clock that steps forward and back for two seconds advances by two seconds, not by two
  // thousand, and rule commands with an earlier time do not set it back.
  for (int ms = 1; ms <= 1000; ++ms) {
    run_at(kNow + std::chrono::milliseconds{2 * ms});
    run_at(kNow);
    run_at(Instant::min());
    ASSERT_TRUE(gate.write_rule("change a rate=10", kNow));
  }
  EXPECT_EQ(ran, 3 + 20);
  EXPECT_EQ(gate.next(kNow).until(), kNow + std::chrono::milliseconds{2100});
  gate.shutdown(kNow);
  run_at(kNow);
  EXPECT_EQ(ran, 100);
  for (auto& request : requests) gate.complete(*request, Instant::min());
}

// ---- crrn ----

TEST(Gate, SeveralRuleCommandsApplyTogetherOrNotAtAll) {
  Bench bench;
  Gate& gate = bench.gate;
  ASSERT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  ASSERT_TRUE(gate.write_rule("start old jobid={old} rate=5", kNow));
  const auto list = [&] { return gate.engine(Head::kRegular)->rules(Head::kRegular).listing(); };
  const std::string before = list();
  using Commands = std::vector<std::string>;
  const auto read = [](const Commands& commands) {
    std::vector<RuleChange> changes;
    for (const std::string& command : commands) changes.push_back(parse_rule(command).value());
    return changes;
  };
  const auto check = [&](const Commands& commands) { return gate.check_rules(read(commands)); };
  const auto apply = [&](const Commands& commands) {
    return gate.apply_rules(read(commands), kNow);
  };
  // Each is valid only after the previous ones.
  const Commands good = {"start a jobid={a} rate=1", "start b jobid={b} rate=2 rank=a",
                         "change b rate=3", "stop old", "start old jobid={x} rate=4"};
  EXPECT_TRUE(check(good));
  EXPECT_EQ(list(), before);
  for (const char* bad :
       {"start a jobid={a} rate=1", "start c uid={5} rate=1", "change none rate=1",
        "start c jobid={c} rate=1 rank=none", "stop default"}) {
    Commands commands = good;
    commands.emplace_back(bad);
    const auto applied = apply(commands);
    ASSERT_FALSE(applied) << bad;
    EXPECT_NE(applied.error().where.find(bad), std::string::npos) << applied.error().where;
    EXPECT_EQ(list(), before) << bad;
  }
  ASSERT_TRUE(apply(good));
  EXPECT_EQ(list(),
            "old jobid={x} 4, ref 0\nb jobid={b} 3, ref 0\na jobid={a} 1, ref 0\n"
            "default * 10000, ref 0\n");
  ASSERT_TRUE(gate.start_policy("fifo", "", Heads::kBoth));
  EXPECT_FALSE(check(good));
  EXPECT_TRUE(check({}));
}

TEST(Crrn, ServesClientsInBatches) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  ASSERT_TRUE(bench.gate.set_tunable(Head::kRegular, "quantum", 2));
  for (const int number : {1, 2, 3, 4}) bench.admit(number, Head::kRegular, 7);
  for (const int number : {11, 12}) bench.admit(number, Head::kRegular, 8);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 11, 12, 3, 4}));
}

// Computed by hand from Lustre's description. Quantum 3; clients a, b, c send a1 a2 b1, and a1 a2
// run. Then a has no waiting request, so a3 starts a batch of the next round although its first
// batch had room; c1 is still of the round being served, after the batch of b, which started
// earlier.
TEST(Crrn, AClientThatPausedDoesNotReturnToItsBatch) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  ASSERT_TRUE(bench.gate.set_tunable(Head::kRegular, "quantum", 3));
  for (const int number : {1, 2}) bench.admit(number, Head::kRegular, 7);
  bench.admit(11, Head::kRegular, 8);
  bench.run_one();
  bench.run_one();
  bench.admit(3, Head::kRegular, 7);
  bench.admit(21, Head::kRegular, 9);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 11, 21, 3}));
}

TEST(Crrn, ForgetsIdleClientsAtItsBound) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("crrn", "", Heads::kBoth));
  const auto& crrn = static_cast<const Crrn&>(bench.gate.policy_in_force(Head::kRegular));
  for (std::uint64_t from = 0; from < 3 * Crrn::kClientsMax; ++from) {
    Request request;
    request.attributes.nid = client(from);
    bench.gate.admit(request, Head::kRegular, kNow);
    ASSERT_EQ(bench.gate.next(kNow).kind(), Decision::Kind::kRun);
    bench.gate.complete(request, kNow);
  }
  EXPECT_EQ(crrn.clients(), Crrn::kClientsMax);
}

TEST(Gate, RulesMayNameTheNodemapsItIsToldOf) {
  Gate plain({});
  ASSERT_TRUE(plain.start_policy("tbf", "nodemap", Heads::kBoth));
  EXPECT_FALSE(plain.write_rule("start r nodemap={lab} rate=5", instant_at(0)));
  Gate::Options options;
  options.nodemaps = [](std::string_view name) {
    return name == "lab" ? std::optional<std::uint32_t>(7) : std::nullopt;
  };
  Gate told(options);
  ASSERT_TRUE(told.start_policy("tbf", "nodemap", Heads::kBoth));
  ASSERT_TRUE(told.write_rule("start r nodemap={lab} rate=5", instant_at(0)));
  Attributes attributes;
  attributes.nodemap = 7;
  EXPECT_EQ(told.engine(Head::kRegular)->rules(Head::kRegular).match(attributes, 0)->name(), "r");
}

// ---- requests without a buffer ----

TEST(Gate, ADeferredRequestGivesItsSlotToOthers) {
  Bench bench({.slots = 2});
  Request& first = bench.admit(1);
  for (const int number : {2, 3, 4}) bench.admit(number);
  bench.run_all();
  bench.gate.defer(first, kNow);
  EXPECT_EQ(first.place(), Request::Place::kDeferred);
  EXPECT_EQ(bench.gate.running(), 1U);
  EXPECT_EQ(bench.gate.deferred(), 1U);
  EXPECT_EQ(bench.gate.queued(), 2U) << "it is not queued any more";
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3}));
  bench.gate.withdraw(first, kNow);
  EXPECT_EQ(bench.gate.deferred(), 0U);
}

TEST(Gate, AResumedRequestIsTheNextToGetASlot) {
  Bench bench({.slots = 2});
  Request& a = bench.admit(1);
  Request& b = bench.admit(2);
  bench.run_all();
  bench.gate.defer(a, kNow);
  bench.gate.defer(b, kNow);
  bench.admit(3, Head::kHigh);
  Request& c = bench.admit(4, Head::kHigh);
  bench.admit(5, Head::kHigh);
  bench.run_all();
  bench.gate.resume(b, kNow);
  bench.gate.resume(a, kNow);
  EXPECT_EQ(bench.gate.next(kNow).kind(), Decision::Kind::kIdle) << "no slot is free";
  EXPECT_EQ(bench.gate.resumed(), 2U);
  bench.gate.complete(c, kNow);
  const Decision decision = bench.gate.next(kNow);
  ASSERT_EQ(decision.kind(), Decision::Kind::kRun);
  EXPECT_EQ(&decision.request(), &b) << "before those of the high head, and the first resumed";
  EXPECT_TRUE(decision.is_resumed());
  EXPECT_EQ(bench.gate.running(), 2U);
  bench.gate.defer(b, kNow);  // the buffer is no longer available
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3, 4, 1}));
  EXPECT_EQ(bench.gate.running(), 2U);
  bench.gate.withdraw(b, kNow);
}

TEST(Gate, ResumedRequestsObeyTheSlotsOfTheirHead) {
  Bench bench({.slots = 2, .hp_slots = 1});
  Request& regular = bench.admit(1);
  bench.run_all();
  bench.gate.defer(regular, kNow);
  bench.admit(2);
  bench.run_all();
  bench.gate.resume(regular, kNow);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2})) << "the slot that is left is the high head's";
  Request& high = bench.admit(3, Head::kHigh);
  bench.run_all();
  bench.gate.defer(high, kNow);
  bench.gate.resume(high, kNow);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3, 3}));
  bench.gate.hold_regular(true);
  bench.gate.complete(high, kNow);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2, 3, 3})) << "while the regular head is held it waits";
}

TEST(Gate, APolicyStaysWhileARequestItChoseIsDeferred) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("tbf", "nid", Heads::kBoth));
  Request& request = bench.admit(1);
  bench.run_all();
  bench.gate.defer(request, kNow);
  ASSERT_TRUE(bench.gate.start_policy("fifo", "", Heads::kBoth));
  const auto state = [&] {
    for (const auto& policy : bench.gate.policies(Head::kRegular)) {
      if (policy.name == "tbf") return policy.state;
    }
    return Gate::PolicyStatus::State::kStarted;
  };
  EXPECT_EQ(state(), Gate::PolicyStatus::State::kStopping);
  bench.gate.withdraw(request, kNow);
  EXPECT_EQ(state(), Gate::PolicyStatus::State::kStopped);
}

// ---- surcharges and refunds ----

// A class with 100 bytes a second and a depth of 1000 that has just paid 800 for its first request.
class Paying : public ::testing::Test {
 protected:
  Paying() {
    EXPECT_TRUE(bench.gate.start_policy("tbf", "nid", Heads::kBoth));
    apply("start slow nid={0.0.0.0@tcp} bps=100B burst=1000B");
    first = &admit(1, 800);
    bench.run_all();
    EXPECT_EQ(bench.ran, (Order{1}));
  }
  void apply(const std::string& text) {
    const auto applied = bench.gate.write_rule(text, kNow);
    ASSERT_TRUE(applied) << applied.error().message();
  }
  Request& admit(int number, std::uint64_t bytes) {
    auto& request = requests_.emplace_back(std::make_unique<Request>());
    request->attributes.nid = client(0);
    request->bytes = Bytes{bytes};
    return bench.admit_as(number, *request);
  }
  // When a request of this many bytes could run.
  Nanoseconds wait_of(std::uint64_t bytes) const {
    Request request;
    request.attributes.nid = client(0);
    request.bytes = Bytes{bytes};
    return bench.gate.expected_wait(request, Head::kRegular, kNow);
  }

  std::vector<std::unique_ptr<Request>> requests_;
  Bench bench;
  Request* first = nullptr;
};

using std::chrono::seconds;

TEST_F(Paying, WhatWasNotMovedGoesBack) {
  EXPECT_EQ(wait_of(1000), seconds{8});
  bench.gate.complete(*first, kNow, Outcome::done(Bytes{300}));
  EXPECT_EQ(wait_of(1000), seconds{3});
}

TEST_F(Paying, WhatWasMovedBesidesIsPaidAndMayLeaveADebt) {
  bench.gate.complete(*first, kNow, Outcome::done(Bytes{1500}));
  EXPECT_EQ(wait_of(1000), seconds{15});
  EXPECT_EQ(wait_of(0), seconds{5}) << "a debt of 500";
}

TEST_F(Paying, NothingIsSettledForWhatWasCharged) {
  bench.gate.complete(*first, kNow, Outcome::done(Bytes{800}));
  EXPECT_EQ(wait_of(1000), seconds{8});
}

TEST_F(Paying, WhatFailedStaysPaidUnlessItSaysWhatItMoved) {
  bench.gate.complete(*first, kNow, Outcome::failed());
  EXPECT_EQ(wait_of(1000), seconds{8});
}

TEST_F(Paying, WhatNeverBeganGetsItsTokensBack) {
  bench.gate.complete(*first, kNow, Outcome::not_started());
  EXPECT_EQ(wait_of(1000), seconds{0});
}

TEST_F(Paying, ADeferredRequestStaysPaidAndGetsItBackWhenItsClientDies) {
  bench.gate.defer(*first, kNow);
  EXPECT_EQ(wait_of(1000), seconds{8});
  bench.gate.resume(*first, kNow);
  bench.run_all();
  EXPECT_EQ(wait_of(1000), seconds{8}) << "and pays nothing again";
  bench.gate.defer(*first, kNow);
  bench.gate.resume(*first, kNow);
  bench.gate.withdraw(*first, kNow);
  EXPECT_EQ(first->place(), Request::Place::kOutside);
  EXPECT_EQ(wait_of(1000), seconds{0});
}

TEST_F(Paying, ARefundLetsAWaitingRequestGoSooner) {
  admit(2, 1000);
  EXPECT_EQ(bench.gate.next(kNow).until(), kNow + seconds{8});
  bench.gate.complete(*first, kNow, Outcome::done(Bytes{0}));
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2}));
}

TEST_F(Paying, ASurchargeMakesAWaitingRequestGoLater) {
  admit(2, 1000);
  EXPECT_EQ(bench.gate.next(kNow).until(), kNow + seconds{8});
  bench.gate.complete(*first, kNow, Outcome::done(Bytes{900}));
  EXPECT_EQ(bench.gate.next(kNow).until(), kNow + seconds{9});
}

TEST_F(Paying, NothingGoesBackToALimitThatDidNotPay) {
  apply("start other nid={0.0.0.0@tcp} bps=100B burst=1000B");
  Request& second = admit(2, 1000);
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2}));
  bench.gate.complete(*first, kNow, Outcome::not_started());
  EXPECT_EQ(wait_of(1000), seconds{10}) << "the other rule's bucket is as empty as before";
  bench.gate.complete(second, kNow, Outcome::done(Bytes{0}));
  EXPECT_EQ(wait_of(1000), seconds{0});
}

TEST_F(Paying, ARequestOfAPolicyThatWasDrainedHasPaidNothing) {
  Request& second = admit(2, 1000);
  ASSERT_TRUE(bench.gate.start_policy("fifo", "", Heads::kBoth));
  bench.run_all();
  EXPECT_EQ(bench.ran, (Order{1, 2}));
  bench.gate.complete(second, kNow, Outcome::not_started());
  bench.gate.complete(*first, kNow, Outcome::not_started());
}

TEST_F(Paying, AnExemptRequestPaysAndWaitsForNothing) {
  Request exempt;
  exempt.attributes.nid = client(0);
  exempt.bytes = Bytes{700};
  bench.gate.charge(exempt, Head::kRegular, kNow);
  EXPECT_EQ(exempt.place(), Request::Place::kOutside);
  EXPECT_EQ(bench.gate.queued(), 0U);
  EXPECT_EQ(bench.gate.running(), 1U) << "the first one's slot";
  EXPECT_EQ(wait_of(0), seconds{5}) << "a debt of 500";
}

TEST_F(Paying, AnExemptRequestOfANewClassPaysToo) {
  Request exempt;
  exempt.attributes.nid = client(9);
  exempt.bytes = Bytes{0};
  apply("start nine nid={0.0.0.9@tcp} rate=1 burst=1");
  EXPECT_EQ(bench.gate.expected_wait(exempt, Head::kRegular, kNow), seconds{0});
  for (int i = 0; i < 3; ++i) bench.gate.charge(exempt, Head::kRegular, kNow);
  EXPECT_EQ(bench.gate.expected_wait(exempt, Head::kRegular, kNow), seconds{3});
}

TEST_F(Paying, AnAdmittedRequestWouldWaitForAllThatIsBeforeIt) {
  for (const int number : {2, 3, 4}) admit(number, 500);
  EXPECT_EQ(wait_of(500), seconds{18}) << "200 are there, 2000 are needed";
  bench.gate.withdraw(*requests_.back(), kNow);
  EXPECT_EQ(wait_of(500), seconds{13});
  Request other;
  other.attributes.nid = client(1);
  other.bytes = Bytes{500};
  EXPECT_EQ(bench.gate.expected_wait(other, Head::kRegular, kNow), seconds{0});
}

TEST(GateWait, CountsWhatWaitsInABucketOfAWholeRule) {
  Bench bench;
  ASSERT_TRUE(bench.gate.start_policy("tbf", "nid", Heads::kBoth));
  ASSERT_TRUE(bench.gate.write_rule("start all nid={*.*.*.*@tcp} rate=1 burst=1 by=rule", kNow));
  for (int number = 0; number < 5; ++number) {
    bench.admit(number, Head::kRegular, static_cast<std::uint64_t>(number));
  }
  bench.run_all();
  Request another;
  another.attributes.nid = client(77);
  EXPECT_EQ(bench.gate.expected_wait(another, Head::kRegular, kNow), seconds{5});
  // Waiting requests follow changes of rules.
  ASSERT_TRUE(bench.gate.write_rule("start few nid={*.*.*.*@tcp} rate=1 burst=2 by=rule", kNow));
  EXPECT_EQ(bench.gate.expected_wait(another, Head::kRegular, kNow), seconds{3});
  ASSERT_TRUE(bench.gate.write_rule("stop few", kNow));
  EXPECT_EQ(bench.gate.expected_wait(another, Head::kRegular, kNow), seconds{5});
}

TEST(GateWait, CountsTheOperationsThatACompletedRequestWas) {
  struct Case {
    std::string limit;
    Outcome::How how;
    seconds wait;
  };
  for (const Case& one : {Case{"rate=1 burst=1", Outcome::How::kDone, seconds{9}},
                          Case{"rate=1 burst=1", Outcome::How::kFailed, seconds{9}},
                          Case{"rate=1 burst=1", Outcome::How::kNotStarted, seconds{0}},
                          Case{"rate=1 burst=2 cost=affine:2:0", Outcome::How::kDone, seconds{18}},
                          Case{"bps=10B burst=10B", Outcome::How::kDone, seconds{0}}}) {
    Bench bench;
    ASSERT_TRUE(bench.gate.start_policy("tbf", "nid", Heads::kBoth));
    ASSERT_TRUE(bench.gate.write_rule("start one nid={*.*.*.*@tcp} " + one.limit, kNow));
    Request& listing = bench.admit(1);
    bench.run_all();
    bench.gate.complete(listing, kNow, Outcome{one.how, std::nullopt, 9});
    Request another;
    another.attributes.nid = client(0);
    EXPECT_EQ(bench.gate.expected_wait(another, Head::kRegular, kNow), one.wait) << one.limit;
  }
}

TEST(GateWait, IsNoneWithoutLimits) {
  Bench bench({.slots = 1});
  for (const int number : {1, 2, 3}) bench.admit(number);
  Request another;
  EXPECT_EQ(bench.gate.expected_wait(another, Head::kRegular, kNow), seconds{0});
}

// ---- reservations ----

TEST(GateRules, ATrialCountsTheReservationsOfEarlierChanges) {
  Gate gate({});
  ASSERT_TRUE(gate.start_policy("tbf", "jobid", Heads::kBoth));
  gate.set_reserve_bound({.capacity = Rate::per_second(1000), .cost = Cost::op()});
  EXPECT_FALSE(gate.write_rule("start a jobid={a} reserve=901", instant_at(0)));
  Gate::RuleTrial trial(gate);
  EXPECT_TRUE(trial.apply(*parse_rule("start a jobid={a} reserve=500")));
  EXPECT_FALSE(trial.apply(*parse_rule("start b jobid={b} reserve=500")));
  EXPECT_TRUE(trial.apply(*parse_rule("stop a")));
  EXPECT_TRUE(trial.apply(*parse_rule("start b jobid={b} reserve=500")));
}

}  // namespace
}  // namespace weir
