// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/send_directly.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir/host/fd.h"

namespace weir::serve {
namespace {

class SendDirectly : public testing::Test {
 protected:
  SendDirectly() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    near_ = host::Fd(ends[0]);
    far_ = host::Fd(ends[1]);
  }

  static std::vector<std::byte> pattern(std::size_t size, unsigned first) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = static_cast<std::byte>((first + i * 7 + i / 256) & 255);
    }
    return bytes;
  }

  // All that has arrived.
  std::vector<std::byte> arrived() {
    std::vector<std::byte> all;
    std::vector<std::byte> some(1 << 20);
    for (;;) {
      const ssize_t got = read(far_.get(), some.data(), some.size());
      if (got <= 0) return all;
      all.insert(all.end(), some.begin(), some.begin() + got);
    }
  }

  host::Fd near_;
  host::Fd far_;
  ByteQueue queue_;
};

TEST_F(SendDirectly, SendsWhatWaitsFirst) {
  const auto mark = pattern(4, 1);
  const auto piece = pattern(kSendDirectlyMin, 2);
  queue_.append(mark);
  EXPECT_EQ(send_directly(near_.get(), queue_, piece), piece.size());
  EXPECT_TRUE(queue_.empty());
  auto expected = mark;
  expected.insert(expected.end(), piece.begin(), piece.end());
  EXPECT_EQ(arrived(), expected);
}

TEST_F(SendDirectly, LeavesSmallPiecesToTheQueue) {
  EXPECT_EQ(send_directly(near_.get(), queue_, pattern(kSendDirectlyMin - 1, 1)), 0U);
  EXPECT_TRUE(arrived().empty());
}

TEST_F(SendDirectly, LosesNothingWhenTheSocketIsFull) {
  std::vector<std::byte> expected;
  std::vector<std::byte> got;
  for (unsigned round = 0; round < 40; ++round) {
    const auto piece = pattern(100'000, round);
    const std::size_t sent = send_directly(near_.get(), queue_, piece);
    queue_.append(std::span(piece).subspan(sent));
    expected.insert(expected.end(), piece.begin(), piece.end());
    if (round % 3 != 0) continue;  // a slow reader
    const auto some = arrived();
    got.insert(got.end(), some.begin(), some.end());
  }
  EXPECT_FALSE(queue_.empty());  // the socket was full at times
  while (!queue_.empty()) {
    std::array<iovec, 1> part{};
    ASSERT_EQ(queue_.parts(part), 1U);
    const ssize_t done = write(near_.get(), part[0].iov_base, part[0].iov_len);
    if (done > 0) queue_.drop(static_cast<std::size_t>(done));
    const auto some = arrived();
    got.insert(got.end(), some.begin(), some.end());
  }
  EXPECT_EQ(got, expected);
}

TEST_F(SendDirectly, SendsAQueueAsFarAsTheSocketTakesIt) {
  std::vector<std::byte> expected;
  for (unsigned round = 0; round < 40; ++round) {
    const auto piece = pattern(50'000, round);
    queue_.append(piece);
    expected.insert(expected.end(), piece.begin(), piece.end());
  }
  std::vector<std::byte> got;
  const std::size_t first = send_queue(near_.get(), queue_);
  EXPECT_GT(first, 0U);
  EXPECT_EQ(queue_.size(), expected.size() - first);
  while (!queue_.empty()) {
    const auto some = arrived();
    ASSERT_FALSE(some.empty());
    got.insert(got.end(), some.begin(), some.end());
    send_queue(near_.get(), queue_);
  }
  const auto rest = arrived();
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, expected);
}

TEST_F(SendDirectly, ReceivesAtMostALargePiece) {
  std::vector<std::byte> room;
  EXPECT_EQ(receive_large(near_.get(), room, kLargePiece).result, -EAGAIN);
  const auto piece = pattern(100'000, 3);
  ASSERT_EQ(write(far_.get(), piece.data(), piece.size()), static_cast<ssize_t>(piece.size()));
  const LargeReceive some = receive_large(near_.get(), room, 70'000);
  EXPECT_EQ(some.result, 70'000);
  EXPECT_TRUE(std::ranges::equal(some.bytes, std::span(piece).first(70'000)));
  const LargeReceive rest = receive_large(near_.get(), room, 10 * kLargePiece);
  EXPECT_TRUE(std::ranges::equal(rest.bytes, std::span(piece).subspan(70'000)));
  EXPECT_EQ(room.size(), kLargePiece);
  far_ = host::Fd();
  EXPECT_EQ(receive_large(near_.get(), room, kLargePiece).result, 0) << "the end";
}

TEST_F(SendDirectly, AClosedSocketTakesNothing) {
  far_ = host::Fd();
  queue_.append(pattern(10, 1));
  EXPECT_EQ(send_queue(near_.get(), queue_), 0U);
  EXPECT_EQ(send_directly(near_.get(), queue_, pattern(kSendDirectlyMin, 1)), 0U);
  EXPECT_EQ(queue_.size(), 10U);
}

}  // namespace
}  // namespace weir::serve
