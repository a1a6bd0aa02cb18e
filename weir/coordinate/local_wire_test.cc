// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/local_wire.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

using std::chrono::milliseconds;
using namespace std::string_literals;

std::string head(std::uint32_t length, std::uint8_t kind, std::uint8_t version = 1) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(length >> shift);
  text += static_cast<char>(kind);
  text += static_cast<char>(version);
  return text + "\0\0"s;
}
std::string join(std::string_view name, std::uint8_t combine = 1) {
  return head(static_cast<std::uint32_t>(5 + name.size()), 1) + static_cast<char>(combine) +
         "\0\0\0\x64"s + std::string(name);
}
std::string ready(std::string_view data) {
  return head(static_cast<std::uint32_t>(8 + data.size()), 2) + "\0\0\0\2\0\0\0\7"s +
         std::string(data);
}

TEST(LocalReader, ReadsMessagesHoweverTheyAreCut) {
  const std::string all = join("zones") + ready("abc") + head(0, 3);
  for (std::size_t step = 1; step <= all.size(); ++step) {
    LocalReader reader;
    std::vector<LocalMessage> found;
    for (std::size_t at = 0; at < all.size(); at += step) {
      reader.add(std::string_view(all).substr(at, step));
      for (;;) {
        const auto next = reader.next();
        ASSERT_TRUE(next);
        if (!*next) break;
        found.push_back(**next);
      }
    }
    ASSERT_EQ(found.size(), 3U);
    EXPECT_EQ(found[0], LocalMessage(LocalJoin{Combine::kSum, milliseconds{100}, "zones"}));
    EXPECT_EQ(found[1], LocalMessage(LocalReady{epoch_number(2, 7),
                                                {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}}}));
    EXPECT_EQ(found[2], LocalMessage(LocalLeave{}));
  }
}

TEST(LocalReader, WhatIsNotValidIsNamed) {
  const auto refused = [](const std::string& bytes) {
    LocalReader reader;
    reader.add(bytes);
    const auto next = reader.next();
    return next ? std::string() : next.error().message();
  };
  EXPECT_NE(refused(head(0, 9)).find("kind 9"), std::string::npos);
  EXPECT_NE(refused(head(0, 3, 2)).find("version 2"), std::string::npos);
  EXPECT_NE(refused(head(5000, 2)).find("5000 bytes"), std::string::npos) << "before they arrive";
  EXPECT_NE(refused(head(UINT32_MAX, 2)).find("at most"), std::string::npos);
  EXPECT_NE(refused(join("a", 0)).find("combine 0"), std::string::npos);
  EXPECT_NE(refused(join("a", 6)).find("combine 6"), std::string::npos);
  EXPECT_NE(refused(join("a b")).find("name"), std::string::npos);
  EXPECT_NE(refused(join("")).find("name"), std::string::npos);
  EXPECT_NE(refused(head(3, 1) + "abc").find("join"), std::string::npos);
  EXPECT_NE(refused(head(5, 1) + "\1\0\0\0\0"s).find("timeout"), std::string::npos);
  EXPECT_NE(refused(head(2, 2) + "ab").find("epoch"), std::string::npos);
  EXPECT_NE(refused(head(8, 2) + std::string(8, '\xff')).find("negative"), std::string::npos);
  EXPECT_NE(refused(head(1, 3) + "a").find("kind 3"), std::string::npos);
}

TEST(LocalReader, TheLargestDataIsAccepted) {
  LocalReader reader;
  reader.add(ready(std::string(kLocalDataMax, 'x')));
  EXPECT_TRUE(reader.next());
}

TEST(LocalWire, AnswersHaveTheirLength) {
  EXPECT_EQ(local_joined(), head(0, 4));
  EXPECT_EQ(local_start(-2, {}), head(8, 5) + std::string(7, '\xff') + '\xfe');
  EXPECT_EQ(local_error(16, "busy"), head(8, 6) + "\0\0\0\x10"s + "busy");
}

}  // namespace
}  // namespace weir
