// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/store.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace weir::sim {
namespace {

bool is_plain(const StoreSpec& spec) {
  return spec.gate.count == 0 && spec.clump == 0 && spec.channels == 0 &&
         spec.seek <= Nanoseconds{0} && spec.stall_every <= Nanoseconds{0} &&
         spec.disturbances.empty();
}

constexpr double kMib = 1024 * 1024;

// Above 0, at most 1.
double draw_fraction(Rng& rng) { return (static_cast<double>(rng.next() >> 11) + 1) * 0x1p-53; }

}  // namespace

Nanoseconds ServiceTime::draw(Bytes size, Rng& rng) const {
  std::int64_t mean = base.count();
  if (per_mib > Nanoseconds{0}) {
    mean += std::llround(static_cast<double>(per_mib.count()) *
                         (static_cast<double>(size.count()) / kMib));
  }
  std::int64_t time = mean;
  if (kind == Kind::kUniform) {
    const auto spread =
        static_cast<std::int64_t>(static_cast<double>(mean) * spread_permille / 1000);
    time = rng.between(mean - spread, mean + spread);
  } else if (kind == Kind::kExponential) {
    time = std::llround(-std::log(draw_fraction(rng)) * static_cast<double>(mean));
  }
  return Nanoseconds{std::max<std::int64_t>(time, 1)};
}

Store::Store(const StoreSpec& spec, Rng rng) : spec_(spec), is_plain_(is_plain(spec)), rng_(rng) {
  if (spec_.gate.count == 0) return;
  interval_ = Instant{} - Nanoseconds{rng_.between(0, spec_.gate.every.count() - 1)};
}

// Requests pass in the order in which they start.
Instant Store::pass_gate(Instant start) {
  const Gate& gate = spec_.gate;
  if (gate.count == 0) return start;
  if (start >= interval_ + gate.every) {
    interval_ += (start - interval_) / gate.every * gate.every;
    passed_ = 0;
  } else if (passed_ == gate.count) {
    interval_ += gate.every;
    passed_ = 0;
  }
  ++passed_;
  return std::max(start, interval_);
}

Nanoseconds Store::time_of(Instant start, Bytes size) {
  Nanoseconds time = spec_.service.draw(size, rng_);
  if (spec_.seek > Nanoseconds{0}) {
    while (!ends_.empty() && ends_.front() <= start) {
      std::pop_heap(ends_.begin(), ends_.end(), std::greater<>());
      ends_.pop_back();
    }
    const auto depth = std::min<std::size_t>(ends_.size() + 1, spec_.seek_depth);
    time += spec_.seek * 2 / static_cast<std::int64_t>(depth + 2);
  }
  for (const Disturbance& slow : spec_.disturbances) {
    const Instant begin{slow.at};
    if (slow.percent < Disturbance::kChannels && start >= begin && start < begin + slow.length) {
      time = std::max(time * slow.percent / 100, Nanoseconds{1});
    }
  }
  return time;
}

std::size_t Store::channels_at(Instant time) const {
  std::size_t channels = spec_.channels;
  for (const Disturbance& other : spec_.disturbances) {
    const Instant begin{other.at};
    const bool is_now = time >= begin && time < begin + other.length;
    if (is_now && other.percent == Disturbance::kChannels) channels = other.channels;
  }
  return channels;
}

// When a request that arrives now is started.
Instant Store::begin(Instant start) {
  if (spec_.clump > 0) {
    const Instant next = start + spec_.clump_every - start.time_since_epoch() % spec_.clump_every;
    if (opened_ < next) {
      opened_ = next;
      released_ = 0;
    } else if (released_ == spec_.clump) {
      opened_ += spec_.clump_every;
      released_ = 0;
    }
    ++released_;
    return opened_;
  }
  if (spec_.channels == 0) return start;
  const std::size_t channels = channels_at(start);
  while (free_at_.size() < channels) {
    free_at_.push_back(start);
    std::push_heap(free_at_.begin(), free_at_.end(), std::greater<>());
  }
  while (free_at_.size() > channels) {
    std::pop_heap(free_at_.begin(), free_at_.end(), std::greater<>());
    free_at_.pop_back();
  }
  return std::max(start, free_at_.front());
}

Instant Store::end_of(Instant begin, Nanoseconds time) const {
  Instant end = begin + time;
  // Stalls are in order of time: each may push the end into the next.
  for (const Disturbance& stall : spec_.disturbances) {
    const Instant from{stall.at};
    if (stall.percent != Disturbance::kStall || end <= from || begin >= from + stall.length) {
      continue;
    }
    end += from + stall.length - std::max(begin, from);
  }
  if (spec_.stall_every <= Nanoseconds{0}) return end;
  Nanoseconds left = end - begin;
  for (Instant at = begin;;) {
    const Nanoseconds phase = at.time_since_epoch() % spec_.stall_every;
    if (phase < spec_.stall_for && at.time_since_epoch() >= spec_.stall_every) {
      at += spec_.stall_for - phase;
    }
    const Instant next = at + spec_.stall_every - at.time_since_epoch() % spec_.stall_every;
    if (at + left <= next) return at + left;
    left -= next - at;
    at = next;
  }
}

Instant Store::finish(Instant start, Bytes size) {
  if (is_plain_) return start + spec_.service.draw(size, rng_);
  start = pass_gate(start);
  const Nanoseconds time = time_of(start, size);
  const Instant end = end_of(begin(start), time);
  if (spec_.clump == 0 && spec_.channels > 0) {
    std::pop_heap(free_at_.begin(), free_at_.end(), std::greater<>());
    free_at_.back() = end;
    std::push_heap(free_at_.begin(), free_at_.end(), std::greater<>());
  }
  if (spec_.seek > Nanoseconds{0}) {
    ends_.push_back(end);
    std::push_heap(ends_.begin(), ends_.end(), std::greater<>());
  }
  return end;
}

}  // namespace weir::sim
