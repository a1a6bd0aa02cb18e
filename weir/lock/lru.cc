// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/lru.h"

#include <algorithm>
#include <numeric>

namespace weir::lock {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kSecond = 1'000'000'000;

// CLV in units of 1 / (100 * 10^9), so that percent and nanoseconds are not rounded.
Wide fine_volume(std::uint64_t factor_percent, std::size_t size, Nanoseconds age) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(0, age.count()));
  return Wide{factor_percent} * size * ns;
}

constexpr Wide kFine = Wide{100} * kSecond;

}  // namespace

void Lru::put(LruHook& lock, Instant now) {
  lock.last_used_ = now;
  if (locks_.empty()) next_check_ = now + options_.check_every;
  locks_.push_back(lock);
  if (has_fixed_size() && size() > fixed_size()) next_check_ = now;
}

std::uint64_t Lru::oldest_volume(Instant now) const {
  if (locks_.empty()) return 0;
  const Wide fine =
      fine_volume(options_.factor_percent, size(), now - locks_.front().last_used()) / kFine;
  return static_cast<std::uint64_t>(std::min<Wide>(fine, UINT64_MAX));
}

void Lru::hear(std::uint64_t volume, std::int64_t limit, Instant now) {
  heard_at_ = now;
  // A smaller volume: check at once, not with the next check.
  if (volume < volume_ || volume_ == 0) next_check_ = std::min(next_check_, now);
  volume_ = volume;
  limit_ = limit;
  if (volume > 0) knows_no_volume_ = false;
}

void Lru::fall_back() {
  knows_no_volume_ = true;
  volume_ = 0;
  limit_ = 0;
}

void Lru::advise(std::size_t fixed_size, Nanoseconds max_age, Instant now) {
  if (fixed_size == advised_size_ && max_age == advised_age_) return;
  advised_size_ = fixed_size;
  advised_age_ = max_age;
  next_check_ = std::min(next_check_, now);
}

std::size_t Lru::fixed_size() const {
  if (options_.fixed_size != 0) return options_.fixed_size;
  return knows_no_volume_ ? options_.fallback_size : advised_size_;
}

Nanoseconds Lru::max_age() const {
  return advised_age_ > Nanoseconds{0} ? std::min(options_.max_age, advised_age_)
                                       : options_.max_age;
}

Lru::Excess Lru::excess(Instant now) {
  if (is_paused_ || locks_.empty()) return {};
  LruHook& oldest = locks_.front();
  const Nanoseconds age = now - oldest.last_used();
  Excess found{&oldest, Why::kVolume};
  if (age > max_age()) {
    found.why = Why::kAge;
  } else if (has_fixed_size()) {
    if (size() <= fixed_size()) return {};
    found.why = Why::kSize;
  } else if (volume_ == 0 ||
             fine_volume(options_.factor_percent, size(), age) <= Wide{volume_} * kFine) {
    return {};
  }
  locks_.pop_front();
  return found;
}

LruHook* Lru::oldest() {
  if (locks_.empty()) return nullptr;
  LruHook& lock = locks_.front();
  locks_.pop_front();
  return &lock;
}

std::size_t Lru::pressure_count() const {
  return static_cast<std::size_t>(Wide{size()} *
                                  std::min<std::uint64_t>(options_.pressure_percent, 100) / 100);
}

Instant Lru::next_check() const { return locks_.empty() || is_paused_ ? kNever : next_check_; }

Instant Lru::refresh_at() const {
  if (locks_.empty() || has_fixed_size() || is_paused_) return kNever;
  // L / size * C seconds, in nanoseconds: C counts in 1 / 1000.
  const Wide delay = static_cast<Wide>(std::max<std::int64_t>(0, limit_)) *
                     options_.refresh_permille * (kSecond / 1000) / size();
  constexpr Wide kLongest = Wide{kSecond} * 86'400 * 365;
  const Nanoseconds wait{static_cast<std::int64_t>(std::clamp<Wide>(delay, kSecond, kLongest))};
  return heard_at_ + wait;
}

std::vector<std::size_t> shrink_shares(std::span<const std::size_t> sizes, std::size_t nr) {
  const std::size_t all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  nr = std::min(nr, all);
  std::vector<std::size_t> shares(sizes.size());
  if (all == 0) return shares;
  // The running sum is rounded, not each share: they add up to nr, and no share exceeds its size.
  std::size_t before = 0;
  std::size_t given = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    before += sizes[i];
    const auto upto = static_cast<std::size_t>(Wide{before} * nr / all);
    shares[i] = upto - given;
    given = upto;
  }
  return shares;
}

}  // namespace weir::lock
