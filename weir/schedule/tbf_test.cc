// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Times = std::vector<std::int64_t>;  // in ns

constexpr Instant kStart = instant_at(7'000'000'000);

Instant at_ms(std::int64_t ms) { return kStart + milliseconds{ms}; }

// Requests by job through one Tbf, and when each of them ran.
class Bench {
 public:
  // Depths as on a Lustre server: 3 tokens, whatever the rate.
  static RuleOptions lustre_depths() {
    RuleOptions options;
    options.depth_time = Nanoseconds{0};
    return options;
  }
  explicit Bench(const char* type = "jobid", RuleOptions options = lustre_depths())
      : tbf(*FieldSet::parse_type(type), options) {}
  ~Bench() {
    for (const Head head : {Head::kRegular, Head::kHigh}) {
      while (tbf.pick(head, kStart, Urge::kForce).request != nullptr) continue;
    }
  }

  // The errno of a command, 0 if it succeeds.
  int command(const std::string& text, Instant now = kStart) {
    const auto parsed = parse_command(text, tbf.type());
    if (!parsed) return static_cast<int>(parsed.error().code);
    const auto applied = tbf.apply(*parsed, now);
    return applied ? 0 : static_cast<int>(applied.error().code);
  }
  Request& admit(const std::string& job, Instant now, Bytes bytes = Bytes{4096},
                 Head head = Head::kRegular) {
    Attributes attributes;
    attributes.job = JobId(job);
    return admit(attributes, now, bytes, head);
  }
  Request& admit(const Attributes& attributes, Instant now, Bytes bytes = Bytes{4096},
                 Head head = Head::kRegular) {
    auto& request = *requests_.emplace_back(std::make_unique<Request>());
    request.attributes = attributes;
    request.bytes = bytes;
    tbf.admit(request, head, now);
    return request;
  }
  void admit_many(int count, const std::string& job, Instant now) {
    for (int i = 0; i < count; ++i) admit(job, now);
  }

  // Runs requests that may run at `now`; returns when the next one may.
  Instant run_at(Instant now, Head head = Head::kRegular) {
    for (;;) {
      const Pick pick = tbf.pick(head, now, Urge::kInTime);
      if (pick.request == nullptr) return pick.until;
      note(*pick.request, now);
    }
  }
  // With an unlimited number of workers.
  void run_until(Instant now, Instant end) {
    while (now <= end) now = run_at(now);
  }
  // With one worker that takes `service` for each request.
  void run_worker(Instant now, Instant end, Nanoseconds service) {
    while (now < end) {
      const Pick pick = tbf.pick(Head::kRegular, now, Urge::kInTime);
      if (pick.request != nullptr) {
        note(*pick.request, now);
        now += service;
      } else {
        now = pick.until;
      }
    }
  }

  std::vector<std::int64_t> times_ms(const std::string& job) const {
    std::vector<std::int64_t> ms;
    const auto found = ran.find(job);
    if (found == ran.end()) return ms;
    for (const std::int64_t ns : found->second) ms.push_back(ns / 1'000'000);
    return ms;
  }

  Tbf tbf;
  std::map<std::string, Times> ran;

 private:
  void note(const Request& request, Instant now) {
    ran[std::string(request.attributes.job.text())].push_back((now - kStart).count());
  }
  std::vector<std::unique_ptr<Request>> requests_;
};

TEST(Tbf, TraceASavedTokensThenTheRate) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=10"), 0);
  bench.admit_many(10, "a", kStart);
  bench.run_until(kStart, at_ms(1000));
  EXPECT_EQ(bench.times_ms("a"), (Times{0, 0, 0, 100, 200, 300, 400, 500, 600, 700}));
}

