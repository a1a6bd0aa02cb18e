// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/slices.h"

#include <numeric>
#include <utility>

#include "weir/base/assert.h"
#include "weir/coordinate/bytes.h"
#include "weir/coordinate/slice_claim.h"

namespace weir {
namespace {

using Wide = __int128;

// Maximum per message; the others follow in the next one.
constexpr std::uint32_t kDefinitionsMax = 512;
// A refused class asks again after this many claims.
constexpr std::uint32_t kAskAgain = 100;
// The fraction of its cut-off amount that a member without demand keeps: it can start at once, and
// all of them together hold half a percent of the limit.
constexpr std::int64_t kIdlePart = 20;
// The fraction of its excess that a busy member releases per round: released tokens are unused for
// that round, and fluctuating demand must not cost more than it gains.
constexpr std::int64_t kGentlePart = 4;

}  // namespace

// ---- the leader ----

SliceLeader::SliceLeader(const Options& options, LimitOf limit_of, Instant now)
    : options_(options),
      limit_of_(std::move(limit_of)),
      quiet_until_(now + options.terms.lease + options.terms.margin()),
      is_quiet_(!options.is_first),
      version_(std::uint64_t{options.term} << 32) {
  WEIR_ASSERT(options.slots_max <= kVectorMax, options.slots_max);
}

std::uint32_t SliceLeader::members() const {
  const auto known = static_cast<std::uint32_t>(holders_.size());
  if (!is_quiet_) return known + away();
  return std::max(known + running_, std::min(reported_, known + absent_.value_or(reported_)));
}

// After the old leases have expired, members that have not joined are away and use their
// cut-off amount. Slices without an end must all have been reported.
void SliceLeader::end_quiet(Instant now) {
  if (!is_quiet_) return;
  if (is_last()) {
    const bool is_reported =
        absent_ == 0U && std::none_of(holders_.begin(), holders_.end(),
                                      [](const auto& one) { return one.second.is_partial; });
    if (!is_reported) return;
  } else if (now < quiet_until_) {
    return;
  }
  is_quiet_ = false;
  const auto known = static_cast<std::uint32_t>(holders_.size());
  unknown_ = reported_ > known ? reported_ - known : 0;
  if (absent_) unknown_ = std::min(unknown_, *absent_);
}

void SliceLeader::forget(MemberId member) {
  const auto found = holders_.find(member);
  if (found != holders_.end()) found->second.is_forgotten = true;
}

void SliceLeader::drop_forgotten(Instant now) {
  std::erase_if(holders_, [&](const auto& one) {
    const Holder& holder = one.second;
    return holder.is_forgotten && !holder.is_ready && (is_last() || now >= holder.expires);
  });
}

void SliceLeader::set_absent(std::uint32_t names, std::uint32_t running) {
  absent_ = names;
  running_ = running;
  unknown_ = std::min(unknown_, names);
}

SliceLeader::Holder& SliceLeader::holder_of(MemberId member) {
  const auto [found, is_new] = holders_.try_emplace(member);
  // Without names, a new member is assumed to be one of them.
  if (is_new && !absent_ && !is_quiet_ && unknown_ > 0) --unknown_;
  return found->second;
}

bool SliceLeader::ready(MemberId member, EpochView data, EpochView bytes, Instant now) {
  const std::optional<SliceClaim> claim = read_claim(bytes);
  if (!claim || data.size() % sizeof(std::int64_t) != 0) return false;
  end_quiet(now);
  Holder& holder = holder_of(member);
  holder.is_present = true;
  holder.is_ready = true;
  holder.is_forgotten = false;
  holder.received = now;
  holder.told = claim->members;
  reported_ = std::max(reported_, claim->members);
  // Slots of another leader's table have no meaning here.
  const bool is_our_table = claim->table >> 32 == options_.term;
  holder.table = is_our_table ? claim->table : std::uint64_t{options_.term} << 32;
  holder.held.resize(slots_.size());
  read_slots(*claim, data, holder, now);
  read_asks(*claim, holder, now);
  holder.is_partial = claim->is_partial || !holder.refused.empty();
  return true;
}

// It cannot hold more than it was granted, and after that has expired no more than its cut-off
// amount, whatever it claims: others may have it by now.
void SliceLeader::read_slots(const SliceClaim& claim, EpochView data, Holder& holder,
                             Instant now) const {
  const EpochVector demand = unpack_vector(data);
  const bool is_our_table = claim.table >> 32 == options_.term;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Held& held = holder.held[slot];
    const bool is_meant = is_our_table && slots_[slot].version <= claim.table;
    held.demand = is_meant && slot < demand.size() ? demand[slot] : 0;
    const std::int64_t given = is_leased(holder, now) ? held.now : 0;
    held.before = given;
    if (!is_meant && claim.is_partial) continue;  // it will ask for the class by its name
    const std::int64_t said = is_meant && slot < claim.held.size() ? claim.held[slot] : 0;
    const std::int64_t least = is_last() ? 0 : cut_off(slots_[slot].limit, holder.told);
    held.now = std::min(said, std::max(given, least));
    held.unleased = held.now - (claim.is_leased ? std::min(held.now, given) : 0);
  }
}

