// SPDX-License-Identifier: Apache-2.0
#include "weir/pace/bucket_set.h"

#include <algorithm>

namespace weir {

bool BucketSet::take(Instant now) {
  // Asking first leaves every bucket as it was on refusal, to the last fraction. A take that was
  // given back could lose what had meanwhile come to stand above the rim.
  if (ready_at() > now) return false;
  for (std::size_t i = 0; i < size_; ++i) {
    const bool taken = charges_[i].bucket->take(charges_[i].cost, *charges_[i].shape, now);
    WEIR_ASSERT(taken, i);
  }
  return true;
}

void BucketSet::give_back() {
  for (std::size_t i = 0; i < size_; ++i) {
    charges_[i].bucket->give_back(charges_[i].cost, *charges_[i].shape);
  }
}

Instant BucketSet::ready_at() const {
  Instant ready = Instant::min();
  for (std::size_t i = 0; i < size_; ++i) {
    ready = std::max(ready, charges_[i].bucket->ready_at(charges_[i].cost, *charges_[i].shape));
  }
  return ready;
}

}  // namespace weir
