// SPDX-License-Identifier: Apache-2.0
//
// The gate of weir.h as a C program uses it, on a clock of the test, and every misuse that can be
// detected. Only the tests of the descriptor and of threads use the real clock, without waiting for
// a time to pass.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>

#include "weir/embed/weir.h"

namespace weir::embed {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMs = 1'000'000;

std::uint64_t read_clock(void* argument) { return *static_cast<std::uint64_t*>(argument); }

class CGate : public testing::Test {
 protected:
  ~CGate() override {
    for (weir_request* const one : queued_) weir_gate_withdraw(gate_, one);
    for (weir_request* const one : requests_) EXPECT_EQ(weir_request_free(one), 0) << weir_error();
    EXPECT_EQ(weir_gate_free(gate_), 0) << weir_error();
  }

  weir_gate_options options(const char* capacity = "none") {
    weir_gate_options made{};
    made.size = sizeof made;
    made.slots = 1;
    made.capacity = capacity;
    made.clock = read_clock;
    made.clock_argument = &now_;
    return made;
  }
  void make(const weir_gate_options& options) {
    ASSERT_EQ(weir_gate_new(&gate_, &options), 0) << weir_error();
  }
  weir_request* request(const char* job, std::uint64_t bytes = 4096) {
    weir_request* made = nullptr;
    EXPECT_EQ(weir_request_new(&made), 0);
    EXPECT_EQ(weir_request_set_job(made, job), 0) << weir_error();
    EXPECT_EQ(weir_request_set_operation(made, WEIR_READ, bytes), 0) << weir_error();
    requests_.push_back(made);
    return made;
  }
  weir_request* admitted(const char* job) {
    weir_request* const made = request(job);
    EXPECT_EQ(weir_gate_admit(gate_, made, WEIR_REGULAR), 0) << weir_error();
    queued_.push_back(made);
    return made;
  }
  weir_request* next(std::uint64_t* wait_ns = nullptr) {
    weir_request* found = nullptr;
    EXPECT_EQ(weir_gate_next(gate_, &found, wait_ns), 0) << weir_error();
    return found;
  }
  // Serves all that may run now; the context of a request is its letter.
  std::string served() {
    std::string order;
    while (weir_request* const one = next()) {
      order += *static_cast<const char*>(weir_request_context(one));
      EXPECT_EQ(weir_gate_complete(gate_, one), 0) << weir_error();
    }
    return order;
  }
  Json snapshot() {
    char* text = nullptr;
    EXPECT_EQ(weir_gate_snapshot(gate_, &text), 0) << weir_error();
    const Json json = Json::parse(text);
    std::free(text);
    return json;
  }

