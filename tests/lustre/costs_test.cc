// SPDX-License-Identifier: Apache-2.0
//
// Servers whose requests do not take the same time, in the model: the operations of an MDS, and an
// OSS with OSTs of different speeds. Jobs compete for the threads of the server, so what they are
// due is thread time.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "apps/weir/model_tree.h"
#include "weir/lustre/driver.h"
#include "weir/lustre/names.h"
#include "weir/lustre/status.h"

namespace weir {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::milliseconds{20};

// One kind of requests that a job sends without end, 64 at a time.
struct Load {
  const char* job;
  std::string_view operation;  // of an MDS
  std::uint32_t ost = 0;       // of an OSS
};

struct Shares {
  std::map<std::string, double> seconds;  // of threads
  std::map<std::string, std::uint64_t> served;
  std::uint64_t all = 0;
  double total() const {
    double sum = 0;
    for (const auto& [job, time] : seconds) sum += time;
    return sum;
  }
};

class Server {
 public:
  Server(sim::LustreServer::Options options, const lustre::Service& service,
         const lustre::Costing& costing, std::vector<Load> loads)
      : server_(std::move(options), Rng(7)),
        tree_(server_),
        loads_(std::move(loads)),
        names_(*lustre::Names::read("weir", "")),
        driver_(
            with(service, costing), tree_, names_, [](std::string_view) { return Result<void>{}; },
            [](std::string_view, std::string_view) {}) {
    EXPECT_TRUE(server_.write(service.policies, "tbf jobid", now_));
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      for (int requests = 0; requests < 64; ++requests) send(i);
    }
  }

  lustre::Driver& driver() { return driver_; }
  const lustre::StatusKeeper& keeper() const { return keeper_; }
  Instant now() const { return now_; }

  // Shares of the last part of the time, when what is measured has been measured.
  Shares run(Nanoseconds time, Nanoseconds of_it) {
    const Instant end = now_ + time;
    Shares shares;
    for (int looks = 0; now_ < end; ++looks) {
      const Instant until = now_ + kPeriod / lustre::Driver::kGlances;
      while (now_ < until) {
        now_ = std::min(until, server_.next());
        std::vector<std::uint64_t> again;
        server_.run(now_, [&](const sim::Rpc& rpc, Instant started, Instant done) {
          again.push_back(rpc.tag);
          if (now_ < end - of_it) return;
          const std::string job(rpc.job.text());
          shares.seconds[job] += static_cast<double>((done - started).count()) / 1e9;
          ++shares.served[job];
          ++shares.all;
        });
        for (const std::uint64_t load : again) send(load);
      }
      tree_.set_now(now_);
      if (looks % lustre::Driver::kGlances == 0) {
        EXPECT_TRUE(driver_.round(now_));
        keeper_.count(driver_, now_);
      } else {
        EXPECT_TRUE(driver_.glance(now_));
      }
    }
    return shares;
  }

 private:
  static lustre::Driver::Options with(const lustre::Service& service,
                                      const lustre::Costing& costing) {
    lustre::Driver::Options options;
    options.service = &service;
    options.costing = costing;
    return options;
  }
  void send(std::uint64_t load) {
    const Load& of = loads_[load];
    server_.arrive({.job = JobId(of.job), .tag = load, .ost = of.ost, .operation = of.operation},
                   now_);
  }

  Instant now_{};
  sim::LustreServer server_;
  app::ModelTree tree_;
  std::vector<Load> loads_;
  lustre::Names names_;
  lustre::Driver driver_;
  lustre::StatusKeeper keeper_;
};

// Recorded (tests/recorded/lustre/2.17.57/c1-mds.txt): 20 times mkdir, each a getattr and a mkdir,
// one after the other under a rule of 5 a second, took 7.4 s. Of such mkdirs the server took 6.8 ms
// for each, and 0.2 ms for a getattr.
TEST(LustreMds, TwentyMkdirsUnderARuleTakeAsLongAsOnAServer) {
  sim::LustreServer::Options options;
  options.kind = sim::LustreStats::Kind::kMdt;
  options.osts = {"lustre-MDT0000"};
  options.store.service.base = std::chrono::microseconds{163};
  options.operation_percent = {{"mkdir", 4200}};
  sim::LustreServer server(options, Rng(1));
  Instant now{};
  ASSERT_TRUE(server.write(lustre::kMdtService.policies, "tbf jobid", now));
  ASSERT_TRUE(server.write(lustre::kMdtService.rules, "start mk jobid={mkdir.*} rate=5", now));
  int sent = 0;
  const auto send = [&] {
    server.arrive({.job = JobId("mkdir.0"), .operation = sent % 2 == 0 ? "getattr" : "mkdir"}, now);
    ++sent;
  };
  send();
  for (int done = 0; done < 40;) {
    now = server.next();
    const int before = done;
    server.run(now, [&](const sim::Rpc&, Instant, Instant) { ++done; });
    if (done > before && sent < 40) send();
  }
  EXPECT_NEAR(static_cast<double>(ns_of(now)) / 1e9, 7.4, 0.1);
}

