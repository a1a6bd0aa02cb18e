// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/capacity.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

// Maximum of a slice: 10^12 tokens a second are 10^11 in a slice.
constexpr std::uint64_t kSliceMax = std::uint64_t{1} << 50;
constexpr std::uint64_t kUnusual = 16;  // four times the usual deviation, squared

}  // namespace

void CapacityEstimate::saturate(Instant now) {
  if (!counted_to_) counted_to_ = now;
}

void CapacityEstimate::relax(Instant now) {
  advance(now);
  counted_to_.reset();
}

void CapacityEstimate::complete(Tokens cost, Instant now) {
  advance(now);
  if (!counted_to_) return;
  open_.tokens = std::min(open_.tokens + std::min(cost.count(), kSliceMax), kSliceMax);
  ++open_.completions;
}

void CapacityEstimate::add(Tokens count, Nanoseconds busy) {
  std::uint64_t left = std::min(count.count(), kSliceMax);
  // Only the last part of a time that is longer than what is remembered matters.
  const Nanoseconds most = kSlice * (kSlices + 1);
  if (busy > most) {
    left = static_cast<std::uint64_t>(Wide{left} * static_cast<std::uint64_t>(most.count()) /
                                      static_cast<std::uint64_t>(busy.count()));
    busy = most;
  }
  while (busy > Nanoseconds{0}) {
    const Nanoseconds part = std::min(busy, kSlice - open_time_);
    const auto tokens =
        static_cast<std::uint64_t>(Wide{left} * static_cast<std::uint64_t>(part.count()) /
                                   static_cast<std::uint64_t>(busy.count()));
    open_.tokens = std::min(open_.tokens + tokens, kSliceMax);
    open_.completions = open_.tokens;
    left -= tokens;
    busy -= part;
    open_time_ += part;
    if (open_time_ >= kSlice) close_slice();
  }
}

std::optional<Rate> CapacityEstimate::rate(Instant now) {
  advance(now);
  return measured_ && ceiling_ ? std::min(*measured_, *ceiling_) : measured_;
}

void CapacityEstimate::advance(Instant now) {
  if (!counted_to_ || now <= *counted_to_) return;
  // A stall longer than the window leaves nothing else in it.
  Nanoseconds passed = std::min<Nanoseconds>(now - *counted_to_, kSlice * (kSlices + 1));
  counted_to_ = now;
  while (open_time_ + passed >= kSlice) {
    passed -= kSlice - open_time_;
    close_slice();
  }
  open_time_ += passed;
}

CapacityEstimate::Slice CapacityEstimate::sum(std::size_t from, std::size_t to) const {
  Slice all;
  for (std::size_t i = from; i < to; ++i) {
    const Slice& slice = slices_[(first_ + i) % kSlices];
    all.tokens += slice.tokens;
    all.completions += slice.completions;
  }
  return all;
}

// Whether the recent slices differ from the earlier ones by more than chance explains.
bool CapacityEstimate::has_changed() const {
  if (count_ <= kRecent) return false;
  const std::size_t before = count_ - kRecent;
  const Slice old = sum(0, before);
  const Slice recent = sum(before, count_);
  const Wide expected = Wide{old.tokens} * kRecent / before;
  const Wide off = recent.tokens > expected ? recent.tokens - expected : expected - recent.tokens;
  const Wide completions =
      std::max<std::uint64_t>(1, std::min(old.completions, recent.completions));
  // The ratio in 10 bits, so that its square fits with room for the completions.
  const Wide ratio = (off << 10) / std::max<Wide>(1, expected);
  return std::min<Wide>(ratio * ratio, Wide{1} << 60) * completions > (Wide{kUnusual} << 20);
}

void CapacityEstimate::close_slice() {
  if (count_ == kSlices) {
    first_ = (first_ + 1) % kSlices;
    --count_;
  }
  slices_[(first_ + count_++) % kSlices] = open_;
  open_ = {};
  open_time_ = Nanoseconds{0};
  if (has_changed()) {
    first_ = (first_ + count_ - kRecent) % kSlices;
    count_ = kRecent;
  }
  const std::uint64_t tokens = sum(0, count_).tokens;
  measured_ =
      Rate(Tokens{std::max<std::uint64_t>(1, tokens)}, kSlice * static_cast<std::int64_t>(count_));
}

}  // namespace weir
