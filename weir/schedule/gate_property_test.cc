// SPDX-License-Identifier: Apache-2.0
//
// Properties of every run of a Gate. A driver makes random calls from a seed and records what
// happens; checkers read the record and do not depend on how a Gate decides.
//
//   Record    requests: nothing lost, nothing twice, order kept inside a queue
//   Windows   limits: no window of a class holds more than depth + rate x its length
//   Purse     tokens of each class, counted simply: a request that can pay does not wait while a
//             slot is free
//   traces    the same seed gives the same decisions, to the nanosecond
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/gate.h"

namespace weir {
namespace {

using Wide = __int128;
constexpr std::int64_t kBillion = 1'000'000'000;

// ---- the record and its checkers ----

struct Event {
  enum class Kind : std::uint8_t { kAdmit, kRun, kGone, kWait, kIdle };
  Kind kind;
  std::int64_t at;     // in ns
  int number;          // of the request, if there is one
  std::string queue;   // requests of one queue keep their order
  std::int64_t until;  // of kWait
  bool operator==(const Event&) const = default;
};
using Record = std::vector<Event>;

// Empty if every request of a Gate that was drained at the end ran once, or was withdrawn, and in
// the order of its queue; otherwise the error.
std::string record_fault(const Record& record) {
  std::map<std::string, std::deque<int>> waiting;
  for (const Event& event : record) {
    if (event.kind == Event::Kind::kWait || event.kind == Event::Kind::kIdle) continue;
    auto& queue = waiting[event.queue];
    const auto at = std::find(queue.begin(), queue.end(), event.number);
    if (event.kind == Event::Kind::kAdmit) {
      queue.push_back(event.number);
      continue;
    }
    if (at == queue.end()) return "left without being there";
    if (event.kind == Event::Kind::kRun && at != queue.begin()) return "ran out of order";
    queue.erase(at);
  }
  for (const auto& [name, queue] : waiting) {
    if (!queue.empty()) return "lost a request";
  }
  return {};
}

// The requests that ran under one limit.
struct Windows {
  std::int64_t rate = 0;
  std::int64_t depth = 0;
  std::vector<std::int64_t> at;

  // Whether some window holds more than depth + rate x its length. With f(i) = i - rate x at(i),
  // the window from the i-th to the j-th holds too much if f(j) - f(i) > depth - 1.
  bool too_many() const {
    Wide least = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const Wide f = static_cast<Wide>(i) * kBillion - Wide{rate} * (at[i] - at.front());
      least = std::min(least, f);
      if (f - least > Wide{depth - 1} * kBillion) return true;
    }
    return false;
  }
};

// A simple bucket, in billionths of a token.
struct Purse {
  std::int64_t rate = 0;
  std::int64_t depth = 0;
  Wide balance = 0;
  std::int64_t at = 0;

  static Purse full(std::int64_t rate, std::int64_t depth, std::int64_t now) {
    return {rate, depth, Wide{depth} * kBillion, now};
  }
  bool can_pay(std::int64_t now) {
    balance = std::min(balance + Wide{rate} * (now - at), Wide{depth} * kBillion);
    at = now;
    return balance >= kBillion;
  }
  void pay() { balance -= kBillion; }
};

// ---- the driver ----

// The Gate under test, and Gates with one defect each.
struct Real {
  virtual ~Real() = default;
  virtual Decision next(Gate& gate, Instant now) { return gate.next(now); }
};
struct NapsNowAndThen : Real {
  Decision next(Gate& gate, Instant now) override {
    if (++calls % 50 == 0) return Decision::wait_until(now + Nanoseconds{1000});
    return gate.next(now);
  }
  int calls = 0;
};
struct RunsAheadNowAndThen : Real {
  Decision next(Gate& gate, Instant now) override {
    return gate.next(++calls % 50 == 0 ? now + std::chrono::milliseconds{100} : now);
  }
  int calls = 0;
};

class Driver {
 public:
  enum class Weather : std::uint8_t {
    kCalm,    // rules do not change: every purse can be counted
    kStormy,  // rules and policies change all the time
  };
  static constexpr std::uint32_t kSlots = 6;

