// SPDX-License-Identifier: Apache-2.0
//
// Draws one of many with a probability in proportion to its weight; weights may change at any time.
//
//   weights 3, 0, 1:   values 0, 1, 2 are index 0, value 3 is index 2
//
// A binary indexed tree: sums_[i] has the sum of the weights of the last i & -i indices before i,
// so set and draw take O(log n). One owner.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weir/base/rng.h"

namespace weir::sim {

class WeightedDraw {
 public:
  explicit WeightedDraw(std::size_t count) : weights_(count), sums_(count + 1) {}

  std::uint64_t total() const { return total_; }

  void set(std::size_t index, std::uint64_t weight) {
    const std::uint64_t more = weight - weights_[index];  // wraps like the sums
    weights_[index] = weight;
    total_ += more;
    for (std::size_t i = index + 1; i < sums_.size(); i += i & (0 - i)) sums_[i] += more;
  }

  // REQUIRES: total() > 0.
  std::size_t draw(Rng& rng) const { return at(rng.below(total_)); }

  // The index in whose range the value lies. REQUIRES: value < total().
  std::size_t at(std::uint64_t value) const {
    std::size_t index = 0;
    for (std::size_t step = std::bit_floor(sums_.size() - 1); step > 0; step /= 2) {
      if (index + step < sums_.size() && sums_[index + step] <= value) {
        index += step;
        value -= sums_[index];
      }
    }
    return index;
  }

 private:
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> sums_;
  std::uint64_t total_ = 0;
};

}  // namespace weir::sim
