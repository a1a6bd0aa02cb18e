// SPDX-License-Identifier: Apache-2.0
//
// Token bucket filter: requests stand in queues, rules say which limits a queue is under, and a
// request runs when all of its buckets can pay. One engine serves both heads of a Gate, so that a
// class has one bucket, not one for each head.
//
//   request --match, layer by layer--> rule --by--> class: bucket of operations, bucket of bytes
//        '--> queue (same attributes, same head): first in, first out
//
//   queue that cannot pay: waits at the bucket that will be ready last, in order of tags;
//                          the bucket stands in one heap by the time its first waiter can go
//   queue that can pay:    stands in the ready heap of its head by its tag
//
// Eligibility and order are kept apart. Buckets say who may run and never who is first. Tags say
// who is first and never who may: start = max(own tag, virtual time - depth), the tag then grows by
// cost/rate of the layer-0 class, and virtual time is the tag last served. So limits hold in every
// window, and under overload classes share in proportion to their rates.
//
// While somebody waits at a bucket, others that need it queue up behind, and one at a time is let
// go: a small request does not overtake a large one, and nobody is woken in vain.
//
// A change of rules acts at once on what is queued: balances stay, queues with requests are matched
// again and entered anew; idle ones are matched when their next request comes. Time is given;
// nothing here reads a clock. One owner, no locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/command.h"
#include "weir/classify/rule_list.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/policy.h"

namespace weir {

class Tbf {
 public:
  struct Options {
    // Depth of a bucket of operations without burst=: the larger of a number and a time of its
    // rate.
    Tokens depth_min{3};
    Nanoseconds depth_time = std::chrono::milliseconds{10};
    Bytes byte_depth_min{65536};
    std::size_t classes_max = 8192;
  };

  Tbf(FieldSet type, const Options& options);
  ~Tbf();
  Tbf(const Tbf&) = delete;
  Tbf& operator=(const Tbf&) = delete;

  FieldSet type() const { return rules(Head::kRegular).type(); }
  const RuleList& rules(Head head) const { return *lists_[index(head)]; }

  // Wholly, on all heads it names, or not at all.
  Result<void> apply(const RuleCommand& command, Instant now);

  void admit(Request& request, Head head, Instant now);
  Pick pick(Head head, Instant now, Urge urge);
  void remove(Request& request, Head head, Instant now);

  std::size_t classes() const { return classes_.size(); }
  std::size_t queues() const { return queues_[0].size() + queues_[1].size(); }
  // Requests that came when no further class could be made and share one with others.
  std::uint64_t overflowed() const { return overflowed_; }

 private:
  struct Bucket;
  struct Class;
  struct Queue;
  struct RuleState;
  struct Shapes;
  struct Heaps;

  struct ClassKey {
    const RuleState* rule;
    Attributes by;
    bool operator==(const ClassKey&) const = default;
  };
  struct ClassKeyHash {
    std::size_t operator()(const ClassKey& key) const;
  };
  struct AttributesHash {
    std::size_t operator()(const Attributes& attributes) const { return attributes.hash(); }
  };
  using Queues = absl::flat_hash_map<Attributes, std::unique_ptr<Queue>, AttributesHash>;

  static std::size_t index(Head head) { return static_cast<std::size_t>(head); }

  // Finding
  Queue& queue_of(const Attributes& attributes, Head head, Instant now);
  void bind(Queue& queue, Instant now);
  Class& class_of(const Rule& rule, const Queue& queue, Instant now);
  void release(Class* used);
  bool make_room(Instant now);
  void forget(Queue& queue);
  void forget(Class& gone);
  void forget_if_unused(RuleState& state);

  // Deciding
  Instant ready_at(const Queue& queue, Bucket*& last) const;
  Bucket* occupied_bucket(const Queue& queue) const;
  void enter(Queue& queue, Instant now);
  void leave(Queue& queue);
  void wait_at(Bucket& bucket, Queue& queue);
  void rekey(Bucket& bucket);
  void wake(Instant now);
  void let_go(Bucket& bucket, Instant now);
  Queue* first_ready(Head head, Instant now);
  void charge(Queue& queue, const Request& request, Instant now);
  void take_out(Queue& queue, Request& request, Instant now);

  // Changing
  RuleState& make_state(const Rule& rule);
  void before_stop(const RuleCommand& command);
  void after_start(const RuleCommand& command);
  void after_change(const RuleCommand& command, Instant now);
  Shapes shapes_of(const Limits& limits) const;
  void change_shapes(RuleState& state, const Limits& limits, Instant now);
  void forget_stopped();
  void return_all(FieldSet key_before, Instant now);

  Options options_;
  std::array<std::unique_ptr<RuleList>, 2> lists_;
  std::vector<std::unique_ptr<RuleState>> states_;
  absl::flat_hash_map<const Rule*, RuleState*> state_of_;
  absl::flat_hash_map<ClassKey, std::unique_ptr<Class>, ClassKeyHash> classes_;
  FieldSet key_;  // the fields that tell queues apart; grows with by= and never shrinks
  std::array<Queues, 2> queues_;
  std::unique_ptr<Heaps> heaps_;
  std::uint64_t bindings_ = 1;  // grows with all that can change which classes a queue has
  std::uint64_t states_made_ = 0;
  std::uint64_t virtual_ns_ = 0;
  std::uint64_t order_ = 0;
  std::uint64_t overflowed_ = 0;
};

// One head of a Tbf as a policy of a Gate.
class TbfPolicy final : public Policy {
 public:
  static constexpr std::string_view kName = "tbf";
  TbfPolicy(std::shared_ptr<Tbf> tbf, Head head) : tbf_(std::move(tbf)), head_(head) {}

  std::string_view name() const override { return kName; }
  void admit(Request& request, Instant now) override { tbf_->admit(request, head_, now); }
  Pick pick(Instant now, Urge urge) override { return tbf_->pick(head_, now, urge); }
  void remove(Request& request, Instant now) override { tbf_->remove(request, head_, now); }

  Tbf& tbf() const { return *tbf_; }

 private:
  std::shared_ptr<Tbf> tbf_;
  Head head_;
};

}  // namespace weir
