// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/cluster_rules.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/classify/opcode.h"
#include "weir/coordinate/target_sink.h"

namespace weir {
namespace {

constexpr char kKeyMark = ':';
// The name of the overflow class, on all servers; no key looks like it.
constexpr std::string_view kOthers = "(others)";
// Maximum time that a measurement counts after a pause: no class can use more than a second of
// the limit.
constexpr Nanoseconds kMeasureMax = std::chrono::seconds{1};
constexpr Nanoseconds kMeasureMin = std::chrono::milliseconds{1};

std::int64_t milli_per_second(Rate rate) {
  const std::uint64_t tokens = tokens_in(rate, std::chrono::seconds{kMilli}).count();
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::min<std::uint64_t>(
                                      tokens, static_cast<std::uint64_t>(kSliceLimitMax))),
                                  1, kSliceLimitMax);
}

// Without a '+'.
std::string escaped(std::string_view text) {
  std::string without;
  for (const char c : text) {
    if (c == '+' || c == '%') {
      without += fmt::format("%{:02x}", c);
    } else {
      without += c;
    }
  }
  return without;
}

std::string field_text(const Attributes& key, FieldSet fields, Field field) {
  switch (field) {
    case Field::kJobid:
      return std::string(key.job.text());
    case Field::kNid:
      return print_nid(key.nid);
    case Field::kOpcode:
      return opcode_name(key.opcode);
    case Field::kUid:
      return std::to_string(key.uid);
    case Field::kGid:
      return std::to_string(key.gid);
    case Field::kProjid:
      return std::to_string(key.projid);
    case Field::kNodemap:
      return std::to_string(key.nodemap);
    case Field::kExport:
      return escaped(key.export_name.text());
    case Field::kSubnet:
      return print_network(key.nid, fields.subnet_length());
  }
  return {};
}

// The same on every server and unique for each key: only a job id contains a '+', and it is
// first, before a known number of fields.
std::string key_text(const Attributes& key, FieldSet by) {
  std::string text;
  bool is_first = true;
  for (unsigned i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    if (!by.has(field)) continue;
    if (!std::exchange(is_first, false)) text += '+';
    text += field_text(key, by, field);
  }
  return text;
}

// `limit` and, unless the rule is one class, the key after a character that is in no name of a rule
// or a service.
std::string slice_name(std::string limit, FieldSet by, const ClassLoad& load) {
  if (by.empty()) return limit;
  limit += kKeyMark;
  return limit += load.is_overflow ? std::string(kOthers) : key_text(load.key, by);
}

}  // namespace

std::string_view limit_name(std::string_view slice_name) {
  return slice_name.substr(0, slice_name.find(kKeyMark));
}

std::optional<std::int64_t> slice_limit(const Limits& limits, bool is_bytes) {
  if (limits.scope != Scope::kCluster) return std::nullopt;
  if (is_bytes) return limits.bps ? std::optional(milli_per_second(*limits.bps)) : std::nullopt;
  const std::uint32_t rate = limits.rate_in_force();
  return rate > 0 ? std::optional(std::int64_t{rate} * kMilli) : std::nullopt;
}

ClusterRules::ClusterRules(Target& target, SliceMember& slices, Nanoseconds epoch,
                           std::string prefix)
    : own_(std::make_unique<TargetSink>(target)),
      sink_(*own_),
      slices_(slices),
      epoch_(epoch),
      prefix_(std::move(prefix)) {}

bool ClusterRules::has_room() const { return slices_.open_classes() + 2 <= kVectorMax; }

// The slot of a class. A class without demand gets none.
ClusterRules::Sliced* ClusterRules::sliced_of(const SlicedRule& rule, const SlicedLoad& load,
                                              Instant now) {
  const ClassId id{rule.rule, load.key};
  auto found = place_of_.find(id);
  if (found == place_of_.end()) {
    if (!rule.by.empty() && !load.wants_any()) return nullptr;
    if (!has_room()) {
      ++refused_;
      return nullptr;
    }
    found = place_of_.emplace(id, classes_.size()).first;
    classes_.push_back(
        {.id = id, .gauge = RuleGauge(load, now), .ops = {}, .bytes = {}, .wanted_at = now});
  }
  Sliced& sliced = classes_[found->second];
  if (std::exchange(sliced.is_listed, true)) return &sliced;
  sliced.is_whole = rule.by.empty();
  const auto follow = [&](std::optional<SliceMember::ClassIndex>& index,
                          const std::optional<std::int64_t>& limit, const char* kind) {
    if (limit) {
      index = slices_.open(slice_name(prefix_ + rule.rule + kind, rule.by, load), *limit);
    } else if (index) {
      slices_.forget(*std::exchange(index, std::nullopt));
    }
  };
  follow(sliced.ops, rule.ops, "/ops");
  follow(sliced.bytes, rule.bytes, "/bytes");
  return &sliced;
}

