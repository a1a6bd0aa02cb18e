// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/rpc.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// "80 00 00 28": bytes as in a hex dump.
std::string bytes_of(std::string_view hex) {
  std::string text;
  std::string digits;
  for (const char letter : hex) {
    if (letter == ' ' || letter == '\n') continue;
    digits += letter;
    if (digits.size() < 2) continue;
    text += static_cast<char>(std::stoi(digits, nullptr, 16));
    digits.clear();
  }
  return text;
}

MessageView view(const std::string& text) { return whole(std::as_bytes(std::span(text))); }

XdrWriter call(std::uint32_t flavor, std::string_view credential) {
  XdrWriter writer;
  writer.u32(0xAABBCCDD).u32(0).u32(2).u32(kNfsProgram).u32(3).u32(1);
  writer.u32(flavor).opaque(credential).u32(0).opaque("");
  return writer;
}

std::string sys(std::string_view machine, std::uint32_t groups) {
  XdrWriter body;
  body.u32(0x5f).opaque(machine).u32(1000).u32(100).u32(groups);
  for (std::uint32_t i = 0; i < groups; ++i) body.u32(200 + i);
  return body.text();
}

std::string gss(GssProcedure procedure, GssService service) {
  return XdrWriter()
      .u32(1)
      .u32(static_cast<std::uint32_t>(procedure))
      .u32(7)
      .u32(static_cast<std::uint32_t>(service))
      .opaque("handle")
      .text();
}

TEST(RpcCall, ReadsAnAuthSysCallByteForByte) {
  const std::string message = bytes_of(
      "12 34 56 78  00 00 00 00  00 00 00 02  00 01 86 a3  00 00 00 03  00 00 00 01"
      "00 00 00 01  00 00 00 20"
      "00 00 00 05  00 00 00 06 6c 69 62 6e 66 73 00 00  00 00 03 e8  00 00 00 64"
      "00 00 00 01  00 00 00 1b"
      "00 00 00 00  00 00 00 00"
      "00 00 00 04 de ad be ef");
  const CallHeader header = read_call_header(view(message));
  EXPECT_EQ(header.defect, Defect::kNone);
  EXPECT_EQ(header.xid, 0x12345678U);
  EXPECT_EQ(header.program, kNfsProgram);
  EXPECT_EQ(header.version, 3U);
  EXPECT_EQ(header.procedure, 1U);
  ASSERT_TRUE(header.credential.sys);
  EXPECT_EQ(header.credential.sys->machine, "libnfs");
  EXPECT_EQ(header.credential.sys->uid, 1000U);
  EXPECT_EQ(header.credential.sys->gid, 100U);
  ASSERT_EQ(header.credential.sys->group_count(), 1U);
  EXPECT_EQ(header.credential.sys->group(0), 27U);
  ASSERT_TRUE(header.arguments_at);
  EXPECT_EQ(text_of(open_arguments(view(message), header)->opaque()), "\xde\xad\xbe\xef");
  EXPECT_EQ(message_type(view(message).bytes), MessageType::kCall);
}

TEST(RpcCall, TheLargestLegalHeaderIs840Bytes) {
  XdrWriter writer;
  writer.u32(1).u32(0).u32(2).u32(kNfsProgram).u32(3).u32(0);
  writer.u32(99).opaque(std::string(400, 'c')).u32(98).opaque(std::string(400, 'v'));
  const CallHeader header = read_call_header(whole(writer.bytes()));
  EXPECT_EQ(header.arguments_at, 840U);
  EXPECT_EQ(kCallHeaderMax, 840U);
  EXPECT_EQ(header.defect, Defect::kNone);
  EXPECT_FALSE(header.credential.sys || header.credential.gss);
}

