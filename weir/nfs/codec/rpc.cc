// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/rpc.h"

#include <algorithm>

#include "weir/nfs/codec/record.h"

namespace weir::nfs {
namespace {

constexpr std::uint32_t kAccepted = 0;
constexpr std::uint32_t kDenied = 1;
constexpr std::uint32_t kGssVersion = 1;

std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Defect defect_of(const XdrReader& reader) {
  return reader.state() == XdrState::kMissing ? Defect::kMissingHeader : Defect::kShortHeader;
}

// An opaque of at most kAuthBytesMax: a credential's or a verifier's body.
std::optional<Bytes> auth_body(XdrReader& reader, Defect too_long, Defect& defect) {
  const Bytes body = reader.opaque(kAuthBytesMax);
  if (reader.good()) return body;
  defect = reader.state() == XdrState::kUnknown ? too_long : defect_of(reader);
  return std::nullopt;
}

std::optional<SysCredential> read_sys(Bytes body, Defect& defect) {
  XdrReader reader(whole(body));
  reader.u32();  // a stamp
  const Bytes machine = reader.opaque(kMachineNameMax);
  if (reader.state() == XdrState::kUnknown) {
    defect = Defect::kMachineName;
    return std::nullopt;
  }
  SysCredential sys;
  sys.machine = text_of(machine);
  sys.uid = reader.u32();
  sys.gid = reader.u32();
  const std::uint32_t groups = reader.u32();
  if (reader.good() && groups > kGroupsMax) {
    defect = Defect::kTooManyGroups;
    return std::nullopt;
  }
  sys.groups = reader.fixed(groups * 4);
  if (!reader.good() || reader.left() > 0) {
    defect = Defect::kCredentialForm;
    return std::nullopt;
  }
  return sys;
}

std::optional<GssCredential> read_gss(Bytes body, Defect& defect) {
  XdrReader reader(whole(body));
  const std::uint32_t version = reader.u32();
  const std::uint32_t procedure = reader.u32();
  const std::uint32_t sequence = reader.u32();
  const std::uint32_t service = reader.u32();
  const Bytes handle = reader.opaque();
  if (!reader.good() || reader.left() > 0 || version != kGssVersion || procedure > 3 ||
      service == 0 || service > 3) {
    defect = Defect::kCredentialForm;
    return std::nullopt;
  }
  return GssCredential{static_cast<GssProcedure>(procedure), sequence,
                       static_cast<GssService>(service), handle};
}

// Skips the length and the sequence number of rpc_gss_integ_data, and leaves out the checksum after
// it.
std::optional<XdrReader> open_integrity(XdrReader& reader) {
  const std::uint32_t length = reader.u32();
  reader.u32();
  if (!reader.good() || length < 4) return std::nullopt;
  const MessageView rest = reader.rest();
  const std::uint64_t inner = std::min<std::uint64_t>(length - 4, rest.length);
  return XdrReader({rest.bytes.first(std::min<std::size_t>(inner, rest.bytes.size())), inner});
}

std::optional<XdrReader> open_service(XdrReader& reader, GssService service) {
  if (service == GssService::kPrivacy) return std::nullopt;
  if (service == GssService::kIntegrity) return open_integrity(reader);
  return XdrReader(reader.rest());
}

void read_accepted(XdrReader& reader, ReplyHeader& header) {
  header.verifier_flavor = reader.u32();
  const auto body = auth_body(reader, Defect::kVerifierTooLong, header.defect);
  if (!body) return;
  header.verifier = *body;
  const std::uint32_t outcome = reader.u32();
  if (!reader.good()) {
    header.defect = defect_of(reader);
  } else if (outcome > static_cast<std::uint32_t>(ReplyOutcome::kSystemError)) {
    header.defect = Defect::kReplyStatus;
  } else {
    header.outcome = static_cast<ReplyOutcome>(outcome);
    header.results_at = reader.position();
  }
}

void read_denied(XdrReader& reader, ReplyHeader& header) {
  const std::uint32_t reason = reader.u32();
  const std::uint32_t detail = reader.u32();
  if (!reader.good()) {
    header.defect = defect_of(reader);
  } else if (reason == 0) {
    header.outcome = ReplyOutcome::kRpcMismatch;
  } else if (reason == 1) {
    header.outcome = ReplyOutcome::kAuthError;
    header.auth_error = detail;
  } else {
    header.defect = Defect::kReplyStatus;
  }
}

}  // namespace

std::optional<MessageType> message_type(Bytes message) {
  if (message.size() < 8) return std::nullopt;
  const auto type = load_be<std::uint32_t>(message.data() + 4);
  if (type > 1) return std::nullopt;
  return static_cast<MessageType>(type);
}

std::string_view describe(Defect defect) {
  constexpr std::array<std::string_view, kDefects> kTexts = {
      "nothing",
      "a message that ends within its header",
      "a header that has not arrived",
      "a message that is neither a call nor a reply",
      "a version of RPC other than 2",
      "a credential of more than 400 bytes",
      "a verifier of more than 400 bytes",
      "an AUTH_SYS machine name of more than 255 bytes",
      "an AUTH_SYS credential with more than 16 groups",
      "a credential whose fields do not fill its length",
      "a reply with an unknown status",
  };
  return kTexts[static_cast<std::size_t>(defect)];
}

CallHeader read_call_header(const MessageView& message) {
  XdrReader reader(message);
  CallHeader header;
  header.xid = reader.u32();
  const std::uint32_t type = reader.u32();
  header.rpc_version = reader.u32();
  header.program = reader.u32();
  header.version = reader.u32();
  header.procedure = reader.u32();
  header.credential.flavor = reader.u32();
  if (!reader.good()) {
    header.defect = defect_of(reader);
  } else if (type != static_cast<std::uint32_t>(MessageType::kCall)) {
    header.defect = Defect::kMessageType;
  } else if (header.rpc_version != kRpcVersion2) {
    header.defect = Defect::kRpcVersion;
  }
  if (header.defect != Defect::kNone) return header;

  const auto body = auth_body(reader, Defect::kCredentialTooLong, header.defect);
  if (!body) return header;
  if (header.credential.is(Flavor::kSys)) {
    header.credential.sys = read_sys(*body, header.defect);
  } else if (header.credential.is(Flavor::kGss)) {
    header.credential.gss = read_gss(*body, header.defect);
  }
  reader.u32();  // the flavor of the verifier
  if (!auth_body(reader, Defect::kVerifierTooLong, header.defect)) return header;
  header.arguments_at = reader.position();
  return header;
}

std::optional<XdrReader> open_arguments(const MessageView& message, const CallHeader& header) {
  if (!header.arguments_at) return std::nullopt;
  const bool is_gss = header.credential.is(Flavor::kGss);
  if (is_gss && !header.credential.gss) return std::nullopt;
  if (is_gss && header.credential.gss->procedure != GssProcedure::kData) return std::nullopt;
  XdrReader reader(message);
  reader.skip(*header.arguments_at);
  return open_service(reader, is_gss ? header.credential.gss->service : GssService::kNone);
}

ReplyHeader read_reply_header(const MessageView& message) {
  XdrReader reader(message);
  ReplyHeader header;
  header.xid = reader.u32();
  const std::uint32_t type = reader.u32();
  const std::uint32_t status = reader.u32();
  if (!reader.good()) {
    header.defect = defect_of(reader);
  } else if (type != static_cast<std::uint32_t>(MessageType::kReply)) {
    header.defect = Defect::kMessageType;
  } else if (status == kAccepted) {
    read_accepted(reader, header);
  } else if (status == kDenied) {
    read_denied(reader, header);
  } else {
    header.defect = Defect::kReplyStatus;
  }
  return header;
}

std::optional<XdrReader> open_results(const MessageView& message, const ReplyHeader& header,
                                      GssService service) {
  if (!header.succeeded()) return std::nullopt;
  XdrReader reader(message);
  reader.skip(header.results_at);
  return open_service(reader, service);
}

bool starts_tls(const ReplyHeader& header) {
  return header.succeeded() &&
         header.verifier_flavor == static_cast<std::uint32_t>(Flavor::kNone) &&
         text_of(header.verifier) == "STARTTLS";
}

std::byte* store_reply_header(std::byte* to, std::uint32_t xid) {
  to = store_be(to, xid);
  to = store_be(to, static_cast<std::uint32_t>(MessageType::kReply));
  to = store_be(to, kAccepted);
  to = store_be(to, static_cast<std::uint32_t>(Flavor::kNone));
  to = store_be(to, std::uint32_t{0});    // the verifier's length
  return store_be(to, std::uint32_t{0});  // SUCCESS
}

std::array<std::byte, 4 + kDeniedReplyBytes> denied_reply(std::uint32_t xid,
                                                          std::uint32_t auth_error) {
  std::array<std::byte, 4 + kDeniedReplyBytes> reply;
  const auto mark = record_mark(kDeniedReplyBytes);
  std::byte* to = std::copy(mark.begin(), mark.end(), reply.begin());
  to = store_be(to, xid);
  to = store_be(to, static_cast<std::uint32_t>(MessageType::kReply));
  to = store_be(to, kDenied);
  to = store_be(to, std::uint32_t{1});  // AUTH_ERROR
  store_be(to, auth_error);
  return reply;
}

}  // namespace weir::nfs
