// SPDX-License-Identifier: Apache-2.0
//
// Token bucket filter: requests wait in queues, rules set the limits of a queue, and a request runs
// when all of its buckets can pay. One engine serves both heads of a Gate, so that a class has one
// bucket, not one for each head.
//
//   request --match, layer by layer--> rule --by--> class: bucket of operations, bucket of bytes
//        '--> queue (same attributes, same head): first in, first out
//        '--> job --> share: a bucket and a weight, if a controller shares the target
//
// The components, each in its own file under tbf/. This class admits and dispatches requests,
// charges them, and passes changes from one component to the others:
//
//   RuleTable      rules, and their limits as buckets
//   ClassTable     classes
//   Binder         which queue, with which classes
//   QueueIndex     queues by key
//   RunQueue       where queues wait, and which is next
//   Tags           the order of queues that can pay
//   Root           the rate of the whole target, of the Gate (weir/schedule/root.h)
//   Groups         the preferred group of clients
//   Shares         shares and loans of jobs
//   TreeQueues     the same in more than one level: projects, users, jobs
//   Reserves       queues that run under a reservation
//   WaitBreakdown  why requests waited
//
// Eligibility and order are separate. Buckets determine which requests may run, never the order;
// tags determine the order, never which requests may run. So limits hold in every window, and under
// overload classes share in proportion to their rates, or jobs in proportion to their nodes.
//
// Loans. When nothing is ready and a queue lacks only its share, it may run nevertheless
// (Urge::kBorrow): first the job that has borrowed least for its weight, then queues with neither
// share nor limit, first come, first served. The root bucket, the rate of the whole target, is
// checked last and pays for loans too.
//
// Reservations. A request within its limits whose class has a reservation (reserve=) runs before
// all others of its head, whatever its tag, share and the root say. They are charged and may get
// into debt, so a reservation is part of the share. High-priority requests that are ready go first.
//
// Groups of clients. One group at a time may be preferred: queues of others that can pay run while
// the preferred group has none that can. Limits, tags and shares stay the same.
//
// A change of rules applies at once to queued requests: balances are kept, queues whose classes or
// limits changed are entered again, all others keep their place; idle ones are matched with their
// next request. Time is an argument; nothing here reads a clock. One owner, no locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/command.h"
#include "weir/classify/rule_list.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/policy.h"
#include "weir/schedule/root.h"
#include "weir/schedule/rule_engine.h"
#include "weir/schedule/tbf/binder.h"
#include "weir/schedule/tbf/class_table.h"
#include "weir/schedule/tbf/groups.h"
#include "weir/schedule/tbf/rule_table.h"
#include "weir/schedule/tbf/run_queue.h"
#include "weir/schedule/tbf/shares.h"
#include "weir/schedule/tbf/tags.h"
#include "weir/schedule/tbf/tree_queues.h"
#include "weir/schedule/tbf/types.h"
#include "weir/schedule/tbf/wait_breakdown.h"

namespace weir {

class Tbf final : public RuleEngine {
 public:
  // `stamp` distinguishes the engines of one Gate. `root` is the bucket of its target, if it has
  // one, and outlives the engine.
  Tbf(FieldSet type, const RuleOptions& options, std::uint64_t stamp = 0, Root* root = nullptr);
  ~Tbf() override;
  Tbf(const Tbf&) = delete;
  Tbf& operator=(const Tbf&) = delete;

  FieldSet type() const override { return rules(Head::kRegular).type(); }
  const RuleList& rules(Head head) const override { return rules_.list(head); }
  bool limits_by_default() const override { return rules_.default_limits(); }

  // On all heads that it names, or on none.
  Result<void> apply(const RuleCommand& command, Instant now) override;

  void admit(Request& request, Head head, Instant now);
  Pick pick(Head head, Instant now, Urge urge);
  void remove(Request& request, Head head, Instant now);

  // ---- surcharges and refunds (Policy); neither changes a tag ----

