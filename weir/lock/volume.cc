// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/volume.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir::lock {
namespace {

using Wide = unsigned __int128;

enum class Rounding : std::uint8_t { kUp, kDown };

std::uint64_t scaled(std::uint64_t volume, std::int64_t by, std::int64_t over, Rounding rounding) {
  Wide product = Wide{volume} * static_cast<std::uint64_t>(by);
  if (rounding == Rounding::kUp) product += static_cast<std::uint64_t>(over) - 1;
  const Wide quotient = product / static_cast<std::uint64_t>(over);
  return static_cast<std::uint64_t>(std::min<Wide>(quotient, UINT64_MAX));
}

std::uint64_t within(std::uint64_t volume, std::int64_t limit) {
  return std::clamp<std::uint64_t>(volume, 1, volume_max(limit));
}

// K of the document: L minus the grants beyond the plan.
std::int64_t head_room(const Volume& before, const PeriodCount& count, std::int64_t limit) {
  return std::max<std::int64_t>(1, limit - (count.granted - before.plan));
}

Volume next_dld(const Volume& before, const PeriodCount& count, std::int64_t limit,
                const VolumeTuning& tuning) {
  const std::int64_t room = head_room(before, count, limit);
  std::uint64_t volume =
      scaled(before.volume, room, limit, room > limit ? Rounding::kUp : Rounding::kDown);
  if (count.speed() > limit * tuning.speed_limit_percent / 100) volume /= 2;
  return {.volume = within(volume, limit),
          .plan = count.granted + (limit - count.granted) * tuning.plan_percent / 100};
}

Volume next_lustre(const Volume& before, const PeriodCount& count, std::int64_t limit,
                   const VolumeTuning& tuning) {
  constexpr std::int64_t kUnit = 1024;
  const auto factor = static_cast<std::int64_t>(
      static_cast<__int128>(head_room(before, count, limit)) * kUnit / limit);
  const Rounding rounding = count.granted < limit ? Rounding::kUp : Rounding::kDown;
  const std::int64_t step = (limit - count.granted) * lustre_plan_percent(tuning.period_s) / 100;
  return {.volume = within(scaled(before.volume, factor, kUnit, rounding), limit),
          .plan = std::min(count.granted + step, limit * 5 / 4)};
}

// ---- Weir's own ----

// Number of periods by which the trend of G is extrapolated. Clients receive a volume only with
// their next message; a law based on G alone would lower it repeatedly until then.
constexpr std::int64_t kAhead = 1;
// A period lowers the volume at most to a quarter, which at most halves G.
constexpr std::uint64_t kFallMax = 4;
constexpr std::uint64_t kRiseMax = 2;
// Within this fraction of L below L the volume is controlled; further below it only grows.
constexpr std::int64_t kBand = 8;

// n clients that share the traffic evenly hold sqrt(n * grants * volume) locks together, and fewer
// if unevenly: the volume at which that is L is at least L^2 / (n * grants), and n times as much if
// one client has all the traffic. Four times the minimum is enough for all usual mixtures; if n is
// unknown, 1 is used.
std::uint64_t binding_volume(std::uint64_t volume, const PeriodCount& count, std::int64_t limit) {
  if (count.grants <= 0) return volume;
  const auto wide_limit = static_cast<Wide>(limit);
  const auto clients = static_cast<std::uint64_t>(std::max<std::int64_t>(4, count.clients));
  const Wide bound =
      4 * wide_limit * wide_limit / (Wide{clients} * static_cast<std::uint64_t>(count.grants));
  return static_cast<std::uint64_t>(std::min<Wide>(volume, bound));
}

// Too many locks are granted, or soon will be. Until clients react to the volume it is unknown how
// much too high it is, and halving it finds out; then G follows its square root, and half the step
// in G is the same step in the volume.
std::uint64_t lowered(const Volume& before, const PeriodCount& count, std::int64_t limit,
                      std::int64_t ahead) {
  if (!before.is_felt && count.granted > limit) {
    return std::min(binding_volume(before.volume, count, limit), before.volume / 2);
  }
  return std::max(scaled(before.volume, limit, ahead, Rounding::kDown), before.volume / kFallMax);
}

// A volume raised by a fraction e lets G grow by e / 2, and G can grow by what is cancelled in a
// period: e is at most cancels / G. Without cancels no client is limited, and there is nothing
// to raise.
std::uint64_t raised(std::uint64_t volume, const PeriodCount& count, std::int64_t limit,
                     std::int64_t ahead) {
  const std::uint64_t wanted = scaled(volume, limit, ahead, Rounding::kUp);
  const std::int64_t granted = std::max<std::int64_t>(1, count.granted);
  const std::uint64_t most =
      scaled(volume, granted + std::max<std::int64_t>(0, std::min(count.cancels, count.grants)),
             granted, Rounding::kUp);
  return std::min({wanted, most, volume * kRiseMax});
}

Volume next_weir(const Volume& before, const PeriodCount& count, std::int64_t limit) {
  const std::uint64_t most = volume_max(limit);
  const std::int64_t trend = std::clamp(kAhead * count.speed(), -limit / 8, limit / 8);
  const std::int64_t ahead = std::max<std::int64_t>(1, count.granted + trend);
  Volume next = before;
  next.plan = limit;
  if (count.cancels > 0 && 2 * count.cancels >= count.grants) next.is_felt = true;
  if (count.granted == 0 || (before.volume == most && count.granted < limit)) {
    next.volume = most;
  } else if (count.granted <= limit - limit / kBand) {
    // There is room; unless it is about to be filled, in which case this volume is right.
    if (ahead <= limit) next.volume *= kRiseMax;
    if (next.volume >= most) next.is_felt = false;
  } else if (ahead > limit) {
    next.volume = lowered(next, count, limit, ahead);
  } else {
    next.volume = raised(before.volume, count, limit, ahead);
  }
  next.volume = within(next.volume, limit);
  return next;
}

}  // namespace

std::string_view preset_name(Preset preset) {
  switch (preset) {
    case Preset::kDld:
      return "dld";
    case Preset::kLustre:
      return "lustre";
    case Preset::kWeir:
      break;
  }
  return "weir";
}

std::optional<Preset> preset_by(std::string_view name) {
  for (const Preset preset : kPresets) {
    if (preset_name(preset) == name) return preset;
  }
  return std::nullopt;
}

std::int64_t lustre_plan_percent(std::int64_t period_s) {
  constexpr std::int64_t kMost = 30;
  const std::int64_t steps = std::clamp<std::int64_t>(period_s, 0, 63) >> 2;
  return kMost - ((kMost - 1) >> steps);
}

Volume first_volume(Preset preset, std::int64_t limit) {
  WEIR_ASSERT(limit >= 1 && limit <= kLimitMax, limit);
  std::int64_t plan = limit;
  if (preset == Preset::kDld) plan = limit * 5 / 100;
  if (preset == Preset::kLustre) plan = limit * 30 / 100;
  return {.volume = volume_max(limit), .plan = plan};
}

Volume next_volume(Preset preset, Volume before, const PeriodCount& count, std::int64_t limit,
                   const VolumeTuning& tuning) {
  WEIR_ASSERT(limit >= 1 && limit <= kLimitMax, limit);
  WEIR_ASSERT(count.granted >= 0 && count.granted <= 2 * kLimitMax, count.granted);
  switch (preset) {
    case Preset::kDld:
      return next_dld(before, count, limit, tuning);
    case Preset::kLustre:
      return next_lustre(before, count, limit, tuning);
    case Preset::kWeir:
      break;
  }
  return next_weir(before, count, limit);
}

}  // namespace weir::lock
