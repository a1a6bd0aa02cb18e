// SPDX-License-Identifier: Apache-2.0
//
// Token bucket filter: requests wait in queues, rules set the limits of a queue, and a request runs
// when all of its buckets can pay. One engine serves both heads of a Gate, so that a class has one
// bucket, not one for each head.
//
//   request --match, layer by layer--> rule --by--> class: bucket of operations, bucket of bytes
//        '--> queue (same attributes, same head): first in, first out
//        '--> job --> share: a bucket and a weight, if a controller shares the target out
//
// The parts, each in its own file under tbf/; this class takes requests in and out, pays, and
// carries changes from one part to the others:
//
//   RuleTable      rules, and their limits as buckets        Tags           who is first
//   ClassTable     classes                                   Root           the whole target's rate
//   Binder         which queue, with which classes           Groups         who is preferred
//   RunQueue       where queues wait, and which is next      Shares         what jobs are given,
//   lend QueueIndex     queues by key                             WaitBreakdown  why requests
//   waited
//
// Eligibility and order are kept apart. Buckets say who may run and never who is first. Tags say
// who is first and never who may run. So limits hold in every window, and under overload classes
// share in proportion to their rates, or jobs in proportion to their nodes.
//
// Loans. When nothing is ready and a queue lacks only its share, it may run all the same
// (Urge::kBorrow): the job that has borrowed least for its weight first, then queues with neither
// share nor limit, first come, first served. The root bucket, the rate of the whole target, is
// asked last and pays for loans too.
//
// Groups of clients. One group at a time may be preferred: queues of others that can pay run while
// the preferred group has none that can. Limits, tags and shares stay what they are.
//
// A change of rules acts at once on what is queued: balances stay, queues whose classes or limits
// changed are entered anew, all others keep their place; idle ones are matched when their next
// request comes. Time is given; nothing here reads a clock. One owner, no locks.
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
#include "weir/schedule/rule_engine.h"
#include "weir/schedule/tbf/binder.h"
#include "weir/schedule/tbf/class_table.h"
#include "weir/schedule/tbf/groups.h"
#include "weir/schedule/tbf/root.h"
#include "weir/schedule/tbf/rule_table.h"
#include "weir/schedule/tbf/run_queue.h"
#include "weir/schedule/tbf/shares.h"
#include "weir/schedule/tbf/tags.h"
#include "weir/schedule/tbf/types.h"
#include "weir/schedule/tbf/wait_breakdown.h"

namespace weir {

class Tbf final : public RuleEngine {
 public:
  // `stamp` tells engines of one Gate apart.
  Tbf(FieldSet type, const RuleOptions& options, std::uint64_t stamp = 0);
  ~Tbf() override;
  Tbf(const Tbf&) = delete;
  Tbf& operator=(const Tbf&) = delete;

  FieldSet type() const override { return rules(Head::kRegular).type(); }
  const RuleList& rules(Head head) const override { return rules_.list(head); }

  // Wholly, on all heads it names, or not at all.
  Result<void> apply(const RuleCommand& command, Instant now) override;

  void admit(Request& request, Head head, Instant now);
  Pick pick(Head head, Instant now, Urge urge);
  void remove(Request& request, Head head, Instant now);

  // ---- what is paid besides, or given back (Policy); neither moves a tag ----

  // Only what was paid goes back: a request that ran because its policy was drained paid nothing.
  void settle(const Request& request, Head head, Bytes moved, Instant now);
  void refund(const Request& request, Head head, Instant now);
  void charge(const Request& request, Head head, Instant now);
  // From its limits and what waits before it there; from its share where nobody lends; and from the
  // root. A class that is not known yet is taken to have a full bucket.
  Instant ready_at(const Request& request, Head head, Instant now) const;

  // ---- sharing; REQUIRES: options.sharing ----

  // A job's share from now on. One that is new starts full; another rate keeps the balance. Without
  // a rate the job is not paced, and `nodes` orders. REQUIRES: nodes > 0.
  void set_share(const JobId& job, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
                 Instant now) override;
  // The job has no share any more.
  void drop_share(const JobId& job, Instant now) override;
  // Whether the job's share has a bucket that is not full: somebody would lose or win by a new one.
  bool is_share_in_use(const JobId& job, Instant now) const override;
  // The bucket of the whole target, of one rate and two depths. None: a free slot alone decides.
  void set_root(const std::optional<RootBucket>& root, Instant now) override;
  // What each job with a share did since last asked, in no order.
  void report_shares(Nanoseconds time, Instant now,
                     const std::function<void(const ShareReport&)>& visit) override;

