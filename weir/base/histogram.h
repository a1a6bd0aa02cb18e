// SPDX-License-Identifier: Apache-2.0
//
// A histogram of 64-bit values in one page of memory: waits in nanoseconds, sizes in bytes, any
// count. It reports quantiles of the recorded values with a small, known error.
//
//   value   0  1 ... 15 | 16 17 ... 31 | 32   34 ... 62 | 64       68 ... 124 | ... 2^64 - 1
//   width   1            1              2                4                      ... 2^59
//
// Every power of two from 16 on is cut into 16 buckets of equal width w = 2^(e - 4), so a bucket
// that starts at L has w <= L / 16. A quantile is reported as the highest value of its bucket, but
// never above max(). So for the true quantile v (the value at that rank, had all been kept sorted):
//
//   v <= quantile <= v + v / 16     and exactly v where v < 32, and at the lowest and highest rank
//
// The error is only upward: if quantile() reports that 99 % waited at most x, that is true.
//
// A bucket counts up to 2^32 - 1 and then saturates: further values still count in count(), sum(),
// min() and max(), but no longer in quantiles. This takes 4 billion equal values. Merging two
// histograms gives the same result as recording all values in one, in any order, so shards can be
// added up.
//
// No allocation, trivially copyable, not thread-safe. record() is O(1), a few nanoseconds;
// quantile(), merge() and reset() visit all 976 buckets.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace weir {

class Histogram {
 public:
  // 16 exact values, then 16 buckets for each power of two from 2^4 to 2^63.
  static constexpr std::size_t kBuckets = 16 + 60 * 16;

  // Records a value `times` times; 0 times changes nothing.
  void record(std::uint64_t value, std::uint64_t times = 1);

  // How many values were recorded; saturates at 2^64 - 1.
  std::uint64_t count() const { return count_; }
  // Their sum, exact in 128 bits: it cannot overflow before count() does, and saturates with it.
  unsigned __int128 sum() const { return sum_; }
  // Exact; 0 when nothing was recorded.
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  std::uint64_t max() const { return max_; }

  // The smallest value that at least numerator / denominator of the values do not exceed, rounded
  // up as described above: quantile(1, 2) is the median, quantile(0, 1) is min(), quantile(1, 1) is
  // max(). 0 if nothing was recorded.
  // REQUIRES: denominator > 0, numerator <= denominator.
  std::uint64_t quantile(std::uint64_t numerator, std::uint64_t denominator) const;

  void merge(const Histogram& other);
  void reset() { *this = Histogram(); }

  // The buckets, for exporters: bucket b holds the values from lowest_in(b) to highest_in(b);
  // together they cover all of uint64 without a gap. REQUIRES: b < kBuckets.
  static constexpr std::size_t bucket_of(std::uint64_t value);
  static constexpr std::uint64_t lowest_in(std::size_t bucket);
  static constexpr std::uint64_t highest_in(std::size_t bucket);
  std::uint32_t count_in(std::size_t bucket) const { return counts_[bucket]; }

  bool operator==(const Histogram&) const = default;

 private:
  std::array<std::uint32_t, kBuckets> counts_{};
  unsigned __int128 sum_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t min_ = UINT64_MAX;
  std::uint64_t max_ = 0;
};

static_assert(sizeof(Histogram) <= 4096, "a histogram is lent to classes as one page");
static_assert(std::is_trivially_copyable_v<Histogram>);

// With e the exponent of the highest bit, v >> (e - 4) is 16 ... 31: the highest bit and the four
// below it, which number the buckets of that power of two. Worked example: 100 = 1100100b has e = 6
// and 100 >> 2 = 25, so it is in bucket 16 * (6 - 4) + 25 = 57, which holds 25 * 4 = 100 ... 103.
constexpr std::size_t Histogram::bucket_of(std::uint64_t value) {
  if (value < 16) return static_cast<std::size_t>(value);
  const unsigned doublings = static_cast<unsigned>(std::bit_width(value)) - 5;  // e - 4
  return std::size_t{16} * doublings + static_cast<std::size_t>(value >> doublings);
}

constexpr std::uint64_t Histogram::lowest_in(std::size_t bucket) {
  if (bucket < 32) return bucket;
  return std::uint64_t{16 + bucket % 16} << (bucket / 16 - 1);
}

constexpr std::uint64_t Histogram::highest_in(std::size_t bucket) {
  // For the last bucket, the next one would start at 2^64, which wraps to 0, so the result is
  // correct too.
  return lowest_in(bucket + 1) - 1;
}

}  // namespace weir
