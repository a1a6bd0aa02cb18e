// SPDX-License-Identifier: Apache-2.0
//
// COMPOUND of NFS version 4: a list of operations in one call. There is no length per operation, so
// a compound is walked: each operation is stepped over by the form of its arguments (operations.h).
//
//   CompoundCall call = read_compound(arguments, model);
//     call.end == WalkEnd::kEnd      all operations are known, and the message ends after the last
//     anything else                  the walk stopped there; the call is classified and charged by
//                                    the operations before it, and forwarded unchanged
//   CompoundReply reply = read_compound_reply(results);
//
// A walk stops at an operation that does not exist, arguments that run past the message or have an
// unknown form, a payload that has not arrived, more than kOperationsMax operations, and more than
// kWalkBytesMax bytes apart from payloads. These are not answered here: the server returns
// NFS4ERR_OP_ILLEGAL or NFS4ERR_BADXDR. Bytes after the stop are charged as if they were payload,
// in both directions, so no bytes pass uncounted.
//
// Sessions (minor versions 1 and 2): SEQUENCE comes first and names a slot of a session, which is
// busy until its reply. The reply to CREATE_SESSION contains the number of slots.
//
// Pure; spans point into the message; no allocation.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/operation_kind.h"
#include "weir/nfs/codec/cost.h"
#include "weir/nfs/codec/operations.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

inline constexpr std::uint32_t kNfsVersion4 = 4;
inline constexpr std::uint32_t kCompoundProcedure = 1;
inline constexpr std::uint32_t kFileHandle4Max = 128;  // NFS4_FHSIZE
inline constexpr std::uint32_t kSessionIdBytes = 16;
inline constexpr std::uint32_t kOperationsMax = 128;  // walked of one compound
inline constexpr std::uint32_t kDelay = 10008;        // NFS4ERR_DELAY
inline constexpr std::uint32_t kMoved = 10019;        // NFS4ERR_MOVED

enum class WalkEnd : std::uint8_t {
  kEnd,               // walked to the end of the message
  kShort,             // arguments run past the end of the message
  kMissing,           // the rest has not arrived
  kUnknownForm,       // arguments of a form that does not exist
  kUnknownOperation,  // a number that does not exist
  kTooManyOperations,
  kTooManyBytes,
  kTrailingBytes,  // the message continues after the last operation
};
inline constexpr std::size_t kWalkEnds = 8;

// For logs and traces: "an unknown operation".
std::string_view describe(WalkEnd end);

// Why a walk ends at the position of the reader.
WalkEnd walk_end(const XdrReader& reader);

// A slot of a session, as SEQUENCE and CB_SEQUENCE name it.
struct SlotUse {
  Bytes session_id;
  std::uint32_t sequence = 0;
  std::uint32_t slot = 0;
  std::uint32_t highest_slot = 0;
  bool is_cached = false;  // the client asks for it
};

// The operations that a compound contains, by number.
using OperationSet = std::bitset<kOperationsEnd>;

struct CompoundCall {
  Bytes tag;
  std::uint32_t minor_version = 0;
  std::uint32_t operation_count = 0;  // as claimed
  std::uint32_t walked = 0;           // of them
  WalkEnd end = WalkEnd::kShort;
  OperationSet holds;
  std::uint32_t first_operation = 0;
  std::uint32_t second_operation = 0;
  std::optional<SlotUse> slot;    // if SEQUENCE is the first operation
  std::size_t sequence_end = 0;   // in the arguments: the end of SEQUENCE
  std::size_t count_at = 0;       // in the arguments: operation_count
  Bytes file_handle;              // of the first PUTFH
  Bytes client_owner;             // of EXCHANGE_ID or SETCLIENTID
  std::uint64_t asked = 0;        // bytes that the reply may contain: READ, READ_PLUS, READDIR
  std::uint64_t sent = 0;         // bytes of WRITE and SETXATTR
  std::uint64_t server_side = 0;  // the charged part of COPY and similar operations
  std::uint32_t files_touched =
      0;                  // operations that touch a file; GETATTR next to another does not
  bool releases = false;  // contains an operation that others may wait for
  OperationKind kind = OperationKind::kOther;
  Urgency urgency = Urgency::kQueued;
  Cost cost;

  bool has(Op op) const { return holds.test(static_cast<std::size_t>(op)); }
};

CompoundCall read_compound(XdrReader arguments, const CostModel& model);

// What SEQUENCE returns.
struct SlotReply {
  Bytes session_id;
  std::uint32_t sequence = 0;
  std::uint32_t slot = 0;
  std::uint32_t highest_slot = 0;
  std::uint32_t target_highest_slot = 0;
  std::uint32_t status_flags = 0;  // SEQ4_STATUS_*
};

// What CREATE_SESSION returns.
struct CreatedSession {
  Bytes session_id;
  std::uint32_t slots = 0;           // ca_maxrequests of the fore channel
  std::uint32_t callback_slots = 0;  // of the back channel
};

struct CompoundReply {
  std::uint32_t status = 0;
  Bytes tag;
  std::uint32_t result_count = 0;  // as claimed
  std::uint32_t walked = 0;        // of them
  WalkEnd end = WalkEnd::kShort;
  OperationSet succeeded;  // operations that returned a status of 0
  std::uint32_t last_operation = 0;
  std::uint32_t last_status = 0;
  std::optional<SlotReply> slot;  // if SEQUENCE is first and has succeeded
  std::optional<CreatedSession> session;
  std::optional<std::uint32_t> lease_seconds;  // attribute 10 of a GETATTR
  std::uint64_t returned = 0;                  // bytes of READ, READ_PLUS and READDIR
  std::optional<std::uint64_t> copied;         // bytes, of a COPY that is complete
  std::size_t count_at = 0;                    // in the results: result_count

  bool has(Op op) const { return succeeded.test(static_cast<std::size_t>(op)); }
};

CompoundReply read_compound_reply(XdrReader results);

}  // namespace weir::nfs
