// SPDX-License-Identifier: Apache-2.0
//
// Times and their quantiles, finer than base's Histogram: for figures that are compared with each
// other a sixteenth is too coarse. Every power of two from 256 on is divided into 256 buckets, and
// a quantile is the highest value of its bucket:
//
//   v <= quantile <= v + v / 256          for the true quantile v; exactly v below 512
//
// It takes 4 bytes for each bucket up to the largest value, 27 KiB for times of a minute. Merging
// gives the same result as recording everything in one object. Not thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::sim {

class Quantiles {
 public:
  void record(std::uint64_t value) {
    const std::size_t bucket = bucket_of(value);
    if (bucket >= counts_.size()) counts_.resize(bucket + 1);
    ++counts_[bucket];
    ++count_;
  }

  std::uint64_t count() const { return count_; }
  // The smallest value that at least numerator / denominator of the values do not exceed, rounded
  // up as described above. 0 if nothing was recorded. REQUIRES: 0 <= numerator <= denominator > 0.
  std::uint64_t quantile(std::uint64_t numerator, std::uint64_t denominator) const;

  void merge(const Quantiles& other);

 private:
  static constexpr unsigned kBits = 8;

  static std::size_t bucket_of(std::uint64_t value) {
    if (value < (1U << kBits)) return static_cast<std::size_t>(value);
    const unsigned doublings = static_cast<unsigned>(std::bit_width(value)) - kBits - 1;
    return (std::size_t{doublings} << kBits) + static_cast<std::size_t>(value >> doublings);
  }
  static std::uint64_t highest_in(std::size_t bucket);

  std::vector<std::uint32_t> counts_;
  std::uint64_t count_ = 0;
};

}  // namespace weir::sim
