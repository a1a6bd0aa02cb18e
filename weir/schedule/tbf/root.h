// SPDX-License-Identifier: Apache-2.0
//
// The bucket of the whole target, which every request pays under shares, loans too. It has one rate
// and two depths: while requests wait for a device that is slower than the rate it holds more than
// after a rest, so that a moment later the device may make it good
// (docs/decisions/0006-the-root-remembers-a-slow-device.md). Without a bucket nobody waits for it.
#pragma once

#include <optional>

#include "weir/base/time.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/rule_engine.h"

namespace weir::tbf {

class Root {
 public:
  bool exists() const { return shape_.has_value(); }

  // From now on. A new one starts full, another keeps the balance.
  void set(const std::optional<RootBucket>& shape, Instant now) {
    if (shape && shape_) {
      tokens_.reshape(shape_->busy, shape->busy, now);
    } else if (shape) {
      tokens_ = TokenBucket::full(shape->rested, now);
    }
    shape_ = shape;
  }

  // When it can pay; the beginning of time without a bucket.
  Instant ready_at(Tokens cost) const {
    return shape_ ? tokens_.ready_at(cost, shape_->rested) : Instant::min();
  }
  // Takes it whatever the balance is. Somebody waits for the device from now on.
  void pay(Tokens cost, Instant now) {
    if (!shape_) return;
    tokens_.charge(cost, is_rested_ ? shape_->rested : shape_->busy, now);
    is_rested_ = false;
  }
  // What was paid too much.
  void give_back(Tokens cost) {
    if (shape_) tokens_.give_back(cost, shape_->rested);
  }
  // For a moment nobody waited for the device.
  void rest() { is_rested_ = true; }

 private:
  std::optional<RootBucket> shape_;
  TokenBucket tokens_ = TokenBucket::empty(Instant::min());
  bool is_rested_ = true;
};

}  // namespace weir::tbf
