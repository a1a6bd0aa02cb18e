// SPDX-License-Identifier: Apache-2.0
//
// Repeatable random numbers: every random choice in Weir comes from one seed, passed in. The same
// seed gives the same numbers with every compiler and on every machine, which <random> does not
// promise for its distributions. There are no doubles here: probabilities are fractions.
//
// Streams are split by name. A child depends on the seed of its parent and on the name alone,
// never on how much either has drawn, so a new consumer does not change the numbers of the
// others:
//
//   Rng run(seed)
//    +- run.split("faults")                 the same faults, whatever the workload draws
//    +- run.split("workload")
//        +- run.split("workload").split("job1")
//
// A path of names is not its concatenation: split("a").split("b") differs from split("ab"). The
// same name split twice from the same parent is the same stream twice, and so is a copy: hold one
// Rng per consumer and pass it by reference.
//
// The generator is xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
// generators", ACM TOMS 47:4, 2021), with its state initialized by SplitMix64 as the authors
// recommend. Do not use it for secrets: a few outputs reveal the rest. One object belongs to one
// thread. A draw takes about a nanosecond; a split takes one mixing step for each byte of the name.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "weir/base/assert.h"

namespace weir {

class Rng {
 public:
  explicit Rng(std::uint64_t seed);

  // A separate stream for the consumer with this name.
  Rng split(std::string_view name) const;

  // Any 64-bit value, all equally likely.
  std::uint64_t next() {
    const std::uint64_t drawn = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return drawn;
  }

  // 0, 1 ... n - 1, equally likely. REQUIRES: n > 0.
  //
  // The high half of x * n maps 2^64 values of x onto n results (Lemire, "Fast random integer
  // generation in an interval", 2019). Each result has floor(2^64 / n) values of x, and some have
  // one more; refusing those whose low half is below 2^64 mod n takes exactly these extra ones
  // away. The costly remainder is only needed when the low half is below n, which is rare for small
  // n.
  std::uint64_t below(std::uint64_t n) {
    WEIR_ASSERT(n > 0, n);
    using Wide = unsigned __int128;
    Wide product = Wide{next()} * n;
    if (static_cast<std::uint64_t>(product) < n) {
      const std::uint64_t refused = (0 - n) % n;  // 2^64 mod n
      while (static_cast<std::uint64_t>(product) < refused) product = Wide{next()} * n;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

  // lo ... hi, both included, all equally likely; any range, including all of int64. REQUIRES: lo
  // <= hi.
  std::int64_t between(std::int64_t lo, std::int64_t hi);

  // True in numerator of denominator cases. The number of draws depends on the denominator only:
  // setting the numerator to 0, to disable a fault, does not change later draws. REQUIRES:
  // denominator > 0, numerator <= denominator.
  bool chance(std::uint64_t numerator, std::uint64_t denominator) {
    WEIR_ASSERT(numerator <= denominator, numerator, denominator);
    return below(denominator) < numerator;
  }

 private:
  std::uint64_t seed_;  // kept for split(); never changes
  std::array<std::uint64_t, 4> state_;
};

}  // namespace weir
