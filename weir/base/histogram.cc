// SPDX-License-Identifier: Apache-2.0
#include "weir/base/histogram.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir {
namespace {

template <class Count>
Count saturating_sum(Count a, Count b) {
  const Count sum = static_cast<Count>(a + b);
  return sum < a ? static_cast<Count>(~Count{0}) : sum;
}

}  // namespace

void Histogram::record(std::uint64_t value, std::uint64_t times) {
  if (times == 0) return;
  std::uint32_t& counter = counts_[bucket_of(value)];
  counter = static_cast<std::uint32_t>(
      std::min(saturating_sum(std::uint64_t{counter}, times), std::uint64_t{UINT32_MAX}));
  using Wide = unsigned __int128;
  sum_ = saturating_sum(sum_, Wide{value} * times);
  count_ = saturating_sum(count_, times);
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

std::uint64_t Histogram::quantile(std::uint64_t numerator, std::uint64_t denominator) const {
  WEIR_ASSERT(numerator <= denominator && denominator > 0, numerator, denominator);
  if (count_ == 0) return 0;
  // Ranks go by what the buckets hold, which is less than count() once one of them is full.
  std::uint64_t held = 0;
  for (const std::uint32_t count : counts_) held += count;
  // rank = ceil(held * numerator / denominator), and at least the first.
  using Wide = unsigned __int128;
  const Wide scaled = Wide{held} * numerator;
  const auto rank = static_cast<std::uint64_t>(scaled / denominator + (scaled % denominator > 0));
  if (rank <= 1) return min_;
  std::uint64_t passed = 0;
  std::size_t bucket = 0;
  while ((passed += counts_[bucket]) < rank) ++bucket;
  return std::min(highest_in(bucket), max_);
}

void Histogram::merge(const Histogram& other) {
  for (std::size_t i = 0; i < kBuckets; ++i) {
    counts_[i] = saturating_sum(counts_[i], other.counts_[i]);
  }
  sum_ = saturating_sum(sum_, other.sum_);
  count_ = saturating_sum(count_, other.count_);
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

}  // namespace weir
