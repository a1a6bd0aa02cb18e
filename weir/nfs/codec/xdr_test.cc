// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/xdr.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {
namespace {

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(XdrReader, ReadsBigEndianNumbersAndPaddedOpaques) {
  XdrWriter writer;
  writer.u32(0x01020304).u64(0x1122334455667788).opaque("abcde").opaque("").u32(9);
  XdrReader reader(whole(writer.bytes()));
  EXPECT_EQ(reader.u32(), 0x01020304U);
  EXPECT_EQ(reader.u64(), 0x1122334455667788U);
  EXPECT_EQ(text_of(reader.opaque()), "abcde");
  EXPECT_EQ(reader.position(), 4 + 8 + 4 + 8U);  // five bytes and three of padding
  EXPECT_EQ(reader.opaque().size(), 0U);
  EXPECT_EQ(reader.u32(), 9U);
  EXPECT_TRUE(reader.good());
  EXPECT_EQ(reader.left(), 0U);
}

TEST(XdrReader, EveryPrefixOfAMessageIsShortAndOfALongerOneMissing) {
  XdrWriter writer;
  writer.u32(1).opaque("abc").u64(2);
  for (std::size_t size = 0; size < writer.text().size(); ++size) {
    for (const bool is_short : {true, false}) {
      const Bytes front = writer.bytes().first(size);
      XdrReader reader({front, is_short ? size : writer.text().size()});
      reader.u32();
      reader.opaque();
      reader.u64();
      EXPECT_EQ(reader.state(), is_short ? XdrState::kShort : XdrState::kMissing) << size;
      EXPECT_LE(reader.position(), size);
    }
  }
}

TEST(XdrReader, AFailureIsKept) {
  XdrWriter writer;
  writer.u32(7);
  XdrReader reader(whole(writer.bytes()));
  EXPECT_EQ(reader.u64(), 0U);
  EXPECT_EQ(reader.u32(), 0U);  // although these four bytes are available
  EXPECT_EQ(reader.state(), XdrState::kShort);
  reader.fail(XdrState::kUnknown);
  EXPECT_EQ(reader.state(), XdrState::kShort);
}

TEST(XdrReader, AnOpaqueLongerThanAllowedIsUnknown) {
  XdrWriter writer;
  writer.opaque(std::string(65, 'x'));
  XdrReader reader(whole(writer.bytes()));
  EXPECT_TRUE(reader.opaque(64).empty());
  EXPECT_EQ(reader.state(), XdrState::kUnknown);
}

TEST(XdrReader, ALengthOfFourGigabytesDoesNotWrapAround) {
  XdrWriter writer;
  writer.u32(0xFFFFFFFF).u32(1);
  XdrReader reader(whole(writer.bytes()));
  EXPECT_TRUE(reader.opaque().empty());
  EXPECT_EQ(reader.state(), XdrState::kShort);
}

TEST(XdrReader, APayloadCountsBeforeItHasArrived) {
  XdrWriter writer;
  writer.opaque(std::string(1000, 'x')).u32(5);
  XdrReader arriving({writer.bytes().first(100), writer.text().size()});
  EXPECT_EQ(arriving.payload(), 1000U);
  EXPECT_EQ(arriving.state(), XdrState::kMissing);

  XdrReader there(whole(writer.bytes()));
  EXPECT_EQ(there.payload(), 1000U);
  EXPECT_EQ(there.u32(), 5U);

  XdrReader lies(whole(writer.bytes().first(100)));  // the message ends here
  EXPECT_EQ(lies.payload(), 0U);
  EXPECT_EQ(lies.state(), XdrState::kShort);
}

TEST(XdrReader, ABoundHoldsForAllButPayloads) {
  XdrWriter writer;
  writer.u32(1).opaque(std::string(1000, 'x')).u32(2).u32(3).u32(4);
  XdrReader reader(whole(writer.bytes()));
  reader.set_bound(16);
  EXPECT_EQ(reader.u32(), 1U);
  EXPECT_EQ(reader.payload(), 1000U);
  EXPECT_EQ(reader.u32(), 2U);
  EXPECT_EQ(reader.u32(), 3U);
  EXPECT_EQ(reader.u32(), 0U);
  EXPECT_EQ(reader.state(), XdrState::kBound);
}

}  // namespace
}  // namespace weir::nfs
