// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/heap_trim.h"

#include <chrono>

#include <gtest/gtest.h>

namespace weir::serve {
namespace {

constexpr Instant at(int seconds) { return Instant{std::chrono::seconds{seconds}}; }

TEST(HeapTrim, IsDueWhenEnoughHasBeenFreed) {
  HeapTrim trim;
  EXPECT_FALSE(trim.is_due(0, at(100)));
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen * 3, at(101)));
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen * 2 + 1, at(102)));
  EXPECT_EQ(trim.wakes_at(), kNever);
  EXPECT_TRUE(trim.is_due(HeapTrim::kFallen * 2, at(103)));
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen * 2, at(200)));  // once
}

TEST(HeapTrim, PausesAndDoesNotForget) {
  HeapTrim trim;
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen * 2, at(100)));
  EXPECT_TRUE(trim.is_due(HeapTrim::kFallen, at(100)));
  EXPECT_FALSE(trim.is_due(0, at(101)));
  EXPECT_EQ(trim.wakes_at(), at(100) + HeapTrim::kPause);
  EXPECT_TRUE(trim.is_due(0, trim.wakes_at()));
  EXPECT_EQ(trim.wakes_at(), kNever);
}

TEST(HeapTrim, WhatComesBackInThePauseIsNotTrimmed) {
  HeapTrim trim;
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen * 2, at(100)));
  EXPECT_TRUE(trim.is_due(0, at(100)));
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen, at(101)));
  EXPECT_FALSE(trim.is_due(0, at(102)));
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen, at(103)));
  EXPECT_EQ(trim.wakes_at(), kNever);
  EXPECT_FALSE(trim.is_due(HeapTrim::kFallen, at(200)));
}

}  // namespace
}  // namespace weir::serve
