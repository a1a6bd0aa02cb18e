// SPDX-License-Identifier: Apache-2.0
#include "weir/account/ledger.h"

#include <algorithm>
#include <utility>

#include "weir/base/assert.h"

namespace weir {
namespace {

using Wide = unsigned __int128;

// ln 2 = 726817 / 2^20, to six digits.
constexpr std::uint64_t kLn2 = 726817;
constexpr int kLn2Bits = 20;

constexpr const char* kHint = "start without the saved state; records then start at 0";

bool fits(std::int64_t remainder) {
  return -kSettleRemainderMax <= remainder && remainder <= kSettleRemainderMax;
}

}  // namespace

const Ledger::Account* Ledger::find(const JobId& job) const {
  const auto at =
      std::lower_bound(accounts_.begin(), accounts_.end(), job,
                       [](const Account& account, const JobId& id) { return account.job < id; });
  return at != accounts_.end() && at->job == job ? &*at : nullptr;
}

// ---- accounts come and go ----

void Ledger::add_accounts(const std::vector<JobId>& missing,
                          const std::vector<std::size_t>& wanted) {
  const std::size_t after = accounts_.size() + missing.size();
  if (after > jobs_max_) write_off(after - jobs_max_, wanted);
  // In place: with new jobs in every period, all accounts would be copied 50 times a second.
  const auto before = static_cast<std::ptrdiff_t>(accounts_.size());
  for (const JobId& job : missing) {
    Account& added = accounts_.emplace_back();
    added.job = job;
    added.last_active = state_.period;
  }
  std::inplace_merge(accounts_.begin(), accounts_.begin() + before, accounts_.end(),
                     [](const Account& a, const Account& b) { return a.job < b.job; });
}

void Ledger::write_off(std::size_t count, const std::vector<std::size_t>& wanted) {
  std::vector<std::size_t> gone;
  gone.reserve(accounts_.size() - wanted.size());
  for (std::size_t i = 0, next = 0; i < accounts_.size(); ++i) {
    if (next < wanted.size() && wanted[next] == i) {
      ++next;
    } else {
      gone.push_back(i);
    }
  }
  if (count < gone.size()) {
    const auto end = gone.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(gone.begin(), end, gone.end(), [this](std::size_t a, std::size_t b) {
      return std::pair(accounts_[a].last_active, a) < std::pair(accounts_[b].last_active, b);
    });
    gone.erase(end, gone.end());
  }
  std::sort(gone.begin(), gone.end());
  remove(gone);
}

void Ledger::write_off(std::span<const JobId> jobs) {
  std::vector<std::size_t> gone;
  for (const JobId& job : jobs) {
    const Account* const account = find(job);
    if (account != nullptr) gone.push_back(static_cast<std::size_t>(account - accounts_.data()));
  }
  if (!gone.empty()) remove(gone);
}

// `gone` are indices in order.
void Ledger::remove(const std::vector<std::size_t>& gone) {
  __int128 rest = 0;
  for (const std::size_t i : gone) rest += std::exchange(accounts_[i].record, 0);
  if (rest != 0) {
    const Side side = rest > 0 ? Side::kBorrowers : Side::kLenders;
    Fading& fading = rest > 0 ? borrowers_ : lenders_;
    choose(side, fading);
    shrink(side, Tokens{static_cast<std::uint64_t>(rest < 0 ? -rest : rest)}, fading);
  }
  std::size_t next = 0;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    if (next < gone.size() && gone[next] == i) {
      ++next;
    } else {
      if (kept != i) accounts_[kept] = accounts_[i];
      ++kept;
    }
  }
  accounts_.resize(kept);
  state_.written_off += gone.size();
}

// ---- records change ----

void Ledger::settle_loans(std::span<const Loan> loans) {
  open(loans);
  for (Account& account : accounts_) account.lent = account.borrowed = Tokens{};
  Wide lent = 0;
  Wide borrowed = 0;
  for (const Loan& loan : loans) {
    lent += loan.lent.count();
    borrowed += loan.borrowed.count();
  }
  const Tokens matched{
      static_cast<std::uint64_t>(std::min<Wide>({lent, borrowed, kLoansMax.count()}))};
  if (matched == Tokens{0}) return;
  settle_side(loans, Side::kLenders, lent, matched);
  settle_side(loans, Side::kBorrowers, borrowed, matched);
}

