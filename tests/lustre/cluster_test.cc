// SPDX-License-Identifier: Apache-2.0
//
// Limits of a cluster of Lustre servers, in the model: on each server a driver with production
// code, and the epochs and slices of weir/coordinate between them. A job that is limited on the
// whole file system moves from server to server; or is spread over all of them, beside jobs that
// are not.
#include "weir/sim/cluster.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/weir/model_tree.h"
#include "weir/classify/rule_spec.h"
#include "weir/coordinate/vectors.h"
#include "weir/lustre/driver.h"
#include "weir/lustre/job_limits.h"
#include "weir/lustre/names.h"
#include "weir/lustre/share_parts.h"
#include "weir/sim/lustre_model.h"

namespace weir {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::milliseconds{20};
constexpr std::uint64_t kBig = 0;
constexpr std::uint64_t kLocal = 1;

sim::LustreServer::Options server_options(std::uint32_t cpts) {
  sim::LustreServer::Options options;
  options.cpts = cpts;
  options.late_timers = true;
  // 3,200 requests a second.
  options.store.slots = 16;
  options.store.service.kind = sim::ServiceTime::Kind::kUniform;
  options.store.service.base = std::chrono::milliseconds{5};
  options.store.service.spread_permille = 500;
  return options;
}

// A server with its driver: two jobs, each with a number of requests outstanding.
class Node {
 public:
  explicit Node(std::uint32_t cpts, std::string local = "local")
      : local_(std::move(local)),
        server_(server_options(cpts), Rng(7)),
        tree_(server_),
        names_(*lustre::Names::read("weir", "")),
        limits_({.cpts = cpts}),
        driver_(
            with(cpts), tree_, names_, [](std::string_view) { return Result<void>{}; },
            [](std::string_view, std::string_view) {}) {
    EXPECT_TRUE(server_.write(lustre::kPoliciesPath, "tbf jobid", {}));
  }

  sim::LustreServer& server() { return server_; }
  lustre::Driver& driver() { return driver_; }
  lustre::JobLimits& limits() { return limits_; }

  // Requests of the job that it keeps outstanding from now on.
  void want(std::uint64_t job, std::uint32_t window, Instant now) {
    windows_[job] = window;
    while (outstanding_[job] < window) send(job, now);
  }

  // Everything up to now; done(job) for each completion.
  template <class Done>
  void run(Instant now, Done done) {
    for (;;) {
      const Instant next = std::min(server_.next(), round_at_);
      if (next > now) return;
      const Instant at = std::max(next, last_);
      last_ = at;
      std::vector<std::uint64_t> again;
      server_.run(at, [&](const sim::Rpc& rpc, Instant, Instant when) {
        done(rpc.tag, when);
        --outstanding_[rpc.tag];
        again.push_back(rpc.tag);
      });
      for (const std::uint64_t job : again) {
        if (outstanding_[job] < windows_[job]) send(job, at);
      }
      if (round_at_ > at) continue;
      round_at_ += kPeriod;
      tree_.set_now(at);
      EXPECT_TRUE(driver_.round(at));
    }
  }
  Instant next() const { return std::min(server_.next(), round_at_); }

  void apply(Instant now) {
    tree_.set_now(now);
    EXPECT_TRUE(driver_.apply_limits(now));
  }

 private:
  static lustre::Driver::Options with(std::uint32_t cpts) {
    lustre::Driver::Options options;
    options.controller.cpts = cpts;
    return options;
  }
  void send(std::uint64_t job, Instant now) {
    ++outstanding_[job];
    server_.arrive({.job = JobId(job == kBig ? std::string("big") : local_),
                    .tag = job,
                    .cpt = static_cast<std::uint32_t>(sent_++)},
                   now);
  }

  const std::string local_;
  sim::LustreServer server_;
  app::ModelTree tree_;
  lustre::Names names_;
  lustre::JobLimits limits_;
  lustre::Driver driver_;
  Instant round_at_{};
  Instant last_{};
  std::map<std::uint64_t, std::uint32_t> windows_;
  std::map<std::uint64_t, std::uint32_t> outstanding_;
  std::uint64_t sent_ = 0;
};

// ---- a limit ----

struct Plan {
  std::uint32_t limit = 1000;
  std::size_t servers = 8;
  std::uint32_t cpts = 1;
  Nanoseconds move_every = std::chrono::seconds{2};
  bool is_spread = false;  // on all servers at once
  bool has_local = false;  // another job on each server, which never has enough
  Nanoseconds length = std::chrono::seconds{20};
};

struct Tally {
  static constexpr Nanoseconds kBin = std::chrono::milliseconds{10};

