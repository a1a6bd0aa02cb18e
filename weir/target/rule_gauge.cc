// SPDX-License-Identifier: Apache-2.0
#include "weir/target/rule_gauge.h"

#include <algorithm>

#include "weir/coordinate/slices.h"

namespace weir {
namespace {

// Counting more would not change anybody's slice.
constexpr std::uint64_t kWaitingMax = 16'384;

std::int64_t per_second(std::uint64_t count, Nanoseconds time) {
  using Wide = unsigned __int128;
  const Wide rate = Wide{count} * kMilli * 1'000'000'000 / static_cast<std::uint64_t>(time.count());
  return static_cast<std::int64_t>(std::min<Wide>(rate, kSliceLimitMax));
}

// Classes that were forgotten take what they counted with them.
std::uint64_t since(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

}  // namespace

RuleGauge::Demand RuleGauge::measure(Tbf& tbf, Instant now) {
  const Tbf::RuleLoad load = tbf.load_of(rule_, kWaitingMax);
  const Nanoseconds time = std::max<Nanoseconds>(now - last_, std::chrono::milliseconds{1});
  const Demand demand{
      .ops = per_second(since(before_.served, load.served) + load.waiting, time),
      .bytes =
          per_second(since(before_.served_bytes, load.served_bytes) + load.waiting_bytes, time)};
  before_ = load;
  last_ = now;
  return demand;
}

}  // namespace weir
