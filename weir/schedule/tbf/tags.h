// SPDX-License-Identifier: Apache-2.0
//
// The order of queues that can pay: start-time fair queueing. A tag belongs to the layer-0 class,
// or to the job if a controller sets shares.
//
//   start = max(own tag, virtual time - credit)     credit: the depth of the bucket, 0 under shares
//   after a request: tag += cost / rate             under shares cost / nodes
//   virtual time = the tag that was served last
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "weir/schedule/rule_engine.h"
#include "weir/schedule/tbf/shares.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class Tags {
 public:
  explicit Tags(const std::optional<Sharing>& sharing)
      : sharing_(sharing), ahead_max_(sharing ? Shares::ahead_max(sharing->cost) : kAheadMax) {}

  // The tag of the queue's class, or of its job.
  std::uint64_t& owner_tag(const Queue& queue) const {
    return sharing_ ? queue.share()->tag : queue.limits->tag;
  }

  // Advances the owner's tag to where it may start, and returns the queue's key in the order: the
  // tag, or 0 for a realtime rule, which goes before all others.
  std::uint64_t start(Queue& queue) {
    const std::uint64_t credit = sharing_ ? 0 : queue.limits->credit();
    return start(owner_tag(queue), credit, queue.limits->pace->shapes.realtime);
  }
  std::uint64_t start(std::uint64_t& tag, std::uint64_t credit, bool is_realtime) const {
    tag = std::max(tag, virtual_ns_ - credit);
    return is_realtime ? 0 : tag;
  }

  // A request of the queue runs.
  void step(Queue& queue, const Request& request) {
    if (!sharing_) return step(queue.limits->tag, queue.limits->tag_step(request.bytes));
    Share& share = *queue.share();
    step(share.tag, Shares::weigh(share, sharing_->cost.of(request.bytes), share.tag_part));
  }
  // A request of the queue runs under its reservation, out of order: virtual time stays, and the
  // tag gets only so far ahead of it that the queue has its turn soon after the reservation ends.
  void step_reserved(Queue& queue, const Request& request) {
    std::uint64_t& tag = owner_tag(queue);
    const std::uint64_t most = std::max(tag, virtual_ns_ + ahead_max_);
    if (!sharing_) {
      advance(tag, queue.limits->tag_step(request.bytes));
    } else {
      Share& share = *queue.share();
      advance(tag, Shares::weigh(share, sharing_->cost.of(request.bytes), share.tag_part));
    }
    tag = std::min(tag, most);
  }
  void step(std::uint64_t& tag, std::uint64_t by) {
    virtual_ns_ = std::max(virtual_ns_, tag);
    advance(tag, by);
  }

 private:
  // Virtual time does not start at 0, so that tags can be behind it.
  static constexpr std::uint64_t kStart = std::uint64_t{1} << 62;

  static constexpr std::uint64_t kAheadMax = 1'000'000'000;  // 1 s under limits

  std::optional<Sharing> sharing_;
  std::uint64_t ahead_max_;
  std::uint64_t virtual_ns_ = kStart;
};

}  // namespace weir::tbf
