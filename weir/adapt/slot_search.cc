// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/slot_search.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kOne = 1 << 10;  // relative differences have 10 bits
// The length of a stall does not depend on the number of slots: it must not decide a comparison.
constexpr std::uint64_t kClip = 8;
// The target, and what is sufficient for a measured point: K does not move from a point in between.
constexpr std::uint64_t kTargetPermille = 990;
constexpr std::uint64_t kReachedPermille = 985;
constexpr std::uint64_t kReachedNoisy = 980;  // if batches differ by more than this,
constexpr std::uint64_t kNoisy = 13;          // 0.35 %, as a variance in 2^-20
constexpr std::uint32_t kWarmUps = 2;         // latencies until the device has adjusted
// Deviation that a comparison may have: 0.5 %, as a variance in 2^-20.
constexpr std::uint64_t kVarianceWanted = 26;
constexpr std::uint32_t kUnmovedMax = 4;  // probes, two in each direction
constexpr std::uint32_t kSpreadMemory = 64;
constexpr std::uint32_t kWeightMax = 64;
constexpr std::uint64_t kChanged = 16;            // four times the usual deviation, squared
constexpr std::uint64_t kChangedMin = kOne / 10;  // smaller changes are followed gradually
constexpr std::uint64_t kFarOff = kOne / 4;       // this far off
constexpr std::uint32_t kFarOffMax = 3;           // in this many batches is a change too
constexpr std::uint32_t kSpreadKnown = 8;         // batches that show how much they differ
// Fraction of the time for probes of more slots: they lengthen the latency of all requests, and
// must not determine the slowest hundredth.
constexpr std::int64_t kSettledPart = 140;
// Once settled, a probe only looks for a change: a deviation of 6 % is enough, as above.
constexpr std::uint64_t kGlanceVariance = 3775;
constexpr std::uint32_t kGlanceMin = 16;  // requests
constexpr std::uint64_t kFreeMemory = 64;
constexpr std::uint64_t kCostMemory = 1 << 16;
constexpr std::uint64_t kLatencyMax = std::uint64_t{3600} * 1'000'000'000;

// Requests in 10^6 s, so that slow devices have enough digits.
std::uint64_t rate_of(std::uint32_t slots, std::uint64_t latency_ns) {
  return std::uint64_t{slots} * 1'000'000'000'000'000 / std::max<std::uint64_t>(latency_ns, 1);
}

std::uint64_t difference(std::uint64_t a, std::uint64_t b) { return a > b ? a - b : b - a; }

// |a - b| / b with 10 bits, at most 2^20.
std::uint64_t relative(std::uint64_t a, std::uint64_t b) {
  return std::min<std::uint64_t>(difference(a, b) * kOne / std::max<std::uint64_t>(b, 1), 1 << 20);
}

}  // namespace

SlotSearch::SlotSearch(const SlotOptions& options)
    : options_(options), slots_(options.start), base_(options.start), bound_(options.max) {
  WEIR_ASSERT(1 <= options.min && options.min <= options.start && options.start <= options.max,
              options.min, options.start, options.max);
}

std::optional<Nanoseconds> SlotSearch::latency() const {
  const std::uint64_t mean = base_mean_.batches > 0 ? base_mean_.value() : typical_ns_;
  if (mean == 0) return std::nullopt;
  return Nanoseconds{static_cast<std::int64_t>(mean)};
}

std::uint32_t SlotSearch::upper() const { return std::clamp(bound_, options_.min, options_.max); }

// The number of slots that keeps a device at a capacity that is paced elsewhere, plus half as many.
std::uint32_t SlotSearch::lower() const {
  std::uint32_t least = options_.min;
  if (capacity_ && free_ns_ > 0 && cost_count_ > 0) {
    const Wide tokens = Wide{capacity_->tokens()} * free_ns_ / capacity_->time_ns();
    const Wide slots = tokens * 3 / 2 * cost_count_ / std::max<std::uint64_t>(cost_sum_, 1) + 1;
    least = static_cast<std::uint32_t>(std::clamp<Wide>(slots, options_.min, options_.max));
  }
  return std::min(least, upper());
}

// ---- observations ----

void SlotSearch::saturated(bool is_saturated, Instant now) {
  if (is_saturated == is_saturated_) return;
  is_saturated_ = is_saturated;
  if (is_saturated) return warm_up(typical_ns_, now);
  if (phase_ == Phase::kProbe) {  // cannot be compared while the device is not busy
    phase_ = Phase::kBase;
    set_slots(base_, now);
  }
}

