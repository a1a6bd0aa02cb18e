// SPDX-License-Identifier: Apache-2.0
//
// Several buckets that one request must pay at once: it takes from all of them or from none. A
// request under `rate=` and `bps=`, in several layers, with a share and a root bucket, has one
// charge for each:
//
//   BucketSet set;
//   set.add(ops, ops_shape, Tokens{1});
//   set.add(bytes, bytes_shape, Tokens{4096});
//   if (!set.take(now)) wait_until(set.ready_at());
//
// A set points to its buckets and is made anew for each request, on the stack. The same bucket may
// stand in it once only, since charges are checked one by one. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>

#include "weir/base/assert.h"
#include "weir/pace/token_bucket.h"

namespace weir {

class BucketSet {
 public:
  // Two limits in each of four layers, a share and a root.
  static constexpr std::size_t kChargesMax = 10;

  // REQUIRES: size() < kChargesMax; the bucket is not in the set; it and its shape outlive the set.
  void add(TokenBucket& bucket, const BucketShape& shape, Tokens cost) {
    WEIR_ASSERT(size_ < kChargesMax, size_);
    charges_[size_++] = {&bucket, &shape, cost};
  }
  std::size_t size() const { return size_; }

  // Takes every cost from its bucket, or nothing from any. An empty set pays nothing and succeeds.
  bool take(Instant now);
  // Undoes a take.
  void give_back();
  // The first instant at which take() succeeds if nobody else takes; may lie in the past.
  Instant ready_at() const;

 private:
  struct Charge {
    TokenBucket* bucket;
    const BucketShape* shape;
    Tokens cost;
  };

  std::array<Charge, kChargesMax> charges_;
  std::size_t size_ = 0;
};

}  // namespace weir
