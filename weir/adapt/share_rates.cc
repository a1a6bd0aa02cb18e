// SPDX-License-Identifier: Apache-2.0
#include "weir/adapt/share_rates.h"

#include <algorithm>

namespace weir {
namespace {

using Wide = unsigned __int128;

constexpr std::uint64_t kForEver = UINT64_MAX / 2;

// Exact unless it does not fit in 64 bits.
Rate part_of(Rate rate, std::uint64_t weight, std::uint64_t held) {
  Wide tokens = Wide{rate.tokens()} * weight;
  Wide time = Wide{rate.time_ns()} * (held + weight);
  while (tokens > INT64_MAX || time > INT64_MAX) {
    tokens = std::max<Wide>(tokens / 2, 1);
    time = std::max<Wide>(time / 2, 1);
  }
  return Rate(Tokens{static_cast<std::uint64_t>(tokens)},
              Nanoseconds{static_cast<std::int64_t>(time)});
}

}  // namespace

Tokens share_depth(Tokens allotted, const ControllerOptions& options) {
  const Tokens depth = std::max(ControllerOptions::kShareDepthMin,
                                Tokens{allotted.count() * ControllerOptions::kShareDepthPeriods});
  return options.depth.value_or(depth);
}

Share allotted_share(Tokens allotted, std::uint64_t weight, const ControllerOptions& options) {
  return {.rate = Rate(std::max(Tokens{1}, allotted), options.period),
          .depth = share_depth(allotted, options),
          .nodes = weight};
}

Share newcomer_share(std::optional<Rate> rate, std::uint64_t weight, std::uint64_t held,
                     const ControllerOptions& options) {
  Share share{.rate = std::nullopt, .depth = {}, .nodes = weight};
  if (!rate) return share;
  share.rate = part_of(*rate, weight, held);
  share.depth = share_depth(tokens_in(*share.rate, options.period), options);
  return share;
}

std::uint64_t periods_to_fill(const Share& share, Nanoseconds period) {
  if (!share.rate) return 1;
  const Wide time = Wide{share.depth.count()} * share.rate->time_ns() / share.rate->tokens();
  return static_cast<std::uint64_t>(
      std::min<Wide>(time / static_cast<std::uint64_t>(period.count()) + 1, kForEver));
}

}  // namespace weir