void SlotSearch::complete(Nanoseconds latency, Tokens cost, Instant now) {
  const std::uint64_t time =
      std::min(static_cast<std::uint64_t>(std::max<std::int64_t>(latency.count(), 1)), kLatencyMax);
  if (capacity_) {
    if (cost_count_ >= kCostMemory) {
      cost_sum_ /= 2;
      cost_count_ /= 2;
    }
    cost_sum_ += std::min(cost.count(), std::uint64_t{1} << 40);
    ++cost_count_;
  }
  if (!is_saturated_) {
    free_ns_ = free_ns_ == 0 ? time : free_ns_ - free_ns_ / kFreeMemory + time / kFreeMemory;
    if (capacity_ && phase_ == Phase::kBase && base_ < lower()) move(lower(), now);
    return;
  }
  if (now < warm_until_) return;
  batch_.sum_ns += typical_ns_ == 0 ? time : std::min(time, kClip * typical_ns_);
  ++batch_.count;
  if (batch_.count < batch_size()) return;
  const std::uint64_t mean = batch_.sum_ns / batch_.count;
  batch_ = {};
  close_batch(mean, now);
}

void SlotSearch::close_batch(std::uint64_t latency_ns, Instant now) {
  if (phase_ == Phase::kBase) {
    const bool is_first = typical_ns_ == 0;
    typical_ns_ = latency_ns;
    // The first batch of a device only shows its scale, since the device may still have been
    // adjusting.
    is_first ? warm_up(latency_ns, now) : note_base(latency_ns, now);
    return;
  }
  probe_mean_.add(latency_ns);
  const bool is_long = now - probe_began_ >= kProbeMax;
  if (is_long || probe_mean_.batches >= batches_needed()) end_probe(now);
}

// Whether a probe of a settled search can be shorter than a batch.
bool SlotSearch::glances() const {
  return phase_ == Phase::kProbe && is_settled_ &&
         variance_ * (kBatchMin / kGlanceMin) <= kGlanceVariance;
}

std::uint32_t SlotSearch::batch_size() const {
  return std::max(glances() ? kGlanceMin : kBatchMin, 2 * slots_);
}

// A change of the device must not look like chance: the contribution of one batch is limited.
void SlotSearch::note_spread(std::uint64_t latency_ns) {
  const std::uint64_t mean = base_mean_.value();
  if (mean == 0) return;
  const std::uint64_t off = relative(latency_ns, mean);
  if (spread_count_ < kSpreadMemory) ++spread_count_;
  const std::uint64_t most = std::max(kChanged * variance_, kChangedMin * kChangedMin);
  const std::uint64_t square = std::min(off * off, most);
  variance_ = (variance_ * (spread_count_ - 1) + square) / spread_count_;
}

std::uint32_t SlotSearch::batches_needed() const {
  const bool is_glance = phase_ == Phase::kProbe && is_settled_;
  const std::uint64_t wanted = is_glance ? kGlanceVariance : kVarianceWanted;
  const std::uint64_t least = spread_count_ < kSpreadKnown && !is_glance ? 2 : 1;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((variance_ + wanted - 1) / wanted, least, kBatchesMax));
}

bool SlotSearch::is_far_off(std::uint64_t latency_ns) {
  const std::uint64_t off = relative(latency_ns, base_mean_.value());
  const bool is_far = base_mean_.batches > 0 && off > kFarOff && off * off > kChanged * variance_;
  far_off_ = is_far ? far_off_ + 1 : 0;
  return far_off_ >= kFarOffMax;
}

void SlotSearch::note_base(std::uint64_t latency_ns, Instant now) {
  if (is_far_off(latency_ns)) return start_over(now);
  note_spread(latency_ns);
  recent_.add(latency_ns);
  const std::uint32_t needed = batches_needed();
  if (recent_.batches < needed) return;
  const std::uint64_t recent = recent_.value();
  if (base_mean_.batches >= needed) {
    const std::uint64_t off = relative(recent, base_mean_.value());
    const bool is_other =
        off > kChangedMin && off * off * recent_.batches > kChanged * (variance_ + 1);
    if (is_other && is_doubted_) return start_over(now);
    // Once may be a stall, which says nothing about the number of slots.
    is_doubted_ = is_other;
    if (is_other) {
      recent_ = {};
      return warm_up(typical_ns_, now);
    }
  }
  (void)note_point(base_, recent_, now);
  base_mean_.sum_ns += recent_.sum_ns;
  base_mean_.batches += recent_.batches;
  if (base_mean_.batches > 2 * kBatchesMax) {
    base_mean_.sum_ns /= 2;
    base_mean_.batches /= 2;
  }
  recent_ = {};
  bound(recent, now);
  if (phase_ == Phase::kBase && now >= next_probe_) begin_probe(now);
}

