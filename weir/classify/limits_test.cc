// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/limits.h"

#include <gtest/gtest.h>

#include "weir/base/units.h"

namespace weir {
namespace {

TEST(Cost, OfOperationsBytesAndBoth) {
  const auto cost = [](Cost kind, std::uint64_t bytes) { return kind.of(Bytes{bytes}).count(); };
  EXPECT_EQ(cost(Cost::op(), 0), 1U);
  EXPECT_EQ(cost(Cost::op(), 1 << 20), 1U);
  EXPECT_EQ(cost(Cost::bytes(), 4096), 4096U);
  EXPECT_EQ(cost(Cost::affine(10, 3), 0), 10U);
  EXPECT_EQ(cost(Cost::affine(10, 3), 1024), 13U);
  EXPECT_EQ(cost(Cost::affine(10, 3), 4096), 22U);
  // 3 tokens a KiB are 0.003 tokens for one byte: rounded up.
  EXPECT_EQ(cost(Cost::affine(10, 3), 1), 11U);
  EXPECT_EQ(cost(Cost::affine(0, 1), 1025), 2U);
}

TEST(Cost, IsNeverZeroAndNeverWraps) {
  EXPECT_EQ(Cost::bytes().of(Bytes{0}).count(), 1U);
  EXPECT_EQ(Cost::affine(0, 5).of(Bytes{0}).count(), 1U);
  EXPECT_EQ(Cost::affine(UINT32_MAX, UINT32_MAX).of(Bytes{UINT64_MAX}).count(), UINT64_MAX);
  EXPECT_EQ(Cost::affine(UINT32_MAX, 0).of(Bytes{UINT64_MAX}).count(), UINT32_MAX);
}

TEST(Cost, IsPrintedAsCommandsWriteIt) {
  EXPECT_EQ(Cost::op().print(), "op");
  EXPECT_EQ(Cost::bytes().print(), "bytes");
  EXPECT_EQ(Cost::affine(1, 2).print(), "affine:1:2");
}

TEST(Limits, RateInForce) {
  Limits limits;
  EXPECT_EQ(limits.rate_in_force(), 10'000U);
  limits.bps = Rate::per_second(1000);
  EXPECT_EQ(limits.rate_in_force(), 0U);
  limits.rate = 7;
  EXPECT_EQ(limits.rate_in_force(), 7U);
}

TEST(Limits, BurstsNeedTheirRate) {
  Limits limits;
  limits.burst_ops = Tokens{9};
  EXPECT_TRUE(limits.check());
  limits.bps = parse_bandwidth("1MiB").value();
  EXPECT_FALSE(limits.check());
  limits.rate = 5;
  EXPECT_TRUE(limits.check());
  limits.burst_bytes = Bytes{4096};
  EXPECT_TRUE(limits.check());
  limits.bps.reset();
  EXPECT_EQ(limits.check().error().code, std::errc::invalid_argument);
}

TEST(Limits, AReservationIsWithinTheLimits) {
  Limits limits;
  limits.reserve = Reserve{Rate::per_second(10'000)};
  EXPECT_TRUE(limits.check()) << "the default rate";
  limits.reserve = Reserve{Rate::per_second(10'001)};
  EXPECT_EQ(limits.check().error().message(),
            "reserve=10001 is above rate=10000; give a smaller reserve= or a larger rate=");
  limits.bps = parse_bandwidth("1MiB").value();
  EXPECT_TRUE(limits.check()) << "only bytes are limited";
  limits.reserve = Reserve{parse_bandwidth("2MiB").value(), true};
  EXPECT_EQ(limits.check().error().message(),
            "reserve=2MiB/s is above bps=1MiB/s; give a smaller reserve= or a larger bps=");
  limits.reserve->rate = *limits.bps;
  EXPECT_TRUE(limits.check());
  limits.scope = Scope::kCluster;
  EXPECT_TRUE(limits.check());
  limits.reserve = Reserve{Rate::per_second(5)};
  EXPECT_EQ(limits.check().error().message(),
            "a reservation of a cluster is divided as its limit is, and there is no limit in its "
            "unit; add rate=");
  limits.rate = 5;
  EXPECT_TRUE(limits.check());
}

TEST(Limits, ABurstMustFillWithinAHundredYears) {
  Limits limits;
  limits.bps = parse_bandwidth("1B/d").value();
  limits.burst_bytes = Bytes{36'500};
  EXPECT_TRUE(limits.check());
  limits.burst_bytes = Bytes{36'501};
  EXPECT_FALSE(limits.check());
}

}  // namespace
}  // namespace weir
