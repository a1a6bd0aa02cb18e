// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/limits.h"

#include <algorithm>

#include <fmt/format.h>

#include "weir/base/units.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

// The bound of the buckets of pace/: an empty one must be full again within 100 years.
constexpr Nanoseconds kFillTimeMax = std::chrono::hours{24 * 365 * 100};

bool fills_in_time(Rate rate, std::uint64_t depth) {
  return Wide{depth} * rate.time_ns() <=
         Wide{rate.tokens()} * static_cast<std::uint64_t>(kFillTimeMax.count());
}

}  // namespace

Tokens Cost::of_size(Bytes size) const {
  Wide cost = 1;
  if (kind_ == Kind::kBytes) cost = size.count();
  if (kind_ == Kind::kAffine) {
    cost = Wide{base_} + (Wide{per_kib_} * size.count() + 1023) / 1024;
  }
  return Tokens{static_cast<std::uint64_t>(std::clamp<Wide>(cost, 1, UINT64_MAX))};
}

std::string Cost::print() const {
  if (kind_ == Kind::kOp) return "op";
  if (kind_ == Kind::kBytes) return "bytes";
  return fmt::format("affine:{}:{}", base_, per_kib_);
}

std::string Reserve::print() const {
  if (in_bytes) return print_bandwidth(rate);
  return std::to_string(tokens_in(rate, std::chrono::seconds{1}).count());
}

namespace {

// A reservation is part of every limit of its rule.
Result<void> check_reserve(const Limits& limits) {
  if (!limits.reserve) return {};
  const Reserve& reserve = *limits.reserve;
  const bool has_limit = reserve.in_bytes ? limits.bps.has_value() : limits.rate_in_force() > 0;
  if (limits.scope == Scope::kCluster && !has_limit) {
    return fail(std::errc::invalid_argument, {},
                "a reservation of a cluster is divided as its limit is, and there is no limit in "
                "its unit",
                reserve.in_bytes ? "add bps=" : "add rate=");
  }
  const auto exceeds = [&](std::string_view limit, const std::string& value) {
    return fail(std::errc::invalid_argument, {},
                fmt::format("reserve={} is above {}={}", reserve.print(), limit, value),
                fmt::format("give a smaller reserve= or a larger {}=", limit));
  };
  const std::uint32_t rate = limits.rate_in_force();
  if (!reserve.in_bytes && rate > 0 && reserve.rate > Rate::per_second(rate)) {
    return exceeds("rate", std::to_string(rate));
  }
  if (reserve.in_bytes && limits.bps && reserve.rate > *limits.bps) {
    return exceeds("bps", print_bandwidth(*limits.bps));
  }
  return {};
}

}  // namespace

Result<void> Limits::check() const {
  if (burst_bytes && !bps) {
    return fail(std::errc::invalid_argument, {}, "a burst in bytes requires bps",
                "add bps=, or give the burst in tokens such as burst=9");
  }
  if (burst_ops && rate_in_force() == 0) {
    return fail(std::errc::invalid_argument, {}, "a burst in tokens requires rate",
                "add rate=, or give the burst a unit such as burst=1MiB");
  }
  if (burst_bytes && !fills_in_time(*bps, burst_bytes->count())) {
    return fail(std::errc::invalid_argument, {},
                fmt::format("a burst of {} takes more than 100 years to fill at {}",
                            print_size(*burst_bytes), print_bandwidth(*bps)),
                "give a smaller burst or a larger bps");
  }
  return check_reserve(*this);
}

std::string Limits::summary() const {
  std::string text;
  if (rate) text += fmt::format("rate={} ", rate_in_force());
  if (bps) text += fmt::format("bps={} ", tokens_in(*bps, std::chrono::seconds{1}).count());
  if (burst_ops) text += fmt::format("burst={} ", burst_ops->count());
  if (reserve) text += fmt::format("reserve={} ", reserve->print());
  if (weight) text += fmt::format("weight={} ", *weight);
  if (!text.empty()) text.pop_back();
  return text;
}

}  // namespace weir
