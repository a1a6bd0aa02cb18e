// SPDX-License-Identifier: Apache-2.0
//
// The server's side of lock volume: counts granted locks, and once per period adjusts the volume
// that every message carries, by the law of its preset (volume.h).
//
//   grant or replay -> add()       cancel -> del()          counters, no common lock
//   recalc(now)                    once per period
//   volume(), limit()              for the next messages
//
// add(), del() and the reading functions may be called by any thread: a count that moves during a
// recalculation is seen by the next one. recalc(), set_limit(), shrink(), relieve() and the two
// ends of recovery belong to one owner.
//
// Recovery. After a restart, holders replay their locks to the server. These count like
// grants, but do not show demand: until recovery ends the volume stays at its maximum and
// no period is counted. (In the document the emergency brake acts here and clients lose
// locks.)
//
// Room. Preset weir grants at most a quarter above the limit: has_room() says no and further
// enqueues wait. One above it is allowed even for the smallest limit: if the count never exceeded
// the limit, the volume would not fall, and cached locks would block all others. The other presets
// have no such bound, as in the originals.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lock/volume.h"

namespace weir::lock {

struct PoolOptions {
  Preset preset = Preset::kWeir;
  std::int64_t limit = 100'000;
  Nanoseconds period = std::chrono::seconds{1};
  VolumeTuning tuning{};

  bool operator==(const PoolOptions&) const = default;
};

Result<void> check(const PoolOptions& options);

class ServerPool {
 public:
  // REQUIRES: check(options).
  ServerPool(const PoolOptions& options, Instant now);

  // ---- any thread ----
  void add() {
    granted_.fetch_add(1, std::memory_order_relaxed);
    grants_.fetch_add(1, std::memory_order_relaxed);
  }
  // REQUIRES: add() was called once more than del().
  void del() {
    granted_.fetch_sub(1, std::memory_order_relaxed);
    cancels_.fetch_add(1, std::memory_order_relaxed);
  }
  std::int64_t granted() const { return granted_.load(std::memory_order_relaxed); }
  std::uint64_t volume() const { return volume_.load(std::memory_order_relaxed); }
  std::int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // Most that may be granted at a time: INT64_MAX where there is no wall.
  std::int64_t room() const {
    if (preset_ != Preset::kWeir) return INT64_MAX;
    return limit() + std::max<std::int64_t>(1, limit() / 4);
  }
  bool has_room() const { return granted() < room(); }

  // ---- the owner ----
  // Moves the volume if a period has passed, and says whether it did. `clients` were granted
  // something in it; 0 if nobody counts them.
  bool recalc(Instant now, std::int64_t clients = 0);
  Instant next_recalc() const { return next_recalc_; }
  // Refuses 0 and what is out of range. A limit below what is granted lowers the volume from the
  // next period on; nothing is taken back at once.
  Result<void> set_limit(std::int64_t limit);
  // From the next period on. Refuses what is out of range.
  Result<void> set_period(Nanoseconds period);
  // The server is short of memory: the volume falls by so much, at most to 1. A server has no
  // cache of its own to cut.
  void shrink(std::uint64_t nr);
  // The same where nobody says how much. The volume falls by kReliefPercent, and one that no client
  // feels falls to where it is felt: an average client, of so many, keeps an unused lock for
  // kReliefAge. For kReliefTime the law may lower it further but not raise it. Nothing while
  // recovering.
  void relieve(Instant now, std::int64_t clients);
  void begin_recovery();
  void end_recovery(Instant now);

  static constexpr std::uint64_t kReliefPercent = 30;  // as a client drops of its cache
  static constexpr std::uint64_t kReliefAge = 600;     // seconds
  static constexpr Nanoseconds kReliefTime = std::chrono::seconds{10};

  Preset preset() const { return preset_; }
  Nanoseconds period() const { return period_; }
  // GSP: the share of the way to the limit, in percent, that the next period shall go.
  std::int64_t plan_percent() const;
  // Ever.
  std::int64_t grants() const { return grants_.load(std::memory_order_relaxed); }
  std::int64_t cancels() const { return cancels_.load(std::memory_order_relaxed); }
  std::int64_t plan() const { return state_.plan; }
  // Of the last period that was counted, a second.
  std::int64_t grant_rate() const { return per_second(last_.grants); }
  std::int64_t cancel_rate() const { return per_second(last_.cancels); }
  std::int64_t grant_speed() const { return per_second(last_.speed()); }

  // As Lustre's parameter `state` shows it, byte for byte. What it shows of clients, CLV and the
  // factor in percent, is given.
  std::string state_text(std::string_view name, std::uint64_t client_volume,
                         std::string_view factor) const;

 private:
  std::int64_t per_second(std::int64_t count) const;

  Preset preset_;
  Nanoseconds period_;
  VolumeTuning tuning_;
  std::atomic<std::int64_t> granted_{0};
  std::atomic<std::int64_t> grants_{0};  // ever; a period is a difference of two readings
  std::atomic<std::int64_t> cancels_{0};
  std::atomic<std::uint64_t> volume_{0};
  std::atomic<std::int64_t> limit_{0};
  Volume state_;
  PeriodCount last_;
  std::int64_t grants_seen_ = 0;
  std::int64_t cancels_seen_ = 0;
  Instant counted_from_;
  Instant next_recalc_;
  Nanoseconds last_length_;
  Instant relieved_until_{};
  bool is_recovering_ = false;
};

}  // namespace weir::lock
