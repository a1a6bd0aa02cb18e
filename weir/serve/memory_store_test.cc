// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/memory_store.h"

#include <array>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

class MemoryStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    auto store = MemoryStore::create(Bytes{64 * kMib});
    ASSERT_TRUE(store);
    store_ = std::move(*store);
  }

  struct Operation : StoreOperation {
    bool is_done = false;
  };
  // Completes at once, or after some turns.
  bool start(Operation& operation, StoreCommand command, std::uint64_t offset,
             std::uint32_t length) {
    operation.command = command;
    operation.offset = offset;
    operation.length = length;
    operation.owner = &operation;
    operation.finished = [](StoreOperation& it) {
      static_cast<Operation*>(it.owner)->is_done = true;
    };
    operation.is_done = store_->start(operation, now_);
    return operation.is_done;
  }
  void turn() {
    now_ += std::chrono::microseconds{1};
    if (store_->wakes_at() <= now_) store_->wake(now_);
  }
  std::size_t non_zero(std::uint64_t offset, std::uint32_t length) {
    Operation read;
    EXPECT_TRUE(start(read, StoreCommand::kRead, offset, length));
    return length -
           static_cast<std::size_t>(std::count(read.data.begin(), read.data.end(), std::byte{0}));
  }

  std::unique_ptr<Store> store_;
  Instant now_;
  std::vector<std::byte> ones_ = std::vector<std::byte>(32 * kMib, std::byte{1});
};

TEST_F(MemoryStoreTest, ATurnDoesABoundedPartOfALargeOperation) {
  for (const auto command : {StoreCommand::kWrite, StoreCommand::kDiscard}) {
    turn();
    Operation large;
    large.buffer = ones_;
    EXPECT_FALSE(start(large, command, 0, 32 * kMib));
    std::uint64_t moved = 0;
    std::uint64_t turns = 1;
    while (!large.is_done) {
      EXPECT_LE(large.moved - moved, MemoryStore::kTurnBytes);
      moved = large.moved;
      turn();
      ++turns;
    }
    EXPECT_EQ(turns, 32 * kMib / MemoryStore::kTurnBytes);
    EXPECT_EQ(store_->wakes_at(), kNever);
    EXPECT_EQ(non_zero(0, 32 * kMib), command == StoreCommand::kWrite ? 32 * kMib : 0);
  }
}

TEST_F(MemoryStoreTest, ManySmallWritesShareTheTurn) {
  std::array<Operation, 200> writes;
  std::size_t at_once = 0;
  for (Operation& one : writes) {
    one.buffer = std::span(ones_).first(4096);
    at_once += start(one, StoreCommand::kWrite, 0, 4096) ? 1 : 0;
  }
  EXPECT_EQ(at_once, MemoryStore::kTurnBytes / 4096);
  turn();
  for (const Operation& one : writes) EXPECT_TRUE(one.is_done);
}

TEST_F(MemoryStoreTest, ASmallOperationDoesNotWaitForALargeOne) {
  Operation large;
  large.buffer = ones_;
  ASSERT_FALSE(start(large, StoreCommand::kWrite, 0, 32 * kMib));
  Operation small;
  small.buffer = std::span(ones_).first(512);
  EXPECT_FALSE(start(small, StoreCommand::kWrite, 40 * kMib, 512));
  turn();
  EXPECT_TRUE(small.is_done);
  EXPECT_FALSE(large.is_done);
  while (!large.is_done) turn();
}

TEST_F(MemoryStoreTest, WhatWasNeverWrittenIsSkipped) {
  Operation write;
  write.buffer = std::span(ones_).first(4096);
  ASSERT_TRUE(start(write, StoreCommand::kWrite, 50 * kMib, 4096));
  turn();
  Operation trim;
  EXPECT_TRUE(start(trim, StoreCommand::kDiscard, 0, 64 * kMib)) << "64 KiB are there to be zeroed";
  EXPECT_EQ(non_zero(50 * kMib, 4096), 0U);
}

TEST_F(MemoryStoreTest, ExtentsEndWithTheQuestion) {
  Operation write;
  write.buffer = std::span(ones_).first(65536);
  ASSERT_TRUE(start(write, StoreCommand::kWrite, 2 * kMib, 65536));
  using Extent = std::pair<std::uint64_t, bool>;
  std::vector<Extent> extents;
  const auto note = [&](std::uint64_t length, bool is_hole) {
    extents.emplace_back(length, is_hole);
    return true;
  };
  store_->extents(kMib, 512, note);
  EXPECT_EQ(extents, (std::vector<Extent>{{512, true}}));
  extents.clear();
  store_->extents(kMib, 2 * kMib, note);
  EXPECT_EQ(extents, (std::vector<Extent>{{kMib, true}, {65536, false}, {kMib - 65536, true}}));
}

}  // namespace
}  // namespace weir::serve
