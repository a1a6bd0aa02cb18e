// SPDX-License-Identifier: Apache-2.0
#include "weir/nbd/codec/protocol.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace weir::nbd {
namespace {

TEST(Nbd, ErrorsOfAStoreHaveAWordOfTheProtocol) {
  EXPECT_EQ(error_code(std::errc{}), ErrorCode::kNone);
  EXPECT_EQ(error_code(std::errc::io_error), ErrorCode::kIo);
  EXPECT_EQ(error_code(std::errc::no_space_on_device), ErrorCode::kNoSpc);
  EXPECT_EQ(error_code(std::errc::file_too_large), ErrorCode::kNoSpc);
  EXPECT_EQ(error_code(static_cast<std::errc>(EDQUOT)), ErrorCode::kNoSpc);
  EXPECT_EQ(error_code(std::errc::read_only_file_system), ErrorCode::kPerm);
  EXPECT_EQ(error_code(std::errc::not_enough_memory), ErrorCode::kNoMem);
  EXPECT_EQ(error_code(std::errc::operation_not_supported), ErrorCode::kInval);
  EXPECT_EQ(error_code(std::errc::timed_out), ErrorCode::kIo);
  EXPECT_EQ(error_code(static_cast<std::errc>(ESHUTDOWN)), ErrorCode::kShutdown);
}

TEST(Nbd, BlockSizesKeepTheRulesOfTheProtocol) {
  constexpr std::uint64_t kSize = 1U << 20;
  EXPECT_TRUE(are_valid(BlockSizes{}, kSize));
  EXPECT_TRUE(are_valid(BlockSizes{}, 0));
  EXPECT_TRUE(are_valid(BlockSizes{}, 1));
  EXPECT_TRUE(are_valid({512, 512, 1U << 20}, kSize));
  EXPECT_TRUE(are_valid({65536, 65536, 65536}, kSize));
  EXPECT_TRUE(are_valid({1, 1U << 20, 4096}, 4096)) << "the export may be smaller than preferred";
  EXPECT_FALSE(are_valid({0, 4096, 4096}, kSize));
  EXPECT_FALSE(are_valid({3, 4096, 4098}, kSize)) << "no power of two";
  EXPECT_FALSE(are_valid({131072, 131072, 131072}, kSize)) << "above 2^16";
  EXPECT_FALSE(are_valid({1, 256, 4096}, kSize)) << "preferred below 512";
  EXPECT_FALSE(are_valid({4096, 512, 4096}, kSize)) << "preferred below minimum";
  EXPECT_FALSE(are_valid({1, 4096, 2048}, kSize)) << "maximum below preferred";
  EXPECT_FALSE(are_valid({512, 4096, 5000}, kSize)) << "maximum no multiple of minimum";
  EXPECT_FALSE(are_valid({1, 4096, kPayloadMax + 1}, kSize));
  EXPECT_FALSE(are_valid({512, 4096, 4096}, kSize + 1)) << "an end nobody could reach";
}

TEST(Nbd, TextsAreCutBetweenCharacters) {
  EXPECT_EQ(cut_text("short"), "short");
  EXPECT_EQ(cut_text(std::string(300, 'x')).size(), kTextMax);
  std::string text(kTextMax - 1, 'x');
  text += "\xc3\xa9 and more";  // an accented e, whose second byte would be cut off
  EXPECT_EQ(cut_text(text), std::string(kTextMax - 1, 'x'));
}

TEST(Nbd, EveryReasonToBreakHasItsOwnText) {
  std::set<std::string_view> texts;
  for (std::size_t i = 0; i < kBreakReasons; ++i) {
    texts.insert(describe(static_cast<BreakReason>(i)));
  }
  EXPECT_EQ(texts.size(), kBreakReasons);
  EXPECT_FALSE(texts.contains(""));
}

}  // namespace
}  // namespace weir::nbd