TEST(Tbf, TraceBFractionsOfATokenAreCarried) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=3"), 0);
  bench.admit_many(6, "a", kStart);
  bench.run_until(kStart, at_ms(2000));
  // Lustre: 333,333,334, then 666,666,668, then 1,000,000,002.
  EXPECT_EQ(bench.ran["a"], (Times{0, 0, 0, 333'333'334, 666'666'667, 1'000'000'000}));
}

TEST(Tbf, TraceCAndDSavedTokensAreUsableAtOnce) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=1000"), 0);
  ASSERT_EQ(bench.command("start b jobid={b} rate=2"), 0);
  bench.admit_many(3000, "a", kStart);
  bench.admit_many(5, "b", kStart);
  bench.run_until(kStart, at_ms(2000));
  EXPECT_EQ(bench.times_ms("b"), (Times{0, 0, 0, 500, 1000}));  // Lustre: 499 998 1497 1997 2497
  EXPECT_EQ(bench.times_ms("a").size(), 2003U);
}

TEST(Tbf, TraceEAThrottledClassDoesNotHoldUpANewOne) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=1"), 0);
  ASSERT_EQ(bench.command("start b jobid={b} rate=1000"), 0);
  bench.admit_many(10, "a", kStart);
  EXPECT_EQ(bench.run_at(kStart), at_ms(1000));
  bench.admit_many(5, "b", at_ms(5));
  bench.run_until(at_ms(5), at_ms(100));
  EXPECT_EQ(bench.times_ms("b"), (Times{5, 5, 5, 6, 7}));  // Lustre: 6 6 6 7 8
}

// Two jobs with a backlog on a server of 100 a second; the number of requests of each in 10 s.
std::pair<std::size_t, std::size_t> share(const std::string& a, const std::string& b) {
  Bench bench;
  EXPECT_EQ(bench.command("start a jobid={a} " + a), 0);
  EXPECT_EQ(bench.command("start b jobid={b} " + b), 0);
  bench.admit_many(1000, "a", kStart);
  bench.admit_many(1000, "b", kStart);
  bench.run_worker(kStart, kStart + seconds{10}, milliseconds{10});
  return {bench.ran["a"].size(), bench.ran["b"].size()};
}

TEST(Tbf, TraceFAndGUnderOverloadClassesShareByTheirRates) {
  const auto [f_a, f_b] = share("rate=80", "rate=80");
  EXPECT_EQ(f_a + f_b, 1000U);
  EXPECT_NEAR(static_cast<int>(f_a), 500, 2);
  const auto [g_a, g_b] = share("rate=150", "rate=50");
  EXPECT_EQ(g_a + g_b, 1000U);
  EXPECT_NEAR(static_cast<int>(g_a), 750, 7);  // Lustre: 668
}

TEST(Tbf, TraceHRealtimeGetsItsRateFirst) {
  const auto [a, b] = share("rate=60 realtime=1", "rate=60");
  EXPECT_EQ(a + b, 1000U);
  EXPECT_NEAR(static_cast<int>(a), 600 + 60, 2);  // its saved second, then its rate
}

TEST(Tbf, TraceIRealtimeCreditIsBounded) {
  for (const char* realtime : {"", " realtime=1"}) {
    Bench bench;
    ASSERT_EQ(bench.command(std::string("start a jobid={a} rate=10") + realtime), 0);
    bench.admit("a", kStart);
    bench.run_at(kStart);
    bench.admit_many(50, "a", at_ms(3000));
    bench.run_until(at_ms(3000), at_ms(3250));
    const Times expected = *realtime == '\0'
                               ? Times{0, 3000, 3000, 3000, 3100, 3200}
                               : Times{0,    3000, 3000, 3000, 3000, 3000, 3000,
                                       3000, 3000, 3000, 3000, 3100, 3200};  // Lustre: 32 at once
    EXPECT_EQ(bench.times_ms("a"), expected) << realtime;
  }
}

