// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/epoch_checkers.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/coordinate/slices.h"

namespace weir::sim {
namespace {

std::uint64_t hash_of(EpochView bytes) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211U;
  }
  return hash;
}

EpochBytes combined(const EpochCombine& combine, EpochView a, EpochView b) {
  EpochBytes out(std::max(a.size(), b.size()));
  combine(out, a, b);
  return out;
}

}  // namespace

void EpochCheckers::called_back(std::uint64_t server, std::int64_t epoch, EpochView reduced,
                                Instant at) {
  const auto [known, is_new] = data_of_.try_emplace(epoch, hash_of(reduced));
  if (!is_new && known->second != hash_of(reduced)) {
    findings_.add(
        at, fmt::format("epoch {}:{} has two different payloads", term_of(epoch), count_of(epoch)));
  }
  std::int64_t& last = last_of_[server];
  if (epoch == last) {
    findings_.add(at, fmt::format("server {} is called back twice for {}:{}", server,
                                  term_of(epoch), count_of(epoch)));
  } else if (epoch < last) {
    findings_.add(
        at, fmt::format("server {} goes back to {}:{}", server, term_of(epoch), count_of(epoch)));
  }
  last = std::max(last, epoch);
}

void EpochCheckers::answered(std::uint64_t server, Nanoseconds took, Nanoseconds bound,
                             Instant at) {
  if (took <= bound) return;
  findings_.add(at, fmt::format("server {} waited {} us for its callback, {} allowed", server,
                                took.count() / 1000, bound.count() / 1000));
}

EpochCombine EpochCheckers::watched(EpochCombine combine, std::function<Instant()> now) {
  return [this, combine = std::move(combine), now = std::move(now)](std::span<std::byte> out,
                                                                    EpochView a, EpochView b) {
    combine(out, a, b);
    if (combined(combine, b, a) != EpochBytes(out.begin(), out.end())) {
      findings_.add(now(), "the reduction depends on order");
    }
    const EpochBytes left = combined(combine, out, third_);
    const EpochBytes right = combined(combine, a, combined(combine, b, third_));
    if (left != right) findings_.add(now(), "the reduction depends on grouping");
    third_.assign(b.begin(), b.end());
  };
}

void EpochCheckers::slices(std::int64_t leased, std::int64_t cut_off, std::int64_t limit,
                           std::size_t servers, Instant at, Partition partition) {
  const std::int64_t least = static_cast<std::int64_t>(servers) * kLeastSlice;
  if (leased > limit + least) {
    findings_.add(at, fmt::format("slices under lease sum to {} of {}", leased, limit));
  }
  const std::int64_t more = partition == Partition::kSafe ? limit / 10 : 0;
  if (leased + cut_off > limit + more + least) {
    findings_.add(at, fmt::format("slices sum to {} of {}", leased + cut_off, limit));
  }
}

void EpochCheckers::recovered(std::uint64_t server, bool is_well, Instant at) {
  if (!is_well)
    findings_.add(at, fmt::format("server {} is in no epoch although nothing is faulty", server));
}

}  // namespace weir::sim
