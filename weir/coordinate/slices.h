// SPDX-License-Identifier: Apache-2.0
//
// Limits of a whole cluster, divided into slices. A class of requests may pass at `limit` on all
// servers together; each server has a slice of it and paces by that alone. In every round of the
// epoch handler each server reports its demand and what it still holds; the leader divides the
// limit in proportion to demand. All rates are in thousandths of a token per second (kMilli).
//
//   demand: A 900/s, B 100/s, limit 500/s          target: A 450, B 50
//   A held 100, B held 400: B is granted 50 now, and A gets its 350 in the next round, when B has
//   reported that it holds 50. B releases tokens that it does not need already in its own claim, so
//   that A gets them one round sooner.
//
// A slice is a lease. It ends `lease` after the holder *sent* the Ready that it answers, by the
// holder's clock; the leader counts from when it *received* that Ready and adds a margin for clocks
// of different speed, so no slice is ever held twice, however late messages are:
//
//   at every instant    sum of slices under lease <= limit
//
// A holder whose lease has expired falls back to limit / (10 x members), which the leader reserves
// for it while it is away; the same applies to classes without a slot, and to a server that has
// started and not signalled yet. So the sum is always at most limit + limit / 10. A server that
// does not know the number of members uses the minimum rate.
//
// A new leader does not know the grants of the previous one. For one lease plus margin it only
// distributes what the joined members report to hold. They report how many members there were; the
// others count as away, but only as many as have known names.
//
// What a server does that is cut off is a choice (Partition). Above is kSafe. With kLast a slice
// has no end: it stays its holder's until the holder reports in a claim that it holds less,
// whatever happens to the leader, to etcd and to the network, and a leader divides only what is
// reported free. No clock is involved. The leader keeps 1/200 of each limit for servers and classes
// without a slice. They use limit / (400 x members) each, so that their number may have doubled
// since they were told:
//
//   at every instant    sum of slices <= limit - limit / 200, and of all that is used <= limit
//
// Then a new leader only divides what members report to hold until every known server has reported,
// and what a dead server held is free when it reports again after its restart, or is forgotten. A
// member releases tokens only in the first claim after an answer, so that what it releases while it
// is cut off is not lost.
//
// Slots: classes have arbitrary names; the leader assigns each name a place in the vectors, so that
// the vectors of all members have the same meaning. A slot without demand for `slot_idle` may be
// assigned to another name if there is no free slot; otherwise the class is refused and counted.
//
// Time is an argument, from each side's own monotonic clock. One owner each, no locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/round_payload.h"
#include "weir/coordinate/slice_claim.h"
#include "weir/coordinate/vectors.h"

namespace weir {

inline constexpr std::int64_t kMilli = 1000;
inline constexpr std::int64_t kSliceLimitMax = std::int64_t{1'000'000'000'000} * kMilli;
inline constexpr std::int64_t kLeastSlice = 1;  // one token in 1000 s
inline constexpr std::uint32_t kNoSlot = UINT32_MAX;

// What holds while the network is cut: slices end, or stay as they were last.
enum class Partition : std::uint8_t { kSafe, kLast };

// The part of a limit that all servers without a slice may use together.
constexpr std::int64_t cut_off_part(Partition partition) {
  return partition == Partition::kSafe ? 10 : 400;
}
// The part that is kept for them with kLast.
inline constexpr std::int64_t kKeptPart = 200;
// What one of them may use. n = 0: it does not know the number of members.
constexpr std::int64_t cut_off_slice(std::int64_t limit, std::uint32_t members,
                                     Partition partition = Partition::kSafe) {
  return members == 0
             ? kLeastSlice
             : std::max<std::int64_t>(limit / (cut_off_part(partition) * members), kLeastSlice);
}

struct SliceTerms {
  Partition partition = Partition::kSafe;              // the same on all servers
  Nanoseconds lease = std::chrono::milliseconds{400};  // more than the timeout and a few rounds
  // Clocks differ in speed by less than 0.1 %: the kernel slews by at most 0.05 %.
  Nanoseconds margin() const { return lease / 500 + std::chrono::microseconds{10}; }
};

class SliceLeader final : public LeaderRoundPayload {
 public:
  struct Options {
    SliceTerms terms = {};
    std::size_t slots_max = kVectorMax;
    Nanoseconds slot_idle = std::chrono::minutes{1};
    std::uint32_t term = 1;
    bool is_first = false;  // there was no earlier leader, so no slices are held
  };
  // The limit of a class; none if there is no such rule.
  using LimitOf = std::function<std::optional<std::int64_t>(std::string_view name)>;

