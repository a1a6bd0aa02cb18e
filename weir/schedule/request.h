// SPDX-License-Identifier: Apache-2.0
//
// A request as the scheduler sees it: its sender and its size. The server embeds one in its own
// request object and owns it; the scheduler links it and never copies or allocates one.
//
//   outside --admit--> queued --next--> running --complete--> outside
//                        |               |   ^
//                        |             defer next
//                        |               v   |
//                        |          deferred --resume--> resumed
//                        '-----------withdraw---'-----------'--> outside
//
// A request that may run, but for which there is no buffer, is deferred: it holds no slot and stays
// paid. When it is resumed it runs before all others.
//
// Between admit and the return to outside a request must not be moved or destroyed, and only the
// Gate it was admitted to may change its `policy_` fields. Attributes and bytes must not change
// until it is outside again. Not thread-safe, like the Gate.
#pragma once

#include <cstdint>

#include "weir/account/request_record.h"
#include "weir/base/heap.h"
#include "weir/base/operation_kind.h"
#include "weir/base/quantity.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/schedule/outcome.h"

namespace weir {
namespace tbf {
class Binder;
}

// The two entrances of a Gate. High priority is for requests that others wait for: callbacks,
// cancels, and requests under a lock that another client wants.
enum class Head : std::uint8_t { kRegular, kHigh };

// A connection's memory of its last request: where in the scheduler the next one like it belongs,
// and where the Target counts it. Requests with the same attributes may share a hint, which saves
// the search for their class and job; it never changes a decision. Belongs to one Gate or Target,
// and must outlive the admit of its requests.
class ClassHint {
 public:
  ClassHint() = default;

 private:
  friend class tbf::Binder;
  friend class Target;
  void* account_ = nullptr;
  void* queue_ = nullptr;
  std::uint64_t engine_ = 0;
  std::uint32_t generation_ = 0;
};

class Request {
 public:
  enum class Place : std::uint8_t { kOutside, kQueued, kRunning, kDeferred, kResumed };

  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  Place place() const { return place_; }
  // Of the last admit or promote.
  Head head() const { return head_; }
  Instant admitted_at() const { return admitted_at_; }
  // When it last got a slot.
  Instant started_at() const { return started_at_; }
  // The record of a request that starts now, and of one that ends now, for accounts.
  RequestRecord starting(Instant now) const {
    return {.operation = operation,
            .charged = bytes,
            .moved = bytes,
            .arrived = admitted_at_,
            .started = now,
            .ended = now};
  }
  RequestRecord ending(Instant now, const Outcome& outcome = {}) const {
    RequestRecord record = starting(started_at_);
    record.moved = outcome.bytes.value_or(bytes);
    record.ended = now;
    return record;
  }

  // For the policy in which the request is queued. The fields that a decision uses are first, on
  // one cache line.
  RingLink<Request> policy_ring;
  std::uint64_t policy_turn = 0;  // order of arrival; after dispatch, what it paid
  Bytes bytes;                    // bytes charged
  ClassHint* hint = nullptr;

 private:
  friend class Gate;

  Instant admitted_at_;
  Instant started_at_;
  void* active_ = nullptr;  // for the Gate: the policy in which it is queued, or that chose it
  Head head_ = Head::kRegular;
  Place place_ = Place::kOutside;
  bool paid_root_ = false;  // the Gate took its cost from the root

 public:
  HeapHook policy_heap;
  void* policy_group = nullptr;  // its client, class or queue
  void* account = nullptr;       // where the Target counts it, if at all
  std::uint64_t number = 0;      // in a trace, if one is written
  // What it does, independent of the protocol.
  OperationKind operation = OperationKind::kRead;
  Attributes attributes;
};

}  // namespace weir
