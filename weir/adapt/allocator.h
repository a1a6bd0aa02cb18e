// SPDX-License-Identifier: Apache-2.0
//
// AdapTBF's allocation step: divides the tokens of a period among the jobs that were active in
// the previous one, by their nodes, and records lending between jobs. Integers only, so that
// every implementation agrees to the token; docs/design/adaptive.md has the equations and an
// example.
//
//   budget         N = floor(T * period + carry), the fraction carried on
//   initial        a = settle(nodes, N)
//   redistribution tokens that a job does not need, s = max(0, a - demand), are given to other jobs
//                  by how much more they use than they had, weighted by nodes:
//                                                        aRD = a - s + settle(DF, sum(s))
//   re-compensation borrowers repay lenders:             aRC = aRD - t, aRD + back
//   records        rise by what was lent and fall by what was borrowed; they sum to 0
//
// Two options go beyond the paper (sections III-C and III-D): records decay with a half-life, and
// with `floor` a job keeps at least half of its initial share when it repays. An idle period
// allocates nothing and keeps the carry, but records decay in it too: a half-life is a time.
//
// Input and output are in the byte order of job ids, which also breaks ties. The state of jobs is
// in the Ledger, which is bounded. O(n), about 70 ns per job; no clock; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weir/account/ledger.h"
#include "weir/adapt/period.h"
#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/settle.h"
#include "weir/base/time.h"

namespace weir {

class Allocator {
 public:
  struct Options {
    Rate rate;  // T
    Nanoseconds period{0};
    std::optional<Nanoseconds> half_life = {};  // of records; none: records do not fade
    bool floor = false;  // a job that repays keeps half of its initial allocation
    std::size_t jobs_max = Ledger::kJobsMaxDefault;
  };
  struct Demand {
    JobId job;
    std::uint64_t nodes = 1;
    Tokens demand;  // 0: not active
  };
  // The state that one period passes to the next.
  struct State {
    Ledger::State ledger;
    std::uint64_t carry = 0;     // of a token, in 1/carry_of
    std::uint64_t carry_of = 1;  // nanoseconds of the reduced rate
  };

  // Bounds that keep products within 64 and 128 bits; input is checked against them.
  static constexpr std::uint64_t kNodesMax = std::uint64_t{1} << 40;
  static constexpr Tokens kDemandMax{INT64_MAX};
  static constexpr Tokens kBudgetMax{std::uint64_t{1} << 60};

  // REQUIRES: 0 < period <= Ledger::kPeriodMax; rate x period < kBudgetMax; half-life > 0.
  explicit Allocator(const Options& options);

  // Takes effect in the next period. The carried fraction of a token is kept, rounded down to the
  // new rate. REQUIRES: as for the constructor.
  void set_rate(Rate rate);
  Rate rate() const { return options_.rate; }

  // Instant loans of the period that has just ended; before allocate().
  // REQUIRES: as Ledger::settle_loans.
  void settle_loans(std::span<const Ledger::Loan> loans) { ledger_.settle_loans(loans); }

  // One period: fills `jobs` with the active jobs, in the order of their ids, and returns the
  // budget, which is the sum of their final allocations; 0 if no job is active. REQUIRES: demands
  // are in the order of job ids, each job once; nodes from 1 to kNodesMax.
  Tokens allocate(std::span<const Demand> demands, std::vector<JobPeriod>& jobs);
  // The same for a part of the target, which gets this budget. `reserved`: tokens that each demand
  // gets at least, at most its demand, if the budget suffices; empty: none. REQUIRES: as above; as
  // many as demands, or none; their sum fits in 63 bits.
  void allocate_part(Tokens budget, std::span<const Demand> demands,
                     std::span<const Tokens> reserved, std::vector<JobPeriod>& jobs);
  // Jobs that have ended or continue elsewhere: their records are written off. REQUIRES: as
  // Ledger::write_off.
  void write_off(std::span<const JobId> jobs) { ledger_.write_off(jobs); }
  // The budget of the next period. REQUIRES: a demand is active in it.
  Tokens next_budget();
  // A period with unknown capacity: allocates nothing and discards the last allocation.
  void skip();

  const Ledger& ledger() const { return ledger_; }

  State state() const;
  // On failure nothing changes.
  Result<void> restore(State state);

 private:
  // An active job during the computation: one cache line, since there may be many. Its factor (DF,
  // 20 fraction bits) is the weight of its share.
  struct alignas(64) Row {
    std::size_t account = 0;
    std::uint64_t nodes = 0;
    std::uint64_t demand = 0;  // d
    std::uint64_t initial = 0;
    std::uint64_t ratio = 0;  // u, 20 fraction bits
    std::uint64_t redistributed = 0;
    std::uint64_t final = 0;
    std::int64_t record_before = 0;  // r

    // A record changes by the difference between initial and actual allocation: rRD, and finally
    // rRC.
    std::int64_t record() const {
      return record_before + static_cast<std::int64_t>(initial - final);
    }
  };

  bool give_to_the_only_one(Tokens budget, std::span<const Demand> demands,
                            std::vector<JobPeriod>& jobs);
  void gather(std::span<const Demand> demands);
  bool try_gather(std::span<const Demand> demands);
  void settle_initial(Tokens budget);
  void settle_reserved(Tokens budget, std::uint64_t reserved_sum);
  void weigh();
  void redistribute();
  void recompensate();
  std::uint64_t coefficient() const;
  std::uint64_t repayment(const Row& row, std::uint64_t coefficient) const;
  void write_back(std::vector<JobPeriod>& jobs);

  Options options_;
  std::uint64_t carry_ = 0;
  Ledger ledger_;
  // Of the current period; members, so that their memory is reused.
  std::vector<Row> rows_;
  std::vector<SettleShare> shares_;  // one for each row
  std::vector<SettleShare> lenders_;
  std::vector<std::size_t> lender_rows_;
  std::vector<std::uint64_t> reserved_;  // one for each row, or none
  std::uint64_t nodes_sum_ = 0;
  std::uint64_t surplus_sum_ = 0;
  bool has_borrower_ = false;
};

}  // namespace weir
