// SPDX-License-Identifier: Apache-2.0
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/account/op_stats.h"
#include "weir/target/target.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// ---- requests without a buffer, of unknown size, and exempt ones ----

Target::Options estimating(std::uint32_t slots) {
  return {.gate = {.slots = slots},
          .controller = ControllerOptions{},
          .estimate_capacity = true,
          .cost = Cost::bytes()};
}

Target::Options shared() {
  return {
      .gate = {.slots = 16}, .controller = ControllerOptions{}, .capacity = Rate::per_second(1000)};
}

Request& of_job(Request& request, const std::string& job, std::uint64_t bytes) {
  request.attributes.job = JobId(job);
  request.bytes = Bytes{bytes};
  return request;
}

TEST(Target, CountsADeferredRequestOnce) {
  Target target({}, instant_at(0));
  Request request;
  target.admit(of_job(request, "a", 4096), Head::kRegular, instant_at(0));
  ASSERT_EQ(target.next(instant_at(5)).kind(), Decision::Kind::kRun);
  target.defer(request, instant_at(6));
  EXPECT_EQ(target.running(), 0U);
  EXPECT_EQ(target.deferred(), 1U);
  const JobStats::Entry& job = *target.stats().find(JobId("a"));
  EXPECT_EQ(job.finished.requests, 0U);
  EXPECT_EQ(job.running().requests, 1U);
  target.resume(request, instant_at(7));
  ASSERT_EQ(target.next(instant_at(8)).kind(), Decision::Kind::kRun);
  EXPECT_EQ(job.started.requests, 1U);
  EXPECT_EQ(job.wait_sum, Nanoseconds{5});
  target.complete(request, instant_at(9));
  EXPECT_EQ(job.finished.requests, 1U);
  EXPECT_EQ(job.running().requests, 0U);
}

TEST(Target, CountsWhatNeverBeganNeitherAsServedNorAsWaiting) {
  Target target({}, instant_at(0));
  Request deferred;
  Request decided;
  target.admit(of_job(deferred, "a", 4096), Head::kRegular, instant_at(0));
  target.admit(of_job(decided, "a", 4096), Head::kRegular, instant_at(0));
  target.next(instant_at(0));
  target.next(instant_at(0));
  target.defer(deferred, instant_at(0));
  target.withdraw(deferred, instant_at(1));
  target.complete(decided, instant_at(1), Outcome::not_started());
  const JobStats::Entry& job = *target.stats().find(JobId("a"));
  EXPECT_EQ(job.waiting(), JobStats::Count{});
  EXPECT_EQ(job.running(), JobStats::Count{});
  EXPECT_EQ(job.abandoned.requests, 2U);
  EXPECT_EQ(job.served(), JobStats::Count{});
  EXPECT_EQ(job.read, Bytes{0});
}

TEST(Target, CountsWhatWasMovedAndNotWhatWasGuessed) {
  Target target({.cost = Cost::bytes()}, instant_at(0));
  Request shorter;
  Request longer;
  target.admit(of_job(shorter, "a", 1000), Head::kRegular, instant_at(0));
  target.admit(of_job(longer, "a", 1000), Head::kRegular, instant_at(0));
  target.next(instant_at(0));
  target.next(instant_at(0));
  target.complete(shorter, instant_at(1), Outcome::done(Bytes{100}));
  const JobStats::Entry& job = *target.stats().find(JobId("a"));
  EXPECT_EQ(job.served().cost, Tokens{100});
  target.complete(longer, instant_at(1), Outcome::done(Bytes{1500}));
  EXPECT_EQ(job.read, Bytes{1600});
  EXPECT_EQ(job.served().cost, Tokens{1600});
  EXPECT_EQ(job.refunded, Tokens{900});
  EXPECT_EQ(job.surcharged, Tokens{500});
  EXPECT_EQ(job.running(), JobStats::Count{});
}

