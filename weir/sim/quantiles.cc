// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/quantiles.h"

#include <algorithm>

#include "weir/base/assert.h"

namespace weir::sim {

std::uint64_t Quantiles::highest_in(std::size_t bucket) {
  constexpr std::size_t kPerDoubling = std::size_t{1} << kBits;
  if (bucket < 2 * kPerDoubling) return bucket;
  const std::size_t doublings = bucket / kPerDoubling - 1;
  return ((std::uint64_t{kPerDoubling + bucket % kPerDoubling} + 1) << doublings) - 1;
}

std::uint64_t Quantiles::quantile(std::uint64_t numerator, std::uint64_t denominator) const {
  WEIR_ASSERT(denominator > 0 && numerator <= denominator, numerator, denominator);
  if (count_ == 0) return 0;
  using Wide = unsigned __int128;
  const auto rank =
      static_cast<std::uint64_t>((Wide{count_} * numerator + denominator - 1) / denominator);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
    seen += counts_[bucket];
    if (seen >= std::max<std::uint64_t>(rank, 1)) return highest_in(bucket);
  }
  return highest_in(counts_.size() - 1);
}

void Quantiles::merge(const Quantiles& other) {
  counts_.resize(std::max(counts_.size(), other.counts_.size()));
  for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
}

}  // namespace weir::sim
