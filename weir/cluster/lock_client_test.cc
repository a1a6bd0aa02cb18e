// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_client.h"

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "weir/cluster/lock_admin.h"
#include "weir/cluster/lock_service.h"

namespace weir::lock {
namespace {

using namespace std::chrono_literals;
using Kind = LockClient::Event::Kind;

constexpr Nanoseconds kStuck = 60s;

// Records its events, and can wait for more.
class Told : public Listener {
 public:
  void lock_event(const LockClient::Event& event) override {
    const std::lock_guard guard(mutex_);
    events_.push_back(event);
    came_.notify_all();
  }
  // The event with this number, from 0.
  LockClient::Event wait(std::size_t number) {
    std::unique_lock guard(mutex_);
    EXPECT_TRUE(came_.wait_for(guard, kStuck, [&] { return events_.size() > number; }));
    return events_.at(number);
  }
  std::size_t count() {
    const std::lock_guard guard(mutex_);
    return events_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<LockClient::Event> events_;
};

// Whether this machine is short of memory does not matter here.
ConnectOptions to_address(const std::string& server) {
  ConnectOptions to;
  to.server = server;
  to.pressure = host::MemoryPressure::Sources{};
  return to;
}

class LockService : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lock_client." + std::to_string(getpid()) + "." +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    options.lock.listen =
        serve::ListenAddress{.kind = serve::ListenAddress::Kind::kUnix, .path = path()};
    options.lock.state_file = folder_ + "/state";
    options.pressure = host::MemoryPressure::Sources{};
  }
  void TearDown() override {
    service.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string path() const { return folder_ + "/s"; }
  void start() {
    auto made = cluster::LockService::create(options);
    ASSERT_TRUE(made) << made.error().message();
    service = std::move(*made);
  }
  ConnectOptions to_server() const { return to_address("unix:" + path()); }
  std::unique_ptr<Client> connect(ConnectOptions to) {
    auto made = Client::create(to);
    EXPECT_TRUE(made);
    return std::move(*made);
  }
  std::unique_ptr<Client> connect() { return connect(to_server()); }

  // A file like a cgroup's memory.events.
  host::MemoryPressure::Sources fake_pressure(int high) const {
    const std::string events = folder_ + "/memory.events";
    std::ofstream(events) << "low 0\nhigh " << high << "\nmax 0\noom 0\noom_kill 0\n";
    return {.trigger = "", .events = events};
  }
  // Queries the server until the condition holds.
  template <class Condition>
  bool becomes(Condition condition) {
    const auto end = std::chrono::steady_clock::now() + kStuck;
    while (!condition(service->view().at(0))) {
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

  cluster::LockServiceOptions options;
  std::unique_ptr<cluster::LockService> service;

 private:
  std::string folder_;
};

TEST_F(LockService, ALockIsHeldKeptAndTakenAgainWithoutAMessage) {
  start();
  const auto client = connect();
  {
    const auto lock = client->take("a", Mode::kExclusive, kStuck);
    ASSERT_TRUE(lock) << lock.error().message();
    EXPECT_GT(lock->fence(), 0U);
    EXPECT_FALSE(lock->is_lost());
  }
  EXPECT_EQ(client->status().cached, 1U);
  const auto again = client->try_take("a", Mode::kShared);
  ASSERT_TRUE(again);
  EXPECT_EQ(client->status().counters.hits, 1U);
  EXPECT_EQ(client->status().counters.enqueues, 1U);
}

TEST_F(LockService, WhoeverWaitsGetsItWhenItIsReleased) {
  start();
  const auto a = connect();
  const auto b = connect();
  auto held = a->take("x", Mode::kExclusive, kStuck);
  ASSERT_TRUE(held);
  Told told;
  const auto waits = b->acquire("x", Mode::kExclusive, Client::OrWait::kWait, told);
  EXPECT_FALSE(waits.is_held);
  const auto tried = b->try_take("y", Mode::kExclusive);
  EXPECT_TRUE(tried);
  EXPECT_EQ(told.count(), 0U);
  const std::uint64_t fence = held->fence();
  held->release();
  const LockClient::Event event = told.wait(0);
  EXPECT_EQ(event.kind, Kind::kHeld);
  EXPECT_GT(event.fence, fence);
  b->release(waits.ticket);
}

TEST_F(LockService, ALockIsConvertedWhileItIsHeld) {
  start();
  const auto a = connect();
  const auto b = connect();
  auto mine = a->take("x", Mode::kExclusive, kStuck);
  ASSERT_TRUE(mine);
  EXPECT_TRUE(mine->convert(Mode::kShared));
  auto theirs = b->take("x", Mode::kShared, kStuck);
  ASSERT_TRUE(theirs) << theirs.error().message();
  const auto tried = mine->try_convert(Mode::kExclusive);
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().code, std::errc::resource_unavailable_try_again);
  const auto late = mine->convert(Mode::kExclusive, 20ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, std::errc::timed_out);
  EXPECT_TRUE(becomes([](const auto& view) { return view.converting == 0; })) << "withdrawn";
  theirs->release();
  const std::uint64_t before = mine->fence();
  EXPECT_TRUE(mine->convert(Mode::kExclusive, kStuck));
  EXPECT_GT(mine->fence(), before);
  EXPECT_FALSE(b->try_take("x", Mode::kShared));
}

TEST_F(LockService, ADeadlockOfConversionsNamesItsClients) {
  start();
  const auto a = connect();
  const auto b = connect();
  auto mine = a->take("x", Mode::kShared, kStuck);
  auto theirs = b->take("x", Mode::kShared, kStuck);
  ASSERT_TRUE(mine && theirs);
  std::thread waits([&] { EXPECT_TRUE(mine->convert(Mode::kExclusive, kStuck)); });
  EXPECT_TRUE(becomes([](const auto& view) { return view.converting == 1; }));
  const auto refused = theirs->convert(Mode::kExclusive, kStuck);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::resource_deadlock_would_occur);
  const std::string text = refused.error().message();
  EXPECT_NE(text.find("client 100000001 holds shared and wants exclusive"), std::string::npos)
      << text;
  EXPECT_NE(text.find("client 100000002 holds shared and wants exclusive"), std::string::npos)
      << text;
  theirs->release();
  waits.join();
}

TEST_F(LockService, AWatchIsToldWhenAResourceIsFree) {
  start();
  const auto a = connect();
  const auto b = connect();
  auto held = a->take("x", Mode::kExclusive, kStuck);
  ASSERT_TRUE(held);
  Told told;
  const auto ticket = b->watch("x", Mode::kExclusive, told);
  EXPECT_EQ(told.wait(0).kind, Kind::kHolders);
  EXPECT_EQ(b->holders(ticket).count, 1U);
  held->release();
  EXPECT_EQ(told.wait(1).kind, Kind::kFree);
  b->release(ticket);
}

TEST_F(LockService, ATryAndATimeoutEndWithoutTheLock) {
  start();
  const auto a = connect();
  const auto b = connect();
  const auto held = a->take("x", Mode::kShared, kStuck);
  ASSERT_TRUE(held);
  EXPECT_TRUE(b->try_take("x", Mode::kShared));
  const auto tried = b->try_take("x", Mode::kExclusive);
  ASSERT_FALSE(tried);
  EXPECT_EQ(tried.error().code, std::errc::resource_unavailable_try_again);
  const auto late = b->take("x", Mode::kExclusive, 50ms);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, std::errc::timed_out);
}

TEST_F(LockService, NamesThatAreNoneAreRefusedAndNothingBreaks) {
  start();
  const auto client = connect();
  for (const std::string& name : {std::string(), std::string(10'000, 'x')}) {
    const auto none = client->take(name, Mode::kExclusive, kStuck);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, std::errc::invalid_argument);
  }
  EXPECT_TRUE(client->take(std::string(255, 'x'), Mode::kExclusive, kStuck));
}

TEST_F(LockService, WhoLeavesGivesAllBackAtOnce) {
  options.lock.server.lease = 1h;
  start();
  auto a = connect();
  Told told;
  a->acquire("x", Mode::kExclusive, Client::OrWait::kWait, told);
  EXPECT_EQ(told.wait(0).kind, Kind::kHeld);
  a.reset();
  const auto b = connect();
  EXPECT_TRUE(b->take("x", Mode::kExclusive, kStuck));
}

TEST_F(LockService, LocksAreKeptOverARestartAndFencesGrow) {
  options.lock.server.lease = 2s;
  options.lock.server.grace = 2500ms;
  start();
  const auto a = connect();
  auto held = a->take("x", Mode::kExclusive, kStuck);
  ASSERT_TRUE(held);
  service.reset();
  start();
  const auto b = connect();
  // Granted after the grace period at the earliest, and here only when a releases it.
  Told told;
  const auto waits = b->acquire("x", Mode::kExclusive, Client::OrWait::kWait, told);
  const auto other = b->take("y", Mode::kExclusive, kStuck);
  ASSERT_TRUE(other);
  EXPECT_GT(other->fence() >> kFenceCountBits, held->fence() >> kFenceCountBits);
  EXPECT_FALSE(held->is_lost());
  EXPECT_EQ(told.count(), 0U);
  held->release();
  EXPECT_EQ(told.wait(0).kind, Kind::kHeld);
  b->release(waits.ticket);
}

TEST_F(LockService, AServerThatLeftWithNothingGrantedNeedsNoGrace) {
  options.lock.server.grace = 10h;
  start();
  service.reset();
  start();
  EXPECT_TRUE(connect()->take("x", Mode::kExclusive, kStuck));
}

TEST_F(LockService, WithoutAServerLocksAreLostAtTheEndOfTheLease) {
  options.lock.server.lease = 1s;
  start();
  const auto client = connect();
  Told told;
  const auto got = client->acquire("x", Mode::kExclusive, Client::OrWait::kWait, told);
  EXPECT_EQ(told.wait(0).kind, Kind::kHeld);
  service.reset();
  EXPECT_EQ(told.wait(1).kind, Kind::kLost);
  EXPECT_FALSE(client->status().trouble.empty());
  client->release(got.ticket);
}

TEST_F(LockService, AnOldServerGivesCachesAFixedSize) {
  options.lock.server.features = 0;
  start();
  ConnectOptions to = to_server();
  to.client.lru.fallback_size = 3;
  const auto client = connect(to);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->take("n" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  EXPECT_LE(client->status().cached, 4U);
}

TEST_F(LockService, AnOldClientIsSentNoVolume) {
  options.lock.server.pool.limit = 2;
  start();
  ConnectOptions to = to_server();
  to.client.features = 0;
  to.client.lru.fallback_size = 1;
  const auto client = connect(to);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client->take("n" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  const auto views = service->view();
  ASSERT_EQ(views.size(), 1U);
  ASSERT_EQ(views[0].top.size(), 1U);
  EXPECT_FALSE(views[0].top[0].knows_volume);
  EXPECT_EQ(client->status().counters.cancels_for_volume, 0U);
}

TEST_F(LockService, TheConsoleSeesListsAndTurns) {
  start();
  const auto client = connect();
  const auto held = client->take("dataset/7", Mode::kExclusive, kStuck);
  ASSERT_TRUE(held);
  const auto views = service->view();
  ASSERT_EQ(views.size(), 1U);
  EXPECT_EQ(views[0].granted, 1);
  EXPECT_EQ(views[0].top.at(0).peer, "unix");
  const auto list = service->list("locks", {.filter = "set"});
  ASSERT_TRUE(list);
  ASSERT_EQ(list->locks.size(), 1U);
  EXPECT_EQ(list->locks[0].name, "dataset/7");
  EXPECT_EQ(list->locks[0].fence, held->fence());
  EXPECT_TRUE(service->set("locks", Tunable::kLimit, 5));
  EXPECT_EQ(service->view()[0].limit, 5);
  EXPECT_FALSE(service->set("locks", Tunable::kLimit, 0));
  EXPECT_FALSE(service->set("others", Tunable::kLimit, 5));
  EXPECT_FALSE(service->list("others", {}));
}

TEST_F(LockService, FiguresAndListsComeOverTheWire) {
  start();
  const auto client = connect();
  const auto held = client->take("dataset/7", Mode::kShared, kStuck);
  ASSERT_TRUE(held);
  const auto stats = cluster::ask_stats(to_server());
  ASSERT_TRUE(stats) << stats.error().message();
  EXPECT_EQ(stats->view.granted, 1);
  EXPECT_EQ(stats->incarnation, 1U);
  EXPECT_EQ(stats->view.clients(), 1U);
  const auto list = cluster::ask_list(to_server(), {});
  ASSERT_TRUE(list);
  ASSERT_EQ(list->locks.size(), 1U);
  EXPECT_EQ(list->locks[0].mode, Mode::kShared);
  service.reset();
  EXPECT_FALSE(cluster::ask_stats(to_server()));
}

TEST_F(LockService, AClaimThatDoesNotCountIsRefused) {
  options.claims.local = false;
  start();
  ConnectOptions to = to_server();
  to.job = "ior.1";
  const auto client = connect(to);
  EXPECT_FALSE(client->take("x", Mode::kExclusive, 500ms));
  EXPECT_NE(client->status().trouble.find("is not allowed to claim"), std::string::npos)
      << client->status().trouble;
  EXPECT_TRUE(client->status().is_refused);
}

TEST_F(LockService, ShrinkGivesCachedLocksBack) {
  start();
  const auto client = connect();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->take("n" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  EXPECT_EQ(client->shrink(4), 4U);
  EXPECT_EQ(client->status().cached, 6U);
  EXPECT_EQ(client->shrink(0), 6U) << "it counts";
  EXPECT_EQ(client->relieve(), 1U);  // 30 % of 6, rounded down
  EXPECT_EQ(client->status().cached, 5U);
}

TEST_F(LockService, AClientThatIsShortOfMemoryGivesAShareOfItsCacheBack) {
  start();
  ConnectOptions to = to_server();
  to.pressure = fake_pressure(4);
  const auto client = connect(to);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(client->take("n" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  ASSERT_EQ(client->status().cached, 10U);
  (void)fake_pressure(5);
  EXPECT_TRUE(becomes([](const NamespaceView& view) { return view.granted == 7; }));
  EXPECT_EQ(client->status().cached, 7U);
  (void)fake_pressure(6);
  EXPECT_TRUE(becomes([](const NamespaceView& view) { return view.granted == 5; }));
}

TEST_F(LockService, AServerThatIsShortOfMemoryLowersItsVolume) {
  options.lock.server.pool.period = std::chrono::seconds{3600};  // nothing else changes it
  options.pressure = fake_pressure(0);
  start();
  const auto client = connect();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client->take("n" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  (void)fake_pressure(1);
  const std::uint64_t felt = 5 * ServerPool::kReliefAge;  // one client with five locks
  EXPECT_TRUE(becomes([&](const NamespaceView& view) { return view.server_lock_volume == felt; }));
}

TEST_F(LockService, AShrinkIsSharedByTheSizesOfTheCaches) {
  start();
  const auto large = connect();
  const auto small = connect();
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(large->take("l" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(small->take("s" + std::to_string(i), Mode::kExclusive, kStuck));
  }
  Client* const both[] = {large.get(), small.get()};
  EXPECT_EQ(shrink(both, 0), 12U) << "it counts";
  EXPECT_EQ(shrink(both, 6), 6U);
  EXPECT_EQ(large->status().cached, 4U);
  EXPECT_EQ(small->status().cached, 2U);
  EXPECT_EQ(shrink(both, 100), 6U);
  EXPECT_EQ(shrink({}, 100), 0U);
}

TEST_F(LockService, AStateFileIsOneServersAndADamagedOneIsRefused) {
  start();
  cluster::LockServiceOptions second = options;
  second.lock.listen->path += "2";
  EXPECT_FALSE(cluster::LockService::create(second));
  service.reset();
  std::filesystem::resize_file(options.lock.state_file, 5);
  EXPECT_FALSE(cluster::LockService::create(options));
}

TEST(ConnectOptionsCheck, AnAddressHasAPort) {
  EXPECT_TRUE(check(to_address("localhost:10811")));
  for (const std::string server : {"", "localhost", ":1", "host:", "unix:"}) {
    EXPECT_FALSE(check(to_address(server))) << server;
  }
}

}  // namespace
}  // namespace weir::lock