TEST(Target, AnExemptRequestIsCountedAndNeitherQueuedNorRun) {
  Target target(shared(), instant_at(0));
  ASSERT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
  Request exempt;
  target.charge(of_job(exempt, "a", 4096), Head::kRegular, instant_at(0));
  const JobStats::Entry& job = *target.stats().find(JobId("a"));
  EXPECT_EQ(job.arrived.requests, 1U);
  EXPECT_EQ(job.finished.requests, 1U);
  EXPECT_EQ(job.read, Bytes{4096});
  EXPECT_EQ(target.queued() + target.running(), 0U);
  EXPECT_EQ(exempt.account, nullptr);
}

// The root of 1000 operations a second holds 1000 after a second of work, and 100 after a rest.
TEST(Target, AnExemptRequestPaysItsShareAndTheRoot) {
  Target target(shared(), instant_at(0));
  ASSERT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
  Request probe;
  of_job(probe, "a", 4096);
  const auto wait = [&] { return target.expected_wait(probe, Head::kRegular, instant_at(0)); };
  EXPECT_EQ(wait(), Nanoseconds{0});
  for (int i = 0; i < 150; ++i) {
    Request exempt;
    target.charge(of_job(exempt, "a", 4096), Head::kRegular, instant_at(0));
  }
  EXPECT_EQ(wait(), milliseconds{51}) << "100 were there, 151 are needed";
}

// Slots are busy and more waits for them: 10 completed I/Os of 1 MiB in 100 ms.
TEST(Target, TheEstimateCountsOnlyIoThatWasCompleted) {
  const auto measured = [](auto end_one) {
    Target target(estimating(1), instant_at(0));
    EXPECT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
    std::deque<Request> requests(400);
    for (Request& request : requests) {
      target.admit(of_job(request, "a", 1 << 20), Head::kRegular, instant_at(0));
    }
    Instant now = instant_at(0);
    for (int i = 0; i < 300; ++i) {
      Decision decision = target.next(now);
      EXPECT_EQ(decision.kind(), Decision::Kind::kRun);
      now += milliseconds{10};
      end_one(target, decision.request(), i, now);
    }
    const auto capacity = target.capacity();
    target.shutdown(now);
    for (Request& request : requests) {
      if (request.place() == Request::Place::kQueued) target.withdraw(request, now);
    }
    return capacity;
  };
  const auto all = measured(
      [](Target& target, Request& request, int, Instant now) { target.complete(request, now); });
  const auto half = measured([](Target& target, Request& request, int i, Instant now) {
    target.complete(request, now, i % 2 == 0 ? Outcome{} : Outcome::failed());
  });
  const auto shorter = measured([](Target& target, Request& request, int, Instant now) {
    target.complete(request, now, Outcome::done(Bytes{1 << 19}));
  });
  const auto deferred = measured([](Target& target, Request& request, int, Instant now) {
    target.defer(request, now);
    target.withdraw(request, now);
  });
  ASSERT_TRUE(all && half && shorter && deferred);
  const auto per_second = [](const Rate& rate) { return tokens_in(rate, seconds{1}).count(); };
  EXPECT_NEAR(static_cast<double>(per_second(*all)), 100.0 * (1 << 20), 2.0 * (1 << 20));
  EXPECT_NEAR(static_cast<double>(per_second(*half)), 50.0 * (1 << 20), 2.0 * (1 << 20));
  EXPECT_NEAR(static_cast<double>(per_second(*shorter)), 50.0 * (1 << 20), 2.0 * (1 << 20));
  EXPECT_LE(per_second(*deferred), 1U) << "nothing was completed";
}

// ---- accounts ----

// The values of all accounts for the same requests, at the end.
struct Told {
  std::uint64_t requests = 0;
  std::uint64_t waited_ns = 0;
  std::uint64_t read = 0;
  std::uint64_t written = 0;

  bool operator==(const Told&) const = default;
};

Told of_job_stats(const Target& target) {
  Told told;
  for (const JobStats::Entry* const entry : target.stats().sorted()) {
    told.requests += entry->finished.requests;
    told.waited_ns += static_cast<std::uint64_t>(entry->wait_sum.count());
    told.read += entry->read.count();
    told.written += entry->written.count();
  }
  return told;
}

