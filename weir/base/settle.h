// SPDX-License-Identifier: Apache-2.0
//
// Divides a whole number of tokens by weight and keeps the rounding error of each share. Each step
// of AdapTBF's allocation is settled this way (section III-C4 of the paper), and so are loans.
//
// With W = sum(weight), and remainders as fixed point with 32 fraction bits (1 token = 2^32):
//   1. want = floor(weight * total * 2^32 / W) + remainder,
//      got = max(0, want >> 32), remainder = want - (got << 32)
//   2. while sum(got) < total: the largest remainder gets one token more and drops by 2^32
//   3. while sum(got) > total: of those with got > 0 the smallest remainder gives one token back
//      and rises by 2^32
// A tie goes to the share that comes first, so give them in the byte order of their ids.
//
// The paper's eq. 24 drops the old remainder in step 1 and so loses tokens; keeping it compensates
// for rounding in the next period. Worked example: 10 tokens a period for a, b and c of equal
// weight (shown as exact thirds; in 32 bits they are truncated):
//
//   period     want               after step 1         step 2 gives to    got        remainder
//      1       3 1/3 3 1/3 3 1/3  3 3 3  1/3 1/3 1/3   a (tie)            4  3  3    -2/3  1/3  1/3
//      2       2 2/3 3 2/3 3 2/3  2 3 3  2/3 2/3 2/3   a, b (ties)        3  4  3    -1/3 -1/3  2/3
//      3       3     3     4      3 3 4   0   0   0    none               3  3  4      0    0    0
//
// Keeps no state between calls and does not use ids; threads may settle different shares at the
// same time. O(n) if no share moves by more than one token in steps 2 and 3, which is the normal
// case; otherwise O(n + m log n) for m moved tokens, at most about n plus the tokens in the given
// remainders. In that case, and for few shares, it allocates 16 bytes per share.
#pragma once

#include <cstdint>
#include <span>

#include "weir/base/quantity.h"

namespace weir {

struct SettleShare {
  std::uint64_t weight = 0;
  std::int64_t remainder = 0;  // in and out, in 2^-32 tokens; starts at 0, may be below 0
  std::uint64_t got = 0;       // out, in tokens

  bool operator==(const SettleShare&) const = default;
};

// Bound of an input remainder: 2^30 tokens either way. Settling alone keeps remainders within a few
// tokens; this leaves room in 64 bits for the steps above.
inline constexpr std::int64_t kSettleRemainderMax = std::int64_t{1} << 62;

// Sets `got` and `remainder` of every share; afterwards sum(got) == total. A share of weight 0
// takes part: because of its remainder it may get a token or give one back. A total of 0 sets every
// `got` to 0 and leaves the remainders unchanged, whatever the weights. This follows from the
// steps, and also applies if W = 0, which the steps do not cover.
//
// REQUIRES: total < 2^63; W < 2^64, and W > 0 unless the total is 0; |remainder| at most
// kSettleRemainderMax.
void settle(std::span<SettleShare> shares, Tokens total);

}  // namespace weir
