// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/atomic_bucket.h"

namespace weir {

Tokens AtomicSpill::collect(const BucketShape& shape) {
  std::uint64_t ns = ns_.load(std::memory_order_relaxed);
  for (;;) {
    const Tokens tokens = tokens_in(shape.rate(), Nanoseconds{static_cast<std::int64_t>(ns)});
    const std::uint64_t used = static_cast<std::uint64_t>(shape.span_ns_up(tokens));
    if (ns_.compare_exchange_weak(ns, ns - used, std::memory_order_relaxed)) return tokens;
  }
}

Instant AtomicBucket::ready_at(Tokens n, const BucketShape& shape) const {
  const std::int64_t zero = zero_ns_.load(std::memory_order_relaxed);
  const std::int64_t need = need_ns(shape.span_ns_up(n), shape);
  return zero > ns_of(kNever) - need ? kNever : instant_at(zero + need);
}

void AtomicBucket::trim(const BucketShape& shape, Instant now, AtomicSpill& spill) {
  const std::int64_t rim = ns_of(now) - depth_ns(shape);
  std::int64_t zero = zero_ns_.load(std::memory_order_relaxed);
  while (zero < rim) {
    if (zero_ns_.compare_exchange_weak(zero, rim, std::memory_order_relaxed)) {
      spill.ns_.fetch_add(static_cast<std::uint64_t>(rim - zero), std::memory_order_relaxed);
      return;
    }
  }
}

}  // namespace weir
