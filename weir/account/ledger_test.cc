// SPDX-License-Identifier: Apache-2.0
#include "weir/account/ledger.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/rng.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Loans = std::vector<Ledger::Loan>;

constexpr milliseconds kPeriod{20};

__int128 sum_of_records(const Ledger& ledger) {
  __int128 sum = 0;
  for (const Ledger::Account& account : ledger.accounts()) sum += account.record;
  return sum;
}

Ledger::Loan loan(const char* job, std::uint64_t lent, std::uint64_t borrowed) {
  return {JobId(job), Tokens{lent}, Tokens{borrowed}};
}

std::int64_t record(const Ledger& ledger, const char* job) {
  return ledger.find(JobId(job))->record;
}

TEST(Ledger, WritesDownWhoLentAndWhoBorrowed) {
  Ledger ledger;
  ledger.settle_loans(Loans{loan("a", 6, 0), loan("b", 2, 0), loan("c", 0, 4)});
  // Of the eight idle tokens four were borrowed: three of a and one of b.
  EXPECT_EQ(record(ledger, "a"), 3);
  EXPECT_EQ(record(ledger, "b"), 1);
  EXPECT_EQ(record(ledger, "c"), -4);
  EXPECT_EQ(ledger.find(JobId("c"))->borrowed, Tokens{4});
  ledger.settle_loans(Loans{loan("a", 1, 0), loan("c", 0, 5)});
  EXPECT_EQ(record(ledger, "a"), 4);
  EXPECT_EQ(record(ledger, "c"), -5) << "what nobody owned is free";
  EXPECT_EQ(ledger.find(JobId("b"))->lent, Tokens{0}) << "of the last period";
  EXPECT_EQ(ledger.find(JobId("b"))->lent_sum, Tokens{1});
  EXPECT_EQ(ledger.find(JobId("c"))->borrowed_sum, Tokens{5});
  EXPECT_EQ(ledger.find(JobId("d")), nullptr);
}

// 1 TB/s for 13 days is more than 2^60 tokens; 214 days are more than 2^64 - 1 can count.
TEST(Ledger, SettlesAtMostTheBoundOfLoansThatWeeksOfIdlingMade) {
  constexpr std::uint64_t kMost = Ledger::kLoansMax.count();
  constexpr std::uint64_t k13Days = 1'123'200'000'000'000'000 + 30'000'000'000'000'000;
  static_assert(k13Days > kMost);
  Ledger small;
  small.settle_loans(Loans{loan("a", k13Days, 0), loan("b", 0, 500)});
  EXPECT_EQ(record(small, "a"), 500) << "no more than was borrowed";
  EXPECT_EQ(record(small, "b"), -500);

  Ledger ledger;
  ledger.settle_loans(Loans{loan("a", UINT64_MAX, 0), loan("b", UINT64_MAX, 0),
                            loan("c", 0, UINT64_MAX), loan("d", 0, UINT64_MAX / 3)});
  EXPECT_EQ(record(ledger, "a"), std::int64_t{kMost / 2});
  EXPECT_EQ(record(ledger, "b"), std::int64_t{kMost / 2});
  EXPECT_EQ(record(ledger, "c"), -std::int64_t{kMost / 4 * 3});
  EXPECT_EQ(record(ledger, "d"), -std::int64_t{kMost / 4});
  for (int i = 0; i < 100; ++i) {
    ledger.settle_loans(Loans{loan("a", UINT64_MAX, 0), loan("c", 0, UINT64_MAX)});
    EXPECT_EQ(sum_of_records(ledger), 0);
    ledger.close_period(kPeriod, std::nullopt);
  }
  EXPECT_LE(record(ledger, "a"), Ledger::kRecordSumMax) << "half fades beyond it";
}

TEST(Ledger, FractionsOfLoansAreMadeUpForLater) {
  Ledger ledger;
  for (int i = 0; i < 300; ++i) {
    ledger.settle_loans(Loans{loan("a", 1, 0), loan("b", 1, 0), loan("c", 1, 0), loan("d", 0, 1)});
  }
  for (const char* job : {"a", "b", "c"}) EXPECT_EQ(record(ledger, job), 100);
}

TEST(Ledger, RecordsFadeByHalfInAHalfLife) {
  Ledger ledger;
  ledger.settle_loans(Loans{loan("a", 10'000, 0), loan("b", 0, 10'000)});
  for (int i = 0; i < 3000; ++i) ledger.close_period(kPeriod, seconds{60});
  EXPECT_NEAR(static_cast<double>(record(ledger, "a")), 5000, 5);
  EXPECT_EQ(record(ledger, "b"), -record(ledger, "a"));
  ledger.close_period(kPeriod, Nanoseconds{1});
  EXPECT_EQ(record(ledger, "a"), 0) << "shorter than the period: all of it, and no more";
}

TEST(Ledger, WithoutAHalfLifeRecordsStay) {
  Ledger ledger;
  ledger.settle_loans(Loans{loan("a", 7, 0), loan("b", 0, 7)});
  for (int i = 0; i < 1000; ++i) ledger.close_period(kPeriod, std::nullopt);
  EXPECT_EQ(record(ledger, "a"), 7);
}

