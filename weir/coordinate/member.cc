// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/member.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "weir/base/assert.h"

namespace weir {

EpochMember::EpochMember(Options options)
    : options_(std::move(options)), serial_(options_.first_serial) {
  WEIR_ASSERT(options_.timeout <= kEpochTimeoutMax && options_.first_serial > 0);
}

void EpochMember::next_epoch(std::int64_t current, EpochBytes data, EpochCallback callback,
                             Instant now) {
  WEIR_ASSERT(!call_ && data.size() <= kEpochDataMax, data.size());
  Ready ready{.epoch = current,
              .serial = serial_++,
              .timeout = options_.timeout,
              .order = native_order(),
              .data = std::move(data),
              .claim = {}};
  if (options_.payload != nullptr) ready.claim = options_.payload->claim(now);
  const Nanoseconds patience = std::max(options_.timeout, told_timeout_) + options_.grace;
  Nanoseconds resend = options_.resend;
  if (backs_off()) {
    resend = std::max(resend, std::min(4 * answer_time_, options_.timeout / 2));
  }
  owed_.reset();  // this message confirms it
  out_.emplace_back(ready);
  call_ = Call{std::move(ready), std::move(callback), now, resend, now + resend, now + patience};
}

void EpochMember::last_epoch(std::int64_t current, Instant /*now*/) {
  call_.reset();
  owed_.reset();
  out_.emplace_back(Leave{current < 0 ? kFirstEpoch : current, serial_++});
}

// The call ends before the callback, which may make the next one.
void EpochMember::finish(std::int64_t epoch, EpochView reduced, Instant now) {
  const Call call = std::move(*call_);
  call_.reset();
  call.callback(epoch, reduced, now);
}

void EpochMember::receive(const EpochMessage& message, Instant now) {
  if (const auto* const start = std::get_if<Start>(&message)) return on_start(*start, now);
  const auto* const refuse = std::get_if<Refuse>(&message);
  if (refuse != nullptr && call_ && refuse->serial == call_->ready.serial) {
    finish(refuse->error, {}, now);
  }
}

void EpochMember::on_start(const Start& start, Instant now) {
  const bool is_again = start.serial == started_serial_ && start.epoch == epoch_;
  // After another call it is an old copy: the leader has that call, or will get it.
  if (is_again && !call_) {
    owed_.reset();
    out_.emplace_back(Taken{start.epoch, start.serial});
  }
  if (!call_ || start.serial != call_->ready.serial || start.epoch <= epoch_) return;
  EpochBytes data = start.data;
  if (options_.swab && start.order != native_order()) options_.swab(data);
  epoch_ = start.epoch;
  started_serial_ = start.serial;
  members_ = start.members;
  told_timeout_ = start.timeout;
  answer_time_ = now - call_->called_at;
  // An invalid grant is dropped, and the previous one expires.
  if (options_.payload != nullptr) (void)options_.payload->granted(start.grant, now);
  owed_ = Owed{{start.epoch, start.serial}, now + kConfirmWithin};
  finish(start.epoch, data, now);
}

void EpochMember::tick(Instant now) {
  if (owed_ && owed_->due <= now) {
    out_.emplace_back(owed_->taken);
    owed_.reset();
  }
  if (!call_) return;
  if (call_->give_up_at <= now) return finish(-ETIMEDOUT, {}, now);
  if (call_->resend_at > now) return;
  if (backs_off()) call_->resend_after *= 2;
  call_->resend_at = now + call_->resend_after;
  out_.emplace_back(call_->ready);
}

Instant EpochMember::next_wake() const {
  const Instant confirm = owed_ ? owed_->due : kNever;
  return call_ ? std::min({call_->resend_at, call_->give_up_at, confirm}) : confirm;
}

void EpochMember::lose_leader(Instant now) {
  told_timeout_ = Nanoseconds{0};
  answer_time_ = Nanoseconds{0};
  owed_.reset();
  if (options_.payload != nullptr) options_.payload->lost();
  if (call_) finish(-ENOTCONN, {}, now);
}

std::vector<EpochMessage> EpochMember::take_outgoing() { return std::exchange(out_, {}); }

}  // namespace weir
