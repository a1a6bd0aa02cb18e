// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/group_epochs.h"

#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/coordinate/target_epochs.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

Instant at(std::int64_t ms) { return instant_at(0) + milliseconds{ms}; }

constexpr std::uint32_t kA = 0;
constexpr std::uint32_t kB = 1;
constexpr std::uint32_t kRest = 2;
constexpr std::array<int, 3> kClients = {1, 11, 30};  // one of each group

Target::Options target_options(std::uint32_t slots) {
  Target::Options options;
  options.gate = {.slots = slots, .rules = {.classes_max = 64}};
  options.gate.rules.groups = {*NidList::parse("10.0.0.[1-9]@tcp"),
                               *NidList::parse("10.0.0.[11-19]@tcp")};
  return options;
}
GroupOptions turns(bool quiesce = false) {
  return {.lengths = {milliseconds{10}, milliseconds{20}},
          .rest_length = milliseconds{10},
          .quiesce = quiesce,
          .quiet_max = milliseconds{5},
          .meaning = 7};
}

struct Server {
  explicit Server(const GroupOptions& options = turns(), std::uint32_t slots = 1)
      : target(target_options(slots), at(0)), use(target, options) {
    EXPECT_TRUE(target.set_policy("tbf", "nid", Heads::kBoth, {}));
    EXPECT_TRUE(target.write_rule("change default rate=900000", at(0)));
  }
  ~Server() {
    while (!running.empty()) complete(at(1'000'000));
    target.shutdown(at(1'000'000));
    while (begin(at(1'000'000)) >= 0) complete(at(1'000'000));
  }
  void send(std::uint32_t group, int count, Instant now, Head head = Head::kRegular) {
    for (int i = 0; i < count; ++i) {
      Request& request = requests.emplace_back();
      request.attributes.nid = *parse_nid("10.0.0." + std::to_string(kClients.at(group)) + "@tcp");
      target.admit(request, head, now);
    }
  }
  // The group whose request starts; -1 if none does.
  int begin(Instant now) {
    const Decision decision = target.next(now);
    if (decision.kind() != Decision::Kind::kRun) return -1;
    running.push_back(&decision.request());
    const int client = static_cast<int>(decision.request().attributes.nid.low & 0xff);
    return client < 10 ? 0 : client < 20 ? 1 : 2;
  }
  void complete(Instant now) {
    target.complete(*running.front(), now);
    running.pop_front();
  }

  Target target;
  GroupEpochs use;
  std::deque<Request> requests;
  std::deque<Request*> running;
};

// On one server, as the daemon runs it: one request takes one millisecond.
struct Alone : Server {
  using Server::Server;
  // The group that is served in each millisecond.
  std::string run(std::int64_t from_ms, std::int64_t to_ms) {
    std::string served;
    for (std::int64_t ms = from_ms; ms < to_ms; ++ms) {
      if (!running.empty()) complete(at(ms));
      epochs.tick(at(ms));
      const int group = begin(at(ms));
      served += group < 0 ? '.' : "ABr"[group];
    }
    return served;
  }
  LocalEpochHandler handler;
  TargetEpochs epochs{target, handler, use};
};

TEST(GroupEpochs, TakeTurnsOfTheirLengths) {
  Alone server;
  server.send(kA, 100, at(0));
  server.send(kB, 100, at(0));
  server.send(kRest, 100, at(0));
  server.epochs.init(at(0));
  const std::string a(10, 'A'), b(20, 'B'), rest(10, 'r');
  EXPECT_EQ(server.run(0, 80), a + b + rest + a + b + rest);
  EXPECT_EQ(server.use.turns(), (std::vector<std::uint64_t>{2, 2, 2}));
}

TEST(GroupEpochs, AGroupWithNothingToDoIsPassedOver) {
  Alone server;
  server.send(kB, 100, at(0));
  server.epochs.init(at(0));
  EXPECT_EQ(server.run(0, 50), std::string(50, 'B'));
  server.send(kRest, 5, at(50));
  EXPECT_EQ(server.run(50, 60), std::string(10, 'B')) << "it is still its turn";
  EXPECT_EQ(server.run(60, 70), "rrrrrBBBBB") << "and others go on when the group has nothing";
}

TEST(GroupEpochs, ATurnEndsWhenItsGroupHasNothingLeftAndOthersWait) {
  Alone server;
  server.send(kB, 3, at(0));
  server.send(kRest, 100, at(0));
  server.epochs.init(at(0));
  server.run(0, 5);
  EXPECT_EQ(server.use.preferred(), kRest) << "after 3 of 20 ms";
}

TEST(GroupEpochs, WithNobodyWaitingNobodyIsPreferred) {
  Alone server;
  server.epochs.init(at(0));
  server.run(0, 100);
  EXPECT_FALSE(server.use.preferred());
  server.send(kA, 1, at(100));
  EXPECT_EQ(server.run(100, 101), "A");
}

// ---- the quiet phase ----

