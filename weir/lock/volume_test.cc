// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/volume.h"

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace weir::lock {
namespace {

constexpr std::int64_t kLimit = 1000;
constexpr std::uint64_t kHalf = 18'000'000;

std::uint64_t dld(std::uint64_t volume, std::int64_t granted, std::int64_t plan,
                  std::int64_t speed = 0) {
  return next_volume(Preset::kDld, {.volume = volume, .plan = plan},
                     {.granted = granted, .grants = speed}, kLimit)
      .volume;
}

TEST(VolumeDld, HasTheGoldenValues) {
  EXPECT_EQ(dld(kHalf, 0, 50), 18'900'000U);
  EXPECT_EQ(dld(kHalf, 900, 905), 18'090'000U);
  EXPECT_EQ(dld(kHalf, 1100, 1095), 17'910'000U);
  EXPECT_EQ(dld(kHalf, 1100, 1095, 51), 8'955'000U);
  EXPECT_EQ(dld(kHalf, 1100, 1095, 50), 17'910'000U);
  EXPECT_EQ(dld(1, 0, 50), 2U);
}

TEST(VolumeDld, StartsAtItsMaximumWithAPlanOfFivePercent) {
  EXPECT_EQ(first_volume(Preset::kDld, kLimit), (Volume{.volume = 36'000'000, .plan = 50}));
}

TEST(VolumeDld, PlansFivePercentOfTheWayToTheLimit) {
  const PeriodCount count{.granted = 500};
  EXPECT_EQ(next_volume(Preset::kDld, {.volume = kHalf, .plan = 0}, count, kLimit).plan, 525);
}

TEST(VolumeDld, NeverFallsBelowOneNorRisesAboveItsMaximum) {
  EXPECT_EQ(dld(1, 5000, 0, 500), 1U);
  EXPECT_EQ(dld(36'000'000, 0, 50), 36'000'000U);
}

// The 32-bit integers of the document overflow for L >= 1194.
TEST(VolumeDld, DoesNotOverflowWhereTheDocumentDoes) {
  const Volume next =
      next_volume(Preset::kDld, {.volume = 200'000'000, .plan = 500}, {.granted = 0}, 10'000);
  EXPECT_EQ(next.volume, 210'000'000U);
}

struct Golden {
  std::int64_t granted;
  std::int64_t plan;
  std::uint64_t volume;
};

TEST(VolumeLustre, HasTheGoldenValues) {
  constexpr Golden kSteps[] = {{0, 10, 18'175'782},      {500, 505, 18'087'891},
                               {900, 901, 18'017'579},   {995, 995, 18'000'000},
                               {1000, 1000, 18'000'000}, {1100, 1099, 17'964'843},
                               {1500, 1250, 13'500'000}, {2500, 1250, 17'578}};
  for (const Golden& step : kSteps) {
    const Volume next = next_volume(Preset::kLustre, {.volume = kHalf, .plan = step.plan},
                                    {.granted = step.granted}, kLimit);
    EXPECT_EQ(next.volume, step.volume) << step.granted;
    EXPECT_EQ(next.plan, step.plan) << step.granted;
  }
}

TEST(VolumeLustre, PlansByTheLengthOfThePeriod) {
  constexpr std::int64_t kPercent[] = {1, 16, 23, 27, 29, 30};
  for (std::int64_t period = 0; period < 24; ++period) {
    EXPECT_EQ(lustre_plan_percent(period), kPercent[period / 4]) << period;
  }
  EXPECT_EQ(lustre_plan_percent(3600), 30);
}

TEST(VolumeLustre, GrowsFromOneToItsMaximumInSomeTwentyMinutes) {
  Volume volume{.volume = 1, .plan = 10};
  int steps = 0;
  while (volume.volume < volume_max(kLimit)) {
    volume = next_volume(Preset::kLustre, volume, {.granted = 0}, kLimit);
    ++steps;
  }
  EXPECT_NEAR(steps, 1373, 1);
}

TEST(VolumeWeir, StaysAtItsMaximumWhileThereIsRoom) {
  Volume volume = first_volume(Preset::kWeir, kLimit);
  for (std::int64_t granted = 0; granted < kLimit; granted += 99) {
    volume = next_volume(Preset::kWeir, volume, {.granted = granted, .grants = 99}, kLimit);
    EXPECT_EQ(volume.volume, volume_max(kLimit)) << granted;
  }
}

TEST(VolumeWeir, HalvesUntilItIsFeltFromWhereItCouldBind) {
  const Volume idle = first_volume(Preset::kWeir, kLimit);
  PeriodCount filling{.granted = 1100, .grants = 100};
  const Volume next = next_volume(Preset::kWeir, idle, filling, kLimit);
  EXPECT_EQ(next.volume, 1000U * 1000 / 100);  // L^2 / grants affects no client
  EXPECT_FALSE(next.is_felt);
  EXPECT_EQ(next_volume(Preset::kWeir, next, filling, kLimit).volume, next.volume / 2);
  filling.clients = 20;
  EXPECT_EQ(next_volume(Preset::kWeir, idle, filling, kLimit).volume, 4U * 1000 * 1000 / 20 / 100);
}

TEST(VolumeWeir, FollowsTheTrendOnceItIsFelt) {
  const Volume felt{.volume = kHalf, .plan = kLimit, .is_felt = true};
  const PeriodCount above{.granted = 1100, .grants = 10, .cancels = 10};
  EXPECT_EQ(next_volume(Preset::kWeir, felt, above, kLimit).volume, kHalf * 1000 / 1100);
  // Clients have received the volume and are dropping locks: wait for them.
  const PeriodCount falling{.granted = 1010, .grants = 10, .cancels = 20};
  EXPECT_EQ(next_volume(Preset::kWeir, felt, falling, kLimit).volume, kHalf);
}

TEST(VolumeWeir, RisesNoFasterThanClientsCanFollow) {
  const Volume felt{.volume = kHalf, .plan = kLimit, .is_felt = true};
  const PeriodCount idle{.granted = 950};
  EXPECT_EQ(next_volume(Preset::kWeir, felt, idle, kLimit).volume, kHalf);
  const PeriodCount busy{.granted = 950, .grants = 19, .cancels = 19};
  EXPECT_EQ(next_volume(Preset::kWeir, felt, busy, kLimit).volume, kHalf * 969 / 950);
}

TEST(VolumeWeir, ReturnsToItsMaximumWhenNothingIsHeld) {
  const Volume low{.volume = 7, .plan = kLimit, .is_felt = true};
  EXPECT_EQ(next_volume(Preset::kWeir, low, {.granted = 0}, kLimit).volume, volume_max(kLimit));
}

// A model that follows the square root of the volume at once: clients with this rate of new locks.
std::int64_t granted_at(std::uint64_t volume, std::int64_t grants, std::int64_t before) {
  const double wanted = std::sqrt(static_cast<double>(volume) * 40 * static_cast<double>(grants));
  return std::min(before + grants, static_cast<std::int64_t>(wanted));
}

RC_GTEST_PROP(VolumeWeirProperty, SettlesWithinTwoPercentWhateverTheRate, ()) {
  const std::int64_t limit = *rc::gen::inRange<std::int64_t>(1000, 1'000'000);
  const std::int64_t grants = limit / *rc::gen::inRange<std::int64_t>(5, 100);
  Volume volume = first_volume(Preset::kWeir, limit);
  std::int64_t granted = 0;
  for (int period = 0; period < 300; ++period) {
    const std::int64_t wall = limit + limit / 4;
    const std::int64_t next = std::min(granted_at(volume.volume, grants, granted), wall);
    const PeriodCount count{
        .granted = next, .grants = grants, .cancels = grants - (next - granted)};
    granted = next;
    volume = next_volume(Preset::kWeir, volume, count, limit);
  }
  RC_ASSERT(std::abs(granted - limit) * 50 <= limit);
}

RC_GTEST_PROP(VolumeProperty, EveryLawStaysWithinItsBoundsForAnyCounts, ()) {
  const Preset preset = *rc::gen::element(Preset::kDld, Preset::kLustre, Preset::kWeir);
  const std::int64_t limit = *rc::gen::inRange<std::int64_t>(1, kLimitMax);
  Volume volume = first_volume(preset, limit);
  for (int period = 0; period < 20; ++period) {
    const PeriodCount count{.granted = *rc::gen::inRange<std::int64_t>(0, 2 * kLimitMax),
                            .grants = *rc::gen::inRange<std::int64_t>(0, kLimitMax),
                            .cancels = *rc::gen::inRange<std::int64_t>(0, kLimitMax)};
    volume = next_volume(preset, volume, count, limit);
    RC_ASSERT(volume.volume >= 1U);
    RC_ASSERT(volume.volume <= volume_max(limit));
  }
}

TEST(Volume, PresetsHaveNames) {
  for (const Preset preset : kPresets) EXPECT_EQ(preset_by(preset_name(preset)), preset);
  EXPECT_EQ(preset_by("lustre "), std::nullopt);
}

}  // namespace
}  // namespace weir::lock