TEST(Tbf, ARateChangeActsAtOnceOnWhatIsQueuedAndDoesNotRefill) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=1"), 0);
  bench.admit_many(10, "a", kStart);
  EXPECT_EQ(bench.run_at(kStart), at_ms(1000));
  ASSERT_EQ(bench.command("change a rate=10", at_ms(500)), 0);
  // The bucket has half a token; the other half arrives in 50 ms.
  EXPECT_EQ(bench.run_at(at_ms(500)), at_ms(550));
  bench.run_until(at_ms(550), at_ms(800));
  EXPECT_EQ(bench.times_ms("a"), (Times{0, 0, 0, 550, 650, 750}));
}

TEST(Tbf, RewritingARateEvery100MsLetsNothingThrough) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=5"), 0);
  bench.admit_many(200, "a", kStart);
  for (int ms = 0; ms <= 10'000; ms += 100) {
    ASSERT_EQ(bench.command("change a rate=5", at_ms(ms)), 0);
    ASSERT_EQ(bench.command("start other jobid={x} rate=9", at_ms(ms)), 0);
    ASSERT_EQ(bench.command("stop other", at_ms(ms)), 0);
    bench.run_until(at_ms(ms), at_ms(ms + 99));
  }
  EXPECT_EQ(bench.ran["a"].size(), 3U + 50);  // a running Lustre server let 172 through
}

TEST(Tbf, AnIdleClassKeepsItsBalanceOverChangesOfOtherRules) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=1"), 0);
  bench.admit_many(3, "a", kStart);
  bench.run_at(kStart);
  ASSERT_EQ(bench.command("start other jobid={x} rate=9"), 0);
  ASSERT_EQ(bench.command("stop other"), 0);
  bench.admit("a", kStart);
  EXPECT_EQ(bench.run_at(kStart), at_ms(1000));
}

TEST(Tbf, StopAndRankActAtOnceOnWhatIsQueued) {
  Bench bench;
  ASSERT_EQ(bench.command("start wide jobid={a*} rate=100"), 0);
  ASSERT_EQ(bench.command("start slow jobid={a} rate=1"), 0);
  bench.admit_many(20, "a", kStart);
  EXPECT_EQ(bench.run_at(kStart), at_ms(1000));
  ASSERT_EQ(bench.command("change wide rank=slow", at_ms(10)), 0);
  EXPECT_EQ(bench.run_at(at_ms(10)), at_ms(20));
  ASSERT_EQ(bench.command("stop wide", at_ms(10)), 0);
  EXPECT_EQ(bench.run_at(at_ms(10)), at_ms(1000));
  ASSERT_EQ(bench.command("stop slow", at_ms(10)), 0);
  bench.run_at(at_ms(10));
  EXPECT_EQ(bench.ran["a"].size(), 3U + 3 + 3);  // a new class of default starts full, too
}

TEST(Tbf, BothHeadsShareAClassUnlessTheRuleWasStartedForOne) {
  for (const bool apart : {false, true}) {
    Bench bench;
    if (apart) {
      ASSERT_EQ(bench.command("reg start a jobid={a} rate=1"), 0);
      ASSERT_EQ(bench.command("hp start a jobid={a} rate=1"), 0);
    } else {
      ASSERT_EQ(bench.command("start a jobid={a} rate=1"), 0);
    }
    for (int i = 0; i < 5; ++i) {
      bench.admit("a", kStart, Bytes{1}, Head::kRegular);
      bench.admit("a", kStart, Bytes{1}, Head::kHigh);
    }
    bench.run_at(kStart, Head::kHigh);
    bench.run_at(kStart, Head::kRegular);
    EXPECT_EQ(bench.ran["a"].size(), apart ? 6U : 3U);
  }
}