// 16 threads; getattr takes 4 ms and mkdir ten times as long.
sim::LustreServer::Options mds() {
  sim::LustreServer::Options options;
  options.kind = sim::LustreStats::Kind::kMdt;
  options.osts = {"lustre-MDT0000"};
  options.late_timers = true;
  options.store.slots = 16;
  options.store.service.base = std::chrono::milliseconds{4};
  options.operation_percent = {{"mkdir", 1000}};
  return options;
}

const std::vector<Load> kOperationLoads = {{"make", "mkdir"}, {"stat", "getattr"}};

TEST(LustreMds, JobsShareItByTheTimeOfTheirOperations) {
  Server server(mds(), lustre::kMdtService, {}, kOperationLoads);
  ASSERT_TRUE(server.driver().set_nodes(JobId("stat"), 3));
  const Shares shares = server.run(std::chrono::seconds{30}, std::chrono::seconds{15});
  fmt::print("make {:.1f} s, {} requests; stat {:.1f} s, {} requests\n", shares.seconds.at("make"),
             shares.served.at("make"), shares.seconds.at("stat"), shares.served.at("stat"));
  EXPECT_NEAR(shares.seconds.at("make") / shares.total(), 0.25, 0.0125);
  EXPECT_GT(shares.total(), 0.98 * 16 * 15);
  const lustre::Status status = server.keeper().status(server.driver(), server.now());
  const lustre::JobStatus* const make = status.find("make");
  ASSERT_TRUE(make != nullptr && make->hold.rate);
  EXPECT_GT(make->cost, 5 * lustre::RequestCosts::kOne);
  EXPECT_NE(lustre::explain(status, *make, "14:02:11").find("its requests take "),
            std::string::npos);
  EXPECT_LE(server.driver().counters().writes, 90U);  // 3 a second
  EXPECT_TRUE(server.driver().remove_all());
}

// With equal costs two jobs of the same size would take turns, and make would have ten elevenths.
TEST(LustreMds, JobsOfTheSameSizeGetTheSameTime) {
  Server server(mds(), lustre::kMdtService, {}, kOperationLoads);
  const Shares shares = server.run(std::chrono::seconds{30}, std::chrono::seconds{15});
  fmt::print("make {:.1f} s, {} requests; stat {:.1f} s, {} requests\n", shares.seconds.at("make"),
             shares.served.at("make"), shares.seconds.at("stat"), shares.served.at("stat"));
  EXPECT_NEAR(shares.seconds.at("make") / shares.total(), 0.5, 0.025);
  EXPECT_GT(shares.total(), 0.98 * 16 * 15);
}

// A table that says the same as the clock has the same effect; with equal costs mkdir is cheap.
TEST(LustreMds, CostsOfATable) {
  const auto part_of_make = [](const lustre::Costing& costing) {
    Server server(mds(), lustre::kMdtService, costing, kOperationLoads);
    EXPECT_TRUE(server.driver().set_nodes(JobId("stat"), 3));
    const Shares shares = server.run(std::chrono::seconds{30}, std::chrono::seconds{15});
    return shares.seconds.at("make") / shares.total();
  };
  EXPECT_NEAR(part_of_make(*lustre::Costing::parse("mkdir 10\n")), 0.25, 0.0125);
  EXPECT_GT(part_of_make({.kind = lustre::Costing::Kind::kEqual, .operations = {}}), 0.6);
}

// The slow OST takes ten times as long; each job uses one of them.
TEST(LustreOsts, JobsOnASlowOstShareTheThreadsOfTheServer) {
  sim::LustreServer::Options options;
  options.osts = {"lustre-OST0000", "lustre-OST0001"};
  options.ost_percent = {100, 1000};
  options.late_timers = true;
  options.store.slots = 16;
  options.store.service.base = std::chrono::milliseconds{4};
  Server server(options, lustre::kOstService, {}, {{"slow", {}, 1}, {"fast", {}, 0}});
  ASSERT_TRUE(server.driver().set_nodes(JobId("fast"), 3));
  const Shares shares = server.run(std::chrono::seconds{30}, std::chrono::seconds{15});
  fmt::print("slow {:.1f} s, {} requests; fast {:.1f} s, {} requests\n", shares.seconds.at("slow"),
             shares.served.at("slow"), shares.seconds.at("fast"), shares.served.at("fast"));
  EXPECT_NEAR(shares.seconds.at("slow") / shares.total(), 0.25, 0.0125);
  EXPECT_GT(shares.total(), 0.98 * 16 * 15);
}

}  // namespace
}  // namespace weir