TEST(Ledger, WritesOffThoseGoneLongestAndTheSumStaysZero) {
  Ledger ledger(3);
  ledger.settle_loans(Loans{loan("lent", 10, 0), loan("owes", 0, 6), loan("owes too", 0, 4)});
  ledger.close_period(kPeriod, std::nullopt);
  for (Ledger::Account& account : ledger.accounts()) {
    if (account.job != JobId("lent")) account.last_active = ledger.period();
  }
  ledger.open(std::span<const Ledger::Loan>(Loans{loan("new", 0, 0)}));
  // The lender is gone, so no debt to it is left.
  EXPECT_EQ(ledger.find(JobId("lent")), nullptr);
  EXPECT_EQ(record(ledger, "owes"), 0);
  EXPECT_EQ(record(ledger, "owes too"), 0);
  EXPECT_EQ(ledger.accounts().size(), 3U);
  EXPECT_EQ(ledger.written_off(), 1U);
}

TEST(Ledger, WhoBorrowedFromManyAndGoesIsPaidForByThemInProportion) {
  Ledger ledger(3);
  ledger.settle_loans(Loans{loan("a", 30, 0), loan("b", 10, 0), loan("gone", 0, 40)});
  ledger.close_period(kPeriod, std::nullopt);
  for (Ledger::Account& account : ledger.accounts()) {
    account.last_active = account.job == JobId("gone") ? 0 : ledger.period();
  }
  ledger.open(std::span<const Ledger::Loan>(Loans{loan("new", 0, 0)}));
  EXPECT_EQ(record(ledger, "a"), 0);
  EXPECT_EQ(record(ledger, "b"), 0);
  EXPECT_EQ(sum_of_records(ledger), 0);
}

TEST(Ledger, JobsOfThePeriodNeverGoEvenBeyondTheBound) {
  Ledger ledger(2);
  const Loans all = {loan("a", 1, 0), loan("b", 1, 0), loan("c", 0, 1), loan("d", 0, 1)};
  ledger.settle_loans(all);
  EXPECT_EQ(ledger.accounts().size(), 4U);
  ledger.settle_loans(all);
  EXPECT_EQ(ledger.written_off(), 0U);
}

TEST(LedgerProperty, ABoundedLedgerSumsToZeroWhateverComesAndGoes) {
  Rng rng(1);
  Ledger ledger(20);
  for (int period = 0; period < 3000; ++period) {
    Loans loans;
    for (std::uint64_t i = 0; i < 100; ++i) {
      if (!rng.chance(1, 10)) continue;
      loans.push_back(loan(fmt::format("j{:03}", i).c_str(), rng.below(50), rng.below(50)));
    }
    ledger.settle_loans(loans);
    ASSERT_TRUE(sum_of_records(ledger) == 0) << period;
    ASSERT_LE(ledger.accounts().size(), std::max<std::size_t>(20, loans.size()));
    ledger.close_period(kPeriod, seconds{1});
    ASSERT_TRUE(sum_of_records(ledger) == 0) << period;
  }
  EXPECT_GT(ledger.written_off(), 1000U);
}

TEST(Ledger, RecordsBeyondTheirBoundHalveAtOnce) {
  Ledger ledger;
  const std::uint64_t half = Ledger::kLoansMax.count() / 2 + 10;
  for (int i = 0; i < 8; ++i) {
    ledger.settle_loans(Loans{loan("a", half, 0), loan("b", 0, half)});
    ledger.close_period(kPeriod, std::nullopt);
    ASSERT_LE(record(ledger, "a"), Ledger::kRecordSumMax);
    ASSERT_EQ(record(ledger, "b"), -record(ledger, "a"));
  }
  EXPECT_GT(record(ledger, "a"), Ledger::kRecordSumMax / 4);
}

TEST(Ledger, RestoresWhatItWasAndRefusesWhatCannotBe) {
  Ledger ledger;
  ledger.settle_loans(Loans{loan("a", 7, 0), loan("b", 0, 5)});
  ledger.close_period(kPeriod, seconds{60});
  const Ledger::State state = ledger.state();
  Ledger other;
  ASSERT_TRUE(other.restore(state));
  EXPECT_EQ(other.state().accounts, state.accounts);
  EXPECT_EQ(other.period(), ledger.period());
  EXPECT_TRUE(other.state().fade_carry == state.fade_carry);

  Ledger::State broken = state;
  broken.accounts[0].record += 1;
  EXPECT_EQ(other.restore(broken).error().what, "they do not sum to 0");
  broken = state;
  std::swap(broken.accounts[0], broken.accounts[1]);
  EXPECT_EQ(other.restore(broken).error().what, "jobs are out of order");
  broken = state;
  broken.accounts[0].remainder = INT64_MIN;
  EXPECT_EQ(other.restore(broken).error().what, "a number is out of range");
  EXPECT_EQ(other.state().accounts, state.accounts) << "a refusal changes nothing";
}

}  // namespace
}  // namespace weir