void Ledger::settle_side(std::span<const Loan> loans, Side side, Wide sum, Tokens total) {
  // Weights sum to less than 2^64: beyond that all lose the same low bits.
  int shift = 0;
  while (sum >> shift > UINT64_MAX) ++shift;
  const bool lenders = side == Side::kLenders;
  const auto remainder = lenders ? &Account::lent_remainder : &Account::borrowed_remainder;
  shares_.clear();
  chosen_.clear();
  std::size_t at = 0;
  for (const Loan& loan : loans) {
    const std::uint64_t weight = (lenders ? loan.lent : loan.borrowed).count() >> shift;
    if (weight == 0) continue;
    while (accounts_[at].job != loan.job) ++at;
    shares_.push_back({weight, accounts_[at].*remainder, 0});
    chosen_.push_back(at);
  }
  settle(shares_, total);
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    Account& account = accounts_[chosen_[i]];
    const std::uint64_t got = shares_[i].got;
    account.*remainder = shares_[i].remainder;
    account.record += (lenders ? 1 : -1) * static_cast<std::int64_t>(got);
    (lenders ? account.lent : account.borrowed) = Tokens{got};
    (lenders ? account.lent_sum : account.borrowed_sum) += Tokens{got};
  }
}

void Ledger::choose(Side side, Fading& fading) const {
  const std::int64_t sign = side == Side::kLenders ? 1 : -1;
  fading.shares.clear();
  fading.accounts.clear();
  for (std::size_t i = 0; i < accounts_.size(); ++i) {
    const Account& account = accounts_[i];
    if (sign * account.record <= 0) continue;
    fading.shares.push_back(
        {static_cast<std::uint64_t>(sign * account.record), account.fade_remainder, 0});
    fading.accounts.push_back(i);
  }
}

void Ledger::shrink(Side side, Tokens total, Fading& fading) {
  const std::int64_t sign = side == Side::kLenders ? 1 : -1;
  settle(fading.shares, total);
  for (std::size_t i = 0; i < fading.shares.size(); ++i) {
    Account& account = accounts_[fading.accounts[i]];
    account.fade_remainder = fading.shares[i].remainder;
    account.record -= sign * static_cast<std::int64_t>(fading.shares[i].got);
  }
}

std::uint64_t Ledger::sum_of_positive() const {
  std::int64_t all = 0;
  std::uint64_t positive = 0;
  for (const Account& account : accounts_) {
    all += account.record;
    positive += account.record > 0 ? static_cast<std::uint64_t>(account.record) : 0;
  }
  WEIR_ASSERT(all == 0, all);
  return positive;
}

std::uint64_t Ledger::faded_in(std::uint64_t sum, Nanoseconds period, Nanoseconds half_life) {
  if (state_.half_life != half_life || state_.fade_period != period) {
    state_.half_life = half_life;
    state_.fade_period = period;
    state_.fade_carry = 0;
  }
  const Wide unit = Wide{static_cast<std::uint64_t>(half_life.count())} << kLn2Bits;
  const Wide all =
      Wide{sum} * static_cast<std::uint64_t>(period.count()) * kLn2 + state_.fade_carry;
  state_.fade_carry = all % unit;
  // A half-life shorter than the period leaves nothing.
  return static_cast<std::uint64_t>(std::min<Wide>(all / unit, sum));
}

bool Ledger::close_period(Nanoseconds period, std::optional<Nanoseconds> half_life) {
  WEIR_ASSERT(Nanoseconds{0} < period && period <= kPeriodMax, period.count());
  WEIR_ASSERT(!half_life || *half_life > Nanoseconds{0}, half_life->count());
  const std::uint64_t sum = sum_of_positive();
  std::uint64_t faded = half_life ? faded_in(sum, period, *half_life) : 0;
  if (sum - faded > kRecordSumMax) faded = sum - sum / 2;
  if (faded > 0) {
    // Choose both sides before either fades: a remainder may carry a small record past 0, and it
    // would fade again on the other side.
    choose(Side::kLenders, lenders_);
    choose(Side::kBorrowers, borrowers_);
    shrink(Side::kLenders, Tokens{faded}, lenders_);
    shrink(Side::kBorrowers, Tokens{faded}, borrowers_);
  }
  ++state_.period;
  return faded > 0;
}

// ---- restart ----

Ledger::State Ledger::state() const {
  State all = state_;
  all.accounts = accounts_;
  return all;
}

Result<void> Ledger::restore(State state) {
  __int128 sum = 0;
  const Account* before = nullptr;
  for (const Account& account : state.accounts) {
    if (before != nullptr && !(before->job < account.job)) {
      return fail(std::errc::invalid_argument, "saved records", "jobs are out of order", kHint);
    }
    if (!fits(account.remainder) || !fits(account.fade_remainder) ||
        !fits(account.lent_remainder) || !fits(account.borrowed_remainder) ||
        account.record > 2 * kRecordSumMax || account.record < -2 * kRecordSumMax ||
        account.last_active > state.period) {
      return fail(std::errc::invalid_argument, "saved records", "a number is out of range", kHint);
    }
    sum += account.record;
    before = &account;
  }
  if (sum != 0) {
    return fail(std::errc::invalid_argument, "saved records", "they do not sum to 0", kHint);
  }
  accounts_ = std::move(state.accounts);
  state_ = std::move(state);
  state_.accounts.clear();
  return {};
}

}  // namespace weir
