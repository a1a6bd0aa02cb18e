// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/slices.h"

#include <numeric>
#include <utility>

#include "weir/base/assert.h"
#include "weir/coordinate/bytes.h"

namespace weir {
namespace {

using Wide = __int128;

// Maximum per message; the others follow in the next one.
constexpr std::uint32_t kAsksMax = 256;
constexpr std::uint32_t kDefinitionsMax = 512;
// A refused class asks again after this many claims.
constexpr std::uint32_t kAskAgain = 100;
// The fraction of its cut-off amount that a member without demand keeps: it can start at once, and
// all of them together hold half a percent of the limit.
constexpr std::int64_t kIdlePart = 20;
// The fraction of its excess that a busy member releases per round: released tokens are unused for
// that round, and fluctuating demand must not cost more than it gains.
constexpr std::int64_t kGentlePart = 4;

// A class by name that a member holds or could use, without a known slot.
struct Ask {
  std::string name;
  std::int64_t held;
  std::int64_t demand;
  bool is_leased;  // otherwise its cut-off amount
};
struct Claim {
  std::uint64_t table = 0;
  std::uint32_t members = 0;
  bool is_leased = false;  // the amounts in slots are under lease
  std::vector<Ask> asks;
  EpochVector held;  // by slot
};

std::string name_from(EpochView view) {
  return {reinterpret_cast<const char*>(view.data()), view.size()};
}
EpochView view_of(std::string_view name) { return std::as_bytes(std::span(name)); }

std::optional<Claim> read_claim(EpochView bytes) {
  ByteReader in(bytes);
  Claim claim;
  claim.table = in.get<std::uint64_t>();
  claim.members = in.get<std::uint32_t>();
  claim.is_leased = in.get<std::uint8_t>() != 0;
  const auto asks = in.get<std::uint32_t>();
  if (asks > kAsksMax || claim.members > kEpochMembersMax) in.fail();
  for (std::uint32_t i = 0; i < asks && in.room_for(1) > 0; ++i) {
    std::string name = name_from(in.stretch(kSliceNameMax));
    const auto held = in.get<std::int64_t>();
    const auto demand = in.get<std::int64_t>();
    const bool is_leased = in.get<std::uint8_t>() != 0;
    claim.asks.push_back({std::move(name), held, demand, is_leased});
  }
  if (claim.asks.size() != asks) in.fail();
  claim.held = unpack_vector(in.stretch(kEpochDataMax));
  if (!in.is_done()) return std::nullopt;
  return claim;
}

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
// cut-off amount.
void SliceLeader::end_quiet(Instant now) {
  if (!is_quiet_ || now < quiet_until_) return;
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
    return holder.is_forgotten && !holder.is_ready && now >= holder.expires;
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
  const std::optional<Claim> claim = read_claim(bytes);
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
  const EpochVector demand = unpack_vector(data);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    Held& held = holder.held[slot];
    const bool is_meant = is_our_table && slots_[slot].version <= claim->table;
    held.demand = is_meant && slot < demand.size() ? demand[slot] : 0;
    const std::int64_t said = is_meant && slot < claim->held.size() ? claim->held[slot] : 0;
    // It cannot hold more than it was granted, and after that has expired no more than its cut-off
    // amount, whatever it claims: others may have it by now.
    const std::int64_t cut_off = cut_off_slice(slots_[slot].limit, holder.told);
    const std::int64_t given = now < holder.expires ? held.now : 0;
    held.before = given;
    held.now = std::min(said, std::max(given, cut_off));
    held.unleased = held.now - (claim->is_leased ? std::min(held.now, given) : 0);
  }
  holder.refused.clear();
  for (const Ask& ask : claim->asks) {
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
    const std::int64_t cut_off = cut_off_slice(limit, holder.told);
    held.demand = std::max<std::int64_t>(ask.demand, 0);
    held.now = std::clamp<std::int64_t>(ask.held, 0, std::max(given, cut_off));
    held.unleased = held.now - (ask.is_leased ? std::min(held.now, given) : 0);
  }
  return true;
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
  const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return now - slot.wanted_at >= options_.slot_idle;
  });
  if (found == slots_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - slots_.begin());
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
std::int64_t SliceLeader::cut_off_of(const Holder& holder, std::int64_t limit) {
  const std::uint32_t told = holder.telling == 0 ? holder.told
                             : holder.told == 0  ? holder.telling
                                                 : std::min(holder.told, holder.telling);
  return cut_off_slice(limit, told);
}

// The amount that the members that signalled may hold: the limit without what others hold or may
// start to use.
std::int64_t SliceLeader::usable(std::uint32_t slot, Instant now) const {
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
  if (is_quiet_) {
    std::int64_t held = 0;
    for (const Holder* const holder : round_) {
      held += holder->held[slot].now - holder->held[slot].unleased;
    }
    return std::min(usable, held);
  }
  // Members that were counted before use that count, others the one they find in etcd.
  if (unknown_ > 0) usable -= unknown_ * cut_off_slice(limit, std::max(reported_, 1U));
  if (running_ > unknown_) usable -= (running_ - unknown_) * cut_off_slice(limit, members());
  return std::max<std::int64_t>(usable, 0);
}

