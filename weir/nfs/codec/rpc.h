// SPDX-License-Identifier: Apache-2.0
//
// Headers of ONC RPC (RFC 5531): calls with their credentials, and replies. The content of a header
// is a claim of the peer; only its form is checked here.
//
//   message_type(bytes)        call or reply: the only field that distinguishes the two directions
//   read_call_header(message)  xid, program, procedure, credential, where the arguments begin
//   read_reply_header(message) xid, outcome, where the results begin
//
// A header that violates the protocol is parsed as far as possible, and `defect` is the reason:
// such a call is forwarded like any other, but nothing in it is trusted. Bounds are those of the
// RFC: 400 bytes for a credential and for a verifier, 255 for a machine name, 16 groups.
//
// RPCSEC_GSS (RFC 2203) protects arguments at three levels; open_arguments() and open_results()
// return what can be read of them:
//   none (krb5)        all of it
//   integrity (krb5i)  all of it, inside an opaque, behind a sequence number
//   privacy (krb5p)    nothing
//
// Pure; spans point into the message; no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weir/base/big_endian.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

inline constexpr std::uint32_t kRpcVersion2 = 2;
inline constexpr std::uint32_t kAuthBytesMax = 400;
inline constexpr std::uint32_t kMachineNameMax = 255;
inline constexpr std::uint32_t kGroupsMax = 16;
// xid to the flavor of the credential, two times 400 bytes with flavor and length.
inline constexpr std::size_t kCallHeaderMax = 24 + 2 * (8 + kAuthBytesMax);

enum class MessageType : std::uint32_t { kCall = 0, kReply = 1 };

// None if there are fewer than 8 bytes, or the message is neither.
std::optional<MessageType> message_type(Bytes message);

// Program numbers
inline constexpr std::uint32_t kPortmapProgram = 100000;
inline constexpr std::uint32_t kNfsProgram = 100003;
inline constexpr std::uint32_t kMountProgram = 100005;
inline constexpr std::uint32_t kNlmProgram = 100021;
inline constexpr std::uint32_t kNfsAclProgram = 100227;
// RFC 5531, section 8.3: transient numbers, from which clients choose the one for callbacks.
inline constexpr std::uint32_t kTransientProgram = 0x4000'0000;
inline constexpr std::uint32_t kTransientProgramEnd = 0x6000'0000;

// Authentication flavors
enum class Flavor : std::uint32_t { kNone = 0, kSys = 1, kGss = 6, kTls = 7 };

// What is wrong with a header.
enum class Defect : std::uint8_t {
  kNone,
  kShortHeader,        // ends before the header does
  kMissingHeader,      // the rest of the header has not arrived
  kMessageType,        // not a call, or not a reply
  kRpcVersion,         // not version 2
  kCredentialTooLong,  // more than 400 bytes
  kVerifierTooLong,
  kMachineName,     // of AUTH_SYS: more than 255 bytes
  kTooManyGroups,   // of AUTH_SYS: more than 16
  kCredentialForm,  // its fields do not fill its length
  kReplyStatus,     // neither accepted nor denied, or an outcome that does not exist
};
inline constexpr std::size_t kDefects = 11;

// For logs: "a credential of more than 400 bytes".
std::string_view describe(Defect defect);

// AUTH_SYS, RFC 5531 appendix A
struct SysCredential {
  std::string_view machine;  // the client's text
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  Bytes groups;

  std::size_t group_count() const { return groups.size() / 4; }
  // REQUIRES: index < group_count().
  std::uint32_t group(std::size_t index) const {
    return load_be<std::uint32_t>(groups.data() + 4 * index);
  }
};

enum class GssProcedure : std::uint32_t { kData = 0, kInit = 1, kContinueInit = 2, kDestroy = 3 };
enum class GssService : std::uint32_t { kNone = 1, kIntegrity = 2, kPrivacy = 3 };

// RPCSEC_GSS, RFC 2203 section 5.3.1
struct GssCredential {
  GssProcedure procedure = GssProcedure::kData;
  std::uint32_t sequence = 0;
  GssService service = GssService::kNone;
  Bytes handle;  // of the context: one user on one client
};

struct Credential {
  std::uint32_t flavor = 0;          // any number: see Flavor
  std::optional<SysCredential> sys;  // of kSys, if its form is valid
  std::optional<GssCredential> gss;  // of kGss, the same

  bool is(Flavor wanted) const { return flavor == static_cast<std::uint32_t>(wanted); }
};

struct CallHeader {
  std::uint32_t xid = 0;
  std::uint32_t rpc_version = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  Credential credential;
  // Where the arguments begin; none if a defect prevents parsing up to them.
  std::optional<std::size_t> arguments_at;
  Defect defect = Defect::kNone;
};

CallHeader read_call_header(const MessageView& message);

// The arguments of the procedure; none if they are hidden or their position is not known.
std::optional<XdrReader> open_arguments(const MessageView& message, const CallHeader& header);

enum class ReplyOutcome : std::uint8_t {
  kSuccess,
  kProgramUnavailable,
  kProgramMismatch,
  kProcedureUnavailable,
  kGarbageArguments,
  kSystemError,
  kRpcMismatch,  // from here on: denied
  kAuthError,
};

struct ReplyHeader {
  std::uint32_t xid = 0;
  ReplyOutcome outcome = ReplyOutcome::kSystemError;
  std::uint32_t auth_error = 0;  // of kAuthError
  std::uint32_t verifier_flavor = 0;
  Bytes verifier;
  std::size_t results_at = 0;  // of kSuccess
  Defect defect = Defect::kNone;

  bool succeeded() const { return defect == Defect::kNone && outcome == ReplyOutcome::kSuccess; }
};

ReplyHeader read_reply_header(const MessageView& message);

// The results of the procedure. `service` is that of the call's credential, kNone for other
// flavors. None if they are hidden, or there are none.
std::optional<XdrReader> open_results(const MessageView& message, const ReplyHeader& header,
                                      GssService service);

// RFC 9289, section 4.1: a server's answer to a probe, after which both streams are TLS.
bool starts_tls(const ReplyHeader& header);

// ---- replies that are not the server's ----

inline constexpr std::uint32_t kAuthBadCredential = 1;  // AUTH_BADCRED
inline constexpr std::size_t kReplyHeaderBytes = 24;    // accepted, with an empty verifier
inline constexpr std::size_t kDeniedReplyBytes = 20;

// The front of a successful reply; results follow. Legal for AUTH_NONE and AUTH_SYS only.
std::byte* store_reply_header(std::byte* to, std::uint32_t xid);
// A whole reply, with its record mark: the credential was rejected.
std::array<std::byte, 4 + kDeniedReplyBytes> denied_reply(std::uint32_t xid,
                                                          std::uint32_t auth_error);

}  // namespace weir::nfs
