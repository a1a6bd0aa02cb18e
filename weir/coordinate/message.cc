// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/message.h"

#include <bit>

#include "weir/coordinate/bytes.h"

namespace weir {
namespace {

constexpr std::uint32_t kMagic = 0x57455052;  // "WEPR"
constexpr std::uint8_t kLittleFlag = 1;

enum class Kind : std::uint8_t { kReady = 1, kTaken, kLeave, kStart, kRefuse };

ByteOrder order_of(std::uint8_t flags) {
  return (flags & kLittleFlag) != 0 ? ByteOrder::kLittle : ByteOrder::kBig;
}
std::uint8_t flags_of(ByteOrder order) { return order == ByteOrder::kLittle ? kLittleFlag : 0; }

EpochBytes copy_of(EpochView view) { return {view.begin(), view.end()}; }

class Encoder {
 public:
  EpochBytes operator()(const Ready& ready) {
    head(Kind::kReady, flags_of(ready.order), ready.epoch, ready.serial);
    out_.put(ready.timeout.count());
    out_.stretch(ready.data);
    out_.stretch(ready.claim);
    return out_.take();
  }
  EpochBytes operator()(const Taken& taken) {
    head(Kind::kTaken, 0, taken.epoch, taken.serial);
    return out_.take();
  }
  EpochBytes operator()(const Leave& leave) {
    head(Kind::kLeave, 0, leave.epoch, leave.serial);
    return out_.take();
  }
  EpochBytes operator()(const Start& start) {
    head(Kind::kStart, flags_of(start.order), start.epoch, start.serial);
    out_.put(start.timeout.count());
    out_.put(start.members);
    out_.stretch(start.data);
    out_.stretch(start.grant);
    return out_.take();
  }
  EpochBytes operator()(const Refuse& refuse) {
    head(Kind::kRefuse, 0, refuse.error, refuse.serial);
    return out_.take();
  }

 private:
  void head(Kind kind, std::uint8_t flags, std::int64_t number, std::uint64_t serial) {
    out_.put(kMagic);
    out_.put(kEpochProtocol);
    out_.put(static_cast<std::uint8_t>(kind));
    out_.put(flags);
    out_.put(number);
    out_.put(serial);
  }

  ByteWriter out_;
};

Nanoseconds timeout_of(ByteReader& in) {
  const Nanoseconds timeout{in.get<std::int64_t>()};
  if (timeout < Nanoseconds{0} || timeout > kEpochTimeoutMax) in.fail();
  return timeout;
}

EpochMessage read_ready(ByteReader& in, std::uint8_t flags, std::int64_t number,
                        std::uint64_t serial) {
  Ready ready{.epoch = number, .serial = serial, .order = order_of(flags), .data = {}, .claim = {}};
  if (number < 0) in.fail();
  ready.timeout = timeout_of(in);
  ready.data = copy_of(in.stretch(kEpochDataMax));
  ready.claim = copy_of(in.stretch(kRoundPayloadMax));
  return ready;
}

EpochMessage read_start(ByteReader& in, std::uint8_t flags, std::int64_t number,
                        std::uint64_t serial) {
  Start start{.epoch = number, .serial = serial, .order = order_of(flags), .data = {}, .grant = {}};
  if (number <= 0) in.fail();
  start.timeout = timeout_of(in);
  start.members = in.get<std::uint32_t>();
  if (start.members > kEpochMembersMax) in.fail();
  start.data = copy_of(in.stretch(kEpochDataMax));
  start.grant = copy_of(in.stretch(kRoundPayloadMax));
  return start;
}

EpochMessage read_body(ByteReader& in, std::uint8_t kind, std::uint8_t flags, std::int64_t number,
                       std::uint64_t serial) {
  const bool has_data = kind == static_cast<std::uint8_t>(Kind::kReady) ||
                        kind == static_cast<std::uint8_t>(Kind::kStart);
  if (!has_data && flags != 0) in.fail();  // the flag is the byte order of the data
  switch (static_cast<Kind>(kind)) {
    case Kind::kReady:
      return read_ready(in, flags, number, serial);
    case Kind::kTaken:
      if (number <= 0) in.fail();
      return Taken{number, serial};
    case Kind::kLeave:
      if (number < 0) in.fail();
      return Leave{number, serial};
    case Kind::kStart:
      return read_start(in, flags, number, serial);
    case Kind::kRefuse:
      if (number >= 0 || number < -4095) in.fail();
      return Refuse{number, serial};
  }
  in.fail();
  return Leave{};
}

}  // namespace

ByteOrder native_order() {
  return std::endian::native == std::endian::little ? ByteOrder::kLittle : ByteOrder::kBig;
}

EpochBytes encode(const EpochMessage& message) { return std::visit(Encoder{}, message); }

Result<EpochMessage> decode(EpochView bytes) {
  ByteReader in(bytes);
  if (in.get<std::uint32_t>() != kMagic) {
    return fail(std::errc::bad_message, "epoch message", "it has no valid header");
  }
  if (const auto version = in.get<std::uint16_t>(); version != kEpochProtocol) {
    return fail(std::errc::protocol_not_supported, "epoch message",
                "version " + std::to_string(version) + " of the protocol; this server speaks " +
                    std::to_string(kEpochProtocol),
                "run the same version on all servers");
  }
  const auto kind = in.get<std::uint8_t>();
  const auto flags = in.get<std::uint8_t>();
  if ((flags & ~kLittleFlag) != 0) in.fail();
  const auto number = in.get<std::int64_t>();
  const auto serial = in.get<std::uint64_t>();
  EpochMessage message = read_body(in, kind, flags, number, serial);
  if (in.is_too_long()) {
    return fail(std::errc::message_size, "epoch message", "more data than a member may send");
  }
  if (!in.is_done()) {
    return fail(std::errc::bad_message, "epoch message", "it is truncated or not valid");
  }
  return message;
}

std::optional<std::int64_t> started_epoch(EpochView bytes) {
  ByteReader in(bytes);
  const bool is_known =
      in.get<std::uint32_t>() == kMagic && in.get<std::uint16_t>() == kEpochProtocol;
  const auto kind = in.get<std::uint8_t>();
  (void)in.get<std::uint8_t>();
  const auto epoch = in.get<std::int64_t>();
  if (!is_known || kind != static_cast<std::uint8_t>(Kind::kStart) || epoch <= 0) {
    return std::nullopt;
  }
  return epoch;
}

}  // namespace weir
