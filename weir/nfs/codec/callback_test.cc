// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/callback.h"

#include <string>

#include <gtest/gtest.h>

#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

// CB_COMPOUND up to its operations.
XdrWriter callback(std::uint32_t count) {
  XdrWriter writer;
  writer.opaque("").u32(1).u32(0).u32(count);
  return writer;
}

XdrWriter& sequence(XdrWriter& to) {
  return to.u32(11).zeros(16).u32(8).u32(2).u32(2).u32(0).u32(0);
}
XdrWriter& recall(XdrWriter& to, std::string_view handle) {
  return to.u32(4).zeros(16).u32(0).opaque(handle);
}

TEST(Callback, NamesTheFileThatIsRecalled) {
  XdrWriter writer = callback(2);
  recall(sequence(writer), "handle");
  const CallbackCall call = read_callback(XdrReader(whole(writer.bytes())));
  EXPECT_EQ(call.end, WalkEnd::kEnd);
  EXPECT_EQ(call.minor_version, 1U);
  ASSERT_TRUE(call.slot);
  EXPECT_EQ(call.slot->sequence, 8U);
  EXPECT_EQ(call.slot->slot, 2U);
  ASSERT_EQ(call.recalls, 1U);
  EXPECT_EQ(call.recalled[0].size(), 6U);
  EXPECT_FALSE(call.recalls_layouts);
}

TEST(Callback, CountsRecallsThatItDoesNotKeep) {
  XdrWriter writer = callback(12);
  sequence(writer);
  for (int i = 0; i < 10; ++i) recall(writer, "handle");
  writer.u32(5).u32(1).u32(3).u32(0).u32(3);
  const CallbackCall call = read_callback(XdrReader(whole(writer.bytes())));
  EXPECT_EQ(call.end, WalkEnd::kEnd);
  EXPECT_EQ(call.recalls, 10U);
  EXPECT_TRUE(call.recalls_layouts);
}

TEST(Callback, StopsWhereItDoesNotUnderstand) {
  XdrWriter writer = callback(3);
  recall(sequence(writer), "handle").u32(16).zeros(8);
  const CallbackCall call = read_callback(XdrReader(whole(writer.bytes())));
  EXPECT_EQ(call.end, WalkEnd::kUnknownOperation);
  EXPECT_EQ(call.recalls, 1U);
  for (std::size_t size = 0; size < writer.text().size() - 12; ++size) {
    EXPECT_EQ(read_callback(XdrReader(whole(writer.bytes().first(size)))).end, WalkEnd::kShort);
  }
  XdrWriter endless = callback(0xFFFFFFFF);
  for (int i = 0; i < 200; ++i) endless.u32(10).u32(1);
  EXPECT_EQ(read_callback(XdrReader(whole(endless.bytes()))).end, WalkEnd::kTooManyOperations);
}

TEST(Callback, ReadsReplies) {
  XdrWriter writer;
  writer.u32(0).opaque("").u32(2).u32(11).u32(0).zeros(32).u32(4).u32(0);
  const CallbackReply reply = read_callback_reply(XdrReader(whole(writer.bytes())));
  EXPECT_EQ(reply.end, WalkEnd::kEnd);
  EXPECT_EQ(reply.status, 0U);
  EXPECT_EQ(reply.walked, 2U);
  XdrWriter failed;
  failed.u32(10008).opaque("").u32(1).u32(11).u32(10008);
  EXPECT_EQ(read_callback_reply(XdrReader(whole(failed.bytes()))).end, WalkEnd::kEnd);
}

TEST(Callback, IsRecognizedByItsTransientProgram) {
  CallHeader header;
  header.program = 0x40000000;
  header.version = 1;
  header.procedure = 1;
  EXPECT_TRUE(is_callback(header));
  header.program = 0x60000000;
  EXPECT_FALSE(is_callback(header));
  header.program = kNfsProgram;
  EXPECT_FALSE(is_callback(header));
  header.program = 0x5FFFFFFF;
  header.procedure = 0;  // a ping
  EXPECT_FALSE(is_callback(header));
}

}  // namespace
}  // namespace weir::nfs
