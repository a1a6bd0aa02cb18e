// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/handshake.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"

namespace weir::nbd {
namespace {

constexpr std::size_t kFlagsBytes = 4;
constexpr std::size_t kHeadBytes = 16;
constexpr std::size_t kReplyHeadBytes = 20;
constexpr std::size_t kZeroes = 124;  // after the answer to NBD_OPT_EXPORT_NAME

std::byte* grow(Handshake::Output& out, std::size_t bytes) {
  out.resize(out.size() + bytes);
  return out.data() + (out.size() - bytes);
}

std::byte* store_text(std::byte* to, std::string_view text) {
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  return to + text.size();
}

// Parses an option. A read beyond the end returns nothing and is remembered.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : left_(bytes) {}

  template <class T>
  T number() {
    if (left_.size() < sizeof(T)) return fail(), T{0};
    const T value = load_be<T>(left_.data());
    left_ = left_.subspan(sizeof(T));
    return value;
  }

  std::string_view text(std::size_t bytes) {
    if (left_.size() < bytes) return fail(), std::string_view();
    const std::string_view value(reinterpret_cast<const char*>(left_.data()), bytes);
    left_ = left_.subspan(bytes);
    return value;
  }

  bool has_failed() const { return failed_; }
  // Everything was read, and nothing is left.
  bool is_complete() const { return !failed_ && left_.empty(); }

 private:
  void fail() {
    failed_ = true;
    left_ = {};
  }

  std::span<const std::byte> left_;
  bool failed_ = false;
};

std::uint8_t bit_of(Item item) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(item));
}

bool is_string(std::string_view text) {
  return text.size() <= kStringMax && text.find('\0') == std::string_view::npos;
}

}  // namespace

// ---- reading ----

bool Handshake::is_known(std::uint32_t option) const {
  constexpr std::uint32_t kPeekExport = 4;  // withdrawn
  const Option last = offers_.extended_headers ? Option::kExtendedHeaders : Option::kSetMetaContext;
  return option >= static_cast<std::uint32_t>(Option::kExportName) && option != kPeekExport &&
         option <= static_cast<std::uint32_t>(last);
}

void Handshake::greet(Output& out) const {
  std::byte* to = grow(out, 8 + 8 + 2);
  to = store_be(to, kInitPasswd);
  to = store_be(to, kOptionMagic);
  store_be<std::uint16_t>(to, kFixedNewstyle | kNoZeroes);
}

Handshake::Event Handshake::next(Input& in, Output& out) {
  WEIR_ASSERT(state_ != State::kAnswer && state_ != State::kTransmission && state_ != State::kEnd);
  while (gather(in)) {
    Event event = state_ == State::kFlags  ? read_flags()
                  : state_ == State::kHead ? read_head(out)
                                           : read_option(out);
    if (!std::holds_alternative<NeedBytes>(event)) return event;
  }
  return NeedBytes{};
}

bool Handshake::gather(Input& in) {
  if (state_ == State::kSkip) {
    const std::size_t taken = std::min(wanted_, in.size());
    in = in.subspan(taken);
    wanted_ -= taken;
    return wanted_ == 0;
  }
  const std::size_t taken = std::min(wanted_ - part_.size(), in.size());
  part_.insert(part_.end(), in.begin(), in.begin() + static_cast<std::ptrdiff_t>(taken));
  in = in.subspan(taken);
  return part_.size() == wanted_;
}

void Handshake::expect(State state, std::size_t bytes) {
  state_ = state;
  wanted_ = bytes;
  part_.clear();
}

Handshake::Event Handshake::read_flags() {
  static_assert(kFlagsBytes == sizeof(std::uint32_t));
  const auto flags = load_be<std::uint32_t>(part_.data());
  if ((flags & ~(kClientFixedNewstyle | kClientNoZeroes)) != 0) {
    return end(Break{BreakReason::kClientFlags});
  }
  fixed_ = (flags & kClientFixedNewstyle) != 0;
  no_zeroes_ = (flags & kClientNoZeroes) != 0;
  expect(State::kHead, kHeadBytes);
  return NeedBytes{};
}

