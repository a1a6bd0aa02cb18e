// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

bool Class::is_full(Instant now) {
  bool full = true;
  each_bucket(Bytes{0}, [&](Bucket& bucket, const BucketShape& shape, Tokens) {
    full = full && bucket.tokens.can_take(shape.depth(), shape, now);
  });
  if (!full || reservation == nullptr) return full;
  const BucketShape& reserved = pace->shapes.reserve->rested;
  return reservation->tokens.can_take(reserved.depth(), reserved, now);
}

void Class::open_to_others() {
  if (main.waiters == nullptr) main.waiters = std::make_unique<BucketWaiters>();
  if (second != nullptr && second->waiters == nullptr) {
    second->waiters = std::make_unique<BucketWaiters>();
  }
}

void Class::reshape(const Shapes& from, const Shapes& to, Instant now) {
  if (!to.reserve) {
    reservation.reset();
  } else if (reservation != nullptr && from.reserves_alike(to)) {
    reservation->tokens.reshape(from.reserve->busy, to.reserve->busy, now);
  } else {
    reservation = std::make_unique<Reservation>();
    reservation->tokens = TokenBucket::full(to.reserve->rested, now);
  }
  const auto reshaped = [&](const Bucket* bucket, const std::optional<BucketShape>& before,
                            const std::optional<BucketShape>& after) {
    if (!after) return TokenBucket::empty(now);
    if (!before) {
      return to.is_sliced ? TokenBucket::empty(state()->started) : TokenBucket::full(*after, now);
    }
    TokenBucket tokens = bucket->tokens;
    tokens.reshape(*before, *after, now);
    return tokens;
  };
  const TokenBucket of_ops = reshaped(&main, from.ops, to.ops);
  const TokenBucket of_bytes = reshaped(from.ops ? second.get() : &main, from.bytes, to.bytes);
  main.tokens = to.ops ? of_ops : of_bytes;
  if (!to.ops || !to.bytes) return second.reset();
  if (second == nullptr) second = std::make_unique<Bucket>();
  second->tokens = of_bytes;
  if (main.waiters != nullptr) open_to_others();
}

}  // namespace weir::tbf
