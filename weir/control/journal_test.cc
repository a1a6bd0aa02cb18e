// SPDX-License-Identifier: Apache-2.0
#include "weir/control/journal.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::control {
namespace {

TEST(Journal, ALineHasTheChecksumThatOthersWouldGiveIt) {
  EXPECT_EQ(journal_line("123456789"), "e3069283 123456789\n") << "the check value of CRC-32C";
}

TEST(Journal, ReadsWhatWasWritten) {
  const std::string text = journal_line("one") + journal_line("") + journal_line("three 3");
  const JournalText read = read_journal(text);
  EXPECT_EQ(read.records, (std::vector<std::string>{"one", "", "three 3"}));
  EXPECT_EQ(read.torn, 0U);
  EXPECT_EQ(read.damaged_at, 0U);
}

// Wherever a crash cuts the file, what is before the cut is there and nothing else.
TEST(Journal, EveryCutLeavesTheRecordsBeforeIt) {
  const std::string one = journal_line("one"), two = journal_line("two");
  const std::string text = one + two;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const JournalText read = read_journal(text.substr(0, size));
    EXPECT_EQ(read.damaged_at, 0U) << size;
    EXPECT_EQ(read.records.size(), size < one.size() ? 0U : size < text.size() ? 1U : 2U) << size;
  }
}

TEST(Journal, EveryFlippedBitOfARecordIsFound) {
  const std::string whole = journal_line("start dd jobid={dd.*} rate=100");
  const std::string text = journal_line("before") + whole + journal_line("after");
  const std::size_t begin = journal_line("before").size();
  for (std::size_t at = begin; at + 1 < begin + whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string broken = text;
      broken[at] = static_cast<char>(broken[at] ^ (1 << bit));
      const JournalText read = read_journal(broken);
      EXPECT_EQ(read.damaged_at, 2U) << at << ", bit " << bit;
      EXPECT_EQ(read.records.size(), 1U);
    }
  }
}

}  // namespace
}  // namespace weir::control