  SliceLeader(const Options& options, LimitOf limit_of, Instant now);

  bool ready(MemberId member, EpochView data, EpochView claim, Instant now) override;
  void close(Instant now) override;
  EpochBytes grant(MemberId member) override;
  void gone(MemberId member) override;
  void left(MemberId member) override { holders_.erase(member); }

  // The limits have changed: read them again.
  void reload();
  // A member that will not come back: it is no longer counted after its grant has expired. If it
  // signals before that, it stays a member.
  void forget(MemberId member);
  // The number of known names of members that have not signalled here; call it whenever it changes.
  // At most this many of the members that only earlier leaders knew count as away. `running` of
  // them belong to servers that run: each uses the amount of a server that is cut off, so it is
  // counted and this amount is kept free.
  void set_absent(std::uint32_t names, std::uint32_t running = 0);
  // Whether it has signalled, and was not forgotten since.
  bool knows(MemberId member) const { return holders_.contains(member); }

  // Whether it still waits for slices of earlier leaders to end, or to be reported.
  bool is_quiet() const { return is_quiet_; }
  // The number of members, including those that are away.
  std::uint32_t members() const;
  std::size_t slots() const { return slots_.size(); }
  std::uint64_t refused() const { return refused_; }
  // The last grant of a member, for listings.
  std::int64_t slice(MemberId member, std::string_view name) const;
  // What a member may use now, for the first classes with a grant up to a maximum: its slice until
  // that has expired, then the amount of a server that is cut off.
  struct InUse {
    std::string of;
    std::int64_t milli = 0;
    bool is_leased = true;
  };
  std::vector<InUse> slices(MemberId member, std::size_t most, Instant now) const;

 private:
  struct Slot {
    std::string name;
    std::int64_t limit = 0;
    std::uint64_t version = 0;  // version of the table when the slot was assigned to this name
    std::int64_t reported = 0;  // what members reported to hold that was not granted here
    Instant wanted_at{};
  };
  struct Held {
    std::int64_t demand = 0;
    std::int64_t now = 0;       // the maximum it may be using
    std::int64_t unleased = 0;  // of that, what it uses while cut off
    std::int64_t before = 0;    // what was under lease before its last claim
    std::int64_t granted = 0;   // in the round that closed
  };
  struct Holder {
    bool is_present = false;
    bool is_ready = false;
    bool is_forgotten = false;  // takes effect when its lease has expired
    bool is_partial = false;    // its last claim did not contain all of its slices
    std::uint64_t table = 0;    // version of the table that it knows
    std::uint32_t told = 0;     // number of members that it reported
    std::uint32_t telling = 0;
    Instant received{};
    Instant expires{};
    std::vector<Held> held;            // by slot
    std::vector<std::string> refused;  // names of refused classes, to be sent
  };

  std::optional<std::uint32_t> slot_for(const std::string& name, Instant now);
  std::optional<std::uint32_t> idle_slot(Instant now) const;
  void give_slot(std::uint32_t slot, const std::string& name, std::int64_t limit, Instant now);
  Holder& holder_of(MemberId member);
  void end_quiet(Instant now);
  void drop_forgotten(Instant now);
  void cut(std::uint32_t slot, Instant now);
  void cut_back_unleased(std::uint32_t slot, std::int64_t excess);
  std::vector<std::int64_t> targets(std::uint32_t slot, std::int64_t usable) const;
  std::int64_t usable(std::uint32_t slot, Instant now) const;
  std::int64_t usable_of_reported(std::uint32_t slot) const;
  std::int64_t held_in_round(std::uint32_t slot) const;
  void read_slots(const SliceClaim& claim, EpochView data, Holder& holder, Instant now) const;
  void read_asks(const SliceClaim& claim, Holder& holder, Instant now);
  bool is_last() const { return options_.terms.partition == Partition::kLast; }
  bool is_leased(const Holder& holder, Instant now) const {
    return is_last() || now < holder.expires;
  }
  std::int64_t cut_off(std::int64_t limit, std::uint32_t members) const {
    return cut_off_slice(limit, members, options_.terms.partition);
  }
  std::int64_t cut_off_of(const Holder& holder, std::int64_t limit) const;
  std::uint32_t away() const { return std::max(unknown_, running_); }

