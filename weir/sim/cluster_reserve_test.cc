// SPDX-License-Identifier: Apache-2.0
//
// A reservation of a cluster, beside a greedy job that fills every server: slices by the epochs of
// a simulated cluster, and real Targets that share their capacity.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/coordinate/rule_gauge.h"
#include "weir/sim/cluster.h"
#include "weir/target/target.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kServers = 3;
constexpr std::uint64_t kCapacity = 500;  // of each
constexpr std::uint64_t kReserve = 300;   // of all together; it is the limit too
constexpr std::uint64_t kNodes = 29;      // of the greedy job, so that the other has a thirtieth
constexpr std::uint32_t kSlots = 16;
constexpr seconds kMove{2};
constexpr seconds kBegin{1};  // from then on all have slices
constexpr seconds kLength{21};

struct Tally {
  std::vector<std::uint64_t> db = std::vector<std::uint64_t>(kLength.count());  // by second
  std::uint64_t all = 0;  // requests from kBegin on
};

// The greedy job always wants more, and the other one at the server whose turn it is.
class Jobs final : public ServerLoad {
 public:
  Jobs(std::size_t server, const std::string& rule, bool has_hot_spot, Tally& tally)
      : server_(server),
        has_hot_spot_(has_hot_spot),
        tally_(tally),
        target_({.gate = {.slots = kSlots, .rules = {.in_cluster = true}},
                 .controller = ControllerOptions{},
                 .capacity = Rate::per_second(kCapacity)},
                instant_at(0)),
        gauge_("db", instant_at(0)) {
    EXPECT_TRUE(target_.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
    EXPECT_TRUE(target_.set_nodes(JobId("greedy"), kNodes, instant_at(0)));
    EXPECT_TRUE(target_.write_rule(rule, instant_at(0)));
  }
  ~Jobs() override {
    EXPECT_TRUE(target_.write_rule("stop db", last_));
    target_.shutdown(last_);
    do {
      while (!running_.empty()) finish_first();
    } while (step(last_));
  }
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  std::int64_t demand(Instant now) override {
    return gauge_.measure(*target_.rules(Head::kRegular), now).ops;
  }
  void set_slice(std::int64_t slice, Instant now) override {
    const Rate rate(Tokens{static_cast<std::uint64_t>(slice)}, seconds{kMilli});
    const ClassSlice one{.rule = "db", .key = std::nullopt, .slice = {.ops = rate, .bytes = {}}};
    target_.set_slices({&one, 1}, now);
  }
  Instant run(Instant now) override {
    last_ = now;
    while (!running_.empty() && running_.begin()->first <= now) finish_first();
    const std::int64_t turn = ns_of(now) / Nanoseconds{kMove}.count();
    const bool is_hot = has_hot_spot_ && static_cast<std::size_t>(turn) % kServers == server_;
    while (outstanding_["greedy"] < kSlots) admit("greedy", now);
    while (is_hot && outstanding_["db"] < kSlots) admit("db", now);
    while (step(now)) {
    }
    const Instant next_turn = instant_at((turn + 1) * Nanoseconds{kMove}.count());
    const Instant done = running_.empty() ? kNever : running_.begin()->first;
    return std::min({wait_until_, done, next_turn});
  }

 private:
  void admit(const char* job, Instant now) {
    Request& request = requests_.emplace_back();
    request.attributes.job = JobId(job);
    request.bytes = Bytes{4096};
    ++outstanding_[job];
    target_.admit(request, Head::kRegular, now);
  }
  bool step(Instant now) {
    const Decision decision = target_.next(now);
    wait_until_ = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
    if (decision.kind() != Decision::Kind::kRun) return false;
    running_.emplace(now + milliseconds{5}, &decision.request());
    const auto second = static_cast<std::size_t>(ns_of(now) / Nanoseconds{seconds{1}}.count());
    if (decision.request().attributes.job == JobId("db")) ++tally_.db.at(second);
    if (now >= Instant{kBegin}) ++tally_.all;
    return true;
  }
  void finish_first() {
    const auto [at, request] = *running_.begin();
    running_.erase(running_.begin());
    --outstanding_[std::string(request->attributes.job.text())];
    target_.complete(*request, std::max(at, last_));
  }

  std::size_t server_;
  bool has_hot_spot_;
  Tally& tally_;
  std::deque<Request> requests_;
  Target target_;
  RuleGauge gauge_;
  std::multimap<Instant, Request*> running_;  // until then
  std::map<std::string, std::uint32_t> outstanding_;
  Instant last_ = instant_at(0);
  Instant wait_until_ = kNever;
};

enum class HotSpot : std::uint8_t { kNone, kMoves };

Tally run_beside_the_greedy_one(const std::string& rule, HotSpot spot) {
  Tally tally;
  ClusterOptions options;
  options.servers = kServers;
  options.length = kLength - milliseconds{1};
  options.limit = std::int64_t{kReserve} * kMilli;
  options.load = [&](std::size_t server) {
    return std::make_unique<Jobs>(server, rule, spot == HotSpot::kMoves, tally);
  };
  const ClusterResult result = run_cluster(options);
  EXPECT_EQ(result.findings, 0U) << (result.findings == 0 ? "" : result.first_findings.front());
  return tally;
}

// The least and the sum of what the job got in whole seconds from kBegin on.
struct Got {
  std::uint64_t least = UINT64_MAX;
  std::uint64_t sum = 0;
};
Got got_of(const Tally& tally) {
  Got got;
  for (std::size_t second = kBegin.count(); second < tally.db.size(); ++second) {
    got.least = std::min(got.least, tally.db[second]);
    got.sum += tally.db[second];
  }
  return got;
}

constexpr auto kSeconds = static_cast<std::uint64_t>((kLength - kBegin).count());

TEST(ClusterReserve, FollowsTheJobToTheServerWhereItIs) {
  const Tally tally = run_beside_the_greedy_one(
      "start db jobid={db} rate=300 reserve=300 scope=cluster", HotSpot::kMoves);
  const Got got = got_of(tally);
  EXPECT_GE(got.sum, kReserve * kSeconds * 97 / 100);
  EXPECT_LE(got.sum, kReserve * kSeconds * 101 / 100) << "it is the limit too";
  EXPECT_GE(got.least, kReserve * 90 / 100) << "also in the seconds after a move";
  EXPECT_GE(tally.all, kServers * kCapacity * kSeconds * 999 / 1000);
}

TEST(ClusterReserve, WithoutItTheJobGetsItsShare) {
  const Tally tally =
      run_beside_the_greedy_one("start db jobid={db} rate=300 scope=cluster", HotSpot::kMoves);
  EXPECT_LE(got_of(tally).sum, kReserve * kSeconds / 5);
}

TEST(ClusterReserve, WhatIsNotUsedCostsOthersNothing) {
  const Tally tally = run_beside_the_greedy_one(
      "start db jobid={db} rate=300 reserve=300 scope=cluster", HotSpot::kNone);
  EXPECT_EQ(got_of(tally).sum, 0U);
  EXPECT_GE(tally.all, kServers * kCapacity * kSeconds * 999 / 1000);
}

}  // namespace
}  // namespace weir::sim