  // ---- limits of a whole cluster ----

  // What this server may use of a rule with scope=cluster, from now on; the rule and its listing
  // stay as they are. Balances stay, as far as the new depth allows. Nothing happens for other
  // rules, nor for classes that are not there.
  //
  // In a cluster (RuleOptions::in_cluster) nothing is granted that other servers might be granted
  // too:
  //   the depth    is one token and what comes in during depth_time; with burst= it is the slice's
  //                part of that, rounded up. So all servers together hold at most depth_time of the
  //                limit, or burst=, and one token each: limit 1500/s, burst=15, slices of 1400, 90
  //                and 10 have 14, 1 and 1.
  //   no slice     is the least rate, one token in 1000 s.
  //   the balance  is empty when the rule starts, so that restarts hand out nothing.
  //   a shutdown   lifts all limits but these (Urge::kFinish).
  void set_slices(std::span<const ClassSlice> slices, Instant now) override;

  // What a class of such a rule was served since it was made, and what waits in its queues. Of that
  // no more is counted than the whole limit lets through in `time`. In tokens of the rule's cost,
  // and in bytes.
  std::vector<ClassLoad> cluster_loads(Nanoseconds time) const override;

  // ---- groups of clients ----

  // Who goes first on the regular head from now on, by its place in options.groups; their number
  // stands for clients of no group. None: all are alike. Nothing happens without groups.
  void prefer(std::optional<std::uint32_t> group, Instant now) override;
  // How many queues of a group have requests, on the regular head.
  std::uint32_t group_queues(std::uint32_t group) const override { return groups_.busy(group); }

  // ---- to look at ----

  std::size_t classes() const override { return classes_.size(); }
  std::size_t queues() const override { return binder_.index().queues(); }
  // Requests that came when no further class could be made and share one with others.
  std::uint64_t overflowed() const override { return binder_.overflowed(); }
  // Whether a request with this hint needs no search for its class.
  bool is_current(const ClassHint& hint, Head head) const { return binder_.is_current(hint, head); }
  // Of the layer-0 class a request with these attributes is under; none if it is not known.
  std::optional<ClassTotals> totals(const Attributes& attributes, Head head) const;

  // Visits classes from a place on, up to `count` places of memory, and gives the place to go on
  // from; none at the end. Classes that come and go between two calls may be missed.
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
  Pick serve_ready(Head head, Instant now);
  Pick serve_later(Instant now);
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
  void take_out(Queue& queue, Request& request, Instant now);
  void become_busy(Queue& queue, Instant now);
  void become_idle(Queue& queue, Instant now);

  // What is paid besides (tbf_settle.cc)
  void settle(const Request& request, Head head, const Settling& settling, Instant now);
  void settle_limits(Queue& queue, const Settling& settling, bool slices_only, Instant now);
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
  tbf::Root root_;
  tbf::WaitBreakdown waits_;
  tbf::Tags tags_;
  tbf::Binder binder_;
  std::array<tbf::QueueList, 2> busy_;  // queues with requests, by head
  tbf::RunQueue run_;                   // heaps of queues go before the queues do
  std::uint32_t payers_ = 1;  // grows with all that can change which buckets a request takes from
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
  void settle(const Request& request, Bytes moved, Instant now) override {
    tbf_->settle(request, head_, moved, now);
  }
  void refund(const Request& request, Instant now) override { tbf_->refund(request, head_, now); }
  void charge(const Request& request, Instant now) override { tbf_->charge(request, head_, now); }
  Instant ready_at(const Request& request, Instant now) const override {
    return tbf_->ready_at(request, head_, now);
  }

  Tbf* engine() override { return tbf_.get(); }
  const Tbf* engine() const override { return tbf_.get(); }

 private:
  std::shared_ptr<Tbf> tbf_;
  Head head_;
};

}  // namespace weir
