// SPDX-License-Identifier: Apache-2.0
//
// Messages of several members in one: what a relay sends to the leader for the members below it,
// and what the leader sends back. A bundle costs its receiver about as much as one message, which
// is why a leader of a thousand servers reads 32 of them and not a thousand messages.
//
//   count (4)
//   for each: member (8)  course (4 + up to 31)  message (4 + bytes of message.h)
//
// read_bundle() is the only function that parses bundles of a peer; the messages in it are checked
// by decode() where they are used. Integers are big-endian. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/coordinate/epoch.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/round_payload.h"

namespace weir {

inline constexpr std::size_t kCourseNameMax = 31;
// A message has a head of 24 bytes and at most 20 more beside its data and payload.
inline constexpr std::size_t kEpochMessageMax = kEpochDataMax + kRoundPayloadMax + 64;
// A bundle that is longer is sent in parts; a single message always fits.
inline constexpr std::size_t kBundleFull = kEpochDataMax;

struct CarriedMessage {
  MemberId member = 0;
  std::string course;  // empty: slices
  EpochBytes message;
  bool operator==(const CarriedMessage&) const = default;
};
using EpochBundle = std::vector<CarriedMessage>;

EpochBytes pack_bundle(const EpochBundle& bundle);
// None: not valid.
std::optional<EpochBundle> read_bundle(EpochView bytes);

// Divides messages into bundles of about kBundleFull bytes, in order.
std::vector<EpochBundle> split_bundle(EpochBundle all);

}  // namespace weir
