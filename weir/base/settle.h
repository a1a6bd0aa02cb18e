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
// The paper's eq. 24 drops the old remainder in step 1, and tokens with it; kept, it makes up next
// time for what rounding took. Worked example: 10 tokens a period for a, b and c of equal weight
// (shown as exact thirds; in 32 bits they are cut off):
//
//   period     want               after step 1         step 2 gives to    got        remainder
//      1       3 1/3 3 1/3 3 1/3  3 3 3  1/3 1/3 1/3   a (tie)            4  3  3    -2/3  1/3  1/3
//      2       2 2/3 3 2/3 3 2/3  2 3 3  2/3 2/3 2/3   a, b (ties)        3  4  3    -1/3 -1/3  2/3
//      3       3     3     4      3 3 4   0   0   0    nobody             3  3  4      0    0    0
//
// Keeps nothing between calls, knows no ids; threads may settle different shares at once. O(n)
// where nobody moves more than one token in steps 2 and 3, which is the rule; else O(n + m log n)
// for m tokens moved, at most about n and the tokens in the remainders brought along, and then, or
// for few shares, it allocates 16 bytes a share.
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

// What a remainder may be on the way in: 2^30 tokens either way. Settling alone keeps them within a
// few tokens; this leaves room in 64 bits for the steps above.
inline constexpr std::int64_t kSettleRemainderMax = std::int64_t{1} << 62;

// Sets `got` and `remainder` of every share; afterwards sum(got) == total. A share of weight 0
// takes part: it may be given, or give back, a token for the sake of its remainder. A total of 0
// sets every `got` to 0 and leaves the remainders as they are, whatever the weights: that is what
// the steps come to, and it also holds where W = 0, on which the steps are silent.
//
// REQUIRES: total < 2^63; W < 2^64, and W > 0 unless the total is 0; |remainder| at most
// kSettleRemainderMax.
void settle(std::span<SettleShare> shares, Tokens total);

}  // namespace weir
