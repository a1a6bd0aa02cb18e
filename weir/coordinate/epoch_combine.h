// SPDX-License-Identifier: Apache-2.0
//
// Reductions that schedulers outside of Weir choose by name, and the names of their courses of
// epochs. The leader runs only what it knows, so that no code of a scheduler runs there:
//
//   sum  min  max   vectors of int64, big-endian, place by place (vectors.h); numbers below 0
//                   count as 0, and where one vector is shorter, the other's place counts
//   or              bytes, place by place
//   gather          opaque: the data of all, one after the other, each with its length (4 bytes)
//
//   course_of(Combine::kSum, "zones") = "~sum:zones"
//
// No service has such a name, and one name with two reductions is two courses. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weir/coordinate/epoch.h"

namespace weir {

enum class Combine : std::uint8_t { kSum = 1, kMin, kMax, kOr, kGather };

inline constexpr std::size_t kLocalCourseMax = 23;  // characters of a name
// Of data, for each scheduler.
inline constexpr std::size_t kLocalDataMax = kEpochDataGuaranteed;

std::string_view word_of(Combine combine);
// Not for kGather, which the leader does itself.
EpochCombine function_of(Combine combine);

// Letters, digits, '-', '_' and '.', 1 to kLocalCourseMax of them.
bool is_local_name(std::string_view name);
std::string course_of(Combine combine, std::string_view name);
constexpr bool is_local_course(std::string_view course) { return course.starts_with('~'); }
// None: not valid.
std::optional<Combine> combine_of(std::string_view course);

}  // namespace weir