  // With a rule in each of this many layers.
  Driver(std::uint64_t seed, Weather weather, Real& subject, unsigned layers = 2)
      : rng_(seed), weather_(weather), layers_(layers), subject_(subject) {
    start_tbf("");
  }
  ~Driver() { empty(); }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step(i);
    empty();
  }

  Record record;
  std::map<std::string, Windows>
      windows;        // by policy, rule, version of the rule, and the key of its class
  std::string fault;  // a purse was overdrawn, or a request waited although it could pay

 private:
  struct Live {
    Request request;
    int number = 0;
    int policy = 0;  // under which it was admitted
  };
  struct Limit {
    std::string name;
    std::int64_t rate = 0;
    std::int64_t depth = 0;
    int version = 0;
  };

  std::string queue_of(const Live& live) const {
    const Attributes& who = live.request.attributes;
    return fmt::format("{}/{} {}.{}", live.policy,
                       live.request.head() == Head::kHigh ? "hp" : "reg", who.job.text(), who.uid);
  }

  void step(int number) {
    switch (rng_.below(10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return admit(number);
      case 4:
      case 5:
        for (std::uint64_t i = rng_.below(8); i > 0; --i) complete_one();
        return;
      case 6:
        return withdraw_or_promote();
      case 7:
        if (weather_ == Weather::kStormy && rng_.chance(1, 3)) change_something();
        return;
      default:
        now_ += rng_.between(0, 4'000'000);
        decide();
    }
  }

  void admit(int number) {
    auto live = std::make_unique<Live>();
    live->number = number;
    live->policy = policies_;
    live->request.attributes.job = JobId("job" + std::to_string(rng_.below(5)));
    live->request.attributes.uid = static_cast<std::uint32_t>(rng_.below(3));
    gate_.admit(live->request, rng_.chance(1, 4) ? Head::kHigh : Head::kRegular, now());
    record.push_back({Event::Kind::kAdmit, now_, number, queue_of(*live), 0});
    queued_.push_back(std::move(live));
  }
  void complete_one() {
    if (running_.empty()) return;
    const auto which = running_.begin() + rng_.between(0, std::ssize(running_) - 1);
    gate_.complete((*which)->request, now());
    running_.erase(which);
  }
  void withdraw_or_promote() {
    if (queued_.empty()) return;
    const auto which = queued_.begin() + rng_.between(0, std::ssize(queued_) - 1);
    Live& live = **which;
    const bool promote = rng_.chance(1, 2);
    if (promote && live.request.head() == Head::kHigh) return;
    record.push_back({Event::Kind::kGone, now_, live.number, queue_of(live), 0});
    if (promote) {
      gate_.promote(live.request, now());
      live.policy = policies_;
      record.push_back({Event::Kind::kAdmit, now_, live.number, queue_of(live), 0});
    } else {
      gate_.withdraw(live.request, now());
      queued_.erase(which);
    }
  }

  // Calls next() until no more requests run.
  void decide() {
    for (;;) {
      const Decision decision = subject_.next(gate_, now());
      if (decision.kind() != Decision::Kind::kRun) return note_pause(decision);
      note_run(decision.request());
    }
  }
  void note_run(const Request& request) {
    const auto which = std::find_if(queued_.begin(), queued_.end(),
                                    [&](const auto& live) { return &live->request == &request; });
    ASSERT_NE(which, queued_.end());
    Live& live = **which;
    record.push_back({Event::Kind::kRun, now_, live.number, queue_of(live), 0});
    for (auto& [name, limit] : limits_of(live)) {
      Windows& window = windows[name];
      window.rate = limit->rate;
      window.depth = limit->depth;
      window.at.push_back(now_);
      if (weather_ == Weather::kStormy) continue;
      Purse& purse = purse_of(name, *limit);
      if (!purse.can_pay(now_) && fault.empty()) fault = name + " is overdrawn";
      purse.pay();
    }
    running_.push_back(std::move(*which));
    queued_.erase(which);
  }
  void note_pause(const Decision& decision) {
    const bool waits = decision.kind() == Decision::Kind::kWait;
    record.push_back({waits ? Event::Kind::kWait : Event::Kind::kIdle, now_, -1, "",
                      waits ? ns_of(decision.until()) : 0});
    if (waits && decision.until() <= now() && fault.empty()) fault = "waits for the past";
    if (weather_ == Weather::kStormy || running_.size() == kSlots || !fault.empty()) return;
    for (const auto& live : queued_) {
      bool all = true;
      for (auto& [name, limit] : limits_of(*live)) {
        all = purse_of(name, *limit).can_pay(now_) && all;
      }
      if (all) fault = queue_of(*live) + " could pay and waits";
    }
    if (!queued_.empty() && !waits) fault = "idle with requests and a free slot";
  }

  // The limits of a request, each with the name of its class. Requests of a policy that is being
  // drained have none.
  std::vector<std::pair<std::string, const Limit*>> limits_of(const Live& live) const {
    std::vector<std::pair<std::string, const Limit*>> all;
    const RuleEngine* const tbf = gate_.engine(Head::kRegular);
    if (tbf == nullptr || live.policy != policies_ || gate_.is_shut_down()) return all;
    for (unsigned layer = 0; layer < 2; ++layer) {
      const Rule* rule = tbf->rules(live.request.head()).match(live.request.attributes, layer);
      if (rule == nullptr) continue;
      const auto limit = std::find_if(limits_.begin(), limits_.end(), [&](const Limit& candidate) {
        return candidate.name == rule->name();
      });
      const Attributes& who = live.request.attributes;
      all.emplace_back(fmt::format("{}/{}.{} {}.{}", policies_, rule->name(), limit->version,
                                   layer == 0 ? who.job.text() : "", who.uid),
                       &*limit);
    }
    return all;
  }
  Purse& purse_of(const std::string& name, const Limit& limit) {
    return purses_.try_emplace(name, Purse::full(limit.rate, limit.depth, now_)).first->second;
  }

  void start_tbf(const std::string& suffix) {
    // Another argument is another policy; the order of the fields does not matter.
    ++policies_;
    ASSERT_TRUE(gate_.start_policy("tbf", suffix.empty() ? "jobid+uid" : suffix, Heads::kBoth));
    limits_ = {{"default", 10'000, 100, 0}};
    start("a", "jobid={job0 job1}", "");
    start("b", "jobid={job2}", "");
    if (layers_ > 1) start("user", "uid={0 1}", " by=uid layer=1");
  }
  void start(const std::string& name, const std::string& conds, const std::string& keys) {
    Limit limit{name, rng_.between(20, 150), rng_.between(1, 6), ++versions_};
    apply("start " + name + " " + conds + " rate=" + std::to_string(limit.rate) +
          " burst=" + std::to_string(limit.depth) + keys);
    limits_.push_back(limit);
  }
  void change_something() {
    const bool has_tbf = gate_.engine(Head::kRegular) != nullptr;
    if (!has_tbf || rng_.chance(1, 8)) {
      if (!has_tbf) return start_tbf(rng_.chance(1, 2) ? "jobid+uid" : "uid+jobid");
      ++policies_;
      ASSERT_TRUE(gate_.start_policy(rng_.chance(1, 2) ? "fifo" : "crrn", "", Heads::kBoth));
      return;
    }
    const auto limit =
        std::find_if(limits_.begin(), limits_.end(), [](const Limit& l) { return l.name == "a"; });
    if (limit == limits_.end()) return start("a", "jobid={job0 job1}", "");
    if (rng_.chance(1, 4)) {
      apply("stop a");
      limits_.erase(limit);
      return;
    }
    limit->rate = rng_.between(20, 150);
    limit->version = ++versions_;
    apply("change a rate=" + std::to_string(limit->rate));
  }
  void apply(const std::string& text) {
    const auto applied = gate_.write_rule(text, now());
    ASSERT_TRUE(applied) << text << ": " << applied.error().message();
  }

  void empty() {
    if (gate_.is_shut_down()) return;
    gate_.shutdown(now());
    while (!queued_.empty() || !running_.empty()) {
      while (!running_.empty()) complete_one();
      decide();
    }
  }
  Instant now() const { return instant_at(now_); }

  Rng rng_;
  Weather weather_;
  unsigned layers_;
  Real& subject_;
  std::int64_t now_ = 7 * kBillion;
  Gate gate_{{.slots = kSlots}};
  int policies_ = 0;
  int versions_ = 0;
  std::vector<Limit> limits_;
  std::map<std::string, Purse> purses_;
  std::vector<std::unique_ptr<Live>> queued_, running_;
};

using Weather = Driver::Weather;

std::string purse_fault(Real& subject, unsigned layers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Driver driver(seed, Weather::kCalm, subject, layers);
    driver.run(800);
    if (!driver.fault.empty()) return driver.fault + ", seed " + std::to_string(seed);
  }
  return {};
}

std::string window_fault(Real& subject) {
  std::size_t reached = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Driver driver(seed, Weather::kStormy, subject);
    driver.run(1500);
    for (const auto& [name, window] : driver.windows) {
      if (window.too_many()) return name + ", seed " + std::to_string(seed);
      reached += window.at.size() > static_cast<std::size_t>(window.depth) ? 1U : 0U;
    }
  }
  return reached > 100 ? "" : "hardly anything was limited";
}

TEST(GateRun, NothingIsLostOrServedTwiceOrOutOfOrderUnderTbf) {
  Real real;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Driver driver(seed, Weather::kStormy, real);
    driver.run(1500);
    EXPECT_EQ(record_fault(driver.record), "") << "seed " << seed;
    EXPECT_EQ(driver.fault, "") << "seed " << seed;
  }
}

