// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/queue_index.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::tbf {
namespace {

const FieldSet kKey{Field::kJobid};

PackedKey key_of(int job) {
  Attributes attributes;
  attributes.job = JobId(std::to_string(job));
  return {attributes, kKey};
}

TEST(QueueIndex, GrowsBeyondWhatWasExpectedAndFindsEach) {
  QueueIndex index(kKey, 4);
  for (int i = 0; i < 500; ++i) index.find_or_make(key_of(i), Head::kRegular);
  EXPECT_EQ(index.queues(), 500U);
  EXPECT_EQ(index.places(), 500U);
  for (int i = 0; i < 500; ++i) {
    Queue* const found = index.find(key_of(i), Head::kRegular);
    ASSERT_NE(found, nullptr) << i;
    EXPECT_EQ(index.attributes_of(*found).job, JobId(std::to_string(i)));
    EXPECT_EQ(index.find(key_of(i), Head::kHigh), nullptr);
  }
}

TEST(QueueIndex, APlaceThatIsUsedAgainIsOfAnotherGeneration) {
  QueueIndex index(kKey, 4);
  Queue& first = index.find_or_make(key_of(1), Head::kRegular);
  const std::uint32_t generation = first.generation;
  index.forget(first);
  EXPECT_EQ(index.find(key_of(1), Head::kRegular), nullptr);
  Queue& second = index.find_or_make(key_of(2), Head::kHigh);
  EXPECT_EQ(&second, &first);
  EXPECT_NE(second.generation, generation);
  EXPECT_EQ(second.head, Head::kHigh);
  EXPECT_EQ(index.queues(), 1U);
  EXPECT_EQ(index.places(), 1U);
}

}  // namespace
}  // namespace weir::tbf