  std::uint64_t now_ = 1;
  weir_gate* gate_ = nullptr;
  std::vector<weir_request*> requests_;
  std::vector<weir_request*> queued_;  // at most: those that ran are ignored
};

TEST_F(CGate, ARequestIsAdmittedRunsAndCompletes) {
  make(options());
  weir_request* const one = admitted("a");
  std::uint64_t wait = 0;
  EXPECT_EQ(next(&wait), one);
  weir_request* const two = admitted("a");
  EXPECT_EQ(next(&wait), nullptr) << "there is one slot";
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  EXPECT_EQ(next(&wait), two);
  EXPECT_EQ(weir_gate_complete(gate_, two), 0);
  EXPECT_EQ(next(&wait), nullptr);
}

TEST_F(CGate, JobsTakeTurnsWhateverTheirNumberOfRequests) {
  make(options());
  char a = 'a';
  char b = 'b';
  for (int i = 0; i < 6; ++i) {
    weir_request* const one = request("hog");
    EXPECT_EQ(weir_request_set_context(one, &a), 0);
    EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  }
  for (int i = 0; i < 2; ++i) {
    weir_request* const one = request("polite");
    EXPECT_EQ(weir_request_set_context(one, &b), 0);
    EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  }
  EXPECT_EQ(served(), "ababaaaa") << "the order of their first requests, in turns";
}

TEST_F(CGate, AJobWithMoreNodesGetsMore) {
  make(options());
  ASSERT_EQ(weir_gate_set_nodes(gate_, "big", 3), 0) << weir_error();
  char a = 'a';
  char b = 'b';
  for (int i = 0; i < 12; ++i) {
    weir_request* const one = request(i % 2 == 0 ? "big" : "small");
    EXPECT_EQ(weir_request_set_context(one, i % 2 == 0 ? &a : &b), 0);
    EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  }
  const std::string order = served();
  ASSERT_EQ(order.size(), 12U);
  EXPECT_LE(order.substr(0, 8).find_last_of('a'), 7U);
  EXPECT_EQ(std::count(order.begin(), order.begin() + 8, 'a'), 6) << order;
}

TEST_F(CGate, ARuleLimitsAndTheWaitIsExact) {
  make(options());
  ASSERT_EQ(weir_gate_rules(gate_, "# ten a second\nstart slow jobid={slow} rate=10 burst=1\n\n"),
            0)
      << weir_error();
  weir_request* const one = admitted("slow");
  admitted("slow");
  ASSERT_EQ(next(), one);
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  std::uint64_t wait = 0;
  // A share's period may end before: then the caller just asks again.
  for (std::uint64_t waited = 0; waited < 100 * kMs; waited += wait, now_ += wait) {
    ASSERT_EQ(next(&wait), nullptr);
    ASSERT_LE(waited + wait, 100 * kMs);
  }
  weir_request* const two = next();
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(weir_gate_complete(gate_, two), 0);
}

TEST_F(CGate, RulesApplyAllOrNone) {
  make(options());
  EXPECT_EQ(weir_gate_rules(gate_, "start a jobid={a} rate=10k\nstart b jobid={ rate=5"), EINVAL);
  EXPECT_NE(std::string(weir_error()).find("start b"), std::string::npos) << weir_error();
  EXPECT_EQ(weir_gate_rules(gate_, "start a jobid={a} rate=1\nstart a jobid={a} rate=2"), EEXIST);
  EXPECT_EQ(snapshot()["rules"].size(), 1U) << "only default";
  EXPECT_EQ(weir_gate_rules(gate_, "start a jobid={a} rate=10k"), 0) << weir_error();
  EXPECT_EQ(snapshot()["rules"][0]["limits"], "rate=10000");
}

TEST_F(CGate, ACapacityPacesAllJobsTogether) {
  make(options("1"));  // one operation a second, and a bucket as deep as there are slots: 1
  weir_request* const one = admitted("a");
  ASSERT_EQ(next(), one);
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  weir_request* const two = admitted("b");
  EXPECT_EQ(next(), nullptr);
  EXPECT_EQ(weir_gate_set_capacity(gate_, "none"), 0) << weir_error();
  ASSERT_EQ(next(), two) << "nothing paces it any more";
  EXPECT_EQ(weir_gate_complete(gate_, two), 0);
}

TEST_F(CGate, TheSnapshotHasRulesClassesAndJobs) {
  make(options());
  ASSERT_EQ(weir_gate_set_policy(gate_, "tbf jobid"), 0) << weir_error();
  ASSERT_EQ(weir_gate_set_nodes(gate_, "dd\xff\"", 4), 0) << weir_error();
  weir_request* const one = admitted("dd\xff\"");
  ASSERT_EQ(next(), one);
  now_ += 5 * kMs;
  EXPECT_EQ(weir_gate_complete_as(gate_, one, WEIR_DONE, 1024), 0) << weir_error();
  const Json json = snapshot();
  EXPECT_EQ(json["shares"], "on");
  EXPECT_EQ(json["slots"], 1);
  EXPECT_EQ(json["capacity"], nullptr);
  EXPECT_EQ(json["classes"][0]["key"]["jobid"], "dd\xEF\xBF\xBD\"");
  EXPECT_EQ(json["jobs"][0]["finished"], 1);
  EXPECT_EQ(json["jobs"][0]["read_bytes"], 1024);
  EXPECT_EQ(json["jobs"][0]["nodes"], 4);
  EXPECT_EQ(json["jobs"][0]["latency_ns"], 5 * kMs);
}

TEST_F(CGate, AClientIsTheJobOfItsRequestsUnlessTheyHaveOne) {
  make(options());
  weir_request* const one = request("");
  EXPECT_EQ(weir_request_set_client(one, "10.0.0.7"), 0) << weir_error();
  EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  EXPECT_EQ(snapshot()["jobs"][0]["job"], "10.0.0.7@tcp");
  ASSERT_EQ(next(), one);
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  EXPECT_EQ(weir_request_set_job(one, "mine"), 0);
  EXPECT_EQ(weir_request_set_client(one, "fe80::1@o2ib3"), 0) << weir_error();
  EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  EXPECT_EQ(snapshot()["jobs"][1]["job"], "mine");
  EXPECT_EQ(weir_gate_withdraw(gate_, one), 0);
}

TEST_F(CGate, AfterAShutdownQueuedRequestsAreHandedOutAndNoneIsAdmitted) {
  make(options());
  ASSERT_EQ(weir_gate_rules(gate_, "start slow jobid={slow} rate=1 burst=1"), 0) << weir_error();
  for (int i = 0; i < 3; ++i) admitted("slow");
  EXPECT_EQ(weir_gate_shutdown(gate_), 0);
  EXPECT_EQ(weir_gate_shutdown(gate_), 0) << "twice is not an error";
  for (int i = 0; i < 3; ++i) {
    weir_request* const one = next();
    ASSERT_NE(one, nullptr);
    EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  }
  EXPECT_EQ(weir_gate_admit(gate_, request("a"), WEIR_REGULAR), ESHUTDOWN);
}

TEST_F(CGate, AHighPriorityGoesFirst) {
  make(options());
  admitted("a");
  weir_request* const two = admitted("b");
  weir_request* const three = request("c");
  EXPECT_EQ(weir_gate_admit(gate_, three, WEIR_HIGH), 0);
  EXPECT_EQ(weir_gate_promote(gate_, two), 0) << weir_error();
  for (weir_request* const expected : {three, two}) {
    ASSERT_EQ(next(), expected);
    EXPECT_EQ(weir_gate_complete(gate_, expected), 0);
  }
}

// ---- misuse ----

TEST_F(CGate, EveryFunctionRefusesNull) {
  make(options());
  weir_request* const one = request("a");
  const std::vector<std::function<int()>> calls = {
      [&] { return weir_gate_new(nullptr, nullptr); },
      [&] { return weir_request_new(nullptr); },
      [&] { return weir_request_set_operation(nullptr, WEIR_READ, 1); },
      [&] { return weir_request_set_client(nullptr, "10.0.0.7"); },
      [&] { return weir_request_set_client(one, nullptr); },
      [&] { return weir_request_set_job(nullptr, "a"); },
      [&] { return weir_request_set_user(nullptr, 1, 1); },
      [&] { return weir_request_set_project(nullptr, 1); },
      [&] { return weir_request_set_context(nullptr, nullptr); },
      [&] { return weir_gate_admit(nullptr, one, WEIR_REGULAR); },
      [&] { return weir_gate_admit(gate_, nullptr, WEIR_REGULAR); },
      [&] { return weir_gate_next(nullptr, nullptr, nullptr); },
      [&] { return weir_gate_next(gate_, nullptr, nullptr); },
      [&] { return weir_gate_complete(nullptr, one); },
      [&] { return weir_gate_complete(gate_, nullptr); },
      [&] { return weir_gate_complete_as(gate_, nullptr, WEIR_DONE, 1); },
      [&] { return weir_gate_withdraw(gate_, nullptr); },
      [&] { return weir_gate_promote(nullptr, one); },
      [&] { return weir_gate_shutdown(nullptr); },
      [&] { return weir_gate_rules(gate_, nullptr); },
      [&] { return weir_gate_set_policy(gate_, nullptr); },
      [&] { return weir_gate_set_capacity(gate_, nullptr); },
      [&] { return weir_gate_set_nodes(gate_, nullptr, 1); },
      [&] { return weir_gate_snapshot(gate_, nullptr); },
      [&] { return weir_gate_snapshot(nullptr, nullptr); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i](), EINVAL) << "call " << i;
    EXPECT_TRUE(std::string(weir_error()).ends_with(" is NULL")) << i << ": " << weir_error();
  }
  EXPECT_EQ(weir_gate_fd(nullptr), -1);
  EXPECT_EQ(weir_request_context(nullptr), nullptr);
  EXPECT_EQ(weir_request_free(nullptr), 0);
  EXPECT_EQ(weir_gate_free(nullptr), 0);
}

