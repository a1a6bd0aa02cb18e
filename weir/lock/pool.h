// SPDX-License-Identifier: Apache-2.0
//
// The server's side of lock volume: counts granted locks, and once per period adjusts the volume
// that every message carries, by the law of its preset (volume.h).
//
//   grant or replay -> add()       cancel -> del()          counters, no common lock
//   recalc(now)                    once per period
//   volume(), limit()              for the next messages
//
// add(), del() and the reading functions are thread-safe: a count that changes during a
// recalculation is seen by the next one. recalc(), set_limit(), shrink(), relieve() and the start
// and end of recovery belong to one owner.
//
// Recovery. After a restart, holders replay their locks to the server. These count like grants, but
// are not demand: until recovery ends the volume stays at its maximum and no period is counted. (In
// the design document of 2007 the emergency brake acts here and clients lose locks.)
//
// Room. Preset weir grants at most a quarter above the limit: has_room() is then false and further
// enqueues wait. At least one above the limit is allowed even for the smallest limit: if the count
// never exceeded the limit, the volume would not fall, and cached locks would block all others. The
// other presets have no such bound, as in the originals.
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
  // REQUIRES: more add() than del() calls so far.
  void del() {
    granted_.fetch_sub(1, std::memory_order_relaxed);
    cancels_.fetch_add(1, std::memory_order_relaxed);
  }
  std::int64_t granted() const { return granted_.load(std::memory_order_relaxed); }
  std::uint64_t volume() const { return volume_.load(std::memory_order_relaxed); }
  std::int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  // Maximum number of granted locks: INT64_MAX without a bound.
  std::int64_t room() const {
    if (preset_ != Preset::kWeir) return INT64_MAX;
    return limit() + std::max<std::int64_t>(1, limit() / 4);
  }
  bool has_room() const { return granted() < room(); }

  // ---- the owner ----
  // Adjusts the volume if a period has passed, and returns whether it did. `clients` is the number
  // of clients with a grant in this period; 0 if not counted.
  bool recalc(Instant now, std::int64_t clients = 0);
  Instant next_recalc() const { return next_recalc_; }
  // Rejects 0 and values out of range. A limit below the number of granted locks lowers the volume
  // from the next period on; no lock is revoked at once.
  Result<void> set_limit(std::int64_t limit);
  // Takes effect in the next period. Rejects values out of range.
  Result<void> set_period(Nanoseconds period);
  // The server is short of memory: lowers the volume by this amount, at least to 1. A server has no
  // cache of its own to reduce.
  void shrink(std::uint64_t nr);
  // The same without an amount. The volume falls by kReliefPercent; if it is so high that it
  // affects no client, it falls to a value at which an average client, of so many, keeps an unused
  // lock for kReliefAge. For kReliefTime the law may lower it further but not raise it. Does
  // nothing while recovering.
  void relieve(Instant now, std::int64_t clients);
  void begin_recovery();
  void end_recovery(Instant now);

  static constexpr std::uint64_t kReliefPercent =
      30;  // the same fraction that a client drops of its cache
  static constexpr std::uint64_t kReliefAge = 600;  // seconds
  static constexpr Nanoseconds kReliefTime = std::chrono::seconds{10};

  Preset preset() const { return preset_; }
  Nanoseconds period() const { return period_; }
  // GSP: the fraction of the distance to the limit, in percent, planned for the next period.
  std::int64_t plan_percent() const;
  // Since the start.
  std::int64_t grants() const { return grants_.load(std::memory_order_relaxed); }
  std::int64_t cancels() const { return cancels_.load(std::memory_order_relaxed); }
  std::int64_t plan() const { return state_.plan; }
  // Of the last counted period, per second.
  std::int64_t grant_rate() const { return per_second(last_.grants); }
  std::int64_t cancel_rate() const { return per_second(last_.cancels); }
  std::int64_t grant_speed() const { return per_second(last_.speed()); }

  // Lustre's parameter `state`, byte for byte. The values of clients, CLV and the factor in
  // percent, are arguments.
  std::string state_text(std::string_view name, std::uint64_t client_volume,
                         std::string_view factor) const;

 private:
  std::int64_t per_second(std::int64_t count) const;

  Preset preset_;
  Nanoseconds period_;
  VolumeTuning tuning_;
  std::atomic<std::int64_t> granted_{0};
  std::atomic<std::int64_t> grants_{
      0};  // since the start; a period is the difference of two readings
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