TEST(GroupEpochs, WithQuiesceNothingBeginsUntilWhatRunsIsDone) {
  Server server(turns(true), 4);
  LocalEpochHandler handler;
  TargetEpochs epochs(server.target, handler, server.use);
  server.send(kA, 100, at(0));
  server.send(kB, 100, at(0));
  epochs.init(at(0));
  EXPECT_EQ(server.use.preferred(), kA);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(server.begin(at(8)), 0);
  epochs.tick(at(10));
  EXPECT_TRUE(server.use.is_quiet());
  for (int i = 0; i < 3; ++i) {
    server.complete(at(11));
    epochs.tick(at(11));
    EXPECT_EQ(server.begin(at(11)), -1) << "quiet, though slots are free";
  }
  server.send(kRest, 1, at(12), Head::kHigh);
  EXPECT_EQ(server.begin(at(12)), 2) << "the high head is not held";
  server.complete(at(12));
  epochs.tick(at(12));
  EXPECT_FALSE(server.use.is_quiet()) << "what is left is of the high head";
  EXPECT_EQ(server.use.preferred(), kB);
  EXPECT_EQ(server.begin(at(12)), 1);
  EXPECT_EQ(server.use.ragged(), 0U);
}

TEST(GroupEpochs, AQuietPhaseIsBounded) {
  Server server(turns(true), 1);
  LocalEpochHandler handler;
  TargetEpochs epochs(server.target, handler, server.use);
  server.send(kA, 2, at(0));
  server.send(kB, 2, at(0));
  epochs.init(at(0));
  EXPECT_EQ(server.begin(at(0)), 0);
  epochs.tick(at(10));
  EXPECT_EQ(epochs.next_wake(), at(15));
  epochs.tick(at(14));
  EXPECT_TRUE(server.use.is_quiet());
  epochs.tick(at(15));
  EXPECT_FALSE(server.use.is_quiet()) << "one request that never ends must not stop a server";
  EXPECT_EQ(server.use.ragged(), 1U);
}

// A handler that never answers, as if the other servers were stopped.
struct Mute final : EpochHandler {
  void next_epoch(std::int64_t, EpochBytes, EpochCallback callback, Instant) override {
    asked = std::move(callback);
  }
  void last_epoch(std::int64_t, Instant) override {}
  EpochCallback asked;
};

TEST(GroupEpochs, AQuietPhaseEndsThoughTheOthersAreNotReady) {
  Server server(turns(true), 1);
  Mute handler;
  TargetEpochs epochs(server.target, handler, server.use);
  server.send(kA, 9, at(0));
  epochs.init(at(0));
  handler.asked(1, server.use.ready(at(0)), at(0));
  EXPECT_EQ(server.begin(at(0)), 0);
  server.complete(at(9));
  epochs.tick(at(10));
  EXPECT_EQ(server.begin(at(10)), -1) << "it has said that it is ready, and is quiet";
  EXPECT_EQ(epochs.next_wake(), at(15));
  epochs.tick(at(15));
  EXPECT_EQ(server.begin(at(15)), 0);
  EXPECT_EQ(server.use.ragged(), 1U);
  server.complete(at(16));
  epochs.tick(at(40));
  EXPECT_EQ(server.begin(at(40)), 0) << "and is quiet once only";
  EXPECT_EQ(server.use.ragged(), 1U);
}

TEST(GroupEpochs, WhoIsAloneIsNeverQuiet) {
  Server server(turns(true), 1);
  Mute handler;
  TargetEpochs epochs(server.target, handler, server.use);
  server.send(kA, 100, at(0));
  server.send(kB, 100, at(0));
  epochs.init(at(0));
  std::string served;
  for (int ms = 0; ms < 40; ++ms) {
    if (ms % 7 == 6 && handler.asked) std::exchange(handler.asked, {})(-ENOTCONN, {}, at(ms));
    epochs.tick(at(ms));
    const int group = server.begin(at(ms));
    served += group < 0 ? '.' : "ABr"[group];
    if (group >= 0) server.complete(at(ms));
  }
  EXPECT_EQ(served, std::string(10, 'A') + std::string(20, 'B') + std::string(10, 'A'));
}

TEST(GroupEpochs, SeveralServersThatAreQuietTogetherKeepToTheLength) {
  for (const bool quiesce : {false, true}) {
    std::vector<std::unique_ptr<Server>> servers;
    for (int i = 0; i < 2; ++i) servers.push_back(std::make_unique<Server>(turns(quiesce)));
    servers[0]->send(kA, 1, at(0));
    servers[1]->send(kB, 1, at(0));
    EpochBytes sum = servers[0]->use.ready(at(0));
    const EpochBytes more = servers[1]->use.ready(at(0));
    add_vectors(sum, EpochBytes(sum), more);
    for (const auto& server : servers) server->use.start_epoch(1, sum, at(0));
    EXPECT_EQ(servers[1]->use.preferred(), kA);
    EXPECT_EQ(servers[1]->use.is_done_early(at(5)), !quiesce);
  }
}