TEST_F(CGate, ARequestIsInOnePlaceAtATime) {
  make(options());
  weir_request* const one = request("a");
  EXPECT_EQ(weir_gate_complete(gate_, one), EINVAL) << "not admitted";
  EXPECT_EQ(weir_gate_withdraw(gate_, one), EINVAL);
  EXPECT_EQ(weir_gate_promote(gate_, one), EINVAL);
  ASSERT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), EBUSY);
  EXPECT_STREQ(weir_error(), "weir_gate_admit: the request is queued; withdraw it first");
  EXPECT_EQ(weir_gate_complete(gate_, one), EINVAL) << "does not run yet";
  EXPECT_EQ(weir_request_set_job(one, "b"), EBUSY);
  EXPECT_EQ(weir_request_free(one), EBUSY);
  EXPECT_EQ(weir_gate_free(gate_), EBUSY);
  EXPECT_STREQ(weir_error(),
               "weir_gate_free: 1 requests are queued and 0 run; withdraw or complete them first");
  ASSERT_EQ(next(), one);
  EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), EBUSY);
  EXPECT_EQ(weir_gate_withdraw(gate_, one), EINVAL) << "it runs";
  EXPECT_EQ(weir_request_free(one), EBUSY);
  EXPECT_EQ(weir_gate_free(gate_), EBUSY);
  ASSERT_EQ(weir_gate_complete(gate_, one), 0);
  EXPECT_EQ(weir_gate_complete(gate_, one), EINVAL) << "twice";
  EXPECT_EQ(snapshot()["jobs"][0]["finished"], 1) << "what was refused changed nothing";
}