// The idle amount for each, and the rest by demand; without demand, equal amounts.
std::vector<std::int64_t> SliceLeader::targets(std::uint32_t slot, std::int64_t usable) const {
  const std::int64_t limit = slots_[slot].limit;
  const auto count = static_cast<std::int64_t>(round_.size());
  Wide wanted = 0;
  for (const Holder* const holder : round_) wanted += std::min(holder->held[slot].demand, limit);
  const std::int64_t floor = std::min(cut_off_slice(limit, members()) / kIdlePart, usable / count);
  const std::int64_t rest = usable - floor * count;
  std::vector<std::int64_t> targets;
  targets.reserve(round_.size());
  for (const Holder* const holder : round_) {
    const Wide demand = std::min(holder->held[slot].demand, limit);
    const Wide part = wanted == 0 ? Wide{rest} / count : Wide{rest} * demand / wanted;
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
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) cut(slot, now);
  for (Holder* const holder : round_) {
    holder->is_ready = false;
    holder->telling = members();
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
    out.stretch(view_of(slots_[slot].name));
  }
  for (const std::string& name : holder.refused) {
    out.put(kNoSlot);
    out.stretch(view_of(name));
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
  const bool is_leased = now < holder.expires;
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
  return classes_[index].has_slice && now < lease_end_;
}

std::int64_t SliceMember::slice(ClassIndex index, Instant now) const {
  const Class& one = classes_[index];
  if (is_leased(index, now)) return std::max(one.slice, kLeastSlice);
  return cut_off_slice(one.limit, members_);
}

// Keeps twice its demand, so that demand may grow, and a little for its return.
void SliceMember::give_up_unneeded(Class& one, Instant now) const {
  if (!one.has_slice || now >= lease_end_) return;
  const std::int64_t idle = cut_off_slice(one.limit, members_) / kIdlePart;
  const std::int64_t wanted = std::clamp<std::int64_t>(one.demand, 0, one.limit);
  one.slice = std::min(one.slice, 2 * wanted + idle);
}

EpochBytes SliceMember::claim(Instant now) {
  claimed_at_ = now;
  EpochVector held(slots_.size());
  std::vector<const Class*> asks;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    Class& one = classes_[i];
    if (!one.is_open) continue;
    give_up_unneeded(one, now);
    if (one.slot != kNoSlot) {
      held[one.slot] = slice(i, now);
    } else if (one.ask_in > 0) {
      --one.ask_in;
    } else if (asks.size() < kAsksMax) {
      asks.push_back(&one);
    }
  }
  ByteWriter out;
  out.put(table_);
  out.put(members_);
  out.put(static_cast<std::uint8_t>(now < lease_end_));
  out.put(static_cast<std::uint32_t>(asks.size()));
  for (const Class* const one : asks) {
    const ClassIndex index = by_name_.at(one->name);
    out.stretch(view_of(one->name));
    out.put(slice(index, now));
    out.put(one->demand);
    out.put(static_cast<std::uint8_t>(is_leased(index, now)));
  }
  out.stretch(pack_vector(held));
  return out.take();
}

void SliceMember::define(std::uint32_t slot, std::string name) {
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  const auto before = by_name_.find(slots_[slot]);
  if (before != by_name_.end() && classes_[before->second].slot == slot) {
    classes_[before->second].slot = kNoSlot;
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
    definitions.emplace_back(slot, name_from(in.stretch(kSliceNameMax)));
  }
  const EpochVector slices = unpack_vector(in.stretch(kEpochDataMax));
  if (!in.is_done() || definitions.size() != count || members == 0) return false;
  for (auto& [slot, name] : definitions) {
    const auto named = by_name_.find(name);
    if (slot != kNoSlot) {
      define(slot, std::move(name));
    } else if (named != by_name_.end()) {
      classes_[named->second].ask_in = kAskAgain;
    }
  }
  table_ = table;
  members_ = members;
  is_told_ = true;
  lease_end_ = claimed_at_ + terms_.lease;
  for (Class& one : classes_) {
    one.has_slice = one.slot != kNoSlot;
    if (!one.has_slice) continue;
    const std::int64_t slice = one.slot < slices.size() ? slices[one.slot] : 0;
    one.slice = std::min(slice, one.limit);
  }
  return true;
}

// It holds its slices until the lease ends, but the slots are those of the old leader.
void SliceMember::lost() {
  for (Class& one : classes_) {
    one.slot = kNoSlot;
    one.ask_in = 0;
  }
  slots_.clear();
  slot_of_.clear();
  table_ = 0;
}

}  // namespace weir
