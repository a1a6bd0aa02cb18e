// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/store.h"

#include <gtest/gtest.h>

namespace weir::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Instant at(Nanoseconds time) { return Instant{time}; }

double mean_ms(const ServiceTime& service) {
  Rng rng(1);
  constexpr int kDraws = 100'000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    sum += static_cast<double>(service.draw(Bytes{4096}, rng).count()) / 1e6;
  }
  return sum / kDraws;
}

TEST(ServiceTime, IsDrawnAroundItsMean) {
  using Kind = ServiceTime::Kind;
  EXPECT_DOUBLE_EQ(mean_ms({.kind = Kind::kConstant, .base = milliseconds{16}}), 16);
  EXPECT_NEAR(mean_ms({.kind = Kind::kUniform, .base = milliseconds{16}}), 16, 0.02);
  EXPECT_NEAR(mean_ms({.kind = Kind::kExponential, .base = milliseconds{16}}), 16, 0.2);
}

TEST(ServiceTime, StaysWithinItsSpread) {
  const ServiceTime service{
      .kind = ServiceTime::Kind::kUniform, .base = milliseconds{10}, .spread_permille = 100};
  Rng rng(2);
  for (int i = 0; i < 10'000; ++i) {
    const Nanoseconds time = service.draw(Bytes{1}, rng);
    EXPECT_GE(time, milliseconds{9});
    EXPECT_LE(time, milliseconds{11});
  }
}

TEST(ServiceTime, GrowsWithTheSize) {
  const ServiceTime service{.base = milliseconds{1}, .per_mib = milliseconds{8}};
  Rng rng(1);
  EXPECT_EQ(service.draw(Bytes{1 << 20}, rng), milliseconds{9});
  EXPECT_EQ(service.draw(Bytes{1 << 19}, rng), milliseconds{5});
}

TEST(Store, IsSlowWhileItIsSlowedDown) {
  const StoreSpec spec{.service = {.base = milliseconds{10}},
                       .disturbances = {{seconds{1}, seconds{1}, 300}}};
  Store store(spec, Rng(1));
  EXPECT_EQ(store.finish(at(milliseconds{999}), Bytes{1}), at(milliseconds{1009}));
  EXPECT_EQ(store.finish(at(milliseconds{1000}), Bytes{1}), at(milliseconds{1030}));
  EXPECT_EQ(store.finish(at(milliseconds{2000}), Bytes{1}), at(milliseconds{2010}));
}

TEST(Store, StandsStillInAStallAndGoesOnWhereItStopped) {
  const StoreSpec spec{.service = {.base = milliseconds{10}},
                       .disturbances = {{seconds{1}, seconds{2}, Disturbance::kStall},
                                        {milliseconds{3004}, seconds{1}, Disturbance::kStall}}};
  Store store(spec, Rng(1));
  EXPECT_EQ(store.finish(at(milliseconds{990}), Bytes{1}), at(milliseconds{1000}));
  // 6 ms before the first, 4 ms after it, and then it is done.
  EXPECT_EQ(store.finish(at(milliseconds{994}), Bytes{1}), at(milliseconds{3004}));
  // 4 ms before the first, 4 ms between them, 2 ms after the second.
  EXPECT_EQ(store.finish(at(milliseconds{996}), Bytes{1}), at(milliseconds{4006}));
  // Started within one.
  EXPECT_EQ(store.finish(at(milliseconds{3500}), Bytes{1}), at(milliseconds{4014}));
}

}  // namespace
}  // namespace weir::sim