TEST_F(CGate, ARequestBelongsToItsGate) {
  make(options());
  weir_gate* other = nullptr;
  ASSERT_EQ(weir_gate_new(&other, nullptr), 0) << weir_error();
  weir_request* const one = admitted("a");
  EXPECT_EQ(weir_gate_withdraw(other, one), EINVAL);
  EXPECT_EQ(weir_gate_admit(other, one, WEIR_REGULAR), EBUSY);
  ASSERT_EQ(next(), one);
  EXPECT_EQ(weir_gate_complete(other, one), EINVAL);
  EXPECT_NE(std::string(weir_error()).find("another gate"), std::string::npos) << weir_error();
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  EXPECT_EQ(weir_gate_free(other), 0);
}

TEST_F(CGate, FreedHandlesAreRecognized) {
  make(options());
  weir_request* one = nullptr;
  ASSERT_EQ(weir_request_new(&one), 0);
  ASSERT_EQ(weir_request_free(one), 0);
  weir_gate* other = nullptr;
  ASSERT_EQ(weir_gate_new(&other, nullptr), 0);
  ASSERT_EQ(weir_gate_free(other), 0);
  // As many more as are remembered.
  for (int i = 1; i < WEIR_FREED_MAX; ++i) {
    weir_request* more = nullptr;
    ASSERT_EQ(weir_request_new(&more), 0);
    ASSERT_EQ(weir_request_free(more), 0);
  }
  EXPECT_EQ(weir_request_free(one), EBADF);
  EXPECT_EQ(weir_request_set_job(one, "a"), EBADF);
  EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), EBADF);
  EXPECT_EQ(weir_gate_complete(gate_, one), EBADF);
  EXPECT_EQ(weir_request_context(one), nullptr);
  EXPECT_EQ(weir_gate_free(other), EBADF);
  EXPECT_EQ(weir_gate_rules(other, ""), EBADF);
  EXPECT_STREQ(weir_error(), "weir_gate_rules: the gate was freed; do not use it again");
}

TEST_F(CGate, ValuesThatAreNotValidAreNamed) {
  make(options());
  weir_request* const one = request("a");
  const auto says = [](int code, const std::string& message) {
    EXPECT_EQ(code, EINVAL) << message;
    EXPECT_EQ(std::string(weir_error()).substr(0, message.size()), message);
  };
  says(weir_request_set_operation(one, 99, 1), "operation 99: is not valid; expected WEIR_READ");
  says(weir_request_set_operation(one, -1, 1), "operation -1: is not valid");
  says(weir_request_set_operation(one, WEIR_READ, UINT64_MAX),
       "18446744073709551615 bytes: are too many for a request; at most 1 TiB");
  says(weir_request_set_client(one, "no\naddress"), "client 'no\\x0aaddress': is not a valid");
  says(weir_request_set_job(one, std::string(32, 'x').c_str()), "job 'xxxx");
  says(weir_gate_admit(gate_, one, 7), "priority 7: is not valid");
  says(weir_gate_complete_as(gate_, one, 7, 1), "weir_gate_complete_as: the outcome");
  says(weir_gate_set_capacity(gate_, "fast"), "capacity 'fast': is not valid");
  says(weir_gate_set_capacity(gate_, "1/d"), "capacity '1/d': is not valid");
  says(weir_gate_set_capacity(gate_, "100MB/s"), "capacity: is in bytes per second, but");
  EXPECT_EQ(weir_gate_set_nodes(gate_, "a", UINT64_MAX), EINVAL) << weir_error();
  EXPECT_EQ(weir_gate_set_policy(gate_, "lottery"), ENOENT) << weir_error();
}

