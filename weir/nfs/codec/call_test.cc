// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/call.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/message_writer.h"

namespace weir::nfs {
namespace {

Call read(const XdrWriter& message) { return read_call(whole(message.bytes())); }

// The cost of a call after its reply.
Cost settled(const XdrWriter& call, const XdrWriter& reply) {
  return read_reply(whole(reply.bytes()), pending_of(read(call))).moved;
}

XdrWriter read3(std::uint32_t count) {
  XdrWriter call = sys_call(7, 3, 6, 1000);
  call.opaque("handle").u64(0).u32(count);
  return call;
}

XdrWriter write3(std::size_t size) {
  XdrWriter call = sys_call(7, 3, 7, 1000);
  call.opaque("handle").u64(0).u32(static_cast<std::uint32_t>(size)).u32(0);
  call.opaque(std::string(size, 'w'));
  return call;
}

std::string gss(GssService service) {
  return XdrWriter()
      .u32(1)
      .u32(0)
      .u32(9)
      .u32(static_cast<std::uint32_t>(service))
      .opaque("ctx")
      .text();
}

XdrWriter gss_call(GssService service, std::uint32_t version, std::uint32_t procedure) {
  return call_header(7, kNfsProgram, version, procedure, Flavor::kGss, gss(service));
}

TEST(NfsCall, TellsProtocolKindAndIdentity) {
  const XdrWriter message = read3(4096);
  const Call call = read(message);
  EXPECT_EQ(call.protocol, Protocol::kNfs3);
  EXPECT_EQ(call.kind, OperationKind::kRead);
  EXPECT_EQ(call.urgency, Urgency::kQueued);
  EXPECT_EQ(call.header.credential.sys->uid, 1000U);
  EXPECT_EQ(call.procedure->name, "READ");
  EXPECT_EQ(call.file_handle.size(), 6U);
  EXPECT_EQ(call.cost, (Cost{1, 4096}));
}

TEST(NfsCall, PingsAndOtherProgramsAreFree) {
  const XdrWriter ping = call_header(1, kNfsProgram, 3, 0, Flavor::kNone, "");
  EXPECT_EQ(read(ping).protocol, Protocol::kNull);
  EXPECT_EQ(read(ping).urgency, Urgency::kFree);
  const XdrWriter probe = call_header(1, kNfsProgram, 4, 0, Flavor::kTls, "");
  EXPECT_TRUE(read(probe).is_tls_probe());
  EXPECT_FALSE(read(ping).is_tls_probe());
  for (const std::uint32_t program : {kMountProgram, kNlmProgram, kPortmapProgram, 77U}) {
    const XdrWriter other = call_header(1, program, 3, 5, Flavor::kNone, "");
    EXPECT_EQ(read(other).protocol, Protocol::kOther);
    EXPECT_EQ(read(other).urgency, Urgency::kFree);
    EXPECT_EQ(read(other).cost, (Cost{0, 0}));
  }
}

TEST(NfsCall, WhatIsNotUnderstoodIsChargedByItsLength) {
  XdrWriter procedure = sys_call(7, 3, 22, 1000);
  procedure.zeros(100);
  XdrWriter version = sys_call(7, 2, 6, 1000);
  XdrWriter callback = sys_call(7, 4, 2, 1000);
  XdrWriter rpc;
  rpc.u32(1).u32(0).u32(3).zeros(60);
  XdrWriter tiny;
  tiny.u32(1);
  for (const XdrWriter* message : {&procedure, &version, &callback, &rpc, &tiny}) {
    const Call call = read(*message);
    EXPECT_EQ(call.protocol, Protocol::kOther);
    EXPECT_EQ(call.kind, OperationKind::kOther);
    EXPECT_EQ(call.urgency, Urgency::kQueued);
    EXPECT_EQ(call.cost, (Cost{1, message->text().size()}));
  }
}

TEST(NfsCall, NfsAclIsMetadata) {
  XdrWriter get = sys_call(7, 3, 1, 1000, kNfsAclProgram);
  get.opaque("handle").u32(1);
  EXPECT_EQ(read(get).protocol, Protocol::kNfs3);
  EXPECT_EQ(read(get).procedure->name, "GETACL");
  EXPECT_EQ(read(get).kind, OperationKind::kMetadataRead);
  EXPECT_EQ(read(get).v3->end, XdrState::kGood);
}

TEST(NfsCall, ACompoundHasTheUrgencyOfItsOperations) {
  CompoundWriter renewal(1);
  renewal.sequence(0, 1);
  const XdrWriter message = renewal.call(7, 0);
  const Call call = read(message);
  EXPECT_EQ(call.protocol, Protocol::kNfs4);
  EXPECT_EQ(call.urgency, Urgency::kFree);
  EXPECT_TRUE(pending_of(call).has_slot);
}

TEST(NfsCall, ABrokenCredentialLeavesTheCallAsItIs) {
  XdrWriter body;
  body.u32(1).opaque("host").u32(0).u32(0).u32(17).zeros(17 * 4);
  XdrWriter message = call_header(7, kNfsProgram, 3, 6, Flavor::kSys, body.text());
  message.opaque("handle").u64(0).u32(4096);
  const Call call = read(message);
  EXPECT_EQ(call.header.defect, Defect::kTooManyGroups);
  EXPECT_FALSE(call.header.credential.sys);
  EXPECT_EQ(call.cost, (Cost{1, 4096}));
  EXPECT_FALSE(pending_of(call).is_answerable);
}

TEST(NfsSettle, ShortReadsAreRefunded) {
  XdrWriter reply = success_header(7);
  reply.u32(0).u32(0).u32(10).u32(1).opaque("0123456789");
  EXPECT_EQ(settled(read3(1U << 20), reply), (Cost{1, 10}));
  XdrWriter failed = success_header(7);
  failed.u32(70).u32(0);
  EXPECT_EQ(settled(read3(1U << 20), failed), (Cost{1, 0}));
}

TEST(NfsSettle, WritesHaveTravelledWhateverTheServerSays) {
  XdrWriter reply = success_header(7);
  reply.u32(0).u32(0).u32(0).u32(5).u32(0).u64(0);
  EXPECT_EQ(settled(write3(1000), reply), (Cost{1, 1000}));
  XdrWriter failed = success_header(7);
  failed.u32(28).u32(0).u32(0);
  EXPECT_EQ(settled(write3(1000), failed), (Cost{1, 1000}));
  XdrWriter denied;
  denied.u32(7).u32(1).u32(1).u32(1).u32(5);
  EXPECT_EQ(settled(write3(1000), denied), (Cost{1, 1000}));
  EXPECT_EQ(settled(read3(1000), denied), (Cost{1, 0}));
}

TEST(NfsSettle, ABrokenReplyChangesNothing) {
  XdrWriter broken;
  broken.u32(7).u32(1);
  EXPECT_EQ(settled(read3(1000), broken), (Cost{1, 1000}));
}

TEST(NfsSettle, DirectoriesCostWhatTheyReturn) {
  XdrWriter call = sys_call(7, 3, 17, 1000);
  call.opaque("handle").u64(0).u64(0).u32(512).u32(32768);
  EXPECT_EQ(read(call).cost, (Cost{1, 32768}));
  XdrWriter reply = success_header(7);
  reply.u32(0).u32(0).u64(1).u32(1).u64(3).opaque(std::string(8000, 'n')).u64(4).u32(0).u32(0);
  reply.u32(0).u32(1);
  EXPECT_EQ(settled(call, reply), (Cost{2, 8052}));
}

TEST(NfsSettle, CompoundsAreSettledByTheirResults) {
  CompoundWriter writer(1);
  writer.sequence(0, 1).put_handle("handle");
  writer.op(Op::kRead).zeros(16).u64(0).u32(65536);
  CompoundWriter results(1);
  results.sequence_result(0, 1).result(Op::kPutFh);
  results.result(Op::kRead).u32(1).opaque("hello");
  EXPECT_EQ(settled(writer.call(7, 1000), results.reply(7)), (Cost{1, 5}));
  CompoundWriter stale(1);
  stale.sequence_result(0, 1).result(Op::kPutFh, 70);
  EXPECT_EQ(settled(writer.call(7, 1000), stale.reply(7, 70)), (Cost{1, 0}));
}

TEST(NfsSettle, CopiesAreSettledByWhatWasCopied) {
  CompoundWriter writer(2);
  writer.sequence(0, 1).put_handle("handle");
  writer.op(Op::kCopy).zeros(32).u64(0).u64(0).u64(1U << 20).u32(1).u32(1).u32(0);
  const XdrWriter call = writer.call(7, 1000);
  EXPECT_EQ(read(call).cost, (Cost{1, 1U << 16}));
  for (const std::uint64_t copied : {std::uint64_t{0}, std::uint64_t{1600}}) {
    CompoundWriter results(2);
    results.sequence_result(0, 1).result(Op::kPutFh);
    results.result(Op::kCopy).u32(0).u64(copied).u32(2).u64(9).u32(1).u32(1);
    EXPECT_EQ(settled(call, results.reply(7)), (Cost{1, copied / 16}));
  }
  CompoundWriter failed(2);
  failed.sequence_result(0, 1).result(Op::kPutFh);
  failed.result(Op::kCopy, 10004);
  EXPECT_EQ(settled(call, failed.reply(7, 10004)), (Cost{1, 0}));
}

TEST(NfsSettle, FreeCallsStayFree) {
  CompoundWriter root(1);
  root.sequence(0, 1).op(Op::kPutRootFh);
  root.op(Op::kGetAttr).u32(1).u32(1U << 10);
  CompoundWriter results(1);
  results.sequence_result(0, 1).result(Op::kPutRootFh);
  results.result(Op::kGetAttr).u32(1).u32(1U << 10).opaque(XdrWriter().u32(60).text());
  const XdrWriter call = root.call(7, 0);
  const XdrWriter message = results.reply(7);
  const Reply reply = read_reply(whole(message.bytes()), pending_of(read(call)));
  EXPECT_EQ(reply.moved, (Cost{0, 0}));
  EXPECT_EQ(reply.compound->lease_seconds, 60U);
}

TEST(NfsGss, IntegrityIsReadThroughAndPrivacyIsChargedByLength) {
  XdrWriter integrity = gss_call(GssService::kIntegrity, 3, 6);
  integrity.opaque(XdrWriter().u32(9).opaque("handle").u64(0).u32(4096).text()).opaque("mic");
  EXPECT_EQ(read(integrity).cost, (Cost{1, 4096}));
  EXPECT_EQ(read(integrity).v3->end, XdrState::kGood);
  XdrWriter results;
  results.u32(9).u32(0).u32(0).u32(3).u32(1).opaque("abc");
  XdrWriter reply = success_header(7);
  reply.opaque(results.text()).opaque("mic");
  EXPECT_EQ(settled(integrity, reply), (Cost{1, 3}));

  XdrWriter privacy = gss_call(GssService::kPrivacy, 3, 7);
  privacy.opaque(std::string(5000, 'c'));
  const Call hidden = read(privacy);
  EXPECT_TRUE(hidden.is_hidden);
  EXPECT_EQ(hidden.kind, OperationKind::kWrite);  // the procedure is not encrypted
  EXPECT_EQ(hidden.cost, (Cost{1, privacy.text().size()}));
  XdrWriter sealed = success_header(7);
  sealed.opaque(std::string(100, 'c'));
  EXPECT_EQ(settled(privacy, sealed), (Cost{1, privacy.text().size() + 104}));

  XdrWriter compound = gss_call(GssService::kPrivacy, 4, 1);
  compound.opaque(std::string(200, 'c'));
  EXPECT_EQ(read(compound).kind, OperationKind::kOther);
  EXPECT_EQ(read(compound).urgency, Urgency::kQueued);
}

}  // namespace
}  // namespace weir::nfs