// By Little's law the latency is proportional to the number of slots where it can be too long.
void SlotSearch::bound(std::uint64_t latency_ns, Instant now) {
  if (!options_.latency_target) return;
  const auto target = static_cast<std::uint64_t>(options_.latency_target->count());
  const Wide fits = Wide{base_} * target / std::max<std::uint64_t>(latency_ns, 1);
  bound_ = static_cast<std::uint32_t>(std::clamp<Wide>(fits, options_.min, options_.max));
  if (base_ > upper()) move(upper(), now);
}

// ---- probes ----

void SlotSearch::begin_probe(Instant now) {
  const std::uint32_t up = std::min(std::max(base_ + 1, base_ + base_ / 4), upper());
  const std::uint32_t down = std::max(std::min(base_ - 1, base_ - base_ / 4), lower());
  const bool can_go_up = up > base_;
  const bool can_go_down = down < base_;
  if (!can_go_up && !can_go_down) {
    is_settled_ = true;
    next_probe_ = now + kIntervalMax;
    return;
  }
  const bool goes_up = can_go_up && (goes_up_ || !can_go_down);
  goes_up_ = goes_up;
  phase_ = Phase::kProbe;
  probe_began_ = now;
  probe_mean_ = {};
  set_slots(goes_up ? up : down, now);
}

void SlotSearch::end_probe(Instant now) {
  phase_ = Phase::kBase;
  const Noted noted = note_point(slots_, probe_mean_, now);
  if (noted == Noted::kDoubtful) {  // once may be a stall: the same again
    next_probe_ = now;
    return set_slots(base_, now);
  }
  if (noted == Noted::kChanged) is_settled_ = false;
  const std::uint32_t tried = slots_;
  const std::uint32_t wish = std::clamp(wanted(now), lower(), upper());
  // A smaller difference is below the precision of a measurement, and too few slots are worse.
  if (difference(wish, base_) * (wish > base_ ? 100 : 50) >= base_) {
    unmoved_ = 0;
    is_settled_ = false;
    goes_up_ = wish > base_;
    next_probe_ = now;
    if (wish == tried) {  // already measured: continue from there
      base_ = wish;
      base_mean_ = probe_mean_;
      recent_ = {};
      typical_ns_ = probe_mean_.value();
      batch_ = {};
      return begin_probe(now);
    }
    return move(wish, now);
  }
  goes_up_ = !goes_up_;
  ++unmoved_;
  is_settled_ = is_settled_ || unmoved_ >= kUnmovedMax;
  if (is_settled_) {
    const bool has_both = lower() < base_ && base_ < upper();
    const Nanoseconds rest = glance_length() * kSettledPart / (has_both ? 2 : 1);
    next_probe_ = now + std::clamp(rest, kIntervalMin, kIntervalMax);
  }
  set_slots(base_, now);
}

// Approximate length of the next probe once settled.
Nanoseconds SlotSearch::glance_length() const {
  const bool is_short = variance_ * (kBatchMin / kGlanceMin) <= kGlanceVariance;
  const std::uint64_t batches =
      is_short ? 1 : std::min<std::uint64_t>(variance_ / kGlanceVariance + 1, kBatchesMax);
  const std::uint64_t requests = batches * std::max(is_short ? kGlanceMin : kBatchMin, 2 * base_);
  const Wide length = Wide{typical_ns_} * (std::uint64_t{kWarmUps} * base_ + requests) / base_;
  return std::min(Nanoseconds{static_cast<std::int64_t>(length)}, kProbeMax);
}

void SlotSearch::move(std::uint32_t slots, Instant now) {
  typical_ns_ = typical_ns_ * std::max(slots, base_) / base_;
  base_ = slots;
  base_mean_ = {};
  recent_ = {};
  phase_ = Phase::kBase;
  set_slots(slots, now);
}

