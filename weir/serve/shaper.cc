// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/shaper.h"

#include <algorithm>

namespace weir::serve {

void Shaper::Lane::take(std::uint64_t tokens, const Rate& rate, Instant now) {
  if (free < now) {
    free = now;
    remainder = 0;
  }
  using Wide = unsigned __int128;
  const Wide time = Wide{tokens} * rate.time_ns() + remainder;
  free += Nanoseconds{static_cast<std::int64_t>(time / rate.tokens())};
  remainder = static_cast<std::uint64_t>(time % rate.tokens());
}

Instant Shaper::done_at(Bytes bytes, Instant now) {
  Instant done = now;
  if (shape_.iops) {
    ops_.take(1, *shape_.iops, now);
    done = std::max(done, ops_.free);
  }
  if (shape_.bandwidth) {
    bytes_.take(bytes.count(), *shape_.bandwidth, now);
    done = std::max(done, bytes_.free);
  }
  return done + shape_.latency;
}

void Shaper::reshape(const Shape& shape, Instant now) {
  shape_ = shape;
  const Instant free = std::max(ops_.free, bytes_.free);
  ops_ = {std::max(free, now), 0};
  bytes_ = ops_;
}

}  // namespace weir::serve