  // Only what was paid is refunded: a request dispatched from a policy being drained paid nothing.
  void settle(const Request& request, Head head, const Outcome& outcome, Instant now);
  void refund(const Request& request, Head head, Instant now);
  void charge(const Request& request, Head head, Instant now);
  // From its limits and the requests before it there; from its share if lending is off; and from
  // the root. A class that does not exist yet counts as having full buckets.
  Instant ready_at(const Request& request, Head head, Instant now) const;

  // ---- sharing; REQUIRES: options.sharing ----

  void set_share(const JobId& job, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
                 Instant now) override;
  void drop_share(const JobId& job, Instant now) override;
  bool is_share_in_use(const JobId& job, Instant now) const override;
  std::optional<std::uint64_t> weight_of(const Attributes& attributes, Head head) const override;
  const Rule& first_rule(const Attributes& attributes, Head head) const override;
  void report_shares(Nanoseconds time, Instant now,
                     const std::function<void(const ShareReport&)>& visit) override;

  // ---- a tree of shares; REQUIRES: options.sharing->levels ----

  void set_node_share(std::span<const JobId> path, std::optional<Rate> rate, Tokens depth,
                      std::uint64_t weight, Instant now) override;
  void drop_node_share(std::span<const JobId> path, Instant now) override;
  std::vector<JobId> path_of(const JobId& job) const override;
  void report_nodes(Instant now, const std::function<void(const NodeReport&)>& visit) override;

  // ---- reservations ----

  std::uint64_t reserves_in_use() override;
  void set_reserve_scale(std::uint32_t scale, Instant now) override;
  std::uint32_t reserve_scale() const override { return rules_.reserve_scale(); }

  // ---- limits of a whole cluster ----

  // What this server may use of a rule with scope=cluster from now on; the rule and its listing
  // stay unchanged. Balances are kept as far as the new depth allows. Other rules and missing
  // classes are ignored.
  //
  // In a cluster (RuleOptions::in_cluster) nothing is granted that other servers might be granted
  // too:
  //   the depth    is one token and depth_time of the rate; with burst= it is the fraction of the
  //                burst that the slice is of the limit, rounded up. So all servers together hold
  //                at most depth_time of the limit, or burst=, and one token each: limit 1500/s,
  //                burst=15, slices of 1400, 90 and 10 have 14, 1 and 1.
  //   no slice     is the minimum rate, one token in 1000 s.
  //   the balance  is empty when the rule starts, so that restarts hand out nothing.
  //   a shutdown   lifts all limits except these (Urge::kFinish).
  void set_slices(std::span<const ClassSlice> slices, Instant now) override;

  std::vector<ClassLoad> cluster_loads(Nanoseconds time) const override;

  // ---- groups of clients ----

  void prefer(std::optional<std::uint32_t> group, Instant now) override;
  std::uint32_t group_queues(std::uint32_t group) const override { return groups_.busy(group); }

  // ---- reading ----

  std::size_t classes() const override { return classes_.size(); }
  std::size_t queues() const override { return binder_.index().queues(); }
  std::uint64_t overflowed() const override { return binder_.overflowed(); }
  // Whether a request with this hint needs no search for its class.
  bool is_current(const ClassHint& hint, Head head) const { return binder_.is_current(hint, head); }
  // Of the layer-0 class of a request with these attributes; none if the class does not exist.
  std::optional<ClassTotals> totals(const Attributes& attributes, Head head) const;

  std::optional<std::size_t> visit_classes(
      std::size_t from, std::size_t count, Instant now,
      const std::function<void(const ClassView&)>& visit) const override;

  void visit_waits(Instant now, const std::function<void(const WaitView&)>& visit) const override;

 private:
  using Backlog = tbf::Backlog;
  using Bucket = tbf::Bucket;
  using Class = tbf::Class;
  using Queue = tbf::Queue;
  using Receipt = tbf::Receipt;
  using Shapes = tbf::Shapes;
  using Share = tbf::Share;
  struct Settling;

