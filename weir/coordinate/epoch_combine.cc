// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/epoch_combine.h"

#include <algorithm>
#include <array>

#include "weir/base/assert.h"
#include "weir/base/big_endian.h"
#include "weir/coordinate/vectors.h"

namespace weir {
namespace {

constexpr std::array kCombines = {Combine::kSum, Combine::kMin, Combine::kMax, Combine::kOr,
                                  Combine::kGather};

template <class Choose>
void combine_vectors(std::span<std::byte> out, EpochView a, EpochView b, const Choose& choose) {
  const EpochVector left = unpack_vector(a);
  const EpochVector right = unpack_vector(b);
  for (std::size_t i = 0; (i + 1) * sizeof(std::int64_t) <= out.size(); ++i) {
    const std::int64_t number = i >= left.size()    ? right[i]
                                : i >= right.size() ? left[i]
                                                    : choose(left[i], right[i]);
    store_be(out.data() + i * sizeof number, static_cast<std::uint64_t>(number));
  }
}

void least(std::span<std::byte> out, EpochView a, EpochView b) {
  combine_vectors(out, a, b, [](auto left, auto right) { return std::min(left, right); });
}
void most(std::span<std::byte> out, EpochView a, EpochView b) {
  combine_vectors(out, a, b, [](auto left, auto right) { return std::max(left, right); });
}
void any(std::span<std::byte> out, EpochView a, EpochView b) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::byte left = i < a.size() ? a[i] : std::byte{0};
    const std::byte right = i < b.size() ? b[i] : std::byte{0};
    out[i] = left | right;
  }
}

}  // namespace

std::string_view word_of(Combine combine) {
  switch (combine) {
    case Combine::kSum:
      return "sum";
    case Combine::kMin:
      return "min";
    case Combine::kMax:
      return "max";
    case Combine::kOr:
      return "or";
    case Combine::kGather:
      return "gather";
  }
  return {};
}

EpochCombine function_of(Combine combine) {
  WEIR_ASSERT(combine != Combine::kGather);
  if (combine == Combine::kSum) return add_vectors;
  return combine == Combine::kMin ? least : combine == Combine::kMax ? most : any;
}

bool is_local_name(std::string_view name) {
  return !name.empty() && name.size() <= kLocalCourseMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

std::string course_of(Combine combine, std::string_view name) {
  return "~" + std::string(word_of(combine)) + ":" + std::string(name);
}

std::optional<Combine> combine_of(std::string_view course) {
  const std::size_t mark = course.find(':');
  if (!is_local_course(course) || mark == course.npos || !is_local_name(course.substr(mark + 1))) {
    return std::nullopt;
  }
  const std::string_view word = course.substr(1, mark - 1);
  const auto found = std::find_if(kCombines.begin(), kCombines.end(),
                                  [&](Combine one) { return word_of(one) == word; });
  if (found == kCombines.end()) return std::nullopt;
  return *found;
}

}  // namespace weir
