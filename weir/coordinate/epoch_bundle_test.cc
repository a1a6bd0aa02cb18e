// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_bundle.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

CarriedMessage carried(MemberId member, std::size_t size, const std::string& course = "") {
  return {member, course, EpochBytes(size, std::byte{7})};
}

TEST(EpochBundle, IsReadAsItWasWritten) {
  const EpochBundle bundle = {carried(1, 3), carried(1ULL << 40, 0, "ost_io"), carried(0, 4096)};
  EXPECT_EQ(read_bundle(pack_bundle(bundle)), bundle);
  EXPECT_EQ(read_bundle(pack_bundle({})), EpochBundle{});
}

TEST(EpochBundle, BytesThatAreMissingOrLeftOverAreNotValid) {
  const EpochBytes whole = pack_bundle({carried(1, 3), carried(2, 5, "a")});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(read_bundle(EpochView(whole).first(size))) << size;
  }
  EpochBytes longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(read_bundle(longer));
}

// A count of four billion reserves nothing.
TEST(EpochBundle, ACountWithoutMessagesIsNotValid) {
  EpochBytes bytes(4, std::byte{0xff});
  EXPECT_FALSE(read_bundle(bytes));
}

TEST(EpochBundle, NamesAndMessagesThatAreTooLongAreNotValid) {
  EXPECT_TRUE(read_bundle(pack_bundle({carried(1, 1, std::string(kCourseNameMax, 'c'))})));
  EXPECT_FALSE(read_bundle(pack_bundle({carried(1, 1, std::string(kCourseNameMax + 1, 'c'))})));
  EXPECT_TRUE(read_bundle(pack_bundle({carried(1, kEpochMessageMax)})));
  EXPECT_FALSE(read_bundle(pack_bundle({carried(1, kEpochMessageMax + 1)})));
}

TEST(EpochBundle, IsSplitInOrderAndAMessageStaysWhole) {
  EpochBundle all;
  for (MemberId member = 1; member <= 10; ++member) all.push_back(carried(member, kBundleFull / 3));
  all.push_back(carried(11, kEpochMessageMax));
  const std::vector<EpochBundle> parts = split_bundle(all);
  EXPECT_EQ(parts.size(), 6U) << "two in each, and the last by itself";
  EpochBundle joined;
  for (const EpochBundle& part : parts) joined.insert(joined.end(), part.begin(), part.end());
  EXPECT_EQ(joined, all);
  EXPECT_TRUE(split_bundle({}).empty());
}

}  // namespace
}  // namespace weir
