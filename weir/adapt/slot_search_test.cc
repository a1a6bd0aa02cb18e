// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/slot_search.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A device with channels and an endless backlog in front of it: every free slot is used at once.
class Device {
 public:
  Device(SlotSearch& search, std::uint32_t channels, Nanoseconds service,
         std::uint32_t spread_permille = 100)
      : search_(search), service_(service), spread_(spread_permille) {
    set_channels(channels);
    search_.saturated(true, now_);
  }

  void set_channels(std::uint32_t channels) {
    free_ = {};
    for (std::uint32_t i = 0; i < channels; ++i) free_.push(now_);
  }

  // Completed requests.
  std::uint64_t run(Nanoseconds time) {
    const Instant end = now_ + time;
    std::uint64_t done = 0;
    fill();
    while (!running_.empty() && running_.top().end <= end) {
      const Running first = running_.top();
      running_.pop();
      now_ = first.end;
      search_.complete(first.end - first.start, Tokens{1}, now_);
      ++done;
      fill();
    }
    now_ = end;
    return done;
  }

 private:
  struct Running {
    Instant start;
    Instant end;
    bool operator>(const Running& other) const { return end > other.end; }
  };

  void fill() {
    while (running_.size() < search_.slots()) {
      const std::int64_t spread = service_.count() * spread_ / 1000;
      const Nanoseconds time{rng_.between(service_.count() - spread, service_.count() + spread)};
      const Instant end = std::max(free_.top(), now_) + time;
      free_.pop();
      free_.push(end);
      running_.push({now_, end});
    }
  }

  SlotSearch& search_;
  Nanoseconds service_;
  std::uint32_t spread_;
  Instant now_{};
  Rng rng_{1};
  std::priority_queue<Instant, std::vector<Instant>, std::greater<>> free_;  // of each channel
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
};

// 99 % of the channels suffice; two more at most are within the tenth that latencies may grow.
void expect_near(const SlotSearch& search, std::uint32_t channels) {
  EXPECT_GE(search.slots() * 100, channels * 98) << channels;
  EXPECT_LE(search.slots() * 100, channels * 105 + 99) << channels;
}

TEST(SlotSearch, FindsTheChannelsOfADevice) {
  for (const std::uint32_t channels : {1U, 2U, 3U, 8U, 16U, 33U, 64U, 256U}) {
    SlotSearch search({});
    Device device(search, channels, milliseconds{channels < 32 ? 1 : 4});
    device.run(seconds{5});
    while (search.is_probing()) device.run(milliseconds{1});
    expect_near(search, channels);
  }
}

TEST(SlotSearch, KeepsWhatItFoundAndProbesLittle) {
  SlotSearch search({});
  Device device(search, 64, milliseconds{4});
  device.run(seconds{5});
  EXPECT_TRUE(search.is_settled());
  const std::uint64_t done = device.run(seconds{20});
  EXPECT_GE(done, 64U * 250 * 20 * 98 / 100);
  expect_near(search, 64);
}

TEST(SlotSearch, FollowsADeviceThatChanges) {
  SlotSearch search({});
  Device device(search, 16, milliseconds{2});
  device.run(seconds{5});
  for (const std::uint32_t channels : {64U, 256U, 16U, 1U, 32U}) {
    device.set_channels(channels);
    device.run(seconds{5});
    while (search.is_probing()) device.run(milliseconds{1});
    expect_near(search, channels);
  }
}

}  // namespace
}  // namespace weir