void SliceLeader::read_asks(const SliceClaim& claim, Holder& holder, Instant now) {
  holder.refused.clear();
  for (const SliceClaim::Ask& ask : claim.asks) {
    const auto slot = slot_for(ask.name, now);
    if (!slot) {
      ++refused_;
      holder.refused.push_back(ask.name);
      continue;
    }
    holder.held.resize(slots_.size());
    Held& held = holder.held[*slot];
    const std::int64_t limit = slots_[*slot].limit;
    const std::int64_t given = is_quiet_ ? limit : held.before;
    const std::int64_t least = is_last() ? 0 : cut_off(limit, holder.told);
    held.demand = std::max<std::int64_t>(ask.demand, 0);
    held.now = std::clamp<std::int64_t>(ask.held, 0, std::max(given, least));
    std::int64_t& reported = slots_[*slot].reported;
    reported =
        std::min(kSliceLimitMax, reported + std::max<std::int64_t>(held.now - held.before, 0));
    held.before = std::max(held.before, held.now);
    held.unleased = held.now - (ask.is_leased ? std::min(held.now, given) : 0);
  }
}

std::optional<std::uint32_t> SliceLeader::slot_for(const std::string& name, Instant now) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return found->second;
  const std::optional<std::int64_t> limit = limit_of_(name);
  if (!limit || *limit <= 0 || *limit > kSliceLimitMax) return std::nullopt;
  auto slot = static_cast<std::uint32_t>(slots_.size());
  if (slots_.size() < options_.slots_max) {
    slots_.emplace_back();
  } else if (const auto idle = idle_slot(now)) {
    slot = *idle;
    by_name_.erase(slots_[slot].name);
  } else {
    return std::nullopt;
  }
  give_slot(slot, name, *limit, now);
  return slot;
}

void SliceLeader::give_slot(std::uint32_t slot, const std::string& name, std::int64_t limit,
                            Instant now) {
  slots_[slot] = {.name = name, .limit = limit, .version = ++version_, .wanted_at = now};
  by_name_.emplace(name, slot);
  for (auto& [id, holder] : holders_) {
    if (slot < holder.held.size()) holder.held[slot] = {};
  }
}

std::optional<std::uint32_t> SliceLeader::idle_slot(Instant now) const {
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (now - slots_[slot].wanted_at < options_.slot_idle) continue;
    const bool is_held = is_last() && std::any_of(holders_.begin(), holders_.end(), [&](auto& one) {
                           const std::vector<Held>& held = one.second.held;
                           return slot < held.size() && held[slot].now > 0;
                         });
    if (!is_held) return slot;
  }
  return std::nullopt;
}

void SliceLeader::gone(MemberId member) {
  const auto found = holders_.find(member);
  if (found == holders_.end()) return;
  found->second.is_present = false;
  found->second.is_ready = false;
}

void SliceLeader::reload() {
  for (Slot& slot : slots_) slot.limit = limit_of_(slot.name).value_or(0);
}

// The maximum that a member uses while it is cut off: by the last number of members that
// it received.
std::int64_t SliceLeader::cut_off_of(const Holder& holder, std::int64_t limit) const {
  const std::uint32_t told = holder.telling == 0 ? holder.told
                             : holder.told == 0  ? holder.telling
                                                 : std::min(holder.told, holder.telling);
  return cut_off(limit, told);
}

// What the members that signalled hold under lease.
std::int64_t SliceLeader::held_in_round(std::uint32_t slot) const {
  std::int64_t held = 0;
  for (const Holder* const holder : round_) {
    held += holder->held[slot].now - holder->held[slot].unleased;
  }
  return held;
}