// The loads of classes, in a reproducible order. A rule that differs between the heads has a class
// on each: in the cluster they are one. The class of a whole rule exists before its first request.
std::vector<SlicedLoad> ClusterRules::loads(Instant now) {
  const Nanoseconds time =
      measured_at_ == Instant::min()
          ? kMeasureMin
          : std::clamp<Nanoseconds>(now - measured_at_, kMeasureMin, kMeasureMax);
  measured_at_ = now;
  std::vector<SlicedLoad> loads;
  absl::flat_hash_map<ClassId, std::size_t, ClassIdHash> places;
  const auto add = [&](const SlicedLoad& load) {
    const auto [found, is_new] = places.try_emplace(ClassId{load.rule, load.key}, loads.size());
    if (is_new) {
      loads.push_back(load);
    } else {
      loads[found->second] += load;
      loads[found->second].demand = load.demand;
    }
  };
  for (const SlicedRule& rule : rules_) {
    if (rule.by.empty()) add({{.rule = rule.rule, .key = Attributes{}.only({})}, std::nullopt});
  }
  for (const SlicedLoad& load : sink_.loads(time)) add(load);
  return loads;
}

void ClusterRules::follow_classes(Instant now) {
  for (const SlicedLoad& load : loads(now)) {
    const auto rule = std::find_if(rules_.begin(), rules_.end(),
                                   [&](const SlicedRule& one) { return one.rule == load.rule; });
    Sliced* const sliced = rule == rules_.end() ? nullptr : sliced_of(*rule, load, now);
    if (sliced == nullptr) continue;
    SlicedLoad::Demand demand;
    if (load.demand) {
      demand = *load.demand;
    } else {
      const RuleGauge::Demand measured = sliced->gauge.measure(load, now);
      demand = {.ops = measured.ops, .bytes = measured.bytes};
    }
    if (sliced->ops) slices_.set_demand(*sliced->ops, demand.ops);
    if (sliced->bytes) slices_.set_demand(*sliced->bytes, demand.bytes);
    if (demand.ops > 0 || demand.bytes > 0 || sliced->is_whole) sliced->wanted_at = now;
  }
}

void ClusterRules::forget_idle(Instant now) {
  const bool may_release = slices_.may_release();
  const auto is_over = [&](Sliced& sliced) {
    const bool is_kept = std::exchange(sliced.is_listed, false) &&
                         (now - sliced.wanted_at < kIdleTime || !may_release);
    if (is_kept) return false;
    if (sliced.ops) slices_.forget(*sliced.ops);
    if (sliced.bytes) slices_.forget(*sliced.bytes);
    if (!sliced.is_whole) given_back_.push_back(sliced.id);
    return true;
  };
  if (std::erase_if(classes_, is_over) == 0) return;
  place_of_.clear();
  for (std::size_t i = 0; i < classes_.size(); ++i) place_of_.emplace(classes_[i].id, i);
}

EpochBytes ClusterRules::ready(Instant now) {
  // Rules may be started, stopped and changed at any time; they are read once per epoch, and by
  // follow().
  rules_ = sink_.sliced_rules();
  if (sink_.has_rules()) follow_classes(now);
  forget_idle(now);
  return slices_.demand();
}

Nanoseconds ClusterRules::start_epoch(std::int64_t /*epoch*/, EpochView /*reduced*/, Instant now) {
  apply(now);
  return epoch_;
}

void ClusterRules::alone(std::int64_t /*error*/, Instant now) { apply(now); }

Rate ClusterRules::rate_of(SliceMember::ClassIndex index, Instant now) const {
  return {Tokens{static_cast<std::uint64_t>(slices_.slice(index, now))},
          std::chrono::seconds{kMilli}};
}

Rate ClusterRules::cut_off_rate(std::int64_t limit) const {
  return {Tokens{static_cast<std::uint64_t>(slices_.cut_off(limit))}, std::chrono::seconds{kMilli}};
}

void ClusterRules::follow(Instant now) {
  (void)ready(now);
  apply(now);
}

void ClusterRules::apply(Instant now) {
  if (!sink_.has_rules()) return;
  std::vector<ClassSlice> slices;
  slices.reserve(rules_.size() + given_back_.size() + classes_.size());
  const auto cut_off = [&](const SlicedRule& rule) {
    Slice slice;
    if (rule.ops) slice.ops = cut_off_rate(*rule.ops);
    if (rule.bytes) slice.bytes = cut_off_rate(*rule.bytes);
    return slice;
  };
  for (const SlicedRule& rule : rules_) {
    // A rule with one class has its own slice once it has a slot.
    const bool has_place =
        rule.by.empty() && place_of_.contains(ClassId{rule.rule, Attributes{}.only({})});
    if (!has_place) slices.push_back({rule.rule, std::nullopt, cut_off(rule)});
    for (const ClassId& id : given_back_) {
      if (id.rule == rule.rule) slices.push_back({id.rule, id.key, cut_off(rule)});
    }
  }
  for (const Sliced& one : classes_) {
    Slice slice;
    if (one.ops) slice.ops = rate_of(*one.ops, now);
    if (one.bytes) slice.bytes = rate_of(*one.bytes, now);
    slices.push_back({one.id.rule, one.is_whole ? std::nullopt : std::optional(one.id.key), slice});
  }
  sink_.set_slices(slices, now);
  given_back_.clear();
}

Instant ClusterRules::next_apply(Instant now) const {
  return slices_.lease_end() > now ? slices_.lease_end() : kNever;
}

}  // namespace weir
