// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/pool.h"

#include <algorithm>

#include <fmt/format.h>

#include "weir/base/assert.h"

namespace weir::lock {
namespace {

constexpr Nanoseconds kPeriodMin = std::chrono::milliseconds{1};
constexpr Nanoseconds kPeriodMax = std::chrono::hours{1};

Result<void> check_limit(std::int64_t limit) {
  if (limit >= 1 && limit <= kLimitMax) return {};
  return fail(std::errc::invalid_argument, "limit",
              fmt::format("{} is not a valid number of locks", limit),
              fmt::format("expected 1 to {}", kLimitMax));
}

Result<void> check_period(Nanoseconds period) {
  if (period >= kPeriodMin && period <= kPeriodMax) return {};
  return fail(std::errc::invalid_argument, "recalc_period", "is out of range",
              "expected 1ms to 1h");
}

}  // namespace

Result<void> check(const PoolOptions& options) {
  if (auto checked = check_limit(options.limit); !checked) return checked;
  return check_period(options.period);
}

ServerPool::ServerPool(const PoolOptions& options, Instant now)
    : preset_(options.preset),
      period_(options.period),
      tuning_(options.tuning),
      limit_(options.limit),
      state_(first_volume(options.preset, options.limit)),
      counted_from_(now),
      next_recalc_(now + options.period),
      last_length_(options.period) {
  tuning_.period_s = std::chrono::floor<std::chrono::seconds>(period_).count();
  volume_ = state_.volume;
}

bool ServerPool::recalc(Instant now, std::int64_t clients) {
  if (is_recovering_ || now < next_recalc_) return false;
  const std::int64_t grants = grants_.load(std::memory_order_relaxed);
  const std::int64_t cancels = cancels_.load(std::memory_order_relaxed);
  // While other threads count, G may be inconsistent with its two counters, and even below 0.
  last_ = {.granted = std::clamp<std::int64_t>(granted(), 0, 2 * kLimitMax),
           .grants = grants - grants_seen_,
           .cancels = cancels - cancels_seen_,
           .clients = clients};
  grants_seen_ = grants;
  cancels_seen_ = cancels;
  last_length_ = now - counted_from_;
  counted_from_ = now;
  next_recalc_ = now + period_;
  const std::uint64_t before = state_.volume;
  state_ = next_volume(preset_, state_, last_, limit(), tuning_);
  if (now < relieved_until_) state_.volume = std::min(state_.volume, before);
  volume_.store(state_.volume, std::memory_order_relaxed);
  return true;
}

Result<void> ServerPool::set_limit(std::int64_t limit) {
  if (auto checked = check_limit(limit); !checked) return checked;
  const bool was_idle = state_.volume == volume_max(this->limit());
  limit_.store(limit, std::memory_order_relaxed);
  state_.volume = was_idle ? volume_max(limit) : std::min(state_.volume, volume_max(limit));
  state_.plan = std::min(state_.plan, limit);
  volume_.store(state_.volume, std::memory_order_relaxed);
  return {};
}

Result<void> ServerPool::set_period(Nanoseconds period) {
  if (auto checked = check_period(period); !checked) return checked;
  period_ = period;
  tuning_.period_s = std::chrono::floor<std::chrono::seconds>(period).count();
  next_recalc_ = counted_from_ + period;
  return {};
}

void ServerPool::shrink(std::uint64_t nr) {
  state_.volume = nr < state_.volume ? state_.volume - nr : 1;
  volume_.store(state_.volume, std::memory_order_relaxed);
}

void ServerPool::relieve(Instant now, std::int64_t clients) {
  if (is_recovering_) return;
  relieved_until_ = now + kReliefTime;
  const std::int64_t average =
      std::max<std::int64_t>(granted(), 1) / std::max<std::int64_t>(clients, 1);
  const std::uint64_t felt =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(average, 1, kLimitMax)) * kReliefAge;
  const std::uint64_t less = state_.volume - state_.volume / 100 * kReliefPercent;
  shrink(std::max<std::uint64_t>(state_.volume - std::min(less, felt), 1));
}

void ServerPool::begin_recovery() {
  is_recovering_ = true;
  state_ = first_volume(preset_, limit());
  volume_.store(state_.volume, std::memory_order_relaxed);
}

void ServerPool::end_recovery(Instant now) {
  WEIR_ASSERT(is_recovering_);
  is_recovering_ = false;
  grants_seen_ = grants_.load(std::memory_order_relaxed);
  cancels_seen_ = cancels_.load(std::memory_order_relaxed);
  counted_from_ = now;
  next_recalc_ = now + period_;
}

std::int64_t ServerPool::per_second(std::int64_t count) const {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const auto length = std::max<std::int64_t>(1, last_length_.count());
  return static_cast<std::int64_t>(static_cast<__int128>(count) * kSecond / length);
}

std::int64_t ServerPool::plan_percent() const {
  switch (preset_) {
    case Preset::kLustre:
      return lustre_plan_percent(tuning_.period_s);
    case Preset::kDld:
      return tuning_.plan_percent;
    case Preset::kWeir:
      break;
  }
  return 100;
}

std::string ServerPool::state_text(std::string_view name, std::uint64_t client_volume,
                                   std::string_view factor) const {
  return fmt::format(
      "LDLM pool state ({}):\n  SLV: {}\n  CLV: {}\n  LVF: {}\n  GSP: {}%\n  GP:  {}\n  GR:  {}\n"
      "  CR:  {}\n  GS:  {}\n  G:   {}\n  L:   {}\n",
      name, volume(), client_volume, factor, plan_percent(), plan(), grant_rate(), cancel_rate(),
      grant_speed(), granted(), limit());
}

}  // namespace weir::lock