Handshake::Event Handshake::read_head(Output& out) {
  Cursor cursor(part_);
  const auto magic = cursor.number<std::uint64_t>();
  option_ = cursor.number<std::uint32_t>();
  const auto bytes = cursor.number<std::uint32_t>();
  if (magic != kOptionMagic) return end(Break{BreakReason::kNotAnOption});
  if (++options_ > kOptionsMax) return end(Break{BreakReason::kTooManyOptions});
  if (bytes > budget_) return end(Break{BreakReason::kTooManyBytes});
  budget_ -= bytes;
  if (option_ == static_cast<std::uint32_t>(Option::kExportName)) {
    if (offers_.tls == Tls::kRequired && !encrypted_) return end(Break{BreakReason::kTlsRequired});
    // Forbidden with extended headers, and has no error reply.
    if (bytes > kStringMax || extended_) return end(Break{BreakReason::kExportName});
  } else if (!fixed_) {
    return end(Break{BreakReason::kNotFixed});
  }
  expect(bytes > kOptionBytesMax ? State::kSkip : State::kBody, bytes);
  return bytes == 0 ? read_option(out) : NeedBytes{};
}

Handshake::Event Handshake::read_option(Output& out) {
  const bool too_long = state_ == State::kSkip;
  const auto option = static_cast<Option>(option_);
  if (option == Option::kAbort) {  // regardless of its data
    reply(OptionReply::kAck, 0, out);
    return end(Abort{});
  }
  if (offers_.tls == Tls::kRequired && !encrypted_ && option != Option::kStartTls) {
    return plain(OptionReply::kErrTlsReqd, "TLS is required", out);
  }
  if (!is_known(option_)) return plain(OptionReply::kErrUnsup, {}, out);
  if (option == Option::kSetMetaContext) allocation_ = false;  // even if this fails
  if (too_long) return plain(OptionReply::kErrTooBig, "the option is too long", out);

  switch (option) {
    case Option::kExportName:
      return read_export_name();
    case Option::kGo:
    case Option::kInfo:
      return read_go(out);
    case Option::kListMetaContext:
    case Option::kSetMetaContext:
      return read_contexts(out);
    default:
      break;
  }
  if (!part_.empty()) return plain(OptionReply::kErrInvalid, "the option takes no data", out);
  return read_plain(out);
}

// Options without data.
Handshake::Event Handshake::read_plain(Output& out) {
  const auto option = static_cast<Option>(option_);
  if (option == Option::kList) return wait(Waiting::kList, WantList{});
  if (option == Option::kStructuredReply && extended_) {
    return plain(OptionReply::kErrExtHeaderReqd, "extended headers were negotiated", out);
  }
  if (option == Option::kStructuredReply || option == Option::kExtendedHeaders) {
    (option == Option::kStructuredReply ? structured_ : extended_) = true;
    return plain(OptionReply::kAck, {}, out);
  }
  if (encrypted_) return plain(OptionReply::kErrInvalid, "TLS is already on", out);
  if (offers_.tls == Tls::kOff) return plain(OptionReply::kErrPolicy, "TLS is not available", out);
  return wait(Waiting::kTls, WantTls{});
}

Handshake::Event Handshake::read_export_name() {
  Cursor cursor(part_);
  const std::string_view name = cursor.text(part_.size());
  if (!is_string(name)) return end(Break{BreakReason::kExportName});
  items_ = 0;
  return want_export(name, Purpose::kExportName);
}

Handshake::Event Handshake::read_go(Output& out) {
  Cursor cursor(part_);
  const std::string_view name = cursor.text(cursor.number<std::uint32_t>());
  const auto count = cursor.number<std::uint16_t>();
  items_ = 0;
  for (std::uint32_t i = 0; i < count && !cursor.has_failed(); ++i) {
    const auto item = cursor.number<std::uint16_t>();
    if (item <= static_cast<std::uint16_t>(Item::kBlockSize)) {
      items_ |= bit_of(static_cast<Item>(item));
    }
  }
  if (!cursor.is_complete()) {
    return plain(OptionReply::kErrInvalid, "the lengths within the option are inconsistent", out);
  }
  if (!is_string(name)) return plain(OptionReply::kErrInvalid, "the export name is not valid", out);
  const bool go = option_ == static_cast<std::uint32_t>(Option::kGo);
  return want_export(name, go ? Purpose::kGo : Purpose::kDescribe);
}

