// SPDX-License-Identifier: Apache-2.0
//
// The lending records of jobs. Each job that was ever active has an account with a record: a
// positive record is the number of tokens that it has lent, a negative one the number that it has
// borrowed. Records always sum to 0.
//
// Apart from the allocator, three operations change records:
//
//   settle_loans   records instant loans, made while a slot was idle. lent[x] is what the share
//                  bucket of x spilled while x had nothing waiting; borrowed[x] is what x used
//                  beyond its share; M = min(sum(lent), sum(borrowed), kLoansMax).
//                  record += settle(lent, M) - settle(borrowed, M). Tokens borrowed beyond M are
//                  free, because they belonged to no job.
//   fade           records halve in a half-life h. With P the sum of the positive ones, in a period
//                  F = floor(P * period * ln 2 / h + carry) tokens fade from the positive ones and
//                  F from the negative ones, by settle(|record|, F).
//   write off      of the jobs beyond jobs_max, removes those that were inactive longest (ties: the
//                  id that sorts first). What they lent and borrowed among themselves cancels; the
//                  rest is taken from the records on the other side, by settle(|record|, rest):
//                  jobs that owed them owe that much less, jobs that lent to them lose the claim.
//                  Jobs of the current period stay, even if there are more than jobs_max.
//
// To keep numbers within 64 bits, half of every record fades at once when P exceeds kRecordSumMax.
// Each kind of settling has its own remainders (weir/base/settle.h).
//
// Accounts are stored densely in the order of job ids, so that they can be read as a snapshot.
// Integers only; no clock; one owner, no locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/quantity.h"
#include "weir/base/result.h"
#include "weir/base/settle.h"
#include "weir/base/time.h"

namespace weir {

class Ledger {
 public:
  // A period without fading and loans uses only the first cache line.
  struct alignas(64) Account {
    JobId job;
    std::int64_t record = 0;
    std::int64_t remainder = 0;  // rho, of the allocator's settling
    std::uint64_t allotted =
        0;  // tokens allotted in the last period; 0: none, or the job was not active
    std::uint64_t last_active = 0;  // the number of a period
    std::int64_t fade_remainder = 0;
    std::int64_t lent_remainder = 0;
    std::int64_t borrowed_remainder = 0;
    Tokens lent{};  // settled loans of the last period, and of all periods
    Tokens borrowed{};
    Tokens lent_sum{};
    Tokens borrowed_sum{};

    bool operator==(const Account&) const = default;
  };
  struct Loan {
    JobId job;
    Tokens lent{};
    Tokens borrowed{};
  };
  // The complete state, for a restart.
  struct State {
    std::vector<Account> accounts;
    std::uint64_t period = 0;
    std::optional<Nanoseconds> half_life;  // the half-life that fade_carry was computed with
    Nanoseconds fade_period{0};
    unsigned __int128 fade_carry = 0;
    std::uint64_t written_off = 0;
  };

  static constexpr std::size_t kJobsMaxDefault = 8192;
  static constexpr std::int64_t kRecordSumMax = std::int64_t{1} << 60;
  static constexpr Tokens kLoansMax{std::uint64_t{1} << 60};        // settled in a period
  static constexpr Nanoseconds kPeriodMax = std::chrono::hours{1};  // P * period * 2^20 in 128 bits

  explicit Ledger(std::size_t jobs_max = kJobsMaxDefault) : jobs_max_(jobs_max) {}

  // In the order of their ids.
  std::span<const Account> accounts() const { return accounts_; }
  std::span<Account> accounts() { return accounts_; }
  // nullptr if the job has no account. O(log n).
  const Account* find(const JobId& job) const;

  // The number of the current period, and how many accounts were written off so far.
  std::uint64_t period() const { return state_.period; }
  std::uint64_t written_off() const { return state_.written_off; }

  // Creates missing accounts of these jobs. Invalidates spans. Rows have a `job`. REQUIRES: rows
  // are in the order of job ids, each job once. O(accounts + rows).
  template <class Row>
  void open(std::span<const Row> rows);

  // Ends the accounts of jobs that do not come back here: their records are taken from the other
  // side, as for accounts beyond the bound. Jobs without an account do not matter. REQUIRES: they
  // are in the order of their ids, each once.
  void write_off(std::span<const JobId> jobs);

  // Call once in every period with lending, before the allocation, also without loans. Jobs may
  // report any amount, such as all tokens that an idle device spilled in weeks; at most kLoansMax
  // tokens are settled, in the same proportions. REQUIRES: as for open().
  void settle_loans(std::span<const Loan> loans);

  // Ends the period: fades records if there is a half-life, and returns whether any record faded.
  // REQUIRES: 0 < period <= kPeriodMax, half-life > 0.
  bool close_period(Nanoseconds period, std::optional<Nanoseconds> half_life);

  State state() const;
  // On failure nothing changes.
  Result<void> restore(State state);

 private:
  enum class Side : std::uint8_t { kLenders, kBorrowers };

  void add_accounts(const std::vector<JobId>& missing, const std::vector<std::size_t>& wanted);
  void write_off(std::size_t count, const std::vector<std::size_t>& wanted);
  void remove(const std::vector<std::size_t>& gone);
  // `sum` is the total reported by that side, `total` the amount that is settled.
  void settle_side(std::span<const Loan> loans, Side side, unsigned __int128 sum, Tokens total);
  // Records of one side that are moved towards 0.
  struct Fading {
    std::vector<SettleShare> shares;
    std::vector<std::size_t> accounts;  // those of the shares
  };
  void choose(Side side, Fading& fading) const;
  // Shrinks the chosen records by `total` tokens together.
  void shrink(Side side, Tokens total, Fading& fading);
  std::uint64_t faded_in(std::uint64_t sum, Nanoseconds period, Nanoseconds half_life);
  // P; asserts that the negative records have the same sum.
  std::uint64_t sum_of_positive() const;

  std::vector<Account> accounts_;
  std::size_t jobs_max_;
  State state_;  // except the accounts
  // Members, so that their memory is reused.
  std::vector<SettleShare> shares_;
  std::vector<std::size_t> chosen_;  // the accounts of shares_
  Fading lenders_;
  Fading borrowers_;
};

template <class Row>
void Ledger::open(std::span<const Row> rows) {
  // Usually all accounts exist, so check that first without writing.
  std::size_t at = 0;
  std::size_t found = 0;
  for (; found < rows.size(); ++found, ++at) {
    while (at < accounts_.size() && accounts_[at].job != rows[found].job) ++at;
    if (at == accounts_.size()) break;
  }
  if (found == rows.size()) return;
  std::vector<JobId> missing;
  std::vector<std::size_t> wanted;  // must not be removed to make room
  at = 0;
  for (const Row& row : rows) {
    while (at < accounts_.size() && accounts_[at].job < row.job) ++at;
    if (at < accounts_.size() && accounts_[at].job == row.job) {
      wanted.push_back(at);
    } else {
      missing.push_back(row.job);
    }
  }
  add_accounts(missing, wanted);
}

}  // namespace weir
