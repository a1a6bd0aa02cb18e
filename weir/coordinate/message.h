// SPDX-License-Identifier: Apache-2.0
//
// The messages between members and leader of a round, as values and as bytes. Integers are
// big-endian on all machines. decode() is the only function that parses bytes of a peer: messages
// it accepts have valid lengths and numbers within their bounds.
//
//   member -> leader   Ready    done with `epoch`; the member's data and payload (claim)
//                      Taken    the callback was made
//                      Leave    the member leaves
//   leader -> member   Start    the new epoch, the reduced data and the payload (grant)
//                      Refuse   a negative errno instead
//
// `serial` increases with every call of a member, also across its restarts, and answers repeat it,
// so a late or duplicate message is recognised. docs/design/epochs.md describes the protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"

namespace weir {

inline constexpr std::uint16_t kEpochProtocol = 1;
// Maximum payload: requests for slots or definitions of slots, and vectors as long as the data
// may be.
inline constexpr std::size_t kRoundPayloadMax = 2 * kEpochDataMax;
inline constexpr Nanoseconds kEpochTimeoutMax = std::chrono::hours{1};

// The byte order of opaque data.
enum class ByteOrder : std::uint8_t { kBig, kLittle };
ByteOrder native_order();

struct Ready {
  std::int64_t epoch = kFirstEpoch;
  std::uint64_t serial = 0;
  Nanoseconds timeout{0};
  ByteOrder order = ByteOrder::kBig;
  EpochBytes data;
  EpochBytes claim;
  bool operator==(const Ready&) const = default;
};
struct Taken {
  std::int64_t epoch = 0;
  std::uint64_t serial = 0;
  bool operator==(const Taken&) const = default;
};
struct Leave {
  std::int64_t epoch = 0;
  std::uint64_t serial = 0;
  bool operator==(const Leave&) const = default;
};
struct Start {
  std::int64_t epoch = 0;
  std::uint64_t serial = 0;
  Nanoseconds timeout{0};  // of the round: the largest of all members
  std::uint32_t members = 0;
  ByteOrder order = ByteOrder::kBig;
  EpochBytes data;
  EpochBytes grant;
  bool operator==(const Start&) const = default;
};
struct Refuse {
  std::int64_t error = 0;  // a negative errno
  std::uint64_t serial = 0;
  bool operator==(const Refuse&) const = default;
};
using EpochMessage = std::variant<Ready, Taken, Leave, Start, Refuse>;

EpochBytes encode(const EpochMessage& message);
// Exactly one message. EPROTONOSUPPORT: another version; EMSGSIZE: too long; EBADMSG: any
// other error.
Result<EpochMessage> decode(EpochView bytes);
// The epoch of a Start, without reading all of it; none for other messages.
std::optional<std::int64_t> started_epoch(EpochView bytes);

}  // namespace weir
