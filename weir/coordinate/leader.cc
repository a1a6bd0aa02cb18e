// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/leader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "weir/base/assert.h"
#include "weir/coordinate/bytes.h"

namespace weir {
namespace {

constexpr std::size_t kLengthSize = 4;

}  // namespace

EpochLeader::EpochLeader(Options options) : options_(std::move(options)) {
  WEIR_ASSERT(options_.term >= 1 && options_.term <= kTermMax, options_.term);
}

void EpochLeader::receive(MemberId from, const EpochMessage& message, Instant now) {
  tick(now);
  if (is_silent(now)) return;
  if (const auto* const ready = std::get_if<Ready>(&message)) on_ready(from, *ready, now);
  if (const auto* const taken = std::get_if<Taken>(&message)) on_taken(from, *taken);
  if (const auto* const leave = std::get_if<Leave>(&message)) on_leave(from, *leave, now);
}

bool EpochLeader::has_received(MemberId member, const EpochMessage& message) const {
  const auto* const ready = std::get_if<Ready>(&message);
  if (ready == nullptr) return true;
  const auto known = answered_.find(member);
  if (known == answered_.end() || ready->serial > known->second.serial) return false;
  return ready->serial < known->second.serial || waits(member, known->second);
}

// Whether the call waits for the end of the round. A call of a member that was evicted meanwhile
// does not: it may be repeated.
bool EpochLeader::waits(MemberId member, const Answered& call) const {
  return !call.answer && members_.contains(member);
}

// Whether the member names an epoch that it cannot be in.
bool EpochLeader::is_stale(MemberId from, std::int64_t epoch) const {
  if (epoch == kFirstEpoch) return false;
  const auto found = members_.find(from);
  return found == members_.end() || found->second.epoch != epoch;
}

void EpochLeader::on_ready(MemberId from, const Ready& ready, Instant now) {
  const auto known = answered_.find(from);
  if (known != answered_.end()) {
    if (ready.serial < known->second.serial) return;
    if (ready.serial == known->second.serial && known->second.answer) {
      out_.push_back({from, *known->second.answer});
      return;
    }
    if (ready.serial == known->second.serial && waits(from, known->second)) return;
  } else if (answered_.size() >= kEpochMembersMax) {
    ++counters_.refused;
    out_.push_back({from, Refuse{-ENOSPC, ready.serial}});
    return;
  }
  answered_[from] = {ready.serial, std::nullopt};
  if (is_stale(from, ready.epoch)) {
    ++counters_.stale;
    evict(from, now);
    return refuse(from, ready.serial, ESTALE);
  }
  if (ready.data.size() > data_max()) {
    ++counters_.refused;
    evict(from, now);
    return refuse(from, ready.serial, EMSGSIZE);
  }
  if (options_.payload != nullptr && !options_.payload->ready(from, ready.data, ready.claim, now)) {
    ++counters_.garbage;
    evict(from, now);
    return refuse(from, ready.serial, EBADMSG);
  }
  Member& member = members_[from];
  if (!member.is_ready) {
    ++ready_;
  } else {
    gathered_ -= kLengthSize + member.data.size();
  }
  member = {.is_ready = true,
            .timeout = ready.timeout,
            .epoch = ready.epoch,
            .data = ready.data,
            .unconfirmed = std::nullopt};
  gathered_ += kLengthSize + ready.data.size();
  if (options_.swab && ready.order != native_order()) options_.swab(member.data);
  round_timeout_ = std::max(round_timeout_, ready.timeout);
  begin_closing(now);
  close_if_all(now);
}

void EpochLeader::on_taken(MemberId from, const Taken& taken) {
  const auto found = members_.find(from);
  if (found == members_.end()) return;
  Member& member = found->second;
  if (!member.unconfirmed || member.unconfirmed->serial != taken.serial) return;
  member.unconfirmed.reset();
  member.confirm_by = kNever;
  member.resend_at = kNever;
}

// A Leave that was sent before the member's last call is late and ignored.
void EpochLeader::on_leave(MemberId from, const Leave& leave, Instant now) {
  const auto known = answered_.find(from);
  if (known == answered_.end() || leave.serial < known->second.serial) return;
  answered_.erase(known);
  remove(from);
  if (options_.payload != nullptr) options_.payload->left(from);
  follow_absence(now);
}

void EpochLeader::refuse(MemberId to, std::uint64_t serial, int error) {
  const Refuse message{-error, serial};
  answered_[to] = {serial, message};
  out_.push_back({to, message});
}

bool EpochLeader::remove(MemberId member) {
  const auto found = members_.find(member);
  if (found == members_.end()) return false;
  if (found->second.is_ready) {
    --ready_;
    gathered_ -= kLengthSize + found->second.data.size();
  }
  members_.erase(found);
  round_timeout_ = Nanoseconds{0};
  for (const auto& [id, other] : members_) {
    round_timeout_ = std::max(round_timeout_, other.timeout);
  }
  return true;
}

void EpochLeader::drop(MemberId member) {
  if (!remove(member)) return;
  ++counters_.evictions;
  if (options_.payload != nullptr) options_.payload->gone(member);
}

void EpochLeader::evict(MemberId member, Instant now) {
  drop(member);
  follow_absence(now);
}

// After a member has left: the round may be complete, or no member is left.
void EpochLeader::follow_absence(Instant now) {
  if (state_ == State::kClosing) close_if_all(now);
  if (members_.empty()) state_ = State::kIdle;
  // The member that left may have had the longest timeout.
  if (state_ == State::kClosing) wake_by(closing_deadline());
}

void EpochLeader::begin_closing(Instant now) {
  if (state_ == State::kClosing) return;
  state_ = State::kClosing;
  first_signal_ = now;
  wake_by(closing_deadline());
}

void EpochLeader::close_if_all(Instant now) {
  if (!members_.empty() && ready_ == members_.size()) close(now);
}

std::size_t EpochLeader::data_max() const {
  if (!options_.gathers) return kEpochDataMax;
  return kEpochDataMax - std::min(kEpochDataMax, gathered_ + kLengthSize);
}

EpochBytes EpochLeader::gather() const {
  ByteWriter out;
  for (const auto& [id, member] : members_) out.stretch(member.data);
  return out.take();
}

EpochBytes EpochLeader::reduce() const {
  if (options_.gathers) return gather();
  if (!options_.combine || members_.empty()) return {};
  auto member = members_.begin();
  EpochBytes all = member->second.data;
  std::size_t shortest = all.size();
  for (++member; member != members_.end(); ++member) {
    const EpochBytes& data = member->second.data;
    shortest = std::min(shortest, data.size());
    EpochBytes combined(std::max(all.size(), data.size()));
    options_.combine(combined, all, data);
    all = std::move(combined);
  }
  all.resize(shortest);
  return all;
}

void EpochLeader::close(Instant now) {
  ++count_;
  ++counters_.rounds;
  counters_.last_round = now - first_signal_;
  const Nanoseconds cycle = closed_at_ == kNever ? Nanoseconds{0} : now - closed_at_;
  closed_at_ = now;
  resend_ = std::max(options_.resend, std::min(2 * cycle, round_timeout_ / 2));
  if (options_.payload != nullptr) options_.payload->close(now);
  Start start{.epoch = epoch(),
              .timeout = round_timeout_,
              .members = static_cast<std::uint32_t>(members_.size()),
              .order = native_order(),
              .data = reduce(),
              .grant = {}};
  for (auto& [id, member] : members_) {
    Answered& answered = answered_[id];
    start.serial = answered.serial;
    start.grant = options_.payload != nullptr ? options_.payload->grant(id) : EpochBytes{};
    answered.answer = start;
    member.is_ready = false;
    member.epoch = start.epoch;
    member.unconfirmed = start;
    member.confirm_by = now + start.timeout;
    member.resend_at = now + resend_;
    member.data.clear();
    out_.push_back({id, start});
  }
  ready_ = 0;
  gathered_ = 0;
  wake_by(now + std::min(start.timeout, resend_));
  state_ = State::kWaiting;
}

// Evicts members that have not signalled or not confirmed their Start in time.
void EpochLeader::evict_silent(Instant now) {
  const bool is_over = state_ == State::kClosing && now >= closing_deadline();
  std::vector<MemberId> silent;
  for (const auto& [id, member] : members_) {
    if ((is_over && !member.is_ready) || member.confirm_by <= now) silent.push_back(id);
  }
  for (const MemberId id : silent) drop(id);
  if (!silent.empty()) follow_absence(now);
}

void EpochLeader::repeat_starts(Instant now) {
  for (auto& [id, member] : members_) {
    if (member.resend_at > now) continue;
    member.resend_at = now + resend_;
    out_.push_back({id, *member.unconfirmed});
  }
}

void EpochLeader::tick(Instant now) {
  if (is_silent(now)) {
    out_.clear();
    wake_ = kNever;
    return;
  }
  if (now < wake_) return;
  evict_silent(now);
  repeat_starts(now);
  wake_ = earliest_wake();
}

void EpochLeader::wake_by(Instant at) { wake_ = std::min(wake_, at); }

Instant EpochLeader::earliest_wake() const {
  Instant wake = state_ == State::kClosing ? closing_deadline() : kNever;
  for (const auto& [id, member] : members_) {
    wake = std::min({wake, member.confirm_by, member.resend_at});
  }
  return wake;
}

std::vector<EpochLeader::Outgoing> EpochLeader::take_outgoing() { return std::exchange(out_, {}); }

}  // namespace weir
