// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/request_costs.h"

#include <algorithm>
#include <utility>

namespace weir::lustre {
namespace {

using Wide = unsigned __int128;

// No counters of a real server get there in a window; products of broken ones fit 128 bits.
constexpr std::uint64_t kSumMax = std::uint64_t{1} << 55;

}  // namespace

void RequestCosts::Sum::add(const Sum& other) {
  requests = std::min(requests + std::min(other.requests, kSumMax), kSumMax);
  time = std::min(time + std::min(other.time, kSumMax), kSumMax);
}

void RequestCosts::count(std::size_t kind, std::uint64_t requests, std::uint64_t time) {
  if (kinds_.size() <= kind) kinds_.resize(kind + 1);
  if (requests > 0) kinds_[kind].now.add({requests, time});
}

void RequestCosts::pass(Nanoseconds elapsed) {
  window_ += elapsed;
  if (window_ >= kWindow) {
    window_ = Nanoseconds{0};
    for (Kind& kind : kinds_) kind.before = std::exchange(kind.now, {});
  }
  Sum all;
  std::size_t used = 0;
  for (const Kind& kind : kinds_) {
    all.add(kind.now);
    all.add(kind.before);
    used += kind.now.requests + kind.before.requests > 0 ? 1 : 0;
  }
  for (Kind& kind : kinds_) {
    Sum sum = kind.now;
    sum.add(kind.before);
    if (sum.requests >= kEnough) kind.priced = sum;
    kind.cost = kOne;
    const bool is_alone = used == 1 && sum.requests > 0;  // it is the mean, however few it has
    if (is_alone || kind.priced.requests == 0 || all.time == 0) continue;
    const Wide each = Wide{kind.priced.requests} * all.time;
    const Wide cost = (Wide{kind.priced.time} * all.requests * kOne + each / 2) / each;
    kind.cost = static_cast<std::uint64_t>(
        std::clamp<Wide>(cost, kOne / kFactorMax, Wide{kOne} * kFactorMax));
  }
}

std::uint64_t RequestCosts::of(std::size_t kind) const {
  return kind < kinds_.size() ? kinds_[kind].cost : kOne;
}

}  // namespace weir::lustre