Handshake::Event Handshake::read_contexts(Output& out) {
  const bool set = option_ == static_cast<std::uint32_t>(Option::kSetMetaContext);
  Cursor cursor(part_);
  const std::string_view name = cursor.text(cursor.number<std::uint32_t>());
  const auto count = cursor.number<std::uint32_t>();
  names_allocation_ = !set && count == 0;  // no query: all contexts
  for (std::uint32_t i = 0; i < count && !cursor.has_failed(); ++i) {
    const std::string_view query = cursor.text(cursor.number<std::uint32_t>());
    // "base:" means all of its contexts in a list, and none in a choice.
    if (query == kAllocationContext || (!set && query == "base:")) names_allocation_ = true;
  }
  if (!cursor.is_complete()) {
    return plain(OptionReply::kErrInvalid, "the lengths within the option are inconsistent", out);
  }
  if (!is_string(name)) return plain(OptionReply::kErrInvalid, "the export name is not valid", out);
  if (!has_chunks()) {
    return plain(OptionReply::kErrInvalid, "structured replies must be negotiated first", out);
  }
  return want_export(name, set ? Purpose::kSetContexts : Purpose::kListContexts);
}

// An option that is answered here.
Handshake::Event Handshake::plain(OptionReply type, std::string_view text, Output& out) {
  reply_text(type, text, out);
  go_on();
  return NeedBytes{};
}

Handshake::Event Handshake::want_export(std::string_view name, Purpose purpose) {
  asked_name_ = name;
  purpose_ = purpose;
  return wait(Waiting::kExport, WantExport{name, purpose});
}

Handshake::Event Handshake::wait(Waiting waiting, Event event) {
  state_ = State::kAnswer;
  waiting_ = waiting;
  return event;
}

Handshake::Event Handshake::end(Event event) {
  state_ = State::kEnd;
  return event;
}

// ---- answering ----

Next Handshake::go_on() {
  expect(State::kHead, kHeadBytes);
  return Next::kGoOn;
}

Next Handshake::accept(const Export& offer, Output& out) {
  WEIR_ASSERT(state_ == State::kAnswer && waiting_ == Waiting::kExport);
  WEIR_ASSERT(are_valid(offer.blocks, offer.size), offer.size, offer.blocks.minimum,
              offer.blocks.preferred, offer.blocks.maximum);
  WEIR_ASSERT((offer.flags & kSendFastZero) == 0 || (offer.flags & kSendWriteZeroes) != 0);
  WEIR_ASSERT(offer.name.size() <= kStringMax && offer.description.size() <= kStringMax);
  switch (purpose_) {
    case Purpose::kExportName:
      return send_export_name(offer, out);
    case Purpose::kGo:
    case Purpose::kDescribe:
      return send_details(offer, out);
    case Purpose::kListContexts:
    case Purpose::kSetContexts:
      break;
  }
  return send_contexts(offer, out);
}

std::uint16_t Handshake::flags_of(const Export& offer) const {
  const unsigned plain = (offer.flags & ~unsigned{kSendDf}) | kHasFlags;
  return static_cast<std::uint16_t>(has_chunks() ? plain | kSendDf : plain);
}

Next Handshake::enter(const Export& offer) {
  session_ = {.size = offer.size,
              .flags = flags_of(offer),
              .structured = has_chunks(),
              .extended = extended_,
              .allocation = has_chunks() && allocation_ && offer.reports_allocation &&
                            allocation_name_ == asked_name_,
              .blocks = offer.blocks};
  state_ = State::kTransmission;
  return Next::kTransmission;
}

Next Handshake::send_export_name(const Export& offer, Output& out) {
  if (offer.requires_block_sizes) {
    state_ = State::kEnd;
    return Next::kClose;
  }
  std::byte* to = grow(out, 8 + 2 + (no_zeroes_ ? 0 : kZeroes));  // a vector grows by zeroes
  to = store_be(to, offer.size);
  store_be(to, flags_of(offer));
  return enter(offer);
}

