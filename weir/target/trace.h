// SPDX-License-Identifier: Apache-2.0
//
// A trace: every call to one or more Targets with its arguments and time, and the decisions.
// Repeating the calls must give the same decisions; weir/sim/replay.h does that.
//
//   file    "weirtrc" and the version, one byte; then blocks
//   block   size of its records, 4 bytes; checksum, 8 bytes; records
//   record  tag, one byte: kind, kTraceTimeFollows, kTraceFlag; [time]; fields by TraceKind
//
// Fixed-size numbers are little-endian. All others are varints: seven bits per byte, the lowest
// first, the top bit set on all except the last. `time` is the difference from the previous record,
// as zigzag (0, -1, 1, -2 are 0, 1, 2, 3), and is omitted if it is 0. A text is its length and its
// bytes. An optional number is 0, or 1 and the number. The checksum covers the checksum of the
// previous block, the size and the records, so that a lost or moved block is detected like a
// changed one.
//
// Requests are numbered by their admits, in the whole trace, from 0; later records refer to one by
// the number of admits since. Attributes are written once and then referred to by their index in
// the trace; after kTraceAttributesMax of them the index starts again. So neither writer nor reader
// needs memory that grows with the trace. Most requests take 10 to 14 bytes.
//
// The first record is kHead, then a kTarget for each target, and the last is kEnd: a trace without
// it is truncated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/adapt/period.h"
#include "weir/base/time.h"
#include "weir/target/target.h"

namespace weir {

inline constexpr std::string_view kTraceMagic = "weirtrc";
inline constexpr std::uint8_t kTraceVersion = 6;
inline constexpr std::size_t kTraceBlockHead = 12;
inline constexpr std::size_t kTraceBlockBytes = 65536;  // size to which a block is filled
inline constexpr std::size_t kTraceBlockMax = std::size_t{1} << 20;  // what a reader accepts
inline constexpr std::size_t kTraceAttributesMax = 4096;
inline constexpr std::size_t kTraceTextMax = 65536;
inline constexpr std::uint64_t kTraceRequestMax = UINT32_MAX;  // bytes

enum class TraceKind : std::uint8_t {
  kHead,        // build: text; seed
  kTarget,      // name: text; TraceTarget's options; gets the next number and becomes current
  kChoose,      // target: becomes current for the following records
  kAttributes,  // job: text; numbers; export: text
  kAdmit,       // attributes, bytes; flag: at the high head
  kRun,         // request: next() chose it
  kWait,        // until, as a difference from now, zigzag: answer of next()
  kIdle,        // next() had nothing to run
  kComplete,    // request; flag: differs from the charge: how, 0 or 1 and the bytes it moved, and
                // the operations it was if `how` has kTraceOperations
  kWithdraw,    // request
  kPromote,     // request
  kShutdown,
  kPolicy,    // heads, name: text, argument: text; flag: it succeeded
  kRule,      // text; flag: it succeeded
  kTunable,   // head, name: text, value; flag: it succeeded
  kNodes,     // job: text, nodes; flag: it succeeded
  kCapacity,  // source: 0 unchanged, 1 given, 2 estimated; optional: tokens, nanoseconds
  kClients,   // flag: clients count as nodes from now on
  kAccount,   // lending record of a job from an earlier run: an account of the ledger
  kRestore,   // the rest of that state; restores these accounts; flag: it succeeded
  kSlice,     // rule: text; 0 for all classes, or 1 and fields; two rates
  kSlices,    // sets these slices
  kPrefer,    // group + 1, or 0 for none
  kHold,      // flag: no request of the regular head is started from now on
  kPeriod,    // checksum of the decisions, 8 bytes; before the call in which the period ended
  kEnd,       // flag: early, because the disk was too slow or full
  kDefer,     // request
  kResume,    // request
  kCharge,    // attributes, bytes; flag: at the high head
  kWeight,    // node of the tree of shares: text, weight; flag: it succeeded
  kNode,      // the rest of the state of an inner node with these accounts; path: count, texts
};
inline constexpr std::uint8_t kTraceKinds = 31;
inline constexpr std::uint8_t kTraceOperations = 4;
inline constexpr std::uint8_t kTraceKindMask = 0x1f;
inline constexpr std::uint8_t kTraceTimeFollows = 0x20;
inline constexpr std::uint8_t kTraceFlag = 0x40;

struct TraceHead {
  std::string build;       // program that wrote it
  std::uint64_t seed = 0;  // random seed, if any was used

  bool operator==(const TraceHead&) const = default;
};

// The parameters of a Target. Its nodemaps are `nodemaps`, whatever options.gate has.
struct TraceTarget {
  std::string name;
  Target::Options options;
  std::vector<std::string> nodemaps;
  Instant made_at;
};

std::uint64_t trace_checksum(std::uint64_t before, std::string_view records);
// A checksum of all decisions of a period.
std::uint64_t sum_of(const PeriodReport& report, const std::optional<Rate>& capacity);

constexpr std::uint64_t to_zigzag(std::int64_t value) {
  return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t from_zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1 ^ (0 - (value & 1)));
}

}  // namespace weir
