// SPDX-License-Identifier: Apache-2.0
//
// A trace: every call on one or more Targets with its arguments and the time it was given, and what
// was decided. Repeating the calls must give the same decisions; weir/sim/replay.h does that.
//
//   file    "weirtrc" and the version, a byte; then blocks
//   block   size of its records, 4 bytes; checksum, 8 bytes; records
//   record  tag, a byte: kind, kTimeFollows, kFlag; [time]; what its kind has (TraceKind)
//
// Fixed numbers have the little end first. All others are varints: seven bits a byte, the lowest
// first, the top bit set on all but the last. `time` is the difference to the record before, as
// zigzag (0, -1, 1, -2 are 0, 1, 2, 3), and is left out where it is 0. A text is its length and its
// bytes. An optional number is 0, or 1 and the number. The checksum goes over the one of the block
// before, the size and the records, so that a block that is lost or moved is found like one that
// was changed.
//
// Requests are numbered by their admits, in the whole trace, from 0; later records name one by how
// many were admitted since. Attributes are written once and then named by their place among those
// of the trace; after kAttributesMax of them counting begins anew. So neither who writes nor who
// reads needs memory that grows with the trace. Most requests take 10 to 14 bytes.
//
// The first record is kHead, then a kTarget for each target, and the last is kEnd: a trace without
// it was cut short.
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
inline constexpr std::uint8_t kTraceVersion = 2;
inline constexpr std::size_t kTraceBlockHead = 12;
inline constexpr std::size_t kTraceBlockBytes = 65536;               // what a block is filled to
inline constexpr std::size_t kTraceBlockMax = std::size_t{1} << 20;  // what a reader accepts
inline constexpr std::size_t kTraceAttributesMax = 4096;
inline constexpr std::size_t kTraceTextMax = 65536;
inline constexpr std::uint64_t kTraceRequestMax = UINT32_MAX;  // bytes

enum class TraceKind : std::uint8_t {
  kHead,        // build: text; seed
  kTarget,      // name: text; TraceTarget's options; it is the next in number, and chosen
  kChoose,      // target: the records that follow are of this one
  kAttributes,  // job: text; the other fields
  kAdmit,       // attributes, bytes; flag: at the high head
  kRun,         // request: next() chose it
  kWait,        // until, as a difference to now, zigzag: next() said so
  kIdle,        // next() had nothing
  kComplete,    // request; flag: not as it was charged: how, 0 or 1 and the bytes it moved
  kWithdraw,    // request
  kPromote,     // request
  kShutdown,
  kPolicy,    // heads, name: text, argument: text; flag: it was carried out
  kRule,      // text; flag: it was carried out
  kTunable,   // head, name: text, value; flag: it was carried out
  kNodes,     // job: text, nodes; flag: it was carried out
  kCapacity,  // source: 0 as before, 1 given, 2 estimated; optional: tokens, nanoseconds
  kClients,   // flag: clients count as nodes from now on
  kAccount,   // what a job owed at the end of an earlier run: an account of the ledger
  kRestore,   // the rest of that state; those accounts are restored; flag: it was carried out
  kSlice,     // rule: text; 0 for all classes, or 1 and fields; two rates
  kSlices,    // those slices are set
  kPrefer,    // group + 1, or 0 for none
  kHold,      // flag: from now on nothing of the regular head is begun
  kPeriod,    // the sum of what was decided, 8 bytes; before the call in which the period ended
  kEnd,       // flag: before its time, because the file could not keep up
  kDefer,     // request
  kResume,    // request
  kCharge,    // attributes, bytes; flag: at the high head
};
inline constexpr std::uint8_t kTraceKinds = 29;
inline constexpr std::uint8_t kTraceKindMask = 0x1f;
inline constexpr std::uint8_t kTraceTimeFollows = 0x20;
inline constexpr std::uint8_t kTraceFlag = 0x40;

struct TraceHead {
  std::string build;       // who wrote it
  std::uint64_t seed = 0;  // of all chance, where there was any

  bool operator==(const TraceHead&) const = default;
};

// What a Target is made of. Its nodemaps are those of `nodemaps`, whatever options.gate has.
struct TraceTarget {
  std::string name;
  Target::Options options;
  std::vector<std::string> nodemaps;
  Instant made_at;
};

std::uint64_t trace_checksum(std::uint64_t before, std::string_view records);
// One number for all that a period decided.
std::uint64_t sum_of(const PeriodReport& report, const std::optional<Rate>& capacity);

constexpr std::uint64_t to_zigzag(std::int64_t value) {
  return static_cast<std::uint64_t>(value) << 1 ^ static_cast<std::uint64_t>(value >> 63);
}
constexpr std::int64_t from_zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1 ^ (0 - (value & 1)));
}

}  // namespace weir
