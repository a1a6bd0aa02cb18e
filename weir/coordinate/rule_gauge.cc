// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/rule_gauge.h"

#include <algorithm>
#include <utility>

#include "weir/coordinate/slices.h"

namespace weir {
namespace {

constexpr std::uint64_t kLongQueue = 2;  // requests

std::int64_t per_second(std::uint64_t count, Nanoseconds time) {
  using Wide = unsigned __int128;
  const Wide rate = Wide{count} * kMilli * 1'000'000'000 / static_cast<std::uint64_t>(time.count());
  return static_cast<std::int64_t>(std::min<Wide>(rate, kSliceLimitMax));
}

// Removed classes reduce the counters.
std::uint64_t since(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

}  // namespace

Nanoseconds RuleGauge::time_to(Instant now) const {
  return std::max<Nanoseconds>(now - last_, std::chrono::milliseconds{1});
}

RuleGauge::Demand RuleGauge::measure(const RuleView& rules, Instant now) {
  ClassLoad all;
  for (const ClassLoad& load : rules.cluster_loads(time_to(now))) {
    if (load.rule == rule_) all += load;
  }
  return measure(all, now);
}

// What came, and what has waited all the time.
std::uint64_t RuleGauge::needed(Count& last, const Count& now, bool was_long) {
  const std::uint64_t all = since(last.served, now.served) + now.waiting;
  const std::uint64_t ended = was_long ? since(now.waiting, last.waiting) : 0;
  last = now;
  return since(ended, all);
}

RuleGauge::Demand RuleGauge::measure(const ClassLoad& load, Instant now) {
  const Nanoseconds time = time_to(now);
  const bool was_long = ops_.waiting >= kLongQueue;
  last_ = now;
  return {
      .ops = per_second(needed(ops_, {load.served, load.waiting}, was_long), time),
      .bytes = per_second(needed(bytes_, {load.served_bytes, load.waiting_bytes}, was_long), time)};
}

}  // namespace weir