TEST_F(CGate, OptionsThatAreNotValidMakeNoGate) {
  make(options());
  const auto refused = [&](const std::function<void(weir_gate_options&)>& change) {
    weir_gate_options bad = options();
    change(bad);
    weir_gate* made = gate_;
    const int code = weir_gate_new(&made, &bad);
    EXPECT_EQ(made, nullptr);
    return code;
  };
  EXPECT_EQ(refused([](auto& bad) { bad.size = 8; }), EINVAL);
  EXPECT_EQ(refused([](auto& bad) { bad.high_slots = 1; }), EINVAL);
  EXPECT_EQ(refused([](auto& bad) { bad.slots = 1U << 31; }), EINVAL);
  EXPECT_EQ(refused([](auto& bad) { bad.policy = "lottery"; }), ENOENT);
  EXPECT_EQ(refused([](auto& bad) { bad.capacity = "0"; }), EINVAL);
  EXPECT_EQ(refused([](auto& bad) { bad.limits_only = 1; }), EINVAL) << "with a capacity";
  // A program that was compiled with a newer weir.h.
  struct {
    weir_gate_options known;
    std::uint64_t added;
  } newer{options(), 0};
  newer.known.size = sizeof newer;
  weir_gate* made = nullptr;
  EXPECT_EQ(weir_gate_new(&made, &newer.known), 0) << weir_error();
  EXPECT_EQ(weir_gate_free(made), 0);
  newer.added = 1;
  EXPECT_EQ(weir_gate_new(&made, &newer.known), E2BIG) << "an option that is not known";
}

TEST_F(CGate, WithLimitsOnlyThereAreNoShares) {
  weir_gate_options without = options(nullptr);
  without.limits_only = 1;
  make(without);
  EXPECT_EQ(weir_gate_set_nodes(gate_, "a", 2), ENODEV);
  EXPECT_EQ(weir_gate_set_capacity(gate_, "20k"), ENODEV);
  EXPECT_EQ(snapshot()["shares"], "off");
}

TEST_F(CGate, ExtremeRequestsAndClocksAreServed) {
  make(options());
  ASSERT_EQ(weir_gate_rules(gate_, "start slow jobid={slow} bps=1B"), 0) << weir_error();
  weir_request* const one = request("slow", std::uint64_t{1} << 40);
  weir_request* const two = request("slow", std::uint64_t{1} << 40);
  EXPECT_EQ(weir_gate_admit(gate_, one, WEIR_REGULAR), 0);
  EXPECT_EQ(weir_gate_admit(gate_, two, WEIR_REGULAR), 0);
  EXPECT_EQ(next(), one) << "more than the bucket runs on a full one";
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  for (const std::uint64_t time : {UINT64_MAX, std::uint64_t{0}, UINT64_MAX / 2}) {
    now_ = time;
    if (weir_request* const again = next()) EXPECT_EQ(weir_gate_complete(gate_, again), 0);
  }
  weir_gate_withdraw(gate_, two);  // if it still waits
}

// ---- the real clock ----

TEST_F(CGate, TheDescriptorIsReadableWhenTheNextRequestIsDue) {
  weir_gate_options real = options();
  real.clock = nullptr;
  make(real);
  ASSERT_EQ(weir_gate_rules(gate_, "start slow jobid={slow} rate=50 burst=1"), 0) << weir_error();
  weir_request* const one = admitted("slow");
  weir_request* const two = admitted("slow");
  ASSERT_EQ(next(), one);
  EXPECT_EQ(weir_gate_complete(gate_, one), 0);
  pollfd wait{.fd = weir_gate_fd(gate_), .events = POLLIN, .revents = 0};
  ASSERT_GE(wait.fd, 0);
  int events = 0;
  weir_request* found = nullptr;
  while ((found = next()) == nullptr) {
    ASSERT_EQ(poll(&wait, 1, -1), 1);
    ++events;
  }
  EXPECT_EQ(found, two);
  EXPECT_GE(events, 1);
  EXPECT_EQ(weir_gate_complete(gate_, two), 0);
}

TEST_F(CGate, AGateWithItsOwnClockHasNoDescriptor) {
  make(options());
  EXPECT_EQ(weir_gate_fd(gate_), -1);
  EXPECT_STREQ(weir_error(), "weir_gate_fd: the gate has its own clock; use wait_ns");
}

TEST_F(CGate, OfTwoThreadsOneAdmitsARequest) {
  weir_gate_options real = options();
  real.clock = nullptr;
  make(real);
  weir_request* const one = request("a");
  for (int round = 0; round < 200; ++round) {
    int results[2] = {-1, -1};
    std::thread other([&] { results[0] = weir_gate_admit(gate_, one, WEIR_REGULAR); });
    results[1] = weir_gate_admit(gate_, one, WEIR_REGULAR);
    other.join();
    ASSERT_EQ(results[0] + results[1], EBUSY);
    ASSERT_EQ(next(), one);
    ASSERT_EQ(weir_gate_complete(gate_, one), 0);
  }
}

}  // namespace
}  // namespace weir::embed
