// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/gateway.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/big_endian.h"

namespace weir::nfs {
namespace {

class GatewayTest : public testing::Test {
 protected:
  GatewayTest() : gateway_(serve::NfsOptions{}, {.address = {}, .size = 0, .text = "server"}) {}

  static SessionId session(std::uint64_t number) {
    SessionId id{};
    store_be(id.data(), number);
    return id;
  }
  static Nid client(std::uint64_t number) {
    return {.low = number, .net = NetType::kTcp, .family = AddressFamily::kIpv4};
  }

  // Of a read that has to wait.
  bool park(const SessionId& id, std::uint32_t uid) {
    ParkedCall call = of(id, uid);
    return gateway_.park(call, std::chrono::seconds{1}) == Parking::kParked;
  }
  void unpark(const SessionId& id, std::uint32_t uid) {
    ParkedCall call = of(id, uid);
    call.waits = true;
    gateway_.unpark(call, kNow);
  }
  static ParkedCall of(const SessionId& id, std::uint32_t uid) {
    return {.session = id, .uid = uid, .kind = OperationKind::kRead, .since = kNow};
  }

  static constexpr Instant kNow{std::chrono::seconds{1000}};
  Gateway gateway_;
};

TEST_F(GatewayTest, AnInventedSessionIsForgottenWithItsLastCall) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(park(session(i), 1));
    unpark(session(i), 1);
  }
  EXPECT_EQ(gateway_.session_count(), 0U);
  ASSERT_TRUE(park(session(1), 1));
  ASSERT_TRUE(park(session(1), 2));
  unpark(session(1), 1);
  EXPECT_EQ(gateway_.session_count(), 1U);
  EXPECT_EQ(gateway_.waiting(session(1)), 1U);
}

TEST_F(GatewayTest, ManyInventedSessionsDoNotMakeItForgetARealOne) {
  gateway_.set_slots(session(0), 8);
  for (std::uint64_t i = 1; i <= Gateway::kSessionsMax; ++i) {
    park(session(i), 1);
    unpark(session(i), 1);
  }
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(park(session(0), 1));
  EXPECT_FALSE(park(session(0), 1)) << "a quarter of 8, not of 64";
}

TEST_F(GatewayTest, CallsOfSessionsBeyondTheBoundAreNotParked) {
  for (std::uint64_t i = 0; i < Gateway::kSessionsMax; ++i) {
    ASSERT_TRUE(park(session(i), 1));
  }
  const SessionId another = session(Gateway::kSessionsMax);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(park(another, 1));
  }
  ParkedCall free = of(another, 1);
  EXPECT_EQ(gateway_.park(free, Nanoseconds{0}), Parking::kNotCounted) << "it does not wait";
  gateway_.set_slots(another, 8);
  EXPECT_EQ(gateway_.session_count(), Gateway::kSessionsMax);
  EXPECT_TRUE(park(session(5), 1)) << "those that it knows are";
  unpark(session(7), 1);
  EXPECT_TRUE(park(another, 1));
}

TEST_F(GatewayTest, IdleSessionsMakeRoomForNewOnes) {
  for (std::uint64_t i = 0; i < Gateway::kSessionsMax; ++i) gateway_.set_slots(session(i), 64);
  EXPECT_TRUE(park(session(Gateway::kSessionsMax), 1));
  EXPECT_EQ(gateway_.session_count(), 1U);
}

TEST_F(GatewayTest, MarksAreOfOneClientAndBounded) {
  using Mark = Gateway::Mark;
  EXPECT_TRUE(gateway_.mark(Mark::kLayouts, client(1)));
  EXPECT_FALSE(gateway_.mark(Mark::kLayouts, client(1)));
  EXPECT_TRUE(gateway_.mark(Mark::kTls, client(1)));
  EXPECT_TRUE(gateway_.mark(Mark::kLayouts, client(2)));
  EXPECT_FALSE(gateway_.has(Mark::kTls, client(2)));
  for (std::uint64_t i = 3; i < 3 + Gateway::kMarksMax; ++i) gateway_.mark(Mark::kTls, client(i));
  EXPECT_FALSE(gateway_.has(Mark::kLayouts, client(1))) << "the oldest are forgotten";
  EXPECT_TRUE(gateway_.has(Mark::kTls, client(2 + Gateway::kMarksMax)));
}

TEST_F(GatewayTest, OwnersAreRememberedWithTheirLastUserAndBounded) {
  const auto use = [&](const std::string& owner, std::uint64_t number) {
    return gateway_.other_user(std::as_bytes(std::span(owner)), client(number));
  };
  EXPECT_EQ(use("a", 1), std::nullopt);
  EXPECT_EQ(use("a", 1), std::nullopt);
  EXPECT_EQ(use("b", 2), std::nullopt);
  EXPECT_EQ(use("a", 2), client(1));
  EXPECT_EQ(use("a", 1), client(2));
  for (std::size_t i = 0; i < Gateway::kOwnersMax; ++i) use("owner " + std::to_string(i), 3);
  EXPECT_EQ(use("a", 4), std::nullopt);
}