TEST(GateRun, TheRecordCheckerBites) {
  using Kind = Event::Kind;
  const Event a{Kind::kAdmit, 0, 1, "q", 0}, b{Kind::kAdmit, 0, 2, "q", 0};
  const Event run_a{Kind::kRun, 1, 1, "q", 0}, run_b{Kind::kRun, 1, 2, "q", 0};
  EXPECT_EQ(record_fault({a, b, run_a, run_b}), "");
  EXPECT_EQ(record_fault({a, b, run_a}), "lost a request");
  EXPECT_EQ(record_fault({a, run_a, run_a}), "left without being there");
  EXPECT_EQ(record_fault({a, b, run_b, run_a}), "ran out of order");
}

TEST(GateRun, LimitsHoldInEveryWindowWhateverIsChanged) {
  Real real;
  EXPECT_EQ(window_fault(real), "");
}

TEST(GateRun, TheWindowCheckerBites) {
  EXPECT_FALSE((Windows{10, 2, {0, 0, 100'000'000}}).too_many());
  EXPECT_TRUE((Windows{10, 2, {0, 0, 99'999'999}}).too_many());
  EXPECT_TRUE((Windows{10, 1, {0, 500'000'000, 599'999'999, 9'000'000'000}}).too_many());
  // A Gate whose clock is sometimes ahead runs requests before their tokens have arrived.
  RunsAheadNowAndThen ahead;
  EXPECT_NE(window_fault(ahead), "");
}

TEST(GateRun, IsNeverIdleWhileSomethingMayRun) {
  Real real;
  EXPECT_EQ(purse_fault(real, 1), "");
}

// The first queue at a shared bucket has to wait for another bucket of its own.
TEST(GateRun, WhoWaitsForAnotherBucketHoldsNobodyUp) {
  Real real;
  EXPECT_EQ(purse_fault(real, 2), "");
}

TEST(GateRun, TheIdleCheckerBites) {
  NapsNowAndThen naps;
  EXPECT_NE(purse_fault(naps, 1).find("could pay and waits"), std::string::npos);
}

TEST(GateRun, TheSameSeedDecidesTheSame) {
  const auto trace = [](std::uint64_t seed, Real& subject) {
    Driver driver(seed, Weather::kStormy, subject);
    driver.run(3000);
    return driver.record;
  };
  Real real;
  const Record first = trace(1, real);
  // Other addresses must not change the result.
  std::vector<std::unique_ptr<std::array<char, 1000>>> in_the_way(100);
  for (std::size_t i = 0; i < in_the_way.size(); i += 2) {
    in_the_way[i] = std::make_unique<std::array<char, 1000>>();
  }
  EXPECT_TRUE(first == trace(1, real));
  EXPECT_GT(std::count_if(first.begin(), first.end(),
                          [](const Event& e) { return e.kind == Event::Kind::kWait; }),
            100);
  // The comparison works: it detects a difference.
  NapsNowAndThen naps;
  EXPECT_FALSE(first == trace(1, naps));
  EXPECT_FALSE(first == trace(2, real));
}

// ---- fifo and crrn, switched on one head or both: no time passes, and no slot idles ----

constexpr Instant kNow = instant_at(1000);

class RandomDriver {
 public:
  Record run(int steps) {
    for (int i = 0; i < steps; ++i) step(i);
    gate_.shutdown(kNow);
    while (run_one() || complete_one()) continue;
    return log_;
  }

 private:
  struct Live {
    Request request;
    int number = 0;
    std::string queue;
  };

  void step(int number) {
    switch (*rc::gen::inRange(0, 10)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return admit(number);
      case 4:
      case 5:
        if (!run_one()) RC_ASSERT(gate_.queued() == 0 || gate_.running() == kSlots);
        return;
      case 6:
      case 7:
        complete_one();
        return;
      case 8:
        return withdraw_or_promote();
      default:
        return switch_policy();
    }
  }

  void admit(int number) {
    auto live = std::make_unique<Live>();
    live->number = number;
    const auto from = *rc::gen::inRange<std::uint64_t>(0, 3);
    live->request.attributes.nid = Nid{0, from, 0, NetType::kTcp, AddressFamily::kIpv4};
    const Head head = *rc::gen::element(Head::kRegular, Head::kHigh);
    live->queue = queue_of(from, head);
    log_.push_back({Event::Kind::kAdmit, 0, number, live->queue, 0});
    gate_.admit(live->request, head, kNow);
    queued_.push_back(std::move(live));
  }
  // Order is guaranteed inside a queue: requests of a client at one head under one policy. Requests
  // from before a switch are drained in turns with those after it.
  std::string queue_of(std::uint64_t from, Head head) const {
    return fmt::format("{}/{} {}", switches_, head == Head::kHigh ? "hp" : "reg", from);
  }

  bool run_one() {
    const Decision decision = gate_.next(kNow);
    RC_ASSERT(decision.kind() != Decision::Kind::kWait);
    if (decision.kind() != Decision::Kind::kRun) return false;
    const auto live = std::find_if(queued_.begin(), queued_.end(), [&](const auto& candidate) {
      return &candidate->request == &decision.request();
    });
    RC_ASSERT(live != queued_.end());
    log_.push_back({Event::Kind::kRun, 0, (*live)->number, (*live)->queue, 0});
    running_.push_back(std::move(*live));
    queued_.erase(live);
    return true;
  }
  bool complete_one() {
    if (running_.empty()) return false;
    const auto which = running_.begin() + *rc::gen::inRange<long>(0, std::ssize(running_));
    gate_.complete((*which)->request, kNow);
    running_.erase(which);
    return true;
  }
  void withdraw_or_promote() {
    if (queued_.empty()) return;
    const auto which = queued_.begin() + *rc::gen::inRange<long>(0, std::ssize(queued_));
    Live& live = **which;
    const bool promote = *rc::gen::arbitrary<bool>();
    if (promote && live.request.head() == Head::kHigh) return;
    log_.push_back({Event::Kind::kGone, 0, live.number, live.queue, 0});
    if (promote) {
      gate_.promote(live.request, kNow);
      live.queue = queue_of(live.request.attributes.nid.low, Head::kHigh);
      log_.push_back({Event::Kind::kAdmit, 0, live.number, live.queue, 0});
    } else {
      gate_.withdraw(live.request, kNow);
      queued_.erase(which);
    }
  }
  void switch_policy() {
    ++switches_;
    const char* const name = *rc::gen::element("fifo", "crrn");
    const char* const argument = *rc::gen::element("", "x");
    const Heads heads = *rc::gen::element(Heads::kBoth, Heads::kRegular, Heads::kHigh);
    RC_ASSERT(gate_.start_policy(name, argument, heads).has_value());
  }

  static constexpr std::uint32_t kSlots = 4;
  std::vector<std::unique_ptr<Live>> queued_, running_;
  Record log_;
  std::uint64_t switches_ = 0;
  Gate gate_{{.slots = kSlots}};
};

RC_GTEST_PROP(GateProperty, NothingIsLostOrServedTwiceOrOutOfOrderOrIdleWithWork, ()) {
  RandomDriver driver;
  RC_ASSERT(record_fault(driver.run(*rc::gen::inRange(1, 150))) == "");
}

}  // namespace
}  // namespace weir
