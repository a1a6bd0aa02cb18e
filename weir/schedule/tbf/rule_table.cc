// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/rule_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "weir/base/assert.h"

namespace weir::tbf {
namespace {

// A realtime rule keeps unused tokens of this time, and no more.
constexpr Nanoseconds kRealtimeCredit = std::chrono::seconds{1};
// The minimum rate of a cluster-wide limit without a slice (kLeastSlice).
constexpr Nanoseconds kSliceUnit = std::chrono::seconds{1000};
constexpr Rate kNoSlice{Tokens{1}, kSliceUnit};
// What a reservation keeps while its requests wait for the device.
constexpr Nanoseconds kReserveBusyTime = std::chrono::seconds{1};

// Exact unless it does not fit in 63 bits.
Rate scaled(Rate rate, std::uint32_t scale) {
  using Wide = unsigned __int128;
  Wide tokens = Wide{rate.tokens()} * scale;
  Wide time = Wide{rate.time_ns()} * kReserveScaleOne;
  while (tokens > INT64_MAX || time > INT64_MAX) {
    tokens = std::max<Wide>(tokens / 2, 1);
    time = std::max<Wide>(time / 2, 1);
  }
  return {Tokens{static_cast<std::uint64_t>(tokens)}, Nanoseconds{static_cast<std::int64_t>(time)}};
}

// The part of a reservation that a slice is of its limit, rounded down: the parts of all servers
// are at most the reservation, and none is above its slice.
Rate part_of(Rate reserve, Rate slice, Rate limit) {
  using Wide = unsigned __int128;
  const std::uint64_t whole = std::max<std::uint64_t>(tokens_in(limit, kSliceUnit).count(), 1);
  const std::uint64_t part = std::min(tokens_in(slice, kSliceUnit).count(), whole);
  const Wide tokens = Wide{tokens_in(reserve, kSliceUnit).count()} * part / whole;
  return {Tokens{std::max<std::uint64_t>(static_cast<std::uint64_t>(tokens), 1)}, kSliceUnit};
}

// The depth of a slice: its fraction of the limit's depth, rounded up.
Tokens depth_of_slice(Tokens depth, Rate slice, Rate limit) {
  using Wide = unsigned __int128;
  const std::uint64_t whole = std::max<std::uint64_t>(tokens_in(limit, kSliceUnit).count(), 1);
  const std::uint64_t part = std::min(tokens_in(slice, kSliceUnit).count(), whole);
  const Wide share = (Wide{depth.count()} * part + whole - 1) / whole;
  return Tokens{std::max<std::uint64_t>(static_cast<std::uint64_t>(share), 1)};
}

}  // namespace

// The default rules of both heads are one rule.
RuleTable::RuleTable(FieldSet type, const RuleOptions& options)
    : options_(options), default_limits_(!options.sharing) {
  for (auto& list : lists_) list = std::make_unique<RuleList>(type);
  RuleState& state = make_state(list(Head::kRegular).default_rule(), Head::kRegular, Instant{});
  const Rule& high = list(Head::kHigh).default_rule();
  state_of_[&high] = &state;
  state.listed[index(Head::kHigh)] = &high;
  ++state.rules;
}

Shapes RuleTable::shapes_of(const Rule& rule, const Slice& slice) const {
  const Limits& limits = rule.limits();
  Shapes shapes;
  shapes.cost = limits.cost;
  shapes.realtime = limits.realtime;
  if (rule.is_default() && !default_limits_) return shapes;
  shapes.is_sliced = limits.scope == Scope::kCluster && options_.in_cluster;
  const auto shape_of = [&](Rate limit, const std::optional<Rate>& part,
                            const std::optional<Tokens>& burst, Tokens depth_min,
                            Nanoseconds time) {
    if (!shapes.is_sliced) {
      // No deeper than a bucket can be: at a byte a day 64 KiB would take longer to fill.
      const Tokens most = tokens_in(limit, BucketShape::kFillTimeMax);
      const Tokens depth = std::min(std::max(depth_min, tokens_in(limit, time)), most);
      return BucketShape(limit, burst.value_or(depth));
    }
    const Rate rate = part.value_or(kNoSlice);
    if (burst) return BucketShape(rate, depth_of_slice(*burst, rate, limit));
    return BucketShape(rate, Tokens{1}, std::min(time, BucketShape::kSlackMax));
  };
  if (const std::uint32_t rate = limits.rate_in_force(); rate > 0) {
    const Nanoseconds time = limits.realtime ? kRealtimeCredit : options_.depth_time;
    shapes.ops.emplace(
        shape_of(Rate::per_second(rate), slice.ops, limits.burst_ops, options_.depth_min, time));
  }
  if (limits.bps) {
    std::optional<Tokens> burst;
    if (limits.burst_bytes) burst = Tokens{limits.burst_bytes->count()};
    shapes.bytes.emplace(shape_of(*limits.bps, slice.bytes, burst,
                                  Tokens{options_.byte_depth_min.count()}, options_.depth_time));
  }
  shapes.is_ops_only = shapes.ops && !shapes.bytes;
  shapes.reserve = reserve_of(limits, slice);
  return shapes;
}

Rate RuleTable::reserve_rate(const Limits& limits, const Slice& slice) const {
  const Reserve& reserve = *limits.reserve;
  if (limits.scope != Scope::kCluster || !options_.in_cluster) return reserve.rate;
  if (reserve.in_bytes) return part_of(reserve.rate, slice.bytes.value_or(kNoSlice), *limits.bps);
  const Rate limit = Rate::per_second(limits.rate_in_force());
  return part_of(reserve.rate, slice.ops.value_or(kNoSlice), limit);
}

std::optional<ReserveShape> RuleTable::reserve_of(const Limits& limits, const Slice& slice) const {
  if (!limits.reserve) return std::nullopt;
  const Reserve& reserve = *limits.reserve;
  // A bucket must be full again within a century, however little is reserved.
  const Rate slowest(Tokens{1}, BucketShape::kFillTimeMax);
  const Rate rate = std::max(scaled(reserve_rate(limits, slice), reserve_scale_), slowest);
  const Tokens least = reserve.in_bytes ? Tokens{options_.byte_depth_min.count()} : Tokens{1};
  const Tokens most = tokens_in(rate, BucketShape::kFillTimeMax);
  const Tokens rested = std::min(most, std::max(least, tokens_in(rate, options_.depth_time)));
  const Tokens busy = std::max(rested, tokens_in(rate, kReserveBusyTime));
  return ReserveShape{BucketShape(rate, rested), BucketShape(rate, busy), reserve.in_bytes};
}

bool RuleTable::set_reserve_scale(std::uint32_t scale) {
  if (scale == reserve_scale_) return false;
  reserve_scale_ = scale;
  bool is_changed = false;
  for (const auto& [rule, state] : state_of_) {
    if (!rule->limits().reserve) continue;
    each_pace(*state, [&, rule = rule](Pace& pace) { is_changed |= reshape(*rule, pace); });
  }
  return is_changed;
}

void RuleTable::note_keys() {
  has_reserves_ = has_weights_ = false;
  for (const auto& [rule, state] : state_of_) {
    has_reserves_ = has_reserves_ || rule->limits().reserve.has_value();
    has_weights_ = has_weights_ || rule->limits().weight.has_value();
  }
}

// New limits, if they differ.
bool RuleTable::reshape(const Rule& rule, Pace& pace) {
  const Shapes wanted = shapes_of(rule, pace.slice);
  if (wanted == pace.shapes) {
    pace.next.reset();
    return false;
  }
  if (!wanted.reserves_alike(pace.shapes)) ++reserves_changed_;
  pace.next = wanted;
  return true;
}

RuleState& RuleTable::make_state(const Rule& rule, Head head, Instant now) {
  auto made = std::make_unique<RuleState>();
  RuleState& state = *made;
  states_.emplace(&state, std::move(made));
  state.pace.state = &state;
  state.pace.shapes = shapes_of(rule, state.pace.slice);
  state.by = rule.by();
  state.listed[index(head)] = &rule;
  state_of_[&rule] = &state;
  state.rules = 1;
  state.started = now;
  ++states_made_;
  return state;
}

void RuleTable::forget_if_unused(RuleState& state) {
  if (state.rules == 0 && state.classes == 0) states_.erase(&state);
}

Result<RuleTable::Change> RuleTable::apply(const RuleCommand& command, Instant now) {
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    if (auto checked = list(head).check(command); !checked) {
      return tl::unexpected(std::move(checked.error()));
    }
  }
  const std::uint64_t before = generation();
  if (command.verb == Verb::kStop) stop(command);
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const auto applied = lists_[index(head)]->apply(command);
    WEIR_ASSERT(applied.has_value());
  }
  Change done;
  if (command.verb == Verb::kStart) done.by = start(command, now);
  if (command.verb == Verb::kChange) done.by = change(command, now);
  done.rebinds = generation() != before;
  // Usually no rule has either, and there may be many rules.
  const bool loses = command.verb != Verb::kStart && (has_reserves_ || has_weights_);
  if (loses || command.keys.reserve || command.keys.weight) note_keys();
  return done;
}

