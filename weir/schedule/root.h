// SPDX-License-Identifier: Apache-2.0
//
// The bucket of the whole target, whose rate is the capacity. Every request pays it, under any
// policy: a policy that orders requests by what they can pay takes from it on its own
// (Policy::pays_root()); for all others the Gate does, which asks them only while it holds a token
// and then takes the cost of the request. So a request may leave a debt, and a change of the policy
// hands out nothing.
//
// It has one rate and two depths: while requests wait for a device that is slower than the rate it
// is deeper than after an idle time, so that the device can catch up later
// (docs/decisions/0006-two-depths-of-the-root.md). Without a bucket no request waits for it.
#pragma once

#include <optional>

#include "weir/base/time.h"
#include "weir/classify/limits.h"
#include "weir/pace/token_bucket.h"

namespace weir {

// One rate and two depths.
struct RootBucket {
  BucketShape rested;  // after a time in which no request waited for the device
  BucketShape busy;    // while requests wait for the device; at least as deep
  Cost cost = {};      // of a request
};

class Root {
 public:
  bool exists() const { return shape_.has_value(); }

  // A new bucket starts full, a changed one keeps the balance.
  void set(const std::optional<RootBucket>& shape, Instant now) {
    if (shape && shape_) {
      tokens_.reshape(shape_->busy, shape->busy, now);
    } else if (shape) {
      tokens_ = TokenBucket::full(shape->rested, now);
    }
    shape_ = shape;
  }

  // Of a request. REQUIRES: it exists.
  const Cost& cost() const { return shape_->cost; }
  Tokens cost_of(Bytes size) const { return shape_->cost.of(size); }
  // When it can pay; the start of time without a bucket.
  Instant ready_at(Tokens cost) const {
    return shape_ ? tokens_.ready_at(cost, shape_->rested) : Instant::min();
  }
  // Takes tokens whatever the balance. Requests wait for the device from now on.
  void pay(Tokens cost, Instant now) {
    if (!shape_) return;
    tokens_.charge(cost, is_rested_ ? shape_->rested : shape_->busy, now);
    is_rested_ = false;
  }
  // Returns an excess payment.
  void give_back(Tokens cost) {
    if (shape_) tokens_.give_back(cost, shape_->rested);
  }
  // A request that paid `paid` costs `due`.
  void settle(Tokens paid, Tokens due, Instant now) {
    due > paid ? pay(due - paid, now) : give_back(paid - due);
  }
  // No request waits for the device at this moment.
  void rest() { is_rested_ = true; }

 private:
  std::optional<RootBucket> shape_;
  TokenBucket tokens_ = TokenBucket::empty(Instant::min());
  bool is_rested_ = true;
};

}  // namespace weir
