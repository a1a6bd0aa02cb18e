// SPDX-License-Identifier: Apache-2.0
//
// The operations of NFS version 4: minor version 0 (RFC 7530), 1 (RFC 8881), 2 (RFC 7862), extended
// attributes (RFC 8276); and those of callbacks, which have separate numbers. For each: the form of
// its arguments and results (form.h), what kind of work it is, and how it takes its turn.
//
// Numbers and forms are from the XDR descriptions of these RFCs (RFC 7531, RFC 5662, RFC 7863, RFC
// 8276 section 8.7). A server stops at the first operation that fails, so a failed operation is the
// last of its reply, and most have no result except the status; for the others the table names the
// status that has a result.
//
// The tables are constants, so all of this is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weir/base/operation_kind.h"

namespace weir::nfs {

// OP_*. Operations that no code refers to by name have only a row in the table.
enum class Op : std::uint32_t {
  kClose = 4,
  kCommit = 5,
  kDelegReturn = 8,
  kGetAttr = 9,
  kGetFh = 10,
  kLock = 12,
  kLookup = 15,
  kOpen = 18,
  kPutFh = 22,
  kPutPubFh = 23,
  kPutRootFh = 24,
  kRead = 25,
  kReadDir = 26,
  kRenew = 30,
  kSetAttr = 34,
  kSetClientId = 35,
  kWrite = 38,
  kExchangeId = 42,
  kCreateSession = 43,
  kDestroySession = 44,
  kLayoutGet = 50,
  kSequence = 53,
  kAllocate = 59,
  kCopy = 60,
  kDeallocate = 62,
  kReadPlus = 68,
  kWriteSame = 70,
  kClone = 71,
  kSetXattr = 73,
};
inline constexpr std::uint32_t kOperationsEnd = 76;  // one more than the last number

// OP_CB_*
enum class CallbackOp : std::uint32_t { kRecall = 4, kLayoutRecall = 5, kSequence = 11 };
inline constexpr std::uint32_t kCallbackOperationsEnd = 16;

// Operations that do not exist, in results: OP_ILLEGAL and OP_CB_ILLEGAL
inline constexpr std::uint32_t kIllegalOperation = 10044;

// How an operation takes its turn.
enum class Turn : std::uint8_t {
  kOrdinary,  // touches a file: waits, and counts
  kHandle,    // only moves file handles: is not counted, and waits with the others
  kState,     // leases, sessions, client ids: a compound of nothing else is free
  kRelease,   // releases something that others may wait for: its compound does not wait
  kBytes,     // moves bytes: its compound always waits
};

struct Operation {
  std::string_view name;       // "READDIR"; empty: there is no such operation
  std::string_view arguments;  // see form.h
  std::string_view results;    // after a status of 0
  OperationKind kind = OperationKind::kOther;
  Turn turn = Turn::kOrdinary;
  // A failure with a result: its status, and the form of the result.
  std::uint32_t failure_status = 0;
  std::string_view failure = {};
};

// In failure_status: every failure has a result of that form.
inline constexpr std::uint32_t kEveryFailure = ~0U;

// nullptr if there is no such operation.
const Operation* find_operation(std::uint32_t number);
const Operation* find_callback_operation(std::uint32_t number);
inline const Operation* find_operation(Op op) {
  return find_operation(static_cast<std::uint32_t>(op));
}

constexpr bool is(std::uint32_t number, Op op) { return number == static_cast<std::uint32_t>(op); }
constexpr bool is(std::uint32_t number, CallbackOp op) {
  return number == static_cast<std::uint32_t>(op);
}

}  // namespace weir::nfs