ClassTotals of_classes(const Target& target, Instant now) {
  ClassTotals sum;
  const auto add = [&](const ClassView& view) { sum += view.totals; };
  const RuleView& rules = *target.rules(Head::kRegular);
  for (auto at = rules.visit_classes(0, 100, now, add); at;) {
    at = rules.visit_classes(*at, 100, now, add);
  }
  return sum;
}

std::uint64_t of_waits(const Target& target, Instant now) {
  std::uint64_t sum = 0;
  target.rules(Head::kRegular)->visit_waits(now, [&](const WaitView& wait) {
    for (const std::uint64_t delay : wait.delays) sum += delay;
  });
  return sum;
}

Told of_op_stats(OpStats& stats, Instant now) {
  Told told;
  for (const OpStats::Job& job : stats.jobs(now)) {
    for (const OpStats::Sum& sum : job.usecs) told.requests += sum.samples;
    told.read += job.read_bytes.sum;
    told.written += job.write_bytes.sum;
  }
  return told;
}

TEST(Target, AllAccountsReadTheSameRecord) {
  constexpr std::uint64_t kRequests = 2000;
  Target target({.gate = {.slots = 3, .rules = {.watched_queues = 16}}}, instant_at(0));
  ASSERT_TRUE(target.set_policy("tbf", "jobid", Heads::kBoth, instant_at(0)));
  ASSERT_TRUE(target.write_rule("start slow jobid={job.1} rate=50", instant_at(0)));
  OpStats operations;
  OpStats::Handle handle;
  Told sum;
  std::uint64_t charged = 0;
  std::deque<Request*> running;
  Instant now = instant_at(0);
  const auto run = [&] {
    Decision decision = target.next(now);
    for (; decision.kind() == Decision::Kind::kRun; decision = target.next(now)) {
      running.push_back(&decision.request());
    }
    return decision;
  };
  const auto finish = [&] {
    Request& done = *running.front();
    running.pop_front();
    now += milliseconds{1};
    const Bytes half{done.bytes.count() / 2};
    const RequestRecord record =
        target.complete(done, now, sum.requests % 4 == 0 ? Outcome::done(half) : Outcome{});
    EXPECT_EQ(record.waited() + record.device_time(), record.latency());
    operations.record(handle, done.attributes.job, record);
    ++sum.requests;
    sum.waited_ns += static_cast<std::uint64_t>(record.waited().count());
    sum.read += record.read().count();
    sum.written += record.written().count();
    charged += record.charged.count();
  };
  std::vector<Request> requests(kRequests);
  for (std::uint64_t i = 0; i < kRequests; ++i) {
    now += milliseconds{i % 8 == 0 ? 5 : 0};
    requests[i].attributes.job = JobId("job." + std::to_string(i % 4));
    requests[i].operation = i % 5 < 3 ? OperationKind::kRead : OperationKind::kWrite;
    requests[i].bytes = Bytes{512 * (1 + i % 7)};
    target.admit(requests[i], Head::kRegular, now);
    run();
    if (i % 2 == 0) finish();
  }
  while (target.queued() > 0 || !running.empty()) {
    const Decision decision = run();
    running.empty() ? void(now = decision.until()) : finish();
  }

  EXPECT_EQ(sum.requests, kRequests);
  EXPECT_GT(sum.waited_ns, 0U);
  EXPECT_EQ(of_job_stats(target), sum);
  const ClassTotals classes = of_classes(target, now);
  EXPECT_EQ(classes.served, kRequests);
  EXPECT_EQ(classes.bytes, charged);
  EXPECT_EQ(classes.waited_ns, sum.waited_ns);
  EXPECT_EQ(of_waits(target, now), sum.waited_ns);
  Told device = sum;
  device.waited_ns = 0;  // not counted here
  EXPECT_EQ(of_op_stats(operations, now), device);
}

}  // namespace
}  // namespace weir
