// SPDX-License-Identifier: Apache-2.0
//
// What jobs owe each other. Each job that was ever active has an account with a record: above 0 it
// has lent so many tokens, below 0 it has borrowed them. Records always sum to 0.
//
// Besides what the allocator moves, a record changes in three ways:
//
//   settle_loans   a loan that was made at once, while a slot idled, is written down. lent[x] is
//                  what fell over the rim of x's share while x had nothing waiting; borrowed[x] is
//                  what x used beyond its share; M = min(sum(lent), sum(borrowed), kLoansMax).
//                  record += settle(lent, M) - settle(borrowed, M). What was borrowed beyond M is
//                  free: nobody owned it.
//   fade           records halve in a half-life h. With P the sum of the positive ones, in a period
//                  F = floor(P * period * ln 2 / h + carry) tokens fade from the positive ones and
//                  F from the negative ones, by settle(|record|, F).
//   write off      of the jobs beyond jobs_max, those go that have been inactive longest (ties: the
//                  id that sorts first). What they lent and borrowed among themselves cancels; the
//                  rest is taken from those on the other side, by settle(|record|, rest): who owed
//                  to the gone owes that much less, who lent to them will not see it again. A job
//                  of the current period never goes, even if there are more than jobs_max.
//
// Numbers stay within 64 bits by one more rule: when P passes kRecordSumMax, half of every record
// fades at once. Each kind of settling has remainders of its own (weir/base/settle.h).
//
// Accounts are dense and in the order of their ids, to be read as a snapshot. Integers only; no
// clock; one owner, no locks.
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
  // The first cache line is all that a period without fading and loans needs.
  struct alignas(64) Account {
    JobId job;
    std::int64_t record = 0;
    std::int64_t remainder = 0;     // rho, of the allocator's settling
    std::uint64_t allotted = 0;     // what the last period gave it; 0: nothing, or not active then
    std::uint64_t last_active = 0;  // the number of a period
    std::int64_t fade_remainder = 0;
    std::int64_t lent_remainder = 0;
    std::int64_t borrowed_remainder = 0;
    Tokens lent{};  // loans of the last period that were settled, and of all periods
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
  // All there is to know, for a restart.
  struct State {
    std::vector<Account> accounts;
    std::uint64_t period = 0;
    std::optional<Nanoseconds> half_life;  // what fade_carry belongs to
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
  // None if the job has no account. O(log n).
  const Account* find(const JobId& job) const;

  // The number of the current period, and how many accounts were written off so far.
  std::uint64_t period() const { return state_.period; }
  std::uint64_t written_off() const { return state_.written_off; }

  // Sees to it that each of these jobs has an account. Invalidates spans. Rows have a `job`.
  // REQUIRES: rows are in the order of their jobs, each job once. O(accounts + rows).
  template <class Row>
  void open(std::span<const Row> rows);

  // Once in every period with lending, before the allocation; also when there were no loans.
  // Jobs may report any amount, such as all that an idle device spilled in weeks; at most kLoansMax
  // tokens of it are settled, in the same proportions. REQUIRES: as open().
  void settle_loans(std::span<const Loan> loans);

  // Ends the period: fades records, if they have a half-life, and answers whether any did.
  // REQUIRES: 0 < period <= kPeriodMax, half-life > 0.
  bool close_period(Nanoseconds period, std::optional<Nanoseconds> half_life);

  State state() const;
  // On failure nothing has changed.
  Result<void> restore(State state);

 private:
  enum class Side : std::uint8_t { kLenders, kBorrowers };

  void add_accounts(const std::vector<JobId>& missing, const std::vector<std::size_t>& wanted);
  void write_off(std::size_t count, const std::vector<std::size_t>& wanted);
  // `sum` is what all of that side reported, `total` what is settled of it.
  void settle_side(std::span<const Loan> loans, Side side, unsigned __int128 sum, Tokens total);
  // A side's records, to be brought nearer to 0.
  struct Fading {
    std::vector<SettleShare> shares;
    std::vector<std::size_t> accounts;  // those of the shares
  };
  void choose(Side side, Fading& fading) const;
  // By `total` tokens in all, those that were chosen.
  void shrink(Side side, Tokens total, Fading& fading);
  std::uint64_t faded_in(std::uint64_t sum, Nanoseconds period, Nanoseconds half_life);
  // P; asserts that the negative records come to as much.
  std::uint64_t sum_of_positive() const;

  std::vector<Account> accounts_;
  std::size_t jobs_max_;
  State state_;  // but for the accounts
  // Kept for their memory.
  std::vector<SettleShare> shares_;
  std::vector<std::size_t> chosen_;  // the accounts of shares_
  Fading lenders_;
  Fading borrowers_;
};

template <class Row>
void Ledger::open(std::span<const Row> rows) {
  // Nearly always all are there: looked at first without writing anything down.
  std::size_t at = 0;
  std::size_t found = 0;
  for (; found < rows.size(); ++found, ++at) {
    while (at < accounts_.size() && accounts_[at].job != rows[found].job) ++at;
    if (at == accounts_.size()) break;
  }
  if (found == rows.size()) return;
  std::vector<JobId> missing;
  std::vector<std::size_t> wanted;  // these must not go to make room
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