  Options options_;
  LimitOf limit_of_;
  Instant quiet_until_;
  bool is_quiet_;
  std::uint32_t reported_ = 0;  // number of members, as reported by members of earlier terms
  std::uint32_t unknown_ = 0;   // of them, those that have not joined
  std::optional<std::uint32_t> absent_;  // known names that have not signalled
  std::uint32_t running_ = 0;            // of them, those of running servers
  std::map<MemberId, Holder> holders_;
  std::vector<Slot> slots_;
  std::map<std::string, std::uint32_t, std::less<>> by_name_;
  std::vector<Holder*> round_;  // members that signalled, in order
  std::uint64_t version_;
  std::uint64_t refused_ = 0;
};

class SliceMember final : public MemberRoundPayload {
 public:
  using ClassIndex = std::size_t;

  explicit SliceMember(const SliceTerms& terms) : terms_(terms) {}

  // A class by its name, with its limit in kMilli; the same name is the same class. REQUIRES: the
  // name is not longer than kSliceNameMax, 0 < limit <= kSliceLimitMax.
  ClassIndex open(std::string_view name, std::int64_t limit);
  // No demand from now on; its slot is kept until it is opened again.
  void close(ClassIndex index) { classes_[index].demand = 0; }
  // Removes the class; its index may be reused.
  void forget(ClassIndex index);

  // The number of members from another source, used until a leader has reported it.
  void expect_members(std::uint32_t members) {
    if (!is_told_) members_ = std::min<std::uint32_t>(members, kEpochMembersMax);
  }

  // The demand of the class, in kMilli; set it before each call of next_epoch.
  void set_demand(ClassIndex index, std::int64_t demand) { classes_[index].demand = demand; }
  // The demand as epoch data, for the next call of next_epoch.
  EpochBytes demand() const;

  EpochBytes claim(Instant now) override;
  bool granted(EpochView grant, Instant now) override;
  void lost() override;

  // What the class may use now; and until when, if no message arrives.
  std::int64_t slice(ClassIndex index, Instant now) const;
  // It has a valid slice, and not only the amount of a server that is cut off.
  bool is_leased(ClassIndex index, Instant now) const;
  // What a class without a slice may use of its limit.
  std::int64_t cut_off(std::int64_t limit) const {
    return cut_off_slice(limit, members_, terms_.partition);
  }
  // Whether slices may be released now: what a server releases that is cut off would be unused.
  bool may_release() const { return !is_last() || is_answered_; }
  Instant lease_end() const { return is_last() ? kNever : lease_end_; }
  std::uint32_t members() const { return members_; }
  // Whether a leader has reported it.
  bool is_told() const { return is_told_; }
  // Number of indexes; the name of a removed class is empty.
  std::size_t classes() const { return classes_.size(); }
  const std::string& name(ClassIndex index) const { return classes_[index].name; }
  std::size_t open_classes() const { return by_name_.size(); }

 private:
  struct Class {
    std::string name;
    std::int64_t limit = 0;
    std::int64_t demand = 0;
    std::int64_t slice = 0;
    std::uint32_t slot = kNoSlot;
    std::uint32_t ask_in = 0;  // number of claims to wait after a refusal
    bool has_slice = false;    // until the lease ends, if it does
    bool is_open = true;
  };

  bool is_last() const { return terms_.partition == Partition::kLast; }
  std::int64_t held(ClassIndex index, Instant now) const;
  void give_up_unneeded(Class& one, Instant now) const;
  void define(std::uint32_t slot, std::string name);

  SliceTerms terms_;
  std::vector<Class> classes_;
  std::vector<ClassIndex> free_;  // free indexes
  std::map<std::string, ClassIndex, std::less<>> by_name_;
  std::vector<std::string> slots_;  // names, as assigned by the leader
  std::map<std::string, std::uint32_t, std::less<>> slot_of_;
  std::uint64_t table_ = 0;
  std::uint32_t members_ = 0;
  bool is_told_ = false;      // reported by a leader
  bool is_answered_ = false;  // the last claim
  Instant claimed_at_ = Instant::min();
  Instant lease_end_ = Instant::min();
};

}  // namespace weir
