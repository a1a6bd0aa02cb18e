// SPDX-License-Identifier: Apache-2.0
//
// The shares of jobs, set by a controller: buckets, weights, and the order of loans.
//
//   Share& share = shares.of(job);            of every job that has a queue, set or not
//   shares.set(job, rate, depth, nodes, now)  paces, orders by nodes, and lends from now on
//
// A job's tag grows by cost / nodes, with the remainder carried. A loan is offered to the job that
// has borrowed least for its weight: a heap by tokens borrowed per weight in the form of start
// times (a job that returns starts at the current time, so that nothing has to be reset), high head
// first. Outdated entries are dropped when they are found.
//
// Tokens that spill from a bucket while its job has no requests are lent; otherwise they belong to
// no job.
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

class TreeQueues;

class Shares {
 public:
  // The cost determines how much virtual time one token of one node is. Without sharing the table
  // stays empty.
  explicit Shares(const std::optional<Sharing>& sharing);
  ~Shares();
  Shares(const Shares&) = delete;
  Shares& operator=(const Shares&) = delete;

  Share& of(const JobId& job);
  // nullptr if the job has neither a queue nor a share.
  Share* find(const JobId& job) const;
  // A queue of the job is removed; a share that was never set is removed with the last one.
  void release(Share& share);

  enum class Change : std::uint8_t {
    kNone,     // there is nothing to change
    kBalance,  // its bucket is ready at another time
    kKind,     // it paces and did not, or the reverse: its queues change places
  };
  Change set(Share& share, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
             Instant now);
  // Removes it if it has no queue; then kNone.
  Change drop(const JobId& job, Instant now);
  // Whether the job's share has a bucket that is not full.
  bool is_in_use(const JobId& job, Instant now) const;

  // The shares of jobs in more than one level; nullptr: they have one.
  TreeQueues* tree() const { return tree_.get(); }

  // A request ran under a reservation: it is part of the share, which may get into debt by up to
  // its depth. Returns whether the share paid all of it.
  bool charge_reserved(Share& share, Tokens cost, Instant now);
  // What the job did since the last call, without its limit.
  static ShareReport collect(Share& share, Instant now);
  // Lends tokens that spilled from its bucket, or drops them.
  static void settle_spill(Share& share, Instant now);
  // What a cost adds to a tag: cost / nodes in units of virtual time; `part` carries the remainder.
  static std::uint64_t weigh(const Share& share, Tokens cost, std::uint64_t& part);
  // How far reservations may move a tag ahead of virtual time: a few requests of one node.
  static std::uint64_t ahead_max(const Cost& cost);

  // ---- loans ----

  // REQUIRES: a queue is first at its bucket.
  void offer_loan(Share& share);
  // The next job to borrow that has a queue waiting for its bucket; nullptr if there is none.
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
  Change set_leaf(Share& share, std::optional<Rate> rate, Tokens depth, std::uint64_t nodes,
                  Instant now);

  std::uint64_t unit_;
  std::unique_ptr<TreeQueues> tree_;
  absl::flat_hash_map<JobId, std::unique_ptr<Share>, JobHash> shares_;
  Heap<Share, std::uint64_t, &Share::lend_hook> offers_;  // by tokens borrowed
  std::uint64_t virtual_ = 0;                             // of loans
};

// What a cost adds to a tag: cost / weight in units of virtual time; `part` carries the remainder.
inline std::uint64_t weigh(Tokens cost, std::uint64_t unit, std::uint64_t weight,
                           std::uint64_t& part) {
  using Wide = unsigned __int128;
  const Wide units = Wide{cost.count()} * unit + part;
  if (const auto few = static_cast<std::uint64_t>(units); few == units) [[likely]] {
    part = few % weight;  // a 128-bit division is several times slower
    return few / weight;
  }
  part = static_cast<std::uint64_t>(units % weight);
  const Wide step = units / weight;
  return step > UINT64_MAX ? UINT64_MAX : static_cast<std::uint64_t>(step);
}

// At the end of virtual time, after centuries of debt, the order is by turns.
inline void advance(std::uint64_t& tag, std::uint64_t step) {
  if (__builtin_add_overflow(tag, step, &tag)) tag = UINT64_MAX;
}

}  // namespace weir::tbf
