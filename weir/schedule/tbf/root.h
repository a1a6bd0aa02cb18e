// SPDX-License-Identifier: Apache-2.0
//
// The bucket of the whole target, which every request pays under shares, including loans. It has
// one rate and two depths: while requests wait for a device that is slower than the rate it is
// deeper than after an idle time, so that the device can catch up later
// (docs/decisions/0006-two-depths-of-the-root.md). Without a bucket no request waits
// for it.
#pragma once

#include <optional>

#include "weir/base/time.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/rule_engine.h"

namespace weir::tbf {

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
  // No request waits for the device at this moment.
  void rest() { is_rested_ = true; }

 private:
  std::optional<RootBucket> shape_;
  TokenBucket tokens_ = TokenBucket::empty(Instant::min());
  bool is_rested_ = true;
};

}  // namespace weir::tbf
