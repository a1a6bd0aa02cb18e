// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/byte_queue.h"

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir::serve {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The first bytes, as the kernel would get them, in at most this many vectors.
std::string front(const ByteQueue& queue, std::size_t most) {
  std::array<iovec, 8> vectors{};
  std::string text;
  const std::size_t used = queue.parts(std::span(vectors).first(most));
  for (std::size_t i = 0; i < used; ++i) {
    EXPECT_GT(vectors[i].iov_len, 0U);
    text.append(static_cast<const char*>(vectors[i].iov_base), vectors[i].iov_len);
  }
  return text;
}

TEST(ByteQueue, GivesBackWhatWasAppendedInOrder) {
  ByteQueue queue;
  EXPECT_EQ(front(queue, 8), "");
  queue.append(bytes_of("abc"));
  queue.append(bytes_of("def"));
  EXPECT_EQ(front(queue, 8), "abcdef");
  queue.drop(4);
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(front(queue, 8), "ef");
  queue.drop(2);
  EXPECT_TRUE(queue.empty());
  queue.append(bytes_of("g"));
  EXPECT_EQ(front(queue, 8), "g");
}

TEST(ByteQueue, BytesStayWhereTheyAre) {
  ByteQueue queue;
  queue.append(bytes_of("first"));
  std::array<iovec, 1> vector{};
  ASSERT_EQ(queue.parts(vector), 1U);
  const void* const before = vector[0].iov_base;
  for (int i = 0; i < 1000; ++i) queue.append(bytes_of(std::string(1000, 'x')));
  EXPECT_EQ(std::memcmp(before, "first", 5), 0);
  ASSERT_EQ(queue.parts(vector), 1U);
  EXPECT_EQ(vector[0].iov_base, before);
}

TEST(ByteQueue, AnotherQueueIsMovedBehindIt) {
  for (const std::size_t size : {std::size_t{10}, std::size_t{300'000}}) {
    ByteQueue queue;
    ByteQueue other;
    other.append(bytes_of(std::string(size, 'a')));
    queue.append(std::move(other));
    ByteQueue more;
    more.append(bytes_of(std::string(size, 'b')));
    queue.append(std::move(more));
    EXPECT_EQ(queue.size(), 2 * size);
    std::string got;
    while (!queue.empty()) {
      const std::string piece = front(queue, 2);
      ASSERT_FALSE(piece.empty());
      got += piece;
      queue.drop(piece.size());
    }
    EXPECT_EQ(got, std::string(size, 'a') + std::string(size, 'b'));
  }
}

TEST(ByteQueueProperty, IsAStream) {
  Rng rng(7);
  ByteQueue queue;
  std::string wanted;
  char next = 0;
  for (int step = 0; step < 5000; ++step) {
    if (rng.below(2) == 0) {
      const std::string text(rng.below(9000), ++next);
      queue.append(bytes_of(text));
      wanted += text;
    } else {
      const std::size_t most = rng.below(8) + 1;
      const std::string piece = front(queue, most);
      ASSERT_EQ(piece, wanted.substr(0, piece.size()));
      const std::size_t dropped = piece.empty() ? 0 : rng.below(piece.size() + 1);
      queue.drop(dropped);
      wanted.erase(0, dropped);
    }
    ASSERT_EQ(queue.size(), wanted.size());
  }
}

}  // namespace
}  // namespace weir::serve
