// SPDX-License-Identifier: Apache-2.0
//
// Limits of a whole cluster, cut into slices. A class of requests may pass at `limit` on all
// servers together; each server has a slice of it and paces by that alone. In every round of the
// epoch handler each says what it could use (the demand) and what it still holds; the leader cuts
// anew in proportion to demand. All rates are in thousandths of a token a second (kMilli).
//
//   demand: A 900/s, B 100/s, limit 500/s          target: A 450, B 50
//   A held 100, B held 400: B is told 50 now, and A gets its 350 in the round after, when B has
//   said that it holds 50. What B itself no longer needed it gives up in its very claim, so that
//   A has it one round sooner.
//
// A slice is a lease. It ends `lease` after the holder *sent* the Ready that it answers, by the
// holder's clock; the leader counts from when it *received* that Ready and adds a margin for clocks
// that run at different speeds, so a slice is never in two hands, however late messages are:
//
//   at every instant    sum of slices under lease <= limit
//
// A holder whose lease has expired falls to limit / (10 x members), which the leader reserves for
// it while it is away; the same goes for classes without a slot, and for a server that has started
// and not signalled yet. So whatever happens the sum is at most limit + limit / 10. A server that
// does not know how many members there are uses the least rate.
//
// A new leader does not know what the one before has granted. For one lease and margin it only
// shares out what the members that have come say they hold. They report how many members there
// were; others are away by then, and counted only as far as their names are known.
//
// Slots: classes have names of any kind; the leader gives each name a place in the vectors, so all
// hand in vectors of one meaning. A slot without demand for `slot_idle` may be given to another
// name when there is no new one; when there is neither, the class is refused and counted.
//
// Time is given, each side's own monotonic clock. One owner each, no locks.
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
#include "weir/coordinate/vectors.h"

namespace weir {

inline constexpr std::int64_t kMilli = 1000;
inline constexpr std::int64_t kSliceLimitMax = std::int64_t{1'000'000'000'000} * kMilli;
inline constexpr std::int64_t kLeastSlice = 1;  // one token in 1000 s
inline constexpr std::size_t kSliceNameMax = 255;
inline constexpr std::uint32_t kNoSlot = UINT32_MAX;

// What a server uses of a limit while it is cut off. n = 0: it does not know how many there are.
constexpr std::int64_t cut_off_slice(std::int64_t limit, std::uint32_t members) {
  return members == 0 ? kLeastSlice
                      : std::max<std::int64_t>(limit / (std::int64_t{10} * members), kLeastSlice);
}

struct SliceTerms {
  Nanoseconds lease = std::chrono::milliseconds{400};  // more than the timeout and a few rounds
  // Clocks that should run alike differ by less than 0.1 %: the kernel slews by 0.05 % at most.
  Nanoseconds margin() const { return lease / 500 + std::chrono::microseconds{10}; }
};

class SliceLeader final : public LeaderRoundPayload {
 public:
  struct Options {
    SliceTerms terms = {};
    std::size_t slots_max = kVectorMax;
    Nanoseconds slot_idle = std::chrono::minutes{1};
    std::uint32_t term = 1;
    bool is_first = false;  // nobody has led before: nothing is held
  };
  // The limit of a class; none if there is no such rule.
  using LimitOf = std::function<std::optional<std::int64_t>(std::string_view name)>;

  SliceLeader(const Options& options, LimitOf limit_of, Instant now);

  bool ready(MemberId member, EpochView data, EpochView claim, Instant now) override;
  void close(Instant now) override;
  EpochBytes grant(MemberId member) override;
  void gone(MemberId member) override;
  void left(MemberId member) override { holders_.erase(member); }

  // Limits have changed: ask for them again.
  void reload();
  // A member that will not come back: it has no claim to anything once what it was granted has run
  // out, and is not counted from the round after on. If it signals before that, it is as ever.
  void forget(MemberId member);
  // So many members have names and have not signalled here; to be told whenever that changes. Of
  // those that only the leaders before knew, no more are taken to be away. Of all these names
  // `running` belong to servers that run: each uses what a server has that is cut off, so it is
  // counted and its part is kept free.
  void set_absent(std::uint32_t names, std::uint32_t running = 0);
  // Whether it has signalled, and was not forgotten since.
  bool knows(MemberId member) const { return holders_.contains(member); }