// The amount that the members that signalled may hold: the limit without what others hold or may
// start to use.
std::int64_t SliceLeader::usable(std::uint32_t slot, Instant now) const {
  if (is_last()) return usable_of_reported(slot);
  const std::int64_t limit = slots_[slot].limit;
  std::int64_t usable = limit;
  for (const auto& [id, holder] : holders_) {
    if (holder.is_ready) continue;
    std::int64_t kept = cut_off_of(holder, limit);
    if (now < holder.expires && slot < holder.held.size()) {
      kept = std::max(kept, holder.held[slot].now);
    }
    usable -= kept;
  }
  if (is_quiet_) return std::min(usable, held_in_round(slot));
  // Members that were counted before use that count, others the one they find in etcd.
  if (unknown_ > 0) usable -= unknown_ * cut_off(limit, std::max(reported_, 1U));
  if (running_ > unknown_) usable -= (running_ - unknown_) * cut_off(limit, members());
  return std::max<std::int64_t>(usable, 0);
}

// The same without ends of leases: what the others have last reported is theirs. What servers use
// without a slice is kept free for all, since each may need it at any time.
std::int64_t SliceLeader::usable_of_reported(std::uint32_t slot) const {
  const std::int64_t limit = slots_[slot].limit;
  std::int64_t kept = absent_.value_or(0) * cut_off(limit, std::max(reported_, members()));
  std::int64_t held = 0;
  for (const auto& [id, holder] : holders_) {
    kept += cut_off_of(holder, limit);
    if (!holder.is_ready && slot < holder.held.size()) held += holder.held[slot].now;
  }
  std::int64_t usable = limit - std::max(kept, limit / kKeptPart);
  if (is_quiet_) usable = std::min(usable, slots_[slot].reported);
  return std::max<std::int64_t>(usable - held, 0);
}

// The idle amount for each, and the rest by demand; without demand, equal amounts. Slices without
// an end are by demand alone: what a server holds that is cut off is of no use to others.
std::vector<std::int64_t> SliceLeader::targets(std::uint32_t slot, std::int64_t usable) const {
  const std::int64_t limit = slots_[slot].limit;
  const auto count = static_cast<std::int64_t>(round_.size());
  Wide wanted = 0;
  for (const Holder* const holder : round_) wanted += std::min(holder->held[slot].demand, limit);
  const std::int64_t floor =
      is_last() ? 0 : std::min(cut_off(limit, members()) / kIdlePart, usable / count);
  const std::int64_t rest = usable - floor * count;
  std::vector<std::int64_t> targets;
  targets.reserve(round_.size());
  for (const Holder* const holder : round_) {
    const Wide demand = std::min(holder->held[slot].demand, limit);
    const Wide equal = is_last() ? 0 : Wide{rest} / count;
    const Wide part = wanted == 0 ? equal : Wide{rest} * demand / wanted;
    targets.push_back(floor + static_cast<std::int64_t>(part));
  }
  return targets;
}

// A member that returns reports what it used while cut off. If others hold the whole limit, it gets
// no lease for that.
void SliceLeader::cut_back_unleased(std::uint32_t slot, std::int64_t excess) {
  Wide unleased = 0;
  for (const Holder* const holder : round_) unleased += holder->held[slot].unleased;
  for (Holder* const holder : round_) {
    Held& held = holder->held[slot];
    if (held.unleased == 0) continue;
    const Wide part = (Wide{excess} * held.unleased + unleased - 1) / unleased;
    const auto back = static_cast<std::int64_t>(std::min<Wide>(part, held.unleased));
    held.granted = std::min(held.granted, held.now - back);
  }
}

// No member gets tokens that another may still be using: members that hold too much get a smaller
// grant now, and what they release is granted after they have reported it.
void SliceLeader::cut(std::uint32_t slot, Instant now) {
  const std::int64_t all = std::max<std::int64_t>(usable(slot, now), 0);
  const std::vector<std::int64_t> target = targets(slot, all);
  std::int64_t free = all;
  Wide lacking = 0;
  for (std::size_t i = 0; i < round_.size(); ++i) {
    const Held& held = round_[i]->held[slot];
    free -= held.now;
    lacking += std::max<std::int64_t>(target[i] - held.now, 0);
    if (held.demand > 0) slots_[slot].wanted_at = now;
  }
  const Wide given = std::min<Wide>(lacking, std::max<std::int64_t>(free, 0));
  for (std::size_t i = 0; i < round_.size(); ++i) {
    Held& held = round_[i]->held[slot];
    if (target[i] > held.now) {
      const Wide part = Wide{target[i] - held.now} * given / lacking;
      held.granted = held.now + static_cast<std::int64_t>(part);
    } else {
      const std::int64_t excess = held.now - target[i];
      const bool is_gentle = free >= 0 && held.demand >= held.now;
      held.granted = held.now - (is_gentle ? excess / kGentlePart : excess);
    }
  }
  if (free < 0) cut_back_unleased(slot, -free);
  for (Holder* const holder : round_) {
    Held& held = holder->held[slot];
    held.now = std::max(held.now, held.granted);
  }
}

