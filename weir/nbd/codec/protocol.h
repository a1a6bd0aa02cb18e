// SPDX-License-Identifier: Apache-2.0
//
// Definitions of the NBD protocol: its constants, and the types that both phases use. Everything is
// from "The NBD protocol" (doc/proto.md of the NetworkBlockDevice project); the comment of each
// constant or group is its name there.
//
//   greeting, options        handshake.h      negotiates features and the export
//   requests, replies        requests.h       transmission
//
// The handshake ends with a Session: what was negotiated, and everything that the second phase
// needs to check a request. Nothing here holds a socket, reads a clock or waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <system_error>

#include "weir/base/block_sizes.h"

namespace weir::nbd {

// ---- the handshake ----

inline constexpr std::uint64_t kInitPasswd = 0x4e42444d41474943;   // NBDMAGIC
inline constexpr std::uint64_t kOptionMagic = 0x49484156454f5054;  // IHAVEOPT
inline constexpr std::uint64_t kOptionReplyMagic = 0x3e889045565a9;

inline constexpr std::uint16_t kFixedNewstyle = 1U << 0;        // NBD_FLAG_FIXED_NEWSTYLE
inline constexpr std::uint16_t kNoZeroes = 1U << 1;             // NBD_FLAG_NO_ZEROES
inline constexpr std::uint32_t kClientFixedNewstyle = 1U << 0;  // NBD_FLAG_C_FIXED_NEWSTYLE
inline constexpr std::uint32_t kClientNoZeroes = 1U << 1;       // NBD_FLAG_C_NO_ZEROES

// "SHOULD be no longer than 256 bytes and MUST be no longer than 4096 bytes."
inline constexpr std::size_t kStringMax = 4096;
inline constexpr std::size_t kTextMax = 256;  // of error texts that we send

// At most kTextMax bytes, without splitting a UTF-8 character.
std::string_view cut_text(std::string_view text);

// NBD_OPT_*
enum class Option : std::uint32_t {
  kExportName = 1,
  kAbort = 2,
  kList = 3,
  kStartTls = 5,
  kInfo = 6,
  kGo = 7,
  kStructuredReply = 8,
  kListMetaContext = 9,
  kSetMetaContext = 10,
  kExtendedHeaders = 11,
};

// NBD_REP_*
enum class OptionReply : std::uint32_t {
  kAck = 1,
  kServer = 2,
  kInfo = 3,
  kMetaContext = 4,
  kErrUnsup = 0x8000'0001,
  kErrPolicy = 0x8000'0002,
  kErrInvalid = 0x8000'0003,
  kErrPlatform = 0x8000'0004,
  kErrTlsReqd = 0x8000'0005,
  kErrUnknown = 0x8000'0006,
  kErrShutdown = 0x8000'0007,
  kErrBlockSizeReqd = 0x8000'0008,
  kErrTooBig = 0x8000'0009,
  kErrExtHeaderReqd = 0x8000'000A,
};

// Items of information about an export: NBD_INFO_*
enum class Item : std::uint16_t { kExport = 0, kName = 1, kDescription = 2, kBlockSize = 3 };

inline constexpr std::string_view kAllocationContext = "base:allocation";
inline constexpr std::uint32_t kAllocationContextId = 1;  // chosen by the server

// Transmission flags: NBD_FLAG_*
inline constexpr std::uint16_t kHasFlags = 1U << 0;
inline constexpr std::uint16_t kReadOnly = 1U << 1;
inline constexpr std::uint16_t kSendFlush = 1U << 2;
inline constexpr std::uint16_t kSendFua = 1U << 3;
inline constexpr std::uint16_t kRotational = 1U << 4;
inline constexpr std::uint16_t kSendTrim = 1U << 5;
inline constexpr std::uint16_t kSendWriteZeroes = 1U << 6;
inline constexpr std::uint16_t kSendDf = 1U << 7;
inline constexpr std::uint16_t kCanMultiConn = 1U << 8;
inline constexpr std::uint16_t kSendCache = 1U << 10;
inline constexpr std::uint16_t kSendFastZero = 1U << 11;

// ---- transmission ----

inline constexpr std::uint32_t kRequestMagic = 0x25609513;          // NBD_REQUEST_MAGIC
inline constexpr std::uint32_t kSimpleReplyMagic = 0x67446698;      // NBD_SIMPLE_REPLY_MAGIC
inline constexpr std::uint32_t kStructuredReplyMagic = 0x668e33ef;  // NBD_STRUCTURED_REPLY_MAGIC
// NBD_EXTENDED_REQUEST_MAGIC and NBD_EXTENDED_REPLY_MAGIC, of the extension EXTENDED_HEADERS
inline constexpr std::uint32_t kExtendedRequestMagic = 0x21e41c71;
inline constexpr std::uint32_t kExtendedReplyMagic = 0x6e8a278c;

// NBD_CMD_*
enum class Command : std::uint16_t {
  kRead = 0,
  kWrite = 1,
  kDisc = 2,
  kFlush = 3,
  kTrim = 4,
  kCache = 5,
  kWriteZeroes = 6,
  kBlockStatus = 7,
};

// NBD_CMD_FLAG_*
inline constexpr std::uint16_t kFua = 1U << 0;
inline constexpr std::uint16_t kNoHole = 1U << 1;
inline constexpr std::uint16_t kDf = 1U << 2;
inline constexpr std::uint16_t kReqOne = 1U << 3;
inline constexpr std::uint16_t kFastZero = 1U << 4;
inline constexpr std::uint16_t kPayloadLen = 1U << 5;  // with extended headers: payload follows

inline constexpr std::uint16_t kReplyDone = 1U << 0;  // NBD_REPLY_FLAG_DONE

// NBD_REPLY_TYPE_*
enum class ReplyType : std::uint16_t {
  kNone = 0,
  kOffsetData = 1,
  kOffsetHole = 2,
  kBlockStatus = 5,
  kBlockStatusExt = 6,
  kError = 0x8001,
};

// Of an extent of base:allocation: NBD_STATE_*
inline constexpr std::uint32_t kStateHole = 1U << 0;
inline constexpr std::uint32_t kStateZero = 1U << 1;

// NBD_E*
enum class ErrorCode : std::uint32_t {
  kNone = 0,
  kPerm = 1,
  kIo = 5,
  kNoMem = 12,
  kInval = 22,
  kNoSpc = 28,
  kOverflow = 75,
  kNotSup = 95,
  kShutdown = 108,
};

// The protocol's code for an error of the store, according to its section "Error values". Errors
// without a code map to kIo. EOPNOTSUPP is valid only in reply to a fast zero, which the caller has
// to handle: here it is kInval.
ErrorCode error_code(std::errc error);

// ---- both ----

// Section "Block size constraints". A write of more than kPayloadMax breaks the connection: see
// requests.h.
using weir::BlockSizes;
using weir::kPayloadMax;

// An export as offered by the owner. The texts must live until accept() returns.
struct Export {
  std::uint64_t size = 0;
  // The transmission flags that the store supports; kHasFlags and kSendDf are added automatically.
  std::uint16_t flags = 0;
  BlockSizes blocks = {};
  bool reports_allocation = false;
  // Refuse clients that do not request the block sizes.
  bool requires_block_sizes = false;
  std::string_view name;  // the canonical one
  std::string_view description;
};

// The result of the negotiation, against which requests are validated.
struct Session {
  std::uint64_t size = 0;
  std::uint16_t flags = 0;
  bool structured = false;  // replies are chunks
  bool extended = false;    // all headers have 32 bytes and 64-bit lengths; implies structured
  bool allocation = false;  // block status of base:allocation
  BlockSizes blocks = {};

  bool operator==(const Session&) const = default;
};

// Why a connection is closed without a protocol error.
enum class BreakReason : std::uint8_t {
  kClientFlags,     // unknown flags in answer to the greeting
  kNotAnOption,     // no magic number at the start of an option
  kNotFixed,        // an option of the fixed newstyle from a client that does not support it
  kTooManyOptions,  // more than kOptionsMax
  kTooManyBytes,    // more than kHandshakeBytesMax
  kExportName,      // NBD_OPT_EXPORT_NAME for an unavailable export: it has no error reply
  kTlsRequired,     // the same, because TLS is required
  kNotARequest,     // no magic number at the start of a request
  kPayload,         // a payload of more than kPayloadMax
};
inline constexpr std::size_t kBreakReasons = 9;

// For logs and counters: "a request without its magic number".
std::string_view describe(BreakReason reason);

}  // namespace weir::nbd
