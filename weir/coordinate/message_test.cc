// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/message.h"

#include <string>

#include <gtest/gtest.h>

namespace weir {
namespace {

EpochBytes bytes_of(std::string_view text) {
  const EpochView view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

std::vector<EpochMessage> one_of_each() {
  return {Ready{.epoch = 7,
                .serial = 3,
                .timeout = std::chrono::seconds{2},
                .order = ByteOrder::kLittle,
                .data = bytes_of("data"),
                .claim = bytes_of("claim")},
          Taken{epoch_number(4, 9), 5}, Leave{0, 6},
          Start{.epoch = epoch_number(4, 10),
                .serial = 3,
                .timeout = std::chrono::milliseconds{1},
                .members = 12,
                .order = ByteOrder::kBig,
                .data = bytes_of("d"),
                .grant = {}},
          Refuse{-116, 8}};
}

TEST(EpochMessage, IsReadAsItWasWritten) {
  for (const EpochMessage& message : one_of_each()) {
    const auto read = decode(encode(message));
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, message);
  }
}

TEST(EpochMessage, HasTheBytesTheDocumentShows) {
  const EpochBytes bytes = encode(Taken{epoch_number(1, 2), 3});
  const std::string expected("WEPR\0\1\2\0\0\0\0\1\0\0\0\2\0\0\0\0\0\0\0\3", 24);
  EXPECT_EQ(bytes, bytes_of(expected));
}

TEST(EpochMessage, CutShortOrTooLongIsRefused) {
  for (const EpochMessage& message : one_of_each()) {
    EpochBytes bytes = encode(message);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_FALSE(decode(EpochView(bytes).first(length)));
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes));
  }
}

TEST(EpochMessage, AnotherVersionIsNamed) {
  EpochBytes bytes = encode(Taken{1, 1});
  bytes[5] = std::byte{9};
  const auto read = decode(bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, std::errc::protocol_not_supported);
  EXPECT_NE(read.error().what.find("version 9"), std::string::npos);
}

TEST(EpochMessage, MoreDataThanAllowedIsTooLarge) {
  Ready ready{.data = EpochBytes(kEpochDataMax), .claim = {}};
  EXPECT_TRUE(decode(encode(ready)));
  ready.data.push_back(std::byte{0});
  const auto read = decode(encode(ready));
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, std::errc::message_size);
}

TEST(EpochMessage, NumbersOutOfBoundsAreRefused) {
  EXPECT_FALSE(decode(encode(Ready{.epoch = -1, .data = {}, .claim = {}})));
  EXPECT_FALSE(decode(encode(Start{.epoch = 0, .data = {}, .grant = {}})));
  EXPECT_FALSE(decode(encode(Refuse{1, 1})));
  EXPECT_FALSE(decode(encode(Refuse{-5000, 1})));
  EXPECT_FALSE(
      decode(encode(Ready{.timeout = kEpochTimeoutMax + Nanoseconds{1}, .data = {}, .claim = {}})));
}

TEST(EpochMessage, AnOrderOfBytesWithoutDataIsRefused) {
  constexpr std::size_t kFlags = 7;
  for (const EpochMessage& message :
       {EpochMessage(Taken{1, 1}), EpochMessage(Leave{1, 1}), EpochMessage(Refuse{-5, 1})}) {
    EpochBytes bytes = encode(message);
    EXPECT_TRUE(decode(bytes));
    bytes[kFlags] = std::byte{1};
    EXPECT_FALSE(decode(bytes));
  }
}

TEST(Epoch, TheTermStandsInTheUpperHalf) {
  const std::int64_t epoch = epoch_number(3, 17);
  EXPECT_EQ(term_of(epoch), 3U);
  EXPECT_EQ(count_of(epoch), 17U);
  EXPECT_GT(epoch_number(4, 1), epoch_number(3, UINT32_MAX));
  EXPECT_GT(epoch_number(kTermMax, UINT32_MAX), 0);
}

}  // namespace
}  // namespace weir