void SliceLeader::close(Instant now) {
  end_quiet(now);
  drop_forgotten(now);
  round_.clear();
  for (auto& [id, holder] : holders_) {
    if (!holder.is_ready) continue;
    holder.held.resize(slots_.size());
    round_.push_back(&holder);
  }
  if (round_.empty()) return;
  for (Holder* const holder : round_) holder->telling = members();
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) cut(slot, now);
  for (Holder* const holder : round_) {
    holder->is_ready = false;
    holder->expires = holder->received + options_.terms.lease + options_.terms.margin();
  }
}

EpochBytes SliceLeader::grant(MemberId member) {
  const auto found = holders_.find(member);
  WEIR_ASSERT(found != holders_.end(), member);
  Holder& holder = found->second;
  std::vector<std::uint32_t> unknown;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].version > holder.table) unknown.push_back(slot);
  }
  std::sort(unknown.begin(), unknown.end(),
            [&](auto a, auto b) { return slots_[a].version < slots_[b].version; });
  if (unknown.size() > kDefinitionsMax) unknown.resize(kDefinitionsMax);
  const std::uint64_t table =
      unknown.empty() ? std::max(holder.table, version_) : slots_[unknown.back()].version;
  ByteWriter out;
  out.put(table);
  out.put(holder.telling);
  out.put(static_cast<std::uint32_t>(unknown.size() + holder.refused.size()));
  for (const std::uint32_t slot : unknown) {
    out.put(slot);
    out.stretch(slice_name_bytes(slots_[slot].name));
  }
  for (const std::string& name : holder.refused) {
    out.put(kNoSlot);
    out.stretch(slice_name_bytes(name));
  }
  EpochVector slices;
  slices.reserve(holder.held.size());
  for (const Held& held : holder.held) slices.push_back(held.granted);
  out.stretch(pack_vector(slices));
  return out.take();
}

std::int64_t SliceLeader::slice(MemberId member, std::string_view name) const {
  const auto slot = by_name_.find(name);
  const auto holder = holders_.find(member);
  if (slot == by_name_.end() || holder == holders_.end()) return 0;
  const std::vector<Held>& held = holder->second.held;
  return slot->second < held.size() ? held[slot->second].granted : 0;
}

std::vector<SliceLeader::InUse> SliceLeader::slices(MemberId member, std::size_t most,
                                                    Instant now) const {
  std::vector<InUse> all;
  const auto found = holders_.find(member);
  if (found == holders_.end()) return all;
  const Holder& holder = found->second;
  const bool is_leased = this->is_leased(holder, now);
  for (std::size_t slot = 0; slot < std::min(holder.held.size(), slots_.size()); ++slot) {
    if (all.size() == most) break;
    if (holder.held[slot].granted == 0) continue;
    const std::int64_t milli =
        is_leased ? holder.held[slot].granted : cut_off_of(holder, slots_[slot].limit);
    all.push_back({slots_[slot].name, milli, is_leased});
  }
  return all;
}

// ---- a member ----

SliceMember::ClassIndex SliceMember::open(std::string_view name, std::int64_t limit) {
  WEIR_ASSERT(name.size() <= kSliceNameMax && limit > 0 && limit <= kSliceLimitMax, limit);
  const ClassIndex place = free_.empty() ? classes_.size() : free_.back();
  const auto [found, is_new] = by_name_.try_emplace(std::string(name), place);
  if (is_new) {
    if (free_.empty()) {
      classes_.emplace_back();
    } else {
      free_.pop_back();
    }
    const auto slot = slot_of_.find(name);
    classes_[place] = {.name = found->first,
                       .slot = slot == slot_of_.end() ? kNoSlot : slot->second};
  }
  classes_[found->second].limit = limit;
  return found->second;
}

void SliceMember::forget(ClassIndex index) {
  WEIR_ASSERT(classes_[index].is_open, index);
  by_name_.erase(classes_[index].name);
  classes_[index] = Class{};
  classes_[index].is_open = false;
  free_.push_back(index);
}

EpochBytes SliceMember::demand() const {
  EpochVector demand(slots_.size());
  for (const Class& one : classes_) {
    if (one.slot != kNoSlot) demand[one.slot] = std::max<std::int64_t>(one.demand, 0);
  }
  return pack_vector(demand);
}

bool SliceMember::is_leased(ClassIndex index, Instant now) const {
  return classes_[index].has_slice && now < lease_end();
}