  // All there are, those that are away included.
  std::uint32_t members() const;
  std::size_t slots() const { return slots_.size(); }
  std::uint64_t refused() const { return refused_; }
  // What a member was granted last, for listings.
  std::int64_t slice(MemberId member, std::string_view name) const;
  // What a member may use now of the classes it was granted something of, the first so many: its
  // slice until that has run out, then what is left free for a server that is cut off.
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
    std::uint64_t version = 0;  // of the table, when it was given to this name
    Instant wanted_at{};
  };
  struct Held {
    std::int64_t demand = 0;
    std::int64_t now = 0;       // the most it may be using
    std::int64_t unleased = 0;  // of that, what it took to when it was cut off
    std::int64_t before = 0;    // what was under lease before its last claim
    std::int64_t granted = 0;   // in the round that closed
  };
  struct Holder {
    bool is_present = false;
    bool is_ready = false;
    bool is_forgotten = false;  // when its lease has run out
    std::uint64_t table = 0;    // the version it knows
    std::uint32_t told = 0;     // members, as it said
    std::uint32_t telling = 0;
    Instant received{};
    Instant expires{};
    std::vector<Held> held;            // by slot
    std::vector<std::string> refused;  // to be told
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
  static std::int64_t cut_off_of(const Holder& holder, std::int64_t limit);
  std::uint32_t away() const { return std::max(unknown_, running_); }

  Options options_;
  LimitOf limit_of_;
  Instant quiet_until_;
  bool is_quiet_;
  std::uint32_t reported_ = 0;           // members, as those before counted them
  std::uint32_t unknown_ = 0;            // of them, who has not come
  std::optional<std::uint32_t> absent_;  // names of which nobody has come
  std::uint32_t running_ = 0;            // of them, those of servers that run
  std::map<MemberId, Holder> holders_;
  std::vector<Slot> slots_;
  std::map<std::string, std::uint32_t, std::less<>> by_name_;
  std::vector<Holder*> round_;  // who signalled, in order
  std::uint64_t version_;
  std::uint64_t refused_ = 0;
};

class SliceMember final : public MemberRoundPayload {
 public:
  using ClassIndex = std::size_t;

  explicit SliceMember(const SliceTerms& terms) : terms_(terms) {}

  // A class by its name, with its limit in kMilli; the same name is the same class. REQUIRES: the
  // name is no longer than kSliceNameMax, 0 < limit <= kSliceLimitMax.
  ClassIndex open(std::string_view name, std::int64_t limit);
  // No demand from now on; its place is kept for when it is opened again.
  void close(ClassIndex index) { classes_[index].demand = 0; }
  // It is no class any more and holds nothing; its index may be that of another one from now on.
  void forget(ClassIndex index);

  // How many members there are, by somebody else's word: it is taken until a leader has said.
  void expect_members(std::uint32_t members) {
    if (!is_told_) members_ = std::min<std::uint32_t>(members, kEpochMembersMax);
  }

  // What the class could use, in kMilli: told before each call of next_epoch.
  void set_demand(ClassIndex index, std::int64_t demand) { classes_[index].demand = demand; }
  // The demand as epoch data. To be followed by the call with it.
  EpochBytes demand() const;

  EpochBytes claim(Instant now) override;
  bool granted(EpochView grant, Instant now) override;
  void lost() override;

  // What the class may use now; and until when, if nothing comes.
  std::int64_t slice(ClassIndex index, Instant now) const;
  // Under lease, and not what is left to one who is cut off.
  bool is_leased(ClassIndex index, Instant now) const;
  Instant lease_end() const { return lease_end_; }
  std::uint32_t members() const { return members_; }
  // Whether that is a leader's word.
  bool is_told() const { return is_told_; }
  // Indices there are; the name of one that was forgotten is empty.
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
    std::uint32_t ask_in = 0;  // claims; after a refusal
    bool has_slice = false;    // until the lease ends
    bool is_open = true;
  };

  void give_up_unneeded(Class& one, Instant now) const;
  void define(std::uint32_t slot, std::string name);

  SliceTerms terms_;
  std::vector<Class> classes_;
  std::vector<ClassIndex> free_;  // places of classes that were forgotten
  std::map<std::string, ClassIndex, std::less<>> by_name_;
  std::vector<std::string> slots_;  // the names, as the leader gave them out
  std::map<std::string, std::uint32_t, std::less<>> slot_of_;
  std::uint64_t table_ = 0;
  std::uint32_t members_ = 0;
  bool is_told_ = false;  // by a leader
  Instant claimed_at_ = Instant::min();
  Instant lease_end_ = Instant::min();
};

}  // namespace weir
