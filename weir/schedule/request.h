// SPDX-License-Identifier: Apache-2.0
//
// A request as the scheduler sees it: who asks and for how much. The server embeds one in its own
// request object and owns it; the scheduler links it and never copies or allocates one.
//
//   outside --admit--> queued --next--> running --complete--> outside
//                        \--withdraw--> outside
//
// Between admit and the return to outside a request must not move or die, and only the Gate it was
// admitted to may touch its seat. Attributes and bytes must not change while it is queued. Not
// thread-safe, like the Gate.
#pragma once

#include <cstdint>

#include <boost/intrusive/list_hook.hpp>

#include "weir/base/heap.h"
#include "weir/base/quantity.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"

namespace weir {

// The two entrances of a Gate. High priority is for what others wait for: callbacks, cancels, and
// requests under a lock that somebody else wants.
enum class Head : std::uint8_t { kRegular, kHigh };

class Request {
 public:
  enum class Place : std::uint8_t { kOutside, kQueued, kRunning };

  using ListHook =
      boost::intrusive::list_member_hook<boost::intrusive::link_mode<boost::intrusive::safe_link>>;

  Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  Attributes attributes;
  Bytes bytes;

  Place place() const { return place_; }
  // Of the last admit or promote.
  Head head() const { return head_; }
  Instant admitted_at() const { return admitted_at_; }

  // The seat: where a policy keeps the request, its own while it is queued there.
  ListHook seat_list;
  HeapHook seat_heap;
  void* seat_group = nullptr;  // the client, class or queue it stands with

 private:
  friend class Gate;

  Instant admitted_at_;
  void* seated_ = nullptr;  // the Gate's: the policy it is queued in, or that chose it
  Head head_ = Head::kRegular;
  Place place_ = Place::kOutside;
};

}  // namespace weir