  static std::size_t index(Head head) { return tbf::index(head); }
  auto& busy(Head head) { return busy_[index(head)]; }

  // Deciding (tbf.cc)
  Pick pick_otherwise(Head head, Instant now, Urge urge);
  Pick pick_in_order(Head head, Instant now);
  Pick serve_ready(Head head, Instant now);
  Pick serve_later(Instant now);
  Pick serve_reserved(Head head, Instant now);
  Pick serve_borrower(Head head, Instant now);
  Pick serve_spare(Head head, Instant now);
  Pick force(Head head, Instant now);
  Pick finish(Head head, Instant now);
  bool serve_any(Queue& queue, Request& first, Instant now);
  bool serve_simple(Queue& queue, Request& first, Instant now);
  Pick serve(Queue& queue, Request& first, Receipt paid_for, Instant now);
  Instant root_ready_at(const Request& request) const;
  bool pay(Queue& queue, const Request& request, Instant now);
  void pay_limits(Queue& queue, const Request& request, Instant now);
  Receipt receipt(std::uint64_t more) const;
  void take_request(Queue& queue, Request& request, Instant now);
  void take_out(Queue& queue, Request& request, Instant now);
  void become_busy(Queue& queue, Instant now);
  void become_idle(Queue& queue, Instant now);

  // Deciding in a tree of shares (tbf_tree.cc)
  Pick pick_in_tree(Head head, Instant now, Urge urge);
  Pick serve_in_tree(tbf::Rank rank, Instant now);
  Pick lend_in_tree(Head head, Instant now);
  void serve_alone(Queue& queue, Request& first, tbf::ShareNode& leaf, tbf::Rank rank, Instant now);
  void leave_others(Queue& queue, Instant now);

  // Surcharges and refunds (tbf_settle.cc)
  void settle(const Request& request, Head head, const Settling& settling, Instant now);
  void settle_limits(Queue& queue, const Settling& settling, bool slices_only, Instant now);
  void settle_reserve(Queue& queue, const Settling& settling, Instant now);
  void adjust(Bucket& bucket, const BucketShape& shape, Tokens paid, Tokens due, Queue& queue,
              Instant now);

  // Changing (tbf_changes.cc)
  void change_payers();
  template <class Selects, class Between>
  void enter_again(Selects selects, Between between, Instant now);
  void move_queues(Share& share, Instant now);
  void reshape_changed(Instant now);
  void return_changed(Instant now);
  void return_all(FieldSet by, Instant now);

  RuleOptions options_;
  tbf::RuleTable rules_;
  tbf::ClassTable classes_;
  tbf::Groups groups_;
  tbf::Shares shares_;
  Root no_root_;  // without a bucket
  Root& root_;
  tbf::WaitBreakdown waits_;
  tbf::Tags tags_;
  tbf::Binder binder_;
  std::array<tbf::QueueList, 2> busy_;  // queues with requests, by head
  tbf::RunQueue run_;                   // declared after the queues that its heaps link
  std::uint32_t payers_ =
      1;  // increases with everything that can change which buckets a request takes from
  std::uint64_t simple_receipt_ = Receipt(1, Receipt::kLimits).word();  // of payers_
  std::uint64_t arrivals_ = 0;
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
  void settle(const Request& request, const Outcome& outcome, Instant now) override {
    tbf_->settle(request, head_, outcome, now);
  }
  void refund(const Request& request, Instant now) override { tbf_->refund(request, head_, now); }
  void charge(const Request& request, Instant now) override { tbf_->charge(request, head_, now); }
  Instant ready_at(const Request& request, Instant now) const override {
    return tbf_->ready_at(request, head_, now);
  }

  Tbf* engine() override { return tbf_.get(); }
  const Tbf* engine() const override { return tbf_.get(); }
  bool pays_root() const override { return true; }

 private:
  std::shared_ptr<Tbf> tbf_;
  Head head_;
};

}  // namespace weir
