// SPDX-License-Identifier: Apache-2.0
//
// What a controller gives jobs: buckets, weights, and who may borrow next.
//
//   Share& share = shares.of(job);            of every job that has a queue, set or not
//   shares.set(job, rate, depth, nodes, now)  from now on it paces, orders by nodes, and lends
//
// A job's tag grows by cost / nodes, the rest of the division carried. A loan is offered to the job
// that has borrowed least for its weight: a heap by tokens borrowed per weight in the form of start
// times (a job that returns starts at the present, so that nothing need be reset), those of the
// high head first. Entries that are out of date are dropped when they are met.
//
// What falls over the rim of a bucket while its job has nothing to do is lent; else it is nobody's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <absl/container/flat_hash_map.h>

#include "weir/base/heap.h"
#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/schedule/rule_engine.h"
#include "weir/schedule/tbf/types.h"

namespace weir::tbf {

class Shares {
 public:
  // What one token of one node is in virtual time follows from the cost. Without sharing the table
  // stays empty.
  explicit Shares(const std::optional<Sharing>& sharing);

  Share& of(const JobId& job);
  // nullptr if the job has neither a queue nor a share.
  Share* find(const JobId& job) const;
  // A queue of the job goes; with the last one goes a share that was never set.
  void release(Share& share);

  enum class Change : std::uint8_t {
    kNone,     // there is nothing to change
    kBalance,  // its bucket is ready at another time
    kKind,     // it paces and did not, or the reverse: its queues stand elsewhere
  };
  Change set(Share& share, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
             Instant now);
  // Forgets it if it has no queue; then kNone.
  Change drop(const JobId& job);
  // Whether the job's share has a bucket that is not full.
  bool is_in_use(const JobId& job, Instant now) const;

  // Lets what fell over the rim of its bucket be lent, or go.
  static void settle_spill(Share& share, Instant now);
  // What a cost adds to a tag: cost / nodes in units of virtual time; `part` carries the rest.
  static std::uint64_t weigh(const Share& share, Tokens cost, std::uint64_t& part);

  // ---- loans ----

  // REQUIRES: somebody stands first at its bucket.
  void offer_loan(Share& share);
  // Who is next to borrow, and has somebody who waits for its bucket; nullptr if there is none.
  Share* next_borrower();
  void lend(Share& share, Tokens cost);
  bool has_offers() const { return !offers_.empty(); }

  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [job, share] : shares_) visit(*share);
  }

 private:
  struct JobHash {
    std::size_t operator()(const JobId& job) const { return job.hash(); }
  };

  void forget(Share& share);

  std::uint64_t unit_;
  absl::flat_hash_map<JobId, std::unique_ptr<Share>, JobHash> shares_;
  Heap<Share, std::uint64_t, &Share::lend_hook> offers_;  // by what they borrowed
  std::uint64_t virtual_ = 0;                             // of loans
};

// At the end of virtual time, after centuries of debt, order is by turns.
inline void advance(std::uint64_t& tag, std::uint64_t step) {
  if (__builtin_add_overflow(tag, step, &tag)) tag = UINT64_MAX;
}

}  // namespace weir::tbf
