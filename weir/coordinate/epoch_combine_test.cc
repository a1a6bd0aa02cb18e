// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_combine.h"

#include <gtest/gtest.h>

#include "weir/base/rng.h"
#include "weir/coordinate/vectors.h"

namespace weir {
namespace {

EpochBytes combined(Combine combine, EpochView a, EpochView b) {
  EpochBytes out(std::max(a.size(), b.size()));
  function_of(combine)(out, a, b);
  return out;
}
EpochVector numbers(Combine combine, const EpochVector& a, const EpochVector& b) {
  return unpack_vector(combined(combine, pack_vector(a), pack_vector(b)));
}

TEST(EpochCombine, VectorsPlaceByPlace) {
  EXPECT_EQ(numbers(Combine::kSum, {1, 5}, {3, 4, 7}), (EpochVector{4, 9, 7}));
  EXPECT_EQ(numbers(Combine::kMin, {1, 5}, {3, 4, 7}), (EpochVector{1, 4, 7}));
  EXPECT_EQ(numbers(Combine::kMax, {1, 5}, {3, 4, 7}), (EpochVector{3, 5, 7}));
  const EpochBytes a = {std::byte{1}, std::byte{4}};
  const EpochBytes b = {std::byte{2}};
  EXPECT_EQ(combined(Combine::kOr, a, b), (EpochBytes{std::byte{3}, std::byte{4}}));
}

TEST(EpochCombineProperty, OrderAndGroupingDoNotMatter) {
  Rng rng(7);
  const auto any = [&] {
    EpochBytes bytes(rng.below(5) * 8 + rng.below(8));
    for (std::byte& one : bytes) one = std::byte{static_cast<unsigned char>(rng.next())};
    return bytes;
  };
  for (int i = 0; i < 500; ++i) {
    const EpochBytes a = any(), b = any(), c = any();
    for (const Combine one : {Combine::kSum, Combine::kMin, Combine::kMax, Combine::kOr}) {
      // The bytes after the last whole number are nobody's.
      const std::size_t least = std::min({a.size(), b.size(), c.size()});
      const std::size_t whole = one == Combine::kOr ? least : least / 8 * 8;
      const auto cut = [&](EpochBytes bytes) {
        bytes.resize(whole);
        return bytes;
      };
      ASSERT_EQ(cut(combined(one, a, b)), cut(combined(one, b, a)));
      ASSERT_EQ(cut(combined(one, combined(one, a, b), c)),
                cut(combined(one, a, combined(one, b, c))));
    }
  }
}

TEST(EpochCombine, CoursesHaveNamesThatNoServiceHas) {
  for (const Combine one :
       {Combine::kSum, Combine::kMin, Combine::kMax, Combine::kOr, Combine::kGather}) {
    const std::string course = course_of(one, std::string(kLocalCourseMax, 'x'));
    EXPECT_LE(course.size(), 31U);
    EXPECT_TRUE(is_local_course(course));
    EXPECT_EQ(combine_of(course), one);
  }
  EXPECT_FALSE(is_local_course("ost_io"));
  for (const char* const course : {"ost_io", "~sum", "~sum:", "~mean:a", "~:a", "~sum:a b"}) {
    EXPECT_FALSE(combine_of(course)) << course;
  }
  EXPECT_FALSE(is_local_name(std::string(kLocalCourseMax + 1, 'x')));
  EXPECT_FALSE(is_local_name("a/b"));
  EXPECT_FALSE(is_local_name(""));
}

}  // namespace
}  // namespace weir
