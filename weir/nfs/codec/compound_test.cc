// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/compound.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/message_writer.h"

namespace weir::nfs {
namespace {

constexpr CostModel kModel;

CompoundCall read(const CompoundWriter& writer) {
  const XdrWriter arguments = writer.arguments();
  CompoundCall call = read_compound(XdrReader(whole(arguments.bytes())), kModel);
  // Spans would dangle after the message is destroyed.
  call.tag = call.file_handle = call.client_owner = {};
  if (call.slot) call.slot->session_id = {};
  return call;
}

CompoundReply read_results(const CompoundWriter& writer, std::uint32_t status = 0) {
  const XdrWriter results = writer.results(status);
  CompoundReply reply = read_compound_reply(XdrReader(whole(results.bytes())));
  reply.tag = {};
  if (reply.slot) reply.slot->session_id = {};
  if (reply.session) reply.session->session_id = {};
  return reply;
}

// A compound of minor version 1 on a file: SEQUENCE, PUTFH, and what follows.
CompoundWriter on_file(const std::function<void(CompoundWriter&)>& rest) {
  CompoundWriter writer(1);
  writer.sequence(3, 55).put_handle("handle");
  rest(writer);
  return writer;
}

void add_read(CompoundWriter& writer, std::uint32_t count) {
  writer.op(Op::kRead).zeros(16).u64(0).u32(count);
}
void add_write(CompoundWriter& writer, std::size_t size) {
  writer.op(Op::kWrite).zeros(16).u64(0).u32(0).opaque(std::string(size, 'w'));
}
void add_getattr(CompoundWriter& writer) { writer.op(Op::kGetAttr).u32(1).u32(0x18); }
void add_close(CompoundWriter& writer) { writer.op(Op::kClose).u32(0).zeros(16); }
void add_open(CompoundWriter& writer, std::uint32_t type, std::uint32_t claim) {
  XdrWriter& open = writer.op(Op::kOpen).u32(0).u32(1).u32(0).u64(7).opaque("owner").u32(type);
  if (type == 1) open.u32(0).u32(0).opaque("");
  open.u32(claim);
  if (claim == 0) open.opaque("name");
  if (claim == 1) open.u32(0);
}

TEST(Compound, ReadOfLinux) {
  const XdrWriter arguments = on_file([](auto& w) { add_read(w, 65536); }).arguments();
  const CompoundCall call = read_compound(XdrReader(whole(arguments.bytes())), kModel);
  EXPECT_EQ(call.end, WalkEnd::kEnd);
  EXPECT_EQ(call.minor_version, 1U);
  EXPECT_EQ(call.operation_count, 3U);
  EXPECT_EQ(call.walked, 3U);
  ASSERT_TRUE(call.slot);
  EXPECT_EQ(call.slot->slot, 3U);
  EXPECT_EQ(call.slot->sequence, 55U);
  EXPECT_EQ(call.slot->session_id.size(), kSessionIdBytes);
  EXPECT_EQ(call.file_handle.size(), 6U);
  EXPECT_EQ(call.kind, OperationKind::kRead);
  EXPECT_EQ(call.urgency, Urgency::kQueued);
  EXPECT_EQ(call.cost, (Cost{1, 65536}));
  EXPECT_EQ(call.first_operation, 53U);
  EXPECT_EQ(call.second_operation, 22U);
  EXPECT_EQ(call.files_touched, 1U);
  // An empty tag, minor version and count; then SEQUENCE with its number.
  EXPECT_EQ(call.count_at, 8U);
  EXPECT_EQ(call.sequence_end, 12U + 36);
}

TEST(Compound, KindAndCostOfEverydayCalls) {
  const CompoundCall write = read(on_file([](auto& w) {
    add_write(w, 1000);
    add_getattr(w);
  }));
  EXPECT_EQ(write.kind, OperationKind::kWrite);
  EXPECT_EQ(write.cost, (Cost{1, 1000}));
  EXPECT_EQ(write.files_touched, 1U);  // GETATTR does not count

  const CompoundCall stat = read(on_file(add_getattr));
  EXPECT_EQ(stat.kind, OperationKind::kMetadataRead);
  EXPECT_EQ(stat.cost, (Cost{1, 0}));
  EXPECT_EQ(stat.urgency, Urgency::kQueued);
  EXPECT_EQ(stat.files_touched, 1U);

  const CompoundCall list =
      read(on_file([](auto& w) { w.op(Op::kReadDir).u64(0).u64(0).u32(512).u32(32768).u32(0); }));
  EXPECT_EQ(list.kind, OperationKind::kMetadataRead);
  EXPECT_EQ(list.cost, (Cost{1, 32768}));

  const CompoundCall commit = read(on_file([](auto& w) { w.op(Op::kCommit).u64(0).u32(0); }));
  EXPECT_EQ(commit.kind, OperationKind::kFlush);
  EXPECT_EQ(commit.cost, (Cost{1, 0}));

  const CompoundCall open = read(on_file([](auto& w) { add_open(w, 0, 0); }));
  EXPECT_EQ(open.kind, OperationKind::kMetadataRead);
  const CompoundCall create = read(on_file([](auto& w) { add_open(w, 1, 0); }));
  EXPECT_EQ(create.kind, OperationKind::kMetadataChange);
  EXPECT_EQ(create.urgency, Urgency::kQueued);

  const CompoundCall xattr = read(on_file(
      [](auto& w) { w.op(Op::kSetXattr).u32(0).opaque("key").opaque(std::string(300, 'v')); }));
  EXPECT_EQ(xattr.kind, OperationKind::kMetadataChange);
  EXPECT_EQ(xattr.cost, (Cost{1, 300}));
}

TEST(Compound, TheKindIsThatOfTheDearestOperation) {
  const CompoundCall more_read = read(on_file([](auto& w) {
    add_write(w, 10);
    add_read(w, 4096);
    w.op(Op::kLookup).opaque("x");
  }));
  EXPECT_EQ(more_read.kind, OperationKind::kRead);
  EXPECT_EQ(more_read.cost, (Cost{1, 4106}));
  EXPECT_EQ(more_read.files_touched, 3U);
  const CompoundCall more_written = read(on_file([](auto& w) {
    add_read(w, 10);
    add_write(w, 4096);
  }));
  EXPECT_EQ(more_written.kind, OperationKind::kWrite);
}

TEST(Compound, WhatOnlyTheServerMovesCostsAShare) {
  const auto copy = [](std::uint64_t count) {
    return read(on_file([count](auto& w) {
      w.op(Op::kCopy).zeros(32).u64(0).u64(0).u64(count).u32(1).u32(1).u32(0);
    }));
  };
  EXPECT_EQ(copy(1600).cost, (Cost{1, 100}));
  EXPECT_EQ(copy(std::uint64_t{1} << 30).cost, (Cost{1, 64U << 20}));
  EXPECT_EQ(copy(~std::uint64_t{0}).cost, (Cost{1, 64U << 20}));
  EXPECT_EQ(copy(0).cost, (Cost{1, 64U << 20}));  // to the end of the file
  EXPECT_EQ(copy(1600).kind, OperationKind::kWrite);
  const CompoundCall same = read(on_file([](auto& w) {
    XdrWriter& blocks = w.op(Op::kWriteSame).zeros(20).u64(0);
    blocks.u64(1U << 31).u64(std::uint64_t{1} << 40).zeros(20).opaque("pattern");
  }));
  EXPECT_EQ(same.end, WalkEnd::kEnd);
  EXPECT_EQ(same.cost, (Cost{1, 64U << 20}));  // 2^71 bytes do not wrap around
  const CompoundCall punch =
      read(on_file([](auto& w) { w.op(Op::kDeallocate).zeros(16).u64(0).u64(160); }));
  EXPECT_EQ(punch.kind, OperationKind::kDiscard);
  EXPECT_EQ(punch.cost, (Cost{1, 10}));
}

TEST(Compound, StateCallsAreFree) {
  CompoundWriter renewal(1);
  renewal.sequence(0, 1);
  EXPECT_EQ(read(renewal).urgency, Urgency::kFree);
  EXPECT_EQ(read(renewal).cost, (Cost{0, 0}));
  CompoundWriter renew(0);
  renew.op(Op::kRenew).u64(7);
  EXPECT_EQ(read(renew).urgency, Urgency::kFree);
  EXPECT_FALSE(read(renew).slot);
  // What Linux requests at mount time: attributes of the root
  CompoundWriter root(1);
  root.sequence(0, 1).op(Op::kPutRootFh);
  root.op(Op::kGetFh);
  add_getattr(root);
  EXPECT_EQ(read(root).urgency, Urgency::kFree);
  // Attributes of any other file wait, also after those of the root.
  CompoundWriter other(1);
  other.sequence(0, 1).op(Op::kPutRootFh);
  other.put_handle("handle");
  add_getattr(other);
  EXPECT_EQ(read(other).urgency, Urgency::kQueued);
  CompoundWriter below(1);
  below.sequence(0, 1).op(Op::kPutRootFh);
  below.op(Op::kLookup).opaque("home");
  add_getattr(below);
  EXPECT_EQ(read(below).urgency, Urgency::kQueued);
}

TEST(Compound, ReleasesDoNotWaitUnlessTheyMoveBytes) {
  const CompoundCall close = read(on_file(add_close));
  EXPECT_EQ(close.urgency, Urgency::kExempt);
  EXPECT_EQ(close.cost, (Cost{1, 0}));
  const CompoundCall smuggled = read(on_file([](auto& w) {
    add_close(w);
    add_read(w, 1U << 20);
  }));
  EXPECT_EQ(smuggled.urgency, Urgency::kQueued);
  EXPECT_TRUE(smuggled.releases);
  const CompoundCall listed = read(on_file([](auto& w) {
    w.op(Op::kDelegReturn).zeros(16);
    w.op(Op::kReadDir).u64(0).u64(0).u32(512).u32(32768).u32(0);
  }));
  EXPECT_EQ(listed.urgency, Urgency::kQueued);
}

TEST(Compound, ReclaimsDoNotWait) {
  EXPECT_EQ(read(on_file([](auto& w) { add_open(w, 0, 1); })).urgency, Urgency::kExempt);
  EXPECT_EQ(read(on_file([](auto& w) { add_open(w, 0, 4); })).urgency, Urgency::kQueued);
  for (const bool reclaim : {false, true}) {
    const CompoundCall lock = read(on_file([reclaim](auto& w) {
      w.op(Op::kLock).u32(1).u32(reclaim ? 1 : 0).u64(0).u64(1).u32(0).zeros(20);
    }));
    EXPECT_EQ(lock.urgency, reclaim ? Urgency::kExempt : Urgency::kQueued);
    EXPECT_EQ(lock.kind, OperationKind::kLock);
  }
}

TEST(Compound, AnUnknownOperationStopsTheWalk) {
  const CompoundCall call = read(on_file([](auto& w) {
    add_close(w);
    w.op(76).zeros(8);
    add_read(w, 5);
  }));
  EXPECT_EQ(call.end, WalkEnd::kUnknownOperation);
  EXPECT_EQ(call.walked, 3U);
  EXPECT_EQ(call.urgency, Urgency::kQueued);  // the rest may contain any operation
  EXPECT_EQ(call.cost, (Cost{1, 8 + 32}));    // and is charged by its length
  EXPECT_FALSE(call.has(Op::kRead));
}

TEST(Compound, EveryPrefixStopsTheWalkAndNothingIsReadBeyondIt) {
  const XdrWriter all = on_file([](auto& w) {
                          add_open(w, 1, 0);
                          add_write(w, 33);
                          add_close(w);
                        }).arguments();
  for (std::size_t size = 0; size < all.text().size(); ++size) {
    const Bytes front = all.bytes().first(size);
    const CompoundCall cut = read_compound(XdrReader(whole(front)), kModel);
    EXPECT_EQ(cut.end, WalkEnd::kShort) << size;
    EXPECT_EQ(cut.urgency, Urgency::kQueued);
    const CompoundCall arriving =
        read_compound(XdrReader(MessageView{front, all.text().size()}), kModel);
    EXPECT_EQ(arriving.end, WalkEnd::kMissing) << size;
    EXPECT_EQ(arriving.urgency, Urgency::kQueued);
  }
}

TEST(Compound, ClaimsOfBillionsOfOperationsAreBounded) {
  CompoundWriter writer(1);
  for (int i = 0; i < 300; ++i) writer.op(Op::kGetFh);
  writer.claim(0xFFFFFFFF);
  const CompoundCall call = read(writer);
  EXPECT_EQ(call.end, WalkEnd::kTooManyOperations);
  EXPECT_EQ(call.walked, kOperationsMax);
  EXPECT_EQ(call.urgency, Urgency::kQueued);
  CompoundWriter few(1);
  few.op(Op::kGetFh);
  few.claim(0xFFFFFFFF);
  EXPECT_EQ(read(few).end, WalkEnd::kShort);
}

TEST(Compound, BytesThatAreLookedAtAreBoundedButPayloadsAreNot) {
  const CompoundCall large = read(on_file([](auto& w) {
    add_write(w, 200'000);
    add_write(w, 100'000);
    add_getattr(w);
  }));
  EXPECT_EQ(large.end, WalkEnd::kEnd);
  EXPECT_EQ(large.cost, (Cost{1, 300'000}));
  CompoundWriter stateids(1);
  XdrWriter& test = stateids.op(55).u32(10'000);
  test.zeros(160'000);
  const CompoundCall long_list = read(stateids);
  EXPECT_EQ(long_list.end, WalkEnd::kTooManyBytes);
  EXPECT_EQ(long_list.urgency, Urgency::kQueued);
}

TEST(Compound, AWriteIsChargedBeforeItsPayloadHasArrived) {
  const XdrWriter all = on_file([](auto& w) {
                          add_write(w, 1U << 20);
                          add_getattr(w);
                        }).arguments();
  const CompoundCall call =
      read_compound(XdrReader(MessageView{all.bytes().first(200), all.text().size()}), kModel);
  EXPECT_EQ(call.end, WalkEnd::kMissing);
  EXPECT_EQ(call.kind, OperationKind::kWrite);
  EXPECT_EQ(call.cost, (Cost{1, 1U << 20}));
  EXPECT_TRUE(call.has(Op::kWrite));
}

TEST(Compound, TrailingBytesCountAsPayload) {
  const CompoundCall call = read(on_file([](auto& w) {
    add_getattr(w);
    w.op(Op::kRead).zeros(1000);
    w.claim(3);
  }));
  EXPECT_EQ(call.end, WalkEnd::kTrailingBytes);
  EXPECT_EQ(call.cost, (Cost{1, 1004}));
}

TEST(Compound, NamesTheClientOwner) {
  CompoundWriter exchange(1);
  exchange.op(Op::kExchangeId).u64(5).opaque("Linux NFSv4.1 host").u32(0).u32(0).u32(0);
  const XdrWriter arguments = exchange.arguments();
  const CompoundCall call = read_compound(XdrReader(whole(arguments.bytes())), kModel);
  EXPECT_EQ(call.end, WalkEnd::kEnd);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(call.client_owner.data()),
                        call.client_owner.size()),
            "Linux NFSv4.1 host");
  EXPECT_EQ(call.urgency, Urgency::kFree);
}

// ---- replies ----

TEST(CompoundReply, ReadReturnsWhatItReturns) {
  CompoundWriter writer(1);
  writer.sequence_result(3, 55);
  writer.result(Op::kPutFh);
  writer.result(Op::kRead).u32(1).opaque("hello");
  const CompoundReply reply = read_results(writer);
  EXPECT_EQ(reply.end, WalkEnd::kEnd);
  EXPECT_EQ(reply.returned, 5U);
  ASSERT_TRUE(reply.slot);
  EXPECT_EQ(reply.slot->slot, 3U);
  EXPECT_EQ(reply.slot->target_highest_slot, 63U);
  EXPECT_TRUE(reply.has(Op::kRead));
  EXPECT_EQ(reply.last_operation, 25U);
}

TEST(CompoundReply, AFailureEndsIt) {
  CompoundWriter writer(1);
  writer.sequence_result(3, 55);
  writer.result(Op::kPutFh, 70);
  const CompoundReply reply = read_results(writer, 70);
  EXPECT_EQ(reply.end, WalkEnd::kEnd);
  EXPECT_EQ(reply.status, 70U);
  EXPECT_EQ(reply.last_status, 70U);
  EXPECT_FALSE(reply.has(Op::kPutFh));
  EXPECT_EQ(reply.returned, 0U);
}

TEST(CompoundReply, FailuresThatSayMore) {
  CompoundWriter lock(0);
  lock.result(Op::kLock, 10010).u64(0).u64(1).u32(2).u64(7).opaque("owner");
  EXPECT_EQ(read_results(lock, 10010).end, WalkEnd::kEnd);
  CompoundWriter attributes(0);
  attributes.result(Op::kSetAttr, 13).u32(0);
  EXPECT_EQ(read_results(attributes, 13).end, WalkEnd::kEnd);
  CompoundWriter illegal(0);
  illegal.op(kIllegalOperation).u32(10044);
  EXPECT_EQ(read_results(illegal, 10044).end, WalkEnd::kEnd);
}

TEST(CompoundReply, TellsTheSlotsOfANewSession) {
  CompoundWriter writer(1);
  XdrWriter& result = writer.result(Op::kCreateSession).raw("0123456789abcdef").u32(1).u32(2);
  result.u32(0).u32(1049620).u32(1049480).u32(7584).u32(8).u32(64).u32(1).u32(9);  // with an IRD
  result.u32(0).u32(4096).u32(4096).u32(0).u32(2).u32(16).u32(0);
  const CompoundReply reply = read_results(writer);
  EXPECT_EQ(reply.end, WalkEnd::kEnd);
  ASSERT_TRUE(reply.session);
  EXPECT_EQ(reply.session->slots, 64U);
  EXPECT_EQ(reply.session->callback_slots, 16U);
}

TEST(CompoundReply, LearnsTheLease) {
  CompoundWriter writer(0);
  writer.result(Op::kPutRootFh);
  // supported_attrs, fh_expire_type, size and lease_time
  XdrWriter values;
  values.u32(2).u64(0).u32(3).u64(4096).u32(90);
  writer.result(Op::kGetAttr).u32(1).u32(1U << 0 | 1U << 2 | 1U << 4 | 1U << 10);
  CompoundWriter whole_reply(0);
  whole_reply.result(Op::kPutRootFh);
  whole_reply.result(Op::kGetAttr)
      .u32(1)
      .u32(1U << 0 | 1U << 2 | 1U << 4 | 1U << 10)
      .opaque(values.text());
  EXPECT_EQ(read_results(whole_reply).lease_seconds, 90U);
  EXPECT_EQ(read_results(writer).lease_seconds, std::nullopt);
  CompoundWriter without(0);
  without.result(Op::kGetAttr).u32(1).u32(1U << 4).opaque(XdrWriter().u64(1).text());
  EXPECT_EQ(read_results(without).lease_seconds, std::nullopt);
}

TEST(CompoundReply, HolesOfReadPlusCostNothing) {
  CompoundWriter writer(2);
  writer.sequence_result(0, 1);
  XdrWriter& result = writer.result(Op::kReadPlus).u32(1).u32(3);
  result.u32(0).u64(0).opaque("12345678").u32(1).u64(8).u64(1U << 20).u32(0).u64(0).opaque("9");
  const CompoundReply reply = read_results(writer);
  EXPECT_EQ(reply.end, WalkEnd::kEnd);
  EXPECT_EQ(reply.returned, 9U);
}

TEST(CompoundReply, DirectoriesCountByTheirLength) {
  CompoundWriter writer(1);
  XdrWriter& result = writer.result(Op::kReadDir).u64(1);
  result.u32(1).u64(3).opaque("one").u32(1).u32(0).opaque("").u32(0).u32(1);
  const CompoundReply reply = read_results(writer);
  EXPECT_EQ(reply.end, WalkEnd::kEnd);
  EXPECT_EQ(reply.returned, 8U + 4 + 8 + 8 + 8 + 4 + 4 + 4);
}

TEST(CompoundReply, BytesThatAreNotUnderstoodCountAsReturned) {
  CompoundWriter writer(1);
  writer.sequence_result(0, 1);
  writer.result(Op::kRead).u32(0).opaque("hello");
  writer.op(99).zeros(1000);
  const CompoundReply reply = read_results(writer);
  EXPECT_EQ(reply.end, WalkEnd::kUnknownOperation);
  EXPECT_EQ(reply.returned, 5U + 1004);
}

TEST(CompoundReply, ALargeReadIsSettledByItsFirstBytes) {
  CompoundWriter writer(1);
  writer.sequence_result(0, 1);
  writer.result(Op::kPutFh);
  writer.result(Op::kRead).u32(0).opaque(std::string(1U << 20, 'r'));
  const XdrWriter results = writer.results(0);
  const CompoundReply reply = read_compound_reply(
      XdrReader(MessageView{results.bytes().first(256), results.text().size()}));
  EXPECT_EQ(reply.end, WalkEnd::kMissing);
  EXPECT_EQ(reply.returned, 1U << 20);
}

TEST(CompoundReply, ACopyThatGoesOnIsNotComplete) {
  for (const std::uint32_t callbacks : {0U, 1U}) {
    CompoundWriter writer(2);
    XdrWriter& result = writer.result(Op::kCopy).u32(callbacks);
    result.zeros(std::size_t{16} * callbacks).u64(4096).u32(2).u64(9).u32(1).u32(1);
    const CompoundReply reply = read_results(writer);
    EXPECT_EQ(reply.end, WalkEnd::kEnd);
    EXPECT_EQ(reply.copied.has_value(), callbacks == 0);
  }
}

TEST(Compound, EveryEndHasItsText) {
  for (std::size_t i = 0; i < kWalkEnds; ++i) {
    EXPECT_FALSE(describe(static_cast<WalkEnd>(i)).empty());
  }
}

}  // namespace
}  // namespace weir::nfs
