// SPDX-License-Identifier: Apache-2.0
//
// A request as the scheduler sees it: who asks and for how much. The server embeds one in its own
// request object and owns it; the scheduler links it and never copies or allocates one.
//
//   outside --admit--> queued --next--> running --complete--> outside
//                        |               |   ^
//                        |             defer next
//                        |               v   |
//                        |          deferred --resume--> resumed
//                        '-----------withdraw---'-----------'--> outside
//
// A request that may run, but for which there is no buffer, is deferred: it holds no slot, and
// what it paid stays paid. When it is resumed it runs before all others.
//
// Between admit and the return to outside a request must not move or die, and only the Gate it was
// admitted to may touch its `policy_` fields. Attributes and bytes must not change until it is
// outside again. Not thread-safe, like the Gate.
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

// The two entrances of a Gate. High priority is for what others wait for: callbacks, cancels, and
// requests under a lock that somebody else wants.
enum class Head : std::uint8_t { kRegular, kHigh };

// What a connection remembers of its last request: where in the scheduler the next one like it
// belongs. Requests with the same attributes may share one, and save the search for their class; it
// never changes what is decided. Belongs to one Gate, and outlives its requests' admit.
class ClassHint {
 public:
  ClassHint() = default;

 private:
  friend class tbf::Binder;
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
  // When it was last given a slot.
  Instant started_at() const { return started_at_; }
  // What accounts read of one that starts now, and of one that ends now.
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

  // For the policy that the request is queued in. What a decision touches is first, on one cache
  // line.
  RingLink<Request> policy_ring;
  std::uint64_t policy_turn = 0;  // the order of arrival; once it was chosen, what it paid
  Bytes bytes;                    // that it is charged for
  ClassHint* hint = nullptr;

 private:
  friend class Gate;

  Instant admitted_at_;
  Instant started_at_;
  void* active_ = nullptr;  // the Gate's: the policy it is queued in, or that chose it
  Head head_ = Head::kRegular;
  Place place_ = Place::kOutside;

 public:
  HeapHook policy_heap;
  void* policy_group = nullptr;  // the client, class or queue it stands with
  void* account = nullptr;       // where the Target counts it, if one does
  std::uint64_t number = 0;      // in a trace, if one is written
  // What it does, whatever a protocol calls it.
  OperationKind operation = OperationKind::kRead;
  Attributes attributes;
};

}  // namespace weir
