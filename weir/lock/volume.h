// SPDX-License-Identifier: Apache-2.0
//
// The server lock volume (SLV): one number that controls every client's cache of locks. A client
// drops an unused lock when its own volume, locks in the cache times seconds since last use,
// exceeds it. So a small volume shrinks all caches, busy and idle ones by the same rule, and the
// server needs to know only how many locks are granted.
//
//              volume, limit (on every message)
//      server ----------------------------------> clients   keep  locks * age <= volume
//        ^                                           |
//        +---- granted G, grants and cancels of T ---+
//
// Three laws adjust it, once per period T:
//
//   dld      the document of 2007, with corrected arithmetic:  SLV * (L - (G - GP)) / L, halved
//            when grants exceed cancels by more than 5 % of L. GP was planned a period before
//   lustre   the law of current Lustre: the same in 1/1024ths, a slower plan, no halving
//   weir     no client loses a lock while there is room; then the volume at which G equals L.
//            In equilibrium G grows with the square root of the volume, so that is
//            SLV * (L / G')^2 with the expected next value G'; and it rises no faster than clients
//            can fill their caches, which avoids the oscillation of the other two
//
// Example: L 1000, SLV 18,000,000, G 900, GP 905 -> dld K = 1005, SLV 18,090,000.
//          weir: G 1100, 10 granted and 10 cancelled -> 18,000,000 * (1000 / 1100)^2 = 14,876,032.
//
// Plain functions on integers; products in 128 bits, so that the volume can change by any step.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace weir::lock {

enum class Preset : std::uint8_t { kDld, kLustre, kWeir };

inline constexpr Preset kPresets[] = {Preset::kDld, Preset::kLustre, Preset::kWeir};

std::string_view preset_name(Preset preset);
std::optional<Preset> preset_by(std::string_view name);

// One client may keep every lock for ten hours.
inline constexpr std::uint64_t kVolumePerLock = 36'000;
// Leaves the largest volume, and twice any count, within 63 bits.
inline constexpr std::int64_t kLimitMax = std::int64_t{1} << 40;

constexpr std::uint64_t volume_max(std::int64_t limit) {
  return static_cast<std::uint64_t>(limit) * kVolumePerLock;
}

struct Volume {
  std::uint64_t volume = 1;  // 1 to volume_max(limit)
  std::int64_t plan = 0;     // GP: granted locks wanted at the end of this period
  bool is_felt = false;      // weir: clients have cancelled locks because of it

  bool operator==(const Volume&) const = default;
};

// The counts of a period.
struct PeriodCount {
  std::int64_t granted = 0;  // G, at its end
  std::int64_t grants = 0;   // GR
  std::int64_t cancels = 0;  // CR
  std::int64_t clients = 0;  // clients with a grant; 0: not counted

  std::int64_t speed() const { return grants - cancels; }  // GS
};

// Tunables of the two older laws, in percent.
struct VolumeTuning {
  std::int64_t plan_percent = 5;  // dld: fraction of the distance to L planned for the next period
  std::int64_t speed_limit_percent = 5;  // dld: of L; above it the volume is halved
  std::int64_t period_s = 1;             // lustre: its plan depends on it

  bool operator==(const VolumeTuning&) const = default;
};

// Lustre's plan: the fraction of the distance to L, in percent, for a period of so many seconds.
std::int64_t lustre_plan_percent(std::int64_t period_s);

// REQUIRES: 1 <= limit <= kLimitMax.
Volume first_volume(Preset preset, std::int64_t limit);
// REQUIRES: the same, and counts within twice kLimitMax.
Volume next_volume(Preset preset, Volume before, const PeriodCount& count, std::int64_t limit,
                   const VolumeTuning& tuning = {});

}  // namespace weir::lock
