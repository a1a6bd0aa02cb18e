// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/record.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"

namespace weir::nfs {
namespace {

constexpr std::uint32_t kLastFragment = 1U << 31;

// The protocol of a stream that starts with these four bytes instead of a record mark.
std::optional<BreakReason> is_foreign(std::uint32_t mark) {
  if (mark >> 16 == 0x1603) return BreakReason::kTls;  // a handshake record of SSL 3.0 to TLS 1.3
  if (mark == 0x0D0A0D0A) return BreakReason::kProxyHeader;
  for (std::uint32_t rest = mark; rest != 0; rest >>= 8) {
    const std::uint32_t letter = rest & 0xFF;
    if (letter < 0x20 || letter > 0x7E) return std::nullopt;
  }
  return BreakReason::kText;
}

}  // namespace

std::string_view describe(BreakReason reason) {
  constexpr std::array<std::string_view, kBreakReasons> kTexts = {
      "a record longer than the maximum",
      "a record in too many fragments",
      "TLS without the probe for it; mount with xprtsec=none, or with a client that follows RFC "
      "9289",
      "a PROXY protocol header from an address that may not send one",
      "text instead of RPC, such as HTTP, SSH or the PROXY protocol version 1",
  };
  return kTexts[static_cast<std::size_t>(reason)];
}

RecordReader::RecordReader(std::uint32_t record_max) : record_max_(record_max) {
  WEIR_ASSERT(record_max <= kRecordMaxLimit, record_max);
}

RecordEvent RecordReader::next(Input& in) {
  WEIR_ASSERT(!is_broken_);
  for (;;) {
    if (in_fragment_ && (left_ == 0 || !in.empty())) {
      RecordEvent event = piece(in);
      if (!event.bytes.empty() || event.is_last) return event;
      continue;  // an empty fragment
    }
    if (in.empty()) return {};
    const auto mark = take_mark(in);
    if (!mark) return {};
    if (const auto reason = begin_fragment(*mark)) {
      is_broken_ = true;
      RecordEvent event;
      event.kind = RecordEvent::Kind::kBreak;
      event.reason = *reason;
      return event;
    }
  }
}

// None: a part of it has not arrived.
std::optional<std::uint32_t> RecordReader::take_mark(Input& in) {
  if (mark_size_ == 0 && in.size() >= kRecordMarkBytes) {
    const auto mark = load_be<std::uint32_t>(in.data());
    in = in.subspan(kRecordMarkBytes);
    return mark;
  }
  while (mark_size_ < kRecordMarkBytes && !in.empty()) {
    mark_[mark_size_++] = in.front();
    in = in.subspan(1);
  }
  if (mark_size_ < kRecordMarkBytes) return std::nullopt;
  mark_size_ = 0;
  return load_be<std::uint32_t>(mark_.data());
}

std::optional<BreakReason> RecordReader::begin_fragment(std::uint32_t mark) {
  if (fragments_ == 0) {
    message_ = 0;
    is_first_piece_ = true;
  }
  const std::uint32_t length = mark & ~kLastFragment;
  const bool is_first_mark = std::exchange(is_first_mark_, false);
  if (length > record_max_ - message_) {
    if (is_first_mark) {
      if (const auto reason = is_foreign(mark)) return reason;
    }
    return BreakReason::kRecordTooLong;
  }
  if (++fragments_ > kFragmentsMax) return BreakReason::kTooManyFragments;
  message_ += length;
  left_ = length;
  in_fragment_ = true;
  is_last_fragment_ = (mark & kLastFragment) != 0;
  return std::nullopt;
}

// The bytes of the fragment that are in `in`.
RecordEvent RecordReader::piece(Input& in) {
  RecordEvent event;
  event.kind = RecordEvent::Kind::kPiece;
  event.bytes = in.first(std::min<std::size_t>(left_, in.size()));
  in = in.subspan(event.bytes.size());
  left_ -= static_cast<std::uint32_t>(event.bytes.size());
  event.is_first = is_first_piece_;
  event.is_last = left_ == 0 && is_last_fragment_;
  if (!event.bytes.empty()) is_first_piece_ = false;
  if (left_ == 0) in_fragment_ = false;
  if (event.is_last) fragments_ = 0;
  return event;
}

std::optional<std::uint32_t> RecordReader::message_length() const {
  if (!is_last_fragment_) return std::nullopt;
  return message_;
}

std::array<std::byte, kRecordMarkBytes> record_mark(std::uint32_t bytes) {
  WEIR_ASSERT(bytes < kLastFragment, bytes);
  std::array<std::byte, kRecordMarkBytes> mark;
  store_be(mark.data(), bytes | kLastFragment);
  return mark;
}

}  // namespace weir::nfs