TEST(Tbf, BytesAndOperationsAreTwoBuckets) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} rate=100 bps=1MB burst=100kB"), 0);
  for (int i = 0; i < 6; ++i) bench.admit("a", kStart, Bytes{50'000});
  bench.run_until(kStart, at_ms(1000));
  EXPECT_EQ(bench.times_ms("a"), (Times{0, 0, 50, 100, 150, 200}));
}

TEST(Tbf, LayersHoldAtOnceAndABucketOfAWholeRuleIsShared) {
  Bench bench("jobid");
  ASSERT_EQ(bench.command("start each jobid={*} rate=10"), 0);
  ASSERT_EQ(bench.command("start all jobid={*} rate=15 by=rule layer=1"), 0);
  bench.admit_many(100, "a", kStart);
  bench.admit_many(100, "b", kStart);
  bench.run_until(kStart, kStart + seconds{4});
  const std::size_t a = bench.ran["a"].size(), b = bench.ran["b"].size();
  EXPECT_EQ(a + b, 3U + 60);
  EXPECT_NEAR(static_cast<int>(a), static_cast<int>(b), 3);
}

TEST(Tbf, ASmallRequestDoesNotOvertakeALargeOneAtACommonBucket) {
  Bench bench;
  ASSERT_EQ(bench.command("start all jobid={*} bps=100kB burst=100kB by=rule"), 0);
  bench.admit("drain", kStart, Bytes{100'000});
  bench.run_at(kStart);
  bench.admit("large", kStart, Bytes{80'000});
  bench.run_at(kStart);
  for (int i = 0; i < 100; ++i) bench.admit("small", kStart, Bytes{1000});
  bench.run_until(kStart, at_ms(2000));
  EXPECT_EQ(bench.times_ms("large"), (Times{800}));
}

TEST(Tbf, InventedJobsShareOneClassBeyondTheBoundAndBuyNoBursts) {
  RuleOptions options = Bench::lustre_depths();
  options.classes_max = 10;
  Bench bench("jobid", options);
  ASSERT_EQ(bench.command("start all jobid={*} rate=1"), 0);
  for (int i = 0; i < 1000; ++i) bench.admit("job" + std::to_string(i), kStart);
  bench.run_at(kStart);
  std::size_t ran = 0;
  for (const auto& [job, times] : bench.ran) ran += times.size();
  EXPECT_EQ(ran, 10U + 3);  // ten classes with one each, and the three of the overflow class
  EXPECT_EQ(bench.tbf.classes(), 11U);
  EXPECT_EQ(bench.tbf.overflowed(), 990U);
}

TEST(Tbf, TheOverflowClassIsNotThatOfTheUserZero) {
  RuleOptions options = Bench::lustre_depths();
  options.classes_max = 4;
  Bench bench("generic", options);
  ASSERT_EQ(bench.command("start all jobid={*} rate=1 by=uid"), 0);
  const auto admit = [&](std::uint32_t uid) {
    Attributes attributes;
    attributes.job = JobId("j" + std::to_string(uid));
    attributes.uid = uid;
    bench.admit(attributes, kStart);
  };
  for (std::uint32_t uid = 0; uid < 20; ++uid) {
    for (int i = 0; i < 5; ++i) admit(uid);
  }
  bench.run_at(kStart);
  EXPECT_EQ(bench.times_ms("j0").size(), 3U) << "its own tokens, whatever others take";
  std::vector<bool> overflows;
  bench.tbf.visit_classes(0, 100, kStart, [&](const ClassView& view) {
    if (view.rule.name() != "all") return;
    overflows.push_back(view.is_overflow);
    EXPECT_EQ(view.totals.served, 3U);
    if (view.is_overflow) EXPECT_EQ(view.key, Attributes{}.only({}));
  });
  std::sort(overflows.begin(), overflows.end());
  EXPECT_EQ(overflows, (std::vector<bool>{false, false, false, false, true}));
}

TEST(Tbf, AFloodOfInventedJobsTakesBoundedMemory) {
  RuleOptions options = Bench::lustre_depths();
  options.classes_max = 10;
  Tbf tbf(*FieldSet::parse_type("jobid"), options);
  for (int i = 0; i < 100'000; ++i) {
    Request request;
    request.attributes.job = JobId("job" + std::to_string(i));
    tbf.admit(request, Head::kRegular, kStart);
    tbf.remove(request, Head::kRegular, kStart);
  }
  EXPECT_LE(tbf.classes(), 11U);
  EXPECT_LE(tbf.queues(), 22U);
}

TEST(Tbf, ClassesWithNothingToRememberMakeRoom) {
  RuleOptions options = Bench::lustre_depths();
  options.classes_max = 10;
  Bench bench("jobid", options);
  for (std::int64_t ms = 0; ms < 10'000; ms += 10) {
    bench.admit("job" + std::to_string(ms), at_ms(ms));
    bench.run_at(at_ms(ms));
  }
  EXPECT_EQ(bench.tbf.classes(), 10U);
  EXPECT_EQ(bench.tbf.overflowed(), 0U);
}

TEST(Tbf, ALimitOfAByteADayIsNoDeeperThanABucketCanBe) {
  Bench bench;
  ASSERT_EQ(bench.command("start a jobid={a} bps=1B/d"), 0);
  bench.admit("a", kStart, Bytes{4096});
  bench.run_at(kStart);
  EXPECT_EQ(bench.command("change a bps=1MB/s"), 0);
}

TEST(Tbf, AFailedCommandChangesNothing) {
  Bench bench;
  ASSERT_EQ(bench.command("reg start a jobid={a} rate=5"), 0);
  const std::string before = bench.tbf.rules(Head::kRegular).listing();
  EXPECT_EQ(bench.command("start a jobid={a} rate=7"), EEXIST);  // exists on the regular head only
  EXPECT_EQ(bench.command("change a rate=7"), ENOENT);
  EXPECT_EQ(bench.command("stop default"), EPERM);
  EXPECT_EQ(bench.tbf.rules(Head::kRegular).listing(), before);
  EXPECT_EQ(bench.tbf.rules(Head::kHigh).find("a"), nullptr);
}

// ---- hints ----

class Hinted : public testing::Test {
 protected:
  // Sends a request of the job with the connection's hint and serves it.
  bool pass(const std::string& job, Head head = Head::kRegular) {
    Request request;
    request.attributes.job = JobId(job);
    request.hint = &hint;
    tbf.admit(request, head, kStart);
    const bool known = tbf.is_current(hint, head);
    tbf.remove(request, head, kStart);
    return known;
  }
  void command(const std::string& text) {
    ASSERT_TRUE(tbf.apply(*parse_command(text, tbf.type()), kStart)) << text;
  }

  static RuleOptions few_classes() {
    RuleOptions options;
    options.classes_max = 4;
    return options;
  }

  ClassHint hint;
  Tbf tbf{FieldSet{Field::kJobid}, few_classes(), 1};
};

// A request of a job; ran[job] tells when it ran.
Attributes of_export(const char* job, const char* name, const char* nid = "10.0.0.1@tcp") {
  Attributes attributes;
  attributes.job = JobId(job);
  attributes.nid = parse_nid(nid).value();
  attributes.export_name = export_name(name);
  return attributes;
}

TEST(Tbf, ARuleOfAnyTypeMayTestTheExport) {
  Bench bench("jobid");
  bench.admit(of_export("a", "/home"), kStart);  // waits for nothing: no rule
  bench.run_at(kStart);
  bench.ran.clear();
  ASSERT_EQ(bench.command("start home export={/home} rate=10 burst=1"), 0);
  for (int i = 0; i < 3; ++i) {
    bench.admit(of_export("a", "/home"), kStart);
    bench.admit(of_export("a", "/scratch"), kStart);
  }
  bench.run_until(kStart, at_ms(1000));
  EXPECT_EQ(bench.times_ms("a"), (Times{0, 0, 0, 0, 100, 200})) << "/scratch did not wait";
}

TEST(Tbf, WaitingRequestsAreDividedByTheirExportWhenARuleAsksForIt) {
  Bench bench("jobid");
  ASSERT_EQ(bench.command("start all jobid={*} rate=1 burst=1"), 0);
  for (int i = 0; i < 3; ++i) {
    bench.admit(of_export("a", "/home"), kStart);
    bench.admit(of_export("a", "/scratch"), kStart);
  }
  bench.run_at(kStart);
  bench.ran.clear();
  ASSERT_EQ(bench.command("start fast export={/scratch} rate=1000"), 0);
  bench.run_until(kStart, at_ms(2000));
  EXPECT_EQ(bench.times_ms("a"), (Times{0, 0, 0, 1000, 2000}));
}

TEST(Tbf, ClassesOfSubnetsAreSharedByTheirClients) {
  Bench bench("nid");
  ASSERT_EQ(bench.command("start nets nid={*@tcp} rate=10 burst=1 by=subnet/24"), 0);
  ASSERT_EQ(bench.command("start site nid={*@tcp} rate=15 burst=1 by=subnet/16 layer=1"), 0);
  for (int i = 0; i < 2; ++i) {
    bench.admit(of_export("a", "", "10.0.0.1@tcp"), kStart);
    bench.admit(of_export("b", "", "10.0.0.2@tcp"), kStart);
    bench.admit(of_export("c", "", "10.7.0.1@tcp"), kStart);
  }
  bench.run_until(kStart, at_ms(1000));
  EXPECT_EQ(bench.times_ms("c"), (Times{0, 100}));
  EXPECT_EQ(bench.times_ms("a"), (Times{0, 200})) << "shares 10/s with b";
  EXPECT_EQ(bench.times_ms("b"), (Times{100, 300}));
}

TEST_F(Hinted, AHintIsGoodUntilItsQueueOrItsClassesChange) {
  EXPECT_FALSE(tbf.is_current(hint, Head::kRegular));
  EXPECT_TRUE(pass("a"));
  EXPECT_TRUE(tbf.is_current(hint, Head::kRegular));
  EXPECT_FALSE(tbf.is_current(hint, Head::kHigh));
  command("start r jobid={a} rate=5");
  EXPECT_FALSE(tbf.is_current(hint, Head::kRegular));
  EXPECT_TRUE(pass("a"));
  command("change r rate=6");  // the same class
  EXPECT_TRUE(tbf.is_current(hint, Head::kRegular));
  command("start by jobid={zzz} by=jobid+uid");  // other fields distinguish queues
  EXPECT_FALSE(tbf.is_current(hint, Head::kRegular));
  EXPECT_TRUE(pass("a"));
}

TEST_F(Hinted, AHintToAQueueThatWasForgottenIsNotGood) {
  EXPECT_TRUE(pass("a"));
  const ClassHint of_a = hint;
  for (int i = 0; i < 100; ++i) {
    hint = {};
    pass("other" + std::to_string(i));
  }
  EXPECT_FALSE(tbf.is_current(of_a, Head::kRegular));
}

TEST_F(Hinted, AHintOfAnotherEngineIsNotGood) {
  EXPECT_TRUE(pass("a"));
  const Tbf another(FieldSet{Field::kJobid}, few_classes(), 2);
  EXPECT_FALSE(another.is_current(hint, Head::kRegular));
}

TEST(TbfTotals, AClassCountsWhatItWasServed) {
  Bench bench;
  bench.admit("a", kStart, Bytes{100});
  bench.admit("a", kStart, Bytes{200});
  bench.run_at(kStart);
  Attributes attributes;
  attributes.job = JobId("a");
  const auto totals = bench.tbf.totals(attributes, Head::kRegular);
  ASSERT_TRUE(totals.has_value());
  EXPECT_EQ(totals->served, 2U);
  EXPECT_EQ(totals->bytes, 300U);
  attributes.job = JobId("b");
  EXPECT_FALSE(bench.tbf.totals(attributes, Head::kRegular).has_value());
}

}  // namespace
}  // namespace weir