TEST(RpcCall, BoundsOfTheCredentialAreKept) {
  const auto defect = [](const XdrWriter& writer) {
    return read_call_header(whole(writer.bytes())).defect;
  };
  EXPECT_EQ(defect(call(1, sys(std::string(64, 'h'), 16))), Defect::kNone);
  EXPECT_EQ(defect(call(1, sys(std::string(255, 'h'), 16))), Defect::kNone);
  EXPECT_EQ(defect(call(1, sys(std::string(256, 'h'), 0))), Defect::kMachineName);
  EXPECT_EQ(defect(call(1, sys("host", 17))), Defect::kTooManyGroups);
  EXPECT_EQ(defect(call(1, sys("host", 2) + "more")), Defect::kCredentialForm);
  EXPECT_EQ(defect(call(1, sys("host", 2).substr(0, 20))), Defect::kCredentialForm);
  EXPECT_EQ(defect(call(1, std::string(401, 'x'))), Defect::kCredentialTooLong);
  EXPECT_EQ(defect(call(6, "too short")), Defect::kCredentialForm);
  XdrWriter verifier;
  verifier.u32(1).u32(0).u32(2).u32(kNfsProgram).u32(3).u32(0).u32(0).opaque("");
  verifier.u32(0).opaque(std::string(401, 'v'));
  EXPECT_EQ(defect(verifier), Defect::kVerifierTooLong);
}

TEST(RpcCall, ABrokenCredentialDoesNotHideTheArguments) {
  XdrWriter writer = call(1, sys("host", 17));
  writer.opaque("fh");
  const CallHeader header = read_call_header(whole(writer.bytes()));
  EXPECT_FALSE(header.credential.sys);
  EXPECT_EQ(text_of(open_arguments(whole(writer.bytes()), header)->opaque()), "fh");
}

TEST(RpcCall, OtherVersionsOfRpcAndOtherMessagesAreNamed) {
  XdrWriter version;
  version.u32(1).u32(0).u32(3).zeros(32);
  EXPECT_EQ(read_call_header(whole(version.bytes())).defect, Defect::kRpcVersion);
  XdrWriter reply;
  reply.u32(1).u32(1).zeros(40);
  EXPECT_EQ(read_call_header(whole(reply.bytes())).defect, Defect::kMessageType);
  XdrWriter neither;
  neither.u32(1).u32(2);
  EXPECT_EQ(message_type(neither.bytes()), std::nullopt);
  EXPECT_EQ(message_type(neither.bytes().first(7)), std::nullopt);
}

TEST(RpcCall, EveryPrefixIsShortOrMissing) {
  const XdrWriter writer = call(1, sys("host", 3));
  for (std::size_t size = 0; size < writer.text().size(); ++size) {
    const Bytes front = writer.bytes().first(size);
    EXPECT_EQ(read_call_header(whole(front)).defect, Defect::kShortHeader) << size;
    EXPECT_EQ(read_call_header({front, 200}).defect, Defect::kMissingHeader) << size;
    EXPECT_FALSE(read_call_header(whole(front)).arguments_at);
  }
}

TEST(RpcCall, GssShowsWhatItsServiceLeavesVisible) {
  XdrWriter none = call(6, gss(GssProcedure::kData, GssService::kNone));
  none.opaque("fh");
  const CallHeader header = read_call_header(whole(none.bytes()));
  ASSERT_TRUE(header.credential.gss);
  EXPECT_EQ(text_of(header.credential.gss->handle), "handle");
  EXPECT_EQ(header.credential.gss->sequence, 7U);
  EXPECT_EQ(text_of(open_arguments(whole(none.bytes()), header)->opaque()), "fh");

  XdrWriter integrity = call(6, gss(GssProcedure::kData, GssService::kIntegrity));
  integrity.opaque(XdrWriter().u32(7).opaque("fh").u64(5).text()).opaque("checksum");
  auto arguments =
      open_arguments(whole(integrity.bytes()), read_call_header(whole(integrity.bytes())));
  ASSERT_TRUE(arguments);
  EXPECT_EQ(text_of(arguments->opaque()), "fh");
  EXPECT_EQ(arguments->u64(), 5U);
  EXPECT_EQ(arguments->left(), 0U);  // the checksum is not part of them

  XdrWriter privacy = call(6, gss(GssProcedure::kData, GssService::kPrivacy));
  privacy.opaque("ciphertext");
  EXPECT_FALSE(open_arguments(whole(privacy.bytes()), read_call_header(whole(privacy.bytes()))));
  XdrWriter init = call(6, gss(GssProcedure::kInit, GssService::kNone));
  init.opaque("token");
  EXPECT_FALSE(open_arguments(whole(init.bytes()), read_call_header(whole(init.bytes()))));
}