void SlotSearch::start_over(Instant now) {
  points_ = {};
  base_mean_ = {};
  recent_ = {};
  typical_ns_ = 0;
  variance_ = 0;
  spread_count_ = 0;
  unmoved_ = 0;
  far_off_ = 0;
  is_doubted_ = false;
  is_settled_ = false;
  next_probe_ = now;
}

void SlotSearch::set_slots(std::uint32_t slots, Instant now) {
  changes_ += slots == slots_ ? 0 : 1;
  const std::uint32_t more = std::max(slots, slots_);
  slots_ = slots;
  warm_up(typical_ns_ * more / base_, now);
}

void SlotSearch::warm_up(std::uint64_t latency_ns, Instant now) {
  batch_ = {};
  warm_until_ = now + Nanoseconds{static_cast<std::int64_t>(latency_ns * kWarmUps)};
}

// ---- points ----

// The device has changed, if the number was tried before with another result, and that comes twice.
SlotSearch::Noted SlotSearch::note_point(std::uint32_t slots, const Mean& mean, Instant now) {
  const std::uint64_t rate = rate_of(slots, mean.value());
  Point* oldest = points_.data();
  for (Point& point : points_) {
    if (point.slots == slots) {
      // The rate differs from before: the device has changed without an effect at base_.
      const std::uint64_t off = relative(rate, point.rate);
      const bool is_same =
          off <= kChangedMin || off * off * mean.batches <= kChanged * (variance_ + 1);
      if (!is_same && !point.is_doubted) {
        point.is_doubted = true;
        return Noted::kDoubtful;
      }
      point.is_doubted = false;
      if (!is_same) point.weight = 0;
      const Wide sum = Wide{point.rate} * point.weight + Wide{rate} * mean.batches;
      point.weight += mean.batches;
      point.rate = static_cast<std::uint64_t>(sum / point.weight);
      point.weight = std::min(point.weight, kWeightMax);
      point.at = now;
      return is_same ? Noted::kAsBefore : Noted::kChanged;
    }
    if (point.slots == 0 || (oldest->slots != 0 && point.at < oldest->at)) oldest = &point;
    if (oldest->slots == 0) break;
  }
  *oldest = {slots, mean.batches, rate, now};
  return Noted::kAsBefore;
}

// The smallest number of slots that reaches the target fraction of the best rate.
std::uint32_t SlotSearch::wanted(Instant now) {
  std::array<Point, std::tuple_size_v<decltype(points_)>> known;
  std::size_t count = 0;
  std::uint64_t best = 0;
  for (Point& point : points_) {
    if (point.slots != 0 && now - point.at > kRemembered) point = {};
    if (point.slots == 0) continue;
    known[count++] = point;
    best = std::max(best, point.rate);
  }
  std::sort(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(count),
            [](const Point& a, const Point& b) { return a.slots < b.slots; });
  const std::uint64_t target = best / 1000 * kTargetPermille;
  const std::uint64_t reached =
      best / 1000 * (variance_ > kNoisy ? kReachedNoisy : kReachedPermille);
  std::size_t first = 0;
  while (first < count && known[first].rate < reached) ++first;
  if (first == count) return base_;
  if (first == 0) return known[0].slots;
  const Point& below = known[first - 1];
  const Point& above = known[first];
  const auto up = [](Wide a, Wide b) { return static_cast<std::uint32_t>((a + b - 1) / b); };
  if (above.rate <= target) return above.slots;
  const std::uint32_t chord =
      below.slots +
      up(Wide{target - below.rate} * (above.slots - below.slots), above.rate - below.rate);
  const std::uint32_t ray = up(Wide{below.slots} * target, std::max<std::uint64_t>(below.rate, 1));
  // Proportional up to `below`: the device has free channels there, and the knee is sharp.
  bool follows_ray = first == 1;
  if (first >= 2) {
    const Point& lower = known[first - 2];
    const Wide expected = Wide{lower.rate} * below.slots / lower.slots;
    follows_ray = Wide{below.rate} * 100 >= expected * 97;
  }
  const std::uint32_t most = std::min(chord, above.slots);
  const std::uint32_t least = std::clamp(ray, below.slots + 1, most);
  return follows_ray ? least : least + (most - least) / 2;
}

}  // namespace weir
