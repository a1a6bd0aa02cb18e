// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/answers.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/message_writer.h"

namespace weir::nfs {
namespace {

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

CompoundWriter read_file(std::uint32_t minor_version, std::string_view tag) {
  CompoundWriter writer(minor_version, tag);
  if (minor_version > 0) writer.sequence(3, 55);
  writer.put_handle("handle");
  writer.op(Op::kRead).zeros(16).u64(0).u32(4096);
  return writer;
}

class Answers : public testing::Test {
 protected:
  std::array<std::byte, kAnswerMax> buffer_;
};

using DelayByCut = Answers;

TEST_F(DelayByCut, TheServerGetsSequenceAndNothingElse) {
  const XdrWriter message = read_file(1, "tag").call(7, 1000);
  const Call call = read_call(whole(message.bytes()));
  ASSERT_TRUE(can_cut(call));
  CompoundWriter alone(1, "tag");
  alone.sequence(3, 55);
  EXPECT_EQ(text_of(cut_call(buffer_, whole(message.bytes()), call)), alone.call(7, 1000).record());
}

TEST_F(DelayByCut, TheClientGetsDelayForTheSecondOperation) {
  const XdrWriter message = read_file(1, "tag").call(7, 1000);
  const PendingCall pending = pending_of(read_call(whole(message.bytes())));
  CompoundWriter alone(1, "tag");
  alone.sequence_result(3, 55);
  const XdrWriter reply = alone.reply(7);
  const auto mended = mend_reply(buffer_, whole(reply.bytes()), pending);
  ASSERT_TRUE(mended);
  CompoundWriter expected(1, "tag");
  expected.sequence_result(3, 55).result(Op::kPutFh, kDelay);
  EXPECT_EQ(text_of(*mended), expected.reply(7, kDelay).record());
}

TEST_F(DelayByCut, OtherRepliesArePassedOn) {
  const XdrWriter message = read_file(1, "").call(7, 1000);
  const PendingCall pending = pending_of(read_call(whole(message.bytes())));
  CompoundWriter complete(1);
  complete.sequence_result(3, 55).result(Op::kPutFh);
  complete.result(Op::kRead).u32(1).opaque("hello");
  CompoundWriter failed(1);
  failed.result(Op::kSequence, 10063);  // NFS4ERR_SEQ_MISORDERED
  CompoundWriter delayed(1);
  delayed.sequence_result(3, 55).result(Op::kPutFh, kDelay);
  const XdrWriter replies[] = {complete.reply(7), failed.reply(7, 10063), delayed.reply(7, kDelay)};
  for (const XdrWriter& reply : replies) {
    EXPECT_FALSE(mend_reply(buffer_, whole(reply.bytes()), pending));
  }
  CompoundWriter alone(1);
  alone.sequence_result(3, 55);
  const XdrWriter answered = alone.reply(7);
  CompoundWriter renewal(1);
  renewal.sequence(3, 55);
  const XdrWriter sequence = renewal.call(7, 0);  // has one operation and gets one result
  EXPECT_FALSE(
      mend_reply(buffer_, whole(answered.bytes()), pending_of(read_call(whole(sequence.bytes())))));
  EXPECT_FALSE(mend_reply(buffer_, {answered.bytes().first(60), answered.text().size()}, pending));
  XdrWriter denied;
  denied.u32(7).u32(1).u32(1).u32(1).u32(5);
  EXPECT_FALSE(mend_reply(buffer_, whole(denied.bytes()), pending));
}

TEST_F(DelayByCut, IsNotForCallsThatOthersWaitForNorForStateNorForGss) {
  const auto cut = [](const XdrWriter& message) {
    return can_cut(read_call(whole(message.bytes())));
  };
  EXPECT_TRUE(cut(read_file(2, "").call(7, 1000)));
  EXPECT_FALSE(cut(read_file(0, "").call(7, 1000)));

  CompoundWriter close = read_file(1, "");
  close.op(Op::kClose).u32(0).zeros(16);  // it reads, so it waits, but it also releases
  EXPECT_FALSE(cut(close.call(7, 1000)));
  CompoundWriter state = read_file(1, "");
  state.op(58).u32(0);  // RECLAIM_COMPLETE
  EXPECT_FALSE(cut(state.call(7, 1000)));
  CompoundWriter unknown = read_file(1, "");
  unknown.op(99);
  EXPECT_FALSE(cut(unknown.call(7, 1000)));
  CompoundWriter late(1);
  late.put_handle("handle").sequence(3, 55);
  late.op(Op::kRead).zeros(16).u64(0).u32(4096);
  EXPECT_FALSE(cut(late.call(7, 1000)));
  EXPECT_FALSE(cut(read_file(1, std::string(kTagMax + 1, 't')).call(7, 1000)));
  EXPECT_TRUE(cut(read_file(1, std::string(kTagMax, 't')).call(7, 1000)));

  const std::string gss = XdrWriter().u32(1).u32(0).u32(9).u32(1).opaque("ctx").text();
  XdrWriter signed_call = call_header(7, kNfsProgram, 4, 1, Flavor::kGss, gss);
  signed_call.raw(read_file(1, "").arguments().text());
  EXPECT_FALSE(cut(signed_call));
  XdrWriter anonymous = call_header(7, kNfsProgram, 4, 1, Flavor::kNone, "");
  anonymous.raw(read_file(1, "").arguments().text());
  EXPECT_TRUE(cut(anonymous));
}

TEST_F(DelayByCut, TheLargestHeaderAndTagFit) {
  XdrWriter message;
  message.u32(7).u32(0).u32(2).u32(kNfsProgram).u32(4).u32(1);
  message.u32(0).opaque(std::string(400, 'c')).u32(9).opaque(std::string(400, 'v'));
  const CompoundWriter writer = read_file(1, std::string(kTagMax, 't'));
  message.raw(writer.arguments().text());
  const Call call = read_call(whole(message.bytes()));
  ASSERT_TRUE(can_cut(call));
  const Bytes record = cut_call(buffer_, whole(message.bytes()), call);
  EXPECT_LE(record.size(), kAnswerMax);
  const Call again = read_call(whole(record.subspan(4)));
  EXPECT_EQ(again.compound->end, WalkEnd::kEnd);
  EXPECT_EQ(again.compound->operation_count, 1U);

  CompoundWriter alone(1, std::string(kTagMax, 't'));
  alone.sequence_result(3, 55);
  XdrWriter reply;
  reply.u32(7).u32(1).u32(0).u32(9).opaque(std::string(400, 'v')).u32(0);
  reply.raw(alone.results(0).text());
  const auto mended = mend_reply(buffer_, whole(reply.bytes()), pending_of(call));
  ASSERT_TRUE(mended);
  EXPECT_EQ(read_reply(whole(mended->subspan(4)), pending_of(call)).compound->last_status, kDelay);
}

TEST_F(Answers, DelayOfVersion40NeedsNoServer) {
  const XdrWriter message = read_file(0, "abcde").call(7, 1000);
  const Call call = read_call(whole(message.bytes()));
  ASSERT_TRUE(can_delay(call));
  CompoundWriter expected(0, "abcde");
  expected.result(Op::kPutFh, kDelay);
  EXPECT_EQ(text_of(delay_reply(buffer_, call)), expected.reply(7, kDelay).record());

  CompoundWriter renew(0);
  renew.op(Op::kRenew).u64(7);
  const XdrWriter renewal = renew.call(7, 1000);
  EXPECT_FALSE(can_delay(read_call(whole(renewal.bytes()))));
  const XdrWriter session = read_file(1, "").call(7, 1000);
  EXPECT_FALSE(can_delay(read_call(whole(session.bytes()))));
}

TEST_F(Answers, JukeboxIsAReplyOfEveryProcedure) {
  for (std::uint32_t procedure = 0; procedure < kProcedures3; ++procedure) {
    XdrWriter message = sys_call(7, 3, procedure, 1000);
    const Call call = read_call(whole(message.bytes()));
    EXPECT_EQ(can_jukebox(call), procedure > 0);
    if (procedure == 0) continue;
    const Bytes record = jukebox_reply(buffer_, call);
    const Reply reply = read_reply(whole(record.subspan(4)), pending_of(call));
    ASSERT_TRUE(reply.v3) << procedure;
    EXPECT_EQ(reply.v3->status, kJukebox);
    EXPECT_EQ(reply.v3->end, XdrState::kGood) << procedure;
  }
  XdrWriter write = sys_call(7, 3, 7, 1000);
  const std::string reply = text_of(jukebox_reply(buffer_, read_call(whole(write.bytes()))));
  EXPECT_EQ(reply, success_header(7).u32(10008).u32(0).u32(0).record());
}

}  // namespace
}  // namespace weir::nfs
