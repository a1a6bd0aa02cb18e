// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/share_parts.h"

#include <algorithm>
#include <utility>

#include "weir/base/hash.h"

namespace weir::lustre {
namespace {

// So that a mean of few requests is not rounded to none.
constexpr std::uint64_t kFine = 16;
// A mean over about this many epochs.
constexpr std::uint64_t kMean = 4;
// Of one job and epoch; sums of 65,536 servers fit into a place.
constexpr std::uint64_t kServedMax = std::uint64_t{1} << 40;

}  // namespace

std::size_t ShareParts::place_of(const JobId& job, std::size_t row) {
  const std::uint64_t mixed = hash_words(job.hash(), row + 1);
  return row * kPlaces + mixed % kPlaces;
}

void ShareParts::count(std::span<const ServedByJob> served) {
  for (const ServedByJob& one : served) {
    auto found = jobs_.find(one.job);
    if (found == jobs_.end()) {
      if (jobs_.size() >= kJobsMax) continue;
      found = jobs_.try_emplace(one.job).first;
    }
    Use& use = found->second;
    use.served = std::min(use.served + std::min(one.requests, kServedMax), kServedMax);
  }
}

std::uint64_t ShareParts::part_of(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? kWhole : found->second.part;
}

EpochBytes ShareParts::ready(Instant /*now*/) {
  EpochVector sums(kRows * kPlaces);
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    Use& use = each->second;
    const std::uint64_t now = std::exchange(use.served, 0) * kFine;
    use.recent = use.recent == 0 ? now : (use.recent * (kMean - 1) + now) / kMean;
    use.sent = use.recent;
    if (use.recent == 0) {
      each = jobs_.erase(each);
      continue;
    }
    for (std::size_t row = 0; row < kRows; ++row) {
      sums[place_of(each->first, row)] += static_cast<std::int64_t>(use.sent);
    }
    ++each;
  }
  return pack_vector(sums);
}

Nanoseconds ShareParts::start_epoch(std::int64_t /*epoch*/, EpochView reduced, Instant /*now*/) {
  const EpochVector sums = unpack_vector(reduced);
  is_in_step_ = sums.size() == kRows * kPlaces;
  using Wide = unsigned __int128;
  for (auto& [job, use] : jobs_) {
    use.part = kWhole;
    if (!is_in_step_ || use.sent == 0) continue;
    std::uint64_t all = UINT64_MAX;
    for (std::size_t row = 0; row < kRows; ++row) {
      all = std::min(all, static_cast<std::uint64_t>(sums[place_of(job, row)]));
    }
    all = std::max(all, use.sent);
    use.part =
        std::max<std::uint64_t>(static_cast<std::uint64_t>(Wide{use.sent} * kWhole / all), 1);
  }
  return kLength;
}

void ShareParts::alone(std::int64_t /*error*/, Instant /*now*/) {
  is_in_step_ = false;
  for (auto& [job, use] : jobs_) use.part = kWhole;
}

}  // namespace weir::lustre