TEST(RpcCall, AnIntegrityLengthThatLiesStaysWithinTheMessage) {
  for (const std::uint32_t length : {0U, 3U, 4U, 1000U, 0xFFFFFFFFU}) {
    XdrWriter writer = call(6, gss(GssProcedure::kData, GssService::kIntegrity));
    writer.u32(length).u32(7).opaque("fh");
    const auto arguments =
        open_arguments(whole(writer.bytes()), read_call_header(whole(writer.bytes())));
    EXPECT_EQ(arguments.has_value(), length >= 4);
    if (arguments) {
      EXPECT_LE(arguments->left(), 8U);
    }
  }
}

TEST(RpcReply, ReadsASuccessByteForByte) {
  const std::string message = bytes_of(
      "12 34 56 78  00 00 00 01  00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00  00 00 00 46");
  const ReplyHeader header = read_reply_header(view(message));
  EXPECT_TRUE(header.succeeded());
  EXPECT_EQ(header.xid, 0x12345678U);
  EXPECT_EQ(header.results_at, 24U);
  EXPECT_EQ(open_results(view(message), header, GssService::kNone)->u32(), 70U);
  EXPECT_FALSE(open_results(view(message), header, GssService::kPrivacy));
  EXPECT_FALSE(starts_tls(header));
}

TEST(RpcReply, TellsAllOutcomes) {
  for (std::uint32_t outcome = 0; outcome < 6; ++outcome) {
    XdrWriter writer;
    writer.u32(1).u32(1).u32(0).u32(0).opaque("").u32(outcome).u64(0);
    const ReplyHeader header = read_reply_header(whole(writer.bytes()));
    EXPECT_EQ(static_cast<std::uint32_t>(header.outcome), outcome);
    EXPECT_EQ(header.succeeded(), outcome == 0);
  }
  XdrWriter mismatch;
  mismatch.u32(1).u32(1).u32(1).u32(0).u32(2).u32(2);
  EXPECT_EQ(read_reply_header(whole(mismatch.bytes())).outcome, ReplyOutcome::kRpcMismatch);
  XdrWriter unknown;
  unknown.u32(1).u32(1).u32(0).u32(0).opaque("").u32(6);
  EXPECT_EQ(read_reply_header(whole(unknown.bytes())).defect, Defect::kReplyStatus);
  XdrWriter neither;
  neither.u32(1).u32(1).u32(2);
  EXPECT_EQ(read_reply_header(whole(neither.bytes())).defect, Defect::kReplyStatus);
}

TEST(RpcReply, ADeniedReplyIsTheOneOfTheRfc) {
  const auto reply = denied_reply(0x12345678, kAuthBadCredential);
  const Bytes record = reply;
  EXPECT_EQ(text_of(record), bytes_of("80 00 00 14  12 34 56 78  00 00 00 01  00 00 00 01"
                                      "00 00 00 01  00 00 00 01"));
  const ReplyHeader header = read_reply_header(whole(record.subspan(4)));
  EXPECT_EQ(header.outcome, ReplyOutcome::kAuthError);
  EXPECT_EQ(header.auth_error, 1U);
  EXPECT_FALSE(header.succeeded());
}

TEST(RpcReply, StartTlsIsAVerifier) {
  XdrWriter writer;
  writer.u32(1).u32(1).u32(0).u32(0).opaque("STARTTLS").u32(0);
  EXPECT_TRUE(starts_tls(read_reply_header(whole(writer.bytes()))));
  XdrWriter other;
  other.u32(1).u32(1).u32(0).u32(0).opaque("STARTTLZ").u32(0);
  EXPECT_FALSE(starts_tls(read_reply_header(whole(other.bytes()))));
}

TEST(Rpc, EveryDefectHasItsText) {
  for (std::size_t i = 0; i < kDefects; ++i) {
    EXPECT_FALSE(describe(static_cast<Defect>(i)).empty());
  }
}

}  // namespace
}  // namespace weir::nfs