// A client that always has a write of 1 MiB for each of its 64 slots, repeats a refused one after
// 0.11 s, and is limited to `rate` bytes a second.
class LimitedWriter {
 public:
  LimitedWriter(Gateway& gateway, std::uint64_t rate, Instant now)
      : gateway_(gateway),
        every_(Nanoseconds{std::int64_t{1'000'000'000} * kMiB / rate}),
        moves_at_(now + every_),
        freed_at_(now),
        due_(Gateway::kSlotsUnknown, now) {}

  void turn(Instant now) {
    while (!due_.empty() && due_.front() <= now) {
      due_.pop_front();
      ++sent;
      ParkedCall write{.kind = OperationKind::kWrite, .payload = kMiB, .since = now};
      if (gateway_.park(write, std::chrono::seconds{1}) == Parking::kParked) {
        parked_.push_back(write);
      } else {
        ++refused_;
      }
    }
    if (now >= moves_at_ && !parked_.empty()) {
      moves_at_ += every_;
      gateway_.unpark(parked_.front(), now);
      parked_.pop_front();
      ++done;
      free(now, now);
    }
    while (refused_ > 0 && gateway_.refuse_write(SessionId{}, kMiB, now) <= now) {
      --refused_;
      free(now, now + std::chrono::milliseconds{110});
    }
  }

  std::uint64_t sent = 0;
  std::uint64_t done = 0;
  Nanoseconds longest{0};  // between two times at which a slot was free

 private:
  static constexpr std::int64_t kMiB = 1 << 20;

  void free(Instant now, Instant due) {
    longest = std::max(longest, now - freed_at_);
    freed_at_ = now;
    due_.insert(std::ranges::upper_bound(due_, due), due);
  }

  Gateway& gateway_;
  Nanoseconds every_;
  Instant moves_at_;
  Instant freed_at_;
  std::deque<Instant> due_;  // when the client sends what is not in the gateway
  std::deque<ParkedCall> parked_;
  std::uint32_t refused_ = 0;  // and not answered yet
};

TEST_F(GatewayTest, ALimitedWriterSendsItsDataLessThanThreeTimes) {
  for (const auto& [rate, most] :
       {std::pair{10'000'000, 1.6}, std::pair{100'000'000, 1.6}, std::pair{1'000'000, 9.5}}) {
    Gateway gateway({}, {.address = {}, .size = 0, .text = "server"});
    LimitedWriter writer(gateway, static_cast<std::uint64_t>(rate), kNow);
    Instant now = kNow;
    for (; now < kNow + std::chrono::seconds{6}; now += std::chrono::milliseconds{1}) {
      writer.turn(now);
    }
    // All slots are taken from the beginning.
    const double since_start = static_cast<double>(writer.sent) / static_cast<double>(writer.done);
    if (rate >= 10'000'000) {
      EXPECT_LT(since_start, 2.7) << rate;
    }
    const std::uint64_t sent = std::exchange(writer.sent, 0);
    EXPECT_GT(sent, 64U);
    writer.done = 0;
    for (; now < kNow + std::chrono::seconds{60}; now += std::chrono::milliseconds{1}) {
      writer.turn(now);
    }
    EXPECT_LT(static_cast<double>(writer.sent), most * static_cast<double>(writer.done)) << rate;
    EXPECT_LE(writer.longest, Gateway::kSlotEvery + std::chrono::milliseconds{2}) << rate;
  }
}

// Sessions of all loops use one gateway; also run under the thread sanitizer.
TEST_F(GatewayTest, LoopsShareItsSlotsAndItsMemory) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kSlots = 8;
  constexpr int kRounds = 500;
  gateway_.set_slots(session(1), kSlots);
  std::atomic<std::uint32_t> parked = 0;
  std::atomic<int> is_new = 0;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const std::array handle{std::byte(i)};
      for (int round = 0; round < kRounds; ++round) {
        const auto number = static_cast<std::uint64_t>(round);
        if (park(session(1), i)) {
          EXPECT_LE(++parked, kSlots / 2);
          --parked;
          unpark(session(1), i);
        }
        gateway_.set_lease(std::chrono::seconds{10 + i});
        is_new += gateway_.mark(Gateway::Mark::kTls, client(number));
        EXPECT_TRUE(gateway_.has(Gateway::Mark::kTls, client(number)));
        gateway_.recall(client(i), handle, instant_at(1));
        EXPECT_TRUE(gateway_.is_recalled(client(i), handle, instant_at(0)));
        gateway_.returned(client(i), handle);
        EXPECT_FALSE(gateway_.is_recalled(client(i), handle, instant_at(0)));
        gateway_.other_user(handle, client(i));
        EXPECT_GE(gateway_.wait_max(), std::chrono::seconds{0});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(is_new, kRounds) << "one thread marks each";
  EXPECT_EQ(gateway_.waiting(session(1)), 0U);
  EXPECT_EQ(gateway_.session_count(), 1U);
  EXPECT_EQ(gateway_.counters().recalls, kThreads * kRounds);
}

}  // namespace
}  // namespace weir::nfs