std::int64_t SliceMember::slice(ClassIndex index, Instant now) const {
  const Class& one = classes_[index];
  const std::int64_t least = cut_off(one.limit);
  if (!is_leased(index, now)) return least;
  return is_last() ? std::max(std::min(one.slice, one.limit), least)
                   : std::max(one.slice, kLeastSlice);
}

// For a claim. What a class uses without a slice without an end is not part of any slice.
std::int64_t SliceMember::held(ClassIndex index, Instant now) const {
  if (!is_last()) return slice(index, now);
  return classes_[index].has_slice ? classes_[index].slice : 0;
}

// Keeps twice its demand, so that demand may grow, and a little for its return.
void SliceMember::give_up_unneeded(Class& one, Instant now) const {
  if (!one.has_slice || now >= lease_end() || !may_release()) return;
  const std::int64_t idle = is_last() ? 0 : cut_off(one.limit) / kIdlePart;
  const std::int64_t wanted = std::clamp<std::int64_t>(one.demand, 0, one.limit);
  one.slice = std::min(one.slice, 2 * wanted + idle);
}

EpochBytes SliceMember::claim(Instant now) {
  claimed_at_ = now;
  SliceClaim claim{.table = table_,
                   .members = members_,
                   .is_leased = now < lease_end(),
                   .asks = {},
                   .held = EpochVector(slots_.size())};
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    Class& one = classes_[i];
    if (!one.is_open) continue;
    give_up_unneeded(one, now);
    if (one.slot != kNoSlot) {
      claim.held[one.slot] = held(i, now);
    } else if (one.ask_in > 0) {
      --one.ask_in;
    } else if (claim.asks.size() < kAsksMax) {
      claim.asks.push_back({one.name, held(i, now), one.demand, is_leased(i, now)});
    } else if (is_last() && one.has_slice && one.slice > 0) {
      claim.is_partial = true;
    }
  }
  is_answered_ = false;
  return pack_claim(claim);
}

void SliceMember::define(std::uint32_t slot, std::string name) {
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  const auto before = by_name_.find(slots_[slot]);
  if (before != by_name_.end() && classes_[before->second].slot == slot) {
    classes_[before->second].slot = kNoSlot;
    classes_[before->second].has_slice = false;
  }
  slot_of_.erase(slots_[slot]);
  const auto named = by_name_.find(name);
  if (named != by_name_.end()) classes_[named->second].slot = slot;
  slot_of_[name] = slot;
  slots_[slot] = std::move(name);
}

bool SliceMember::granted(EpochView bytes, Instant /*now*/) {
  ByteReader in(bytes);
  const auto table = in.get<std::uint64_t>();
  const auto members = in.get<std::uint32_t>();
  const auto count = in.get<std::uint32_t>();
  std::vector<std::pair<std::uint32_t, std::string>> definitions;
  for (std::uint32_t i = 0; i < count && in.room_for(1) > 0; ++i) {
    const auto slot = in.get<std::uint32_t>();
    if (slot != kNoSlot && slot >= kVectorMax) in.fail();
    definitions.emplace_back(slot, slice_name_from(in.stretch(kSliceNameMax)));
  }
  const EpochVector slices = unpack_vector(in.stretch(kEpochDataMax));
  if (!in.is_done() || definitions.size() != count || members == 0) return false;
  for (auto& [slot, name] : definitions) {
    const auto named = by_name_.find(name);
    if (slot != kNoSlot) {
      define(slot, std::move(name));
    } else if (named != by_name_.end()) {
      classes_[named->second].ask_in = kAskAgain;
      classes_[named->second].has_slice = false;
    }
  }
  table_ = table;
  members_ = members;
  is_told_ = true;
  is_answered_ = true;
  lease_end_ = claimed_at_ + terms_.lease;
  for (Class& one : classes_) {
    // Slices without an end of classes that the leader has not mentioned are still held.
    if (one.slot == kNoSlot && is_last()) continue;
    one.has_slice = one.slot != kNoSlot;
    if (!one.has_slice) continue;
    const std::int64_t slice = one.slot < slices.size() ? slices[one.slot] : 0;
    one.slice = std::min(slice, one.limit);
  }
  return true;
}

// It holds its slices as before, but the slots are those of the old leader.
void SliceMember::lost() {
  is_answered_ = false;
  for (Class& one : classes_) {
    one.slot = kNoSlot;
    one.ask_in = 0;
  }
  slots_.clear();
  slot_of_.clear();
  table_ = 0;
}

}  // namespace weir