TEST(GroupEpochs, ALeaderThatSaysThereAreNoServersIsNotBelieved) {
  Server server;
  server.send(kA, 1, at(0));
  const EpochVector own = unpack_vector(server.use.ready(at(0)));
  for (const std::int64_t servers : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
    EpochVector data = own;
    data[0] = servers;
    data[1] = 7 * (servers > 1 ? std::int64_t{kEpochMembersMax} : 1);  // as if it were valid
    server.use.start_epoch(1, pack_vector(data), at(0));
    EXPECT_FALSE(server.use.preferred());
    EXPECT_TRUE(server.use.is_mixed());
  }
}

TEST(GroupEpochs, AnErrorEndsTheQuietPhase) {
  Server server(turns(true), 1);
  server.send(kA, 1, at(0));
  server.use.start_epoch(1, server.use.ready(at(0)), at(0));
  EXPECT_EQ(server.use.ready_at(at(10)), at(10));
  EXPECT_TRUE(server.use.is_quiet());
  EXPECT_EQ(server.begin(at(10)), -1);
  server.use.alone(-ETIMEDOUT, at(12));
  EXPECT_FALSE(server.use.is_quiet());
  EXPECT_EQ(server.begin(at(12)), 0);
}

// ---- many servers ----

EpochBytes reduced(const std::vector<std::unique_ptr<Server>>& servers, Instant now) {
  EpochBytes sum = servers.front()->use.ready(now);
  for (std::size_t i = 1; i < servers.size(); ++i) {
    const EpochBytes more = servers[i]->use.ready(now);
    EpochBytes out(std::max(sum.size(), more.size()));
    add_vectors(out, sum, more);
    out.resize(std::min(sum.size(), more.size()));
    sum = std::move(out);
  }
  return sum;
}

// Whichever groups have requests, and whichever servers were cut off for a while: all servers
// choose the same group, and no group that always has requests waits longer than one turn of each
// other group.
RC_GTEST_PROP(GroupEpochsProperty, AllChooseTheSameAndNobodyStarves, ()) {
  std::vector<std::unique_ptr<Server>> servers;
  const auto count = *rc::gen::inRange<std::size_t>(1, 5);
  for (std::size_t i = 0; i < count; ++i) servers.push_back(std::make_unique<Server>());
  servers[*rc::gen::inRange<std::size_t>(0, count)]->send(kB, 1, at(0));
  int since_b = 0;
  for (int epoch = 1; epoch <= 30; ++epoch) {
    const Instant now = at(20 * epoch);
    Server& one = *servers[*rc::gen::inRange<std::size_t>(0, count)];
    if (*rc::gen::inRange(0, 2) == 0) one.send(*rc::gen::element(kA, kRest), 1, now);
    if (*rc::gen::inRange(0, 4) == 0 && one.target.rules(Head::kRegular)->group_queues(kB) == 0) {
      if (one.begin(now) >= 0) one.complete(now);
    }
    const EpochBytes data = reduced(servers, now);
    for (const auto& server : servers) server->use.start_epoch(epoch, data, now);
    for (const auto& server : servers) {
      RC_ASSERT(server->use.preferred() == servers[0]->use.preferred());
    }
    since_b = servers[0]->use.preferred() == kB ? 0 : since_b + 1;
    RC_ASSERT(since_b <= 2);
  }
}

TEST(GroupEpochs, ServersWithDifferentGroupsPreferNobody) {
  std::vector<std::unique_ptr<Server>> servers;
  servers.push_back(std::make_unique<Server>());
  GroupOptions other = turns();
  other.meaning = 8;
  servers.push_back(std::make_unique<Server>(other));
  for (const auto& server : servers) server->send(kA, 1, at(0));
  const EpochBytes data = reduced(servers, at(0));
  for (const auto& server : servers) {
    server->use.start_epoch(1, data, at(0));
    EXPECT_TRUE(server->use.is_mixed());
    EXPECT_FALSE(server->use.preferred());
  }
}

TEST(GroupEpochs, DataOfOthersThatIsTooShortPrefersNobody) {
  Server server;
  server.send(kA, 1, at(0));
  for (const std::size_t size : {0U, 8U, 40U}) {
    server.use.start_epoch(1, EpochBytes(size), at(0));
    EXPECT_FALSE(server.use.preferred());
    EXPECT_TRUE(server.use.is_mixed());
  }
}

TEST(GroupEpochs, AServerThatIsCutOffGoesOnByItself) {
  Server server;
  server.send(kA, 100, at(0));
  server.send(kB, 100, at(0));
  server.use.start_epoch(1, server.use.ready(at(0)), at(0));
  EXPECT_EQ(server.use.preferred(), kA);
  server.use.alone(-ETIMEDOUT, at(5));
  EXPECT_EQ(server.use.preferred(), kA) << "its turn is not over";
  server.use.alone(-ETIMEDOUT, at(10));
  EXPECT_EQ(server.use.preferred(), kB);
  server.use.alone(-ETIMEDOUT, at(30));
  EXPECT_EQ(server.use.preferred(), kA);
}

}  // namespace
}  // namespace weir