  std::vector<std::uint64_t> bins;
  std::uint64_t writes = 0;
  void add(Instant now) {
    const auto bin = static_cast<std::size_t>(now.time_since_epoch() / kBin);
    if (bins.size() <= bin) bins.resize(bin + 1);
    ++bins[bin];
  }
};

class Load final : public sim::ServerLoad {
 public:
  Load(const Plan& plan, std::size_t server, Tally& tally)
      : plan_(plan), server_(server), tally_(tally), node_(plan.cpts) {
    const auto rule =
        parse_rule(fmt::format("start wide jobid={{big}} rate={} scope=cluster", plan.limit));
    EXPECT_TRUE(node_.limits().apply_rules({&*rule, 1}, {}));
    node_.limits().set_members(static_cast<std::uint32_t>(plan.servers));
    node_.driver().set_limits(&node_.limits());
    if (plan.has_local) node_.want(kLocal, 32, {});
  }
  ~Load() override { tally_.writes += node_.driver().counters().writes; }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  std::int64_t demand(Instant /*now*/) override {
    const auto loads = node_.limits().loads(kPeriod);
    return loads.empty() ? 0 : loads.front().demand->ops;
  }
  void set_slice(std::int64_t slice, Instant now) override {
    Attributes key;
    key.job = JobId("big");
    const Slice one{
        .ops = Rate(Tokens{static_cast<std::uint64_t>(slice)}, std::chrono::seconds{kMilli}),
        .bytes = std::nullopt};
    // Also what a class has before it is known here.
    const ClassSlice slices[] = {{"wide", std::nullopt, one},
                                 {"wide", key.only({Field::kJobid}), one}};
    node_.limits().set_slices(slices, now);
    node_.apply(now);
  }
  Instant run(Instant now) override {
    const auto turn = static_cast<std::size_t>(now.time_since_epoch() / plan_.move_every);
    const bool is_hot = plan_.is_spread || turn * 3 % plan_.servers == server_;
    node_.want(kBig, is_hot ? (plan_.is_spread ? 16 : 128) : 0, now);
    node_.run(now, [this](std::uint64_t job, Instant when) {
      if (job == kBig) tally_.add(when);
    });
    const Instant moved = Instant{plan_.move_every * static_cast<std::int64_t>(turn + 1)};
    return std::max(std::min(node_.next(), moved), now + Nanoseconds{1});
  }

 private:
  const Plan& plan_;
  std::size_t server_;
  Tally& tally_;
  Node node_;
};

struct Figures {
  double most = 0;    // of 5 s windows, in parts of the limit
  double used = 0;    // of all but the first two seconds
  double writes = 0;  // a second and server
};

Figures measure(const Plan& plan, std::uint64_t seed) {
  Tally tally;
  sim::ClusterOptions options;
  options.servers = plan.servers;
  options.seed = seed;
  options.length = plan.length;
  options.limit = std::int64_t{plan.limit} * kMilli;
  options.load = [&](std::size_t server) { return std::make_unique<Load>(plan, server, tally); };
  const sim::ClusterResult result = sim::run_cluster(options);
  EXPECT_EQ(result.findings, 0U);
  for (const std::string& finding : result.first_findings) ADD_FAILURE() << finding;
  tally.bins.resize(static_cast<std::size_t>(plan.length / Tally::kBin));
  Figures figures;
  const std::size_t window = 500;
  const std::size_t first = 200;
  std::uint64_t all = 0;
  for (std::size_t at = first; at < tally.bins.size(); ++at) {
    all += tally.bins[at];
    if (at + window > tally.bins.size()) continue;
    std::uint64_t served = 0;
    for (std::size_t bin = at; bin < at + window; ++bin) served += tally.bins[bin];
    figures.most = std::max(figures.most, static_cast<double>(served) / (plan.limit * 5.0));
  }
  const double seconds = static_cast<double>((tally.bins.size() - first)) / 100;
  figures.used = static_cast<double>(all) / (plan.limit * seconds);
  figures.writes = static_cast<double>(tally.writes) /
                   (static_cast<double>(plan.length.count()) / 1e9) /
                   static_cast<double>(plan.servers);
  return figures;
}

void check(const Plan& plan) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const Figures figures = measure(plan, seed);
    const std::string text =
        fmt::format("seed {}: most {:.3f} of the limit in 5 s, {:.3f} used, {:.1f} writes/s", seed,
                    figures.most, figures.used, figures.writes);
    ::testing::Test::RecordProperty(fmt::format("seed{}", seed), text);
    fmt::print("{}\n", text);
    EXPECT_LE(figures.most, 1.02) << text;
    EXPECT_GE(figures.used, 0.97) << text;
    EXPECT_LE(figures.writes, 10) << text;
  }
}

TEST(LustreCluster, ALimitFollowsAJobThatMoves) { check({}); }
TEST(LustreCluster, ALimitHoldsOnSeveralCpts) { check({.cpts = 4, .is_spread = true}); }
TEST(LustreCluster, ALimitHoldsForAJobOnAllServers) { check({.is_spread = true}); }
TEST(LustreCluster, ALimitHoldsBesideOtherJobs) { check({.has_local = true}); }

// ---- shares ----

// On each of 8 servers a job of one node that is only there, and one of one node that is on all of
// them, and everything always wants more. Alone each server gives both the same; a job counts once
// in the cluster, so the spread one has an eighth of a share on each.
TEST(LustreCluster, SharesOfAJobCountTogether) {
  constexpr std::size_t kServers = 8;
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::unique_ptr<lustre::ShareParts>> parts;
  for (std::size_t i = 0; i < kServers; ++i) {
    nodes.push_back(std::make_unique<Node>(1, fmt::format("local{}", i)));
    parts.push_back(std::make_unique<lustre::ShareParts>());
    nodes.back()->driver().set_parts(parts.back().get());
    nodes.back()->want(kBig, 64, {});
    nodes.back()->want(kLocal, 64, {});
  }
  std::uint64_t big = 0;
  std::uint64_t local = 0;
  for (int second = 1; second <= 30; ++second) {
    const Instant now{std::chrono::seconds{second}};
    for (const auto& node : nodes) {
      node->run(now, [&](std::uint64_t job, Instant) {
        if (second > 10) ++(job == kBig ? big : local);
      });
    }
    EpochBytes sum(lustre::ShareParts::kRows * lustre::ShareParts::kPlaces * sizeof(std::int64_t));
    for (const auto& part : parts) {
      EpochBytes next(sum.size());
      add_vectors(next, sum, part->ready(now));
      sum = next;
    }
    for (const auto& part : parts) (void)part->start_epoch(second, sum, now);
  }
  const double share = static_cast<double>(big) / static_cast<double>(big + local);
  EXPECT_NEAR(share, 1.0 / 9, 0.01) << big << " and " << local;
}

}  // namespace
}  // namespace weir