Next Handshake::send_details(const Export& offer, Output& out) {
  const auto asked = [this](Item item) { return (items_ & bit_of(item)) != 0; };
  const bool refused = offer.requires_block_sizes && !asked(Item::kBlockSize);
  if (asked(Item::kBlockSize) || refused) {
    std::byte* to = reply(OptionReply::kInfo, 2 + 4 + 4 + 4, out);
    to = store_be(to, static_cast<std::uint16_t>(Item::kBlockSize));
    to = store_be(to, offer.blocks.minimum);
    to = store_be(to, offer.blocks.preferred);
    store_be(to, offer.blocks.maximum);
  }
  if (refused) return refuse(OptionReply::kErrBlockSizeReqd, "request the block sizes", out);

  std::byte* to = reply(OptionReply::kInfo, 2 + 8 + 2, out);
  to = store_be(to, static_cast<std::uint16_t>(Item::kExport));
  to = store_be(to, offer.size);
  store_be(to, flags_of(offer));
  if (asked(Item::kName)) reply_item(Item::kName, offer.name, out);
  if (asked(Item::kDescription) && !offer.description.empty()) {
    reply_item(Item::kDescription, offer.description, out);
  }
  reply(OptionReply::kAck, 0, out);
  return purpose_ == Purpose::kGo ? enter(offer) : go_on();
}

Next Handshake::send_contexts(const Export& offer, Output& out) {
  const bool set = purpose_ == Purpose::kSetContexts;
  if (names_allocation_ && offer.reports_allocation) {
    std::byte* to = reply(OptionReply::kMetaContext, 4 + kAllocationContext.size(), out);
    to = store_be(to, set ? kAllocationContextId : 0U);
    store_text(to, kAllocationContext);
    if (set) {
      allocation_ = true;
      allocation_name_ = asked_name_;
    }
  }
  reply(OptionReply::kAck, 0, out);
  return go_on();
}

Next Handshake::refuse(OptionReply error, std::string_view text, Output& out) {
  WEIR_ASSERT(state_ == State::kAnswer);
  WEIR_ASSERT(error >= OptionReply::kErrUnsup, static_cast<std::uint32_t>(error));
  if (waiting_ == Waiting::kExport && purpose_ == Purpose::kExportName) {
    state_ = State::kEnd;
    return Next::kClose;
  }
  reply_text(error, text, out);
  return go_on();
}

void Handshake::list(std::string_view name, std::string_view description, Output& out) const {
  WEIR_ASSERT(state_ == State::kAnswer && waiting_ == Waiting::kList);
  WEIR_ASSERT(name.size() <= kStringMax && description.size() <= kStringMax);
  std::byte* to = reply(OptionReply::kServer, 4 + name.size() + description.size(), out);
  to = store_be(to, static_cast<std::uint32_t>(name.size()));
  to = store_text(to, name);
  store_text(to, description);
}

Next Handshake::end_list(Output& out) {
  WEIR_ASSERT(state_ == State::kAnswer && waiting_ == Waiting::kList);
  reply(OptionReply::kAck, 0, out);
  return go_on();
}

Next Handshake::start_tls(Output& out) {
  WEIR_ASSERT(state_ == State::kAnswer && waiting_ == Waiting::kTls);
  reply(OptionReply::kAck, 0, out);
  encrypted_ = true;
  structured_ = false;
  extended_ = false;
  allocation_ = false;
  return go_on();
}

const Session& Handshake::session() const {
  WEIR_ASSERT(state_ == State::kTransmission);
  return session_;
}

// ---- writing ----

// Writes the header of a reply and returns room for this many bytes after it.
std::byte* Handshake::reply(OptionReply type, std::size_t bytes, Output& out) const {
  std::byte* to = grow(out, kReplyHeadBytes + bytes);
  to = store_be(to, kOptionReplyMagic);
  to = store_be(to, option_);
  to = store_be(to, static_cast<std::uint32_t>(type));
  return store_be(to, static_cast<std::uint32_t>(bytes));
}

void Handshake::reply_text(OptionReply type, std::string_view text, Output& out) const {
  const std::string_view fitting = cut_text(text);
  store_text(reply(type, fitting.size(), out), fitting);
}

void Handshake::reply_item(Item item, std::string_view text, Output& out) const {
  std::byte* to = reply(OptionReply::kInfo, 2 + text.size(), out);
  store_text(store_be(to, static_cast<std::uint16_t>(item)), text);
}

}  // namespace weir::nbd