// Called before the rule leaves its lists.
void RuleTable::stop(const RuleCommand& command) {
  for (const Head head : kHeads) {
    const Rule* const rule = names(command.heads, head) ? list(head).find(command.name) : nullptr;
    if (rule == nullptr) continue;
    const auto found = state_of_.find(rule);
    RuleState& state = *found->second;
    state_of_.erase(found);
    --state.rules;
    forget_if_unused(state);
  }
}

FieldSet RuleTable::start(const RuleCommand& command, Instant now) {
  FieldSet by;
  RuleState* common = nullptr;
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const Rule& rule = *list(head).find(command.name);
    by = by | rule.by() | rule.conditions().own_fields();
    if (common == nullptr) {
      common = &make_state(rule, head, now);
    } else {
      state_of_[&rule] = common;
      common->listed[index(head)] = &rule;
      ++common->rules;
    }
  }
  return by;
}

FieldSet RuleTable::change(const RuleCommand& command, Instant now) {
  FieldSet by;
  for (const Head head : kHeads) {
    if (!names(command.heads, head)) continue;
    const Rule& rule = *list(head).find(command.name);
    if (rule.is_default()) default_limits_ = true;
    by = by | rule.by();
    RuleState*& state = state_of_.at(&rule);
    if (command.heads != Heads::kBoth && state->rules == 2) {
      // A change for one head alone splits the common state.
      --state->rules;
      state = &make_state(rule, head, now);
    } else {
      each_pace(*state, [&](Pace& pace) {
        const bool is_other = reshape(rule, pace);
        if (!is_other && rule.by() != state->by) pace.next = pace.shapes;
      });
      state->by = rule.by();
    }
  }
  return by;
}

bool RuleTable::set_slice(const Rule& rule, Pace& pace, const Slice& slice) {
  if (pace.slice == slice) return false;
  pace.slice = slice;
  return reshape(rule, pace);
}

bool RuleTable::is_changing() const {
  bool any = false;
  for (const auto& [key, state] : states_) {
    each_pace(*state, [&](const Pace& pace) { any = any || pace.next.has_value(); });
  }
  return any;
}

bool RuleTable::commit() {
  bool other_buckets = false;
  for (const auto& [key, state] : states_) {
    each_pace(*state, [&](Pace& pace) {
      if (!pace.next) return;
      const Shapes before = std::exchange(pace.shapes, *std::exchange(pace.next, std::nullopt));
      other_buckets = other_buckets || !before.takes_alike(pace.shapes);
    });
  }
  return other_buckets;
}

}  // namespace weir::tbf
