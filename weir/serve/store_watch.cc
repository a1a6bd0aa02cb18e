// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/store_watch.h"

#include <algorithm>

namespace weir::serve {

void StoreWatch::started(StoreOperation& operation, Instant now) {
  if (working_.empty() && given_up_list_.empty()) silent_since_ = quiet_since_ = now;
  operation.is_given_up = false;
  working_.push_back(operation);
  ++working_count_;
}

void StoreWatch::finished(StoreOperation& operation, Instant now) {
  if (operation.is_given_up) {
    given_up_list_.erase(operation);
    --given_up_;
  } else {
    working_.erase(operation);
    --working_count_;
  }
  silent_since_ = quiet_since_ = now;
  is_hung_ = false;
}

void StoreWatch::heard(Instant at) {
  if (at <= silent_since_) return;
  silent_since_ = at;
  quiet_since_ = std::max(quiet_since_, at);
  is_hung_ = false;
}

// Given-up operations do not need a check: no request waits for their slots.
Instant StoreWatch::wakes_at() const {
  return working_.empty() && (!is_hung_ || kept_.empty()) ? kNever : quiet_since_ + kHungAfter;
}

bool StoreWatch::check(Instant now) {
  if (now < wakes_at()) return false;
  quiet_since_ = now;
  is_hung_ = true;
  return true;
}

StoreOperation* StoreWatch::give_up() {
  if (working_.empty()) return nullptr;
  StoreOperation& oldest = working_.front();
  working_.erase(oldest);
  --working_count_;
  oldest.is_given_up = true;
  given_up_list_.push_back(oldest);
  ++given_up_;
  return &oldest;
}

StoreOperation* StoreWatch::try_one() { return is_hung_ ? take() : nullptr; }

void StoreWatch::keep(StoreOperation& operation) {
  kept_.push_back(operation);
  ++kept_count_;
}

void StoreWatch::drop(StoreOperation& operation) {
  kept_.erase(operation);
  --kept_count_;
}

StoreOperation* StoreWatch::take() {
  if (kept_.empty()) return nullptr;
  StoreOperation& first = kept_.front();
  drop(first);
  return &first;
}

StoreOperation* StoreWatch::resume() {
  return is_hung_ || working_count_ >= slots_ ? nullptr : take();
}

}  // namespace weir::serve
