// SPDX-License-Identifier: Apache-2.0
#include "weir/control/journal.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

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

// Wherever a crash truncates the file, exactly the records before that point are kept.
TEST(Journal, EveryCutLeavesTheRecordsBeforeIt) {
  const std::string one = journal_line("one"), two = journal_line("two");
  const std::string text = one + two;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    const JournalText read = read_journal(text.substr(0, size));
    EXPECT_EQ(read.damaged_at, 0U) << size;
    EXPECT_EQ(read.records.size(), size < one.size() ? 0U : size < text.size() ? 1U : 2U) << size;
  }
}

// A crash can leave the start of a line that was not confirmed; zeroes are lost records.
TEST(Journal, BytesAtTheEndThatNoLineBeginsWithAreDamage) {
  const std::string one = journal_line("one"), two = journal_line("two");
  for (const std::string& tail :
       {std::string(1, '\0'), std::string(4096, '\0'), two.substr(0, 5) + std::string(3, '\0'),
        two.substr(0, 11) + std::string(9, '\0'), std::string("DEADBEEF x"),
        std::string("0123456x"), std::string("01234567-"), std::string("01234567 a\x01")}) {
    const JournalText read = read_journal(one + tail);
    EXPECT_EQ(read.records.size(), 1U);
    EXPECT_EQ(read.torn, 0U);
    EXPECT_EQ(read.damaged_at, 2U);
  }
  EXPECT_EQ(read_journal(one + std::string(70, '\0')).zeroes, 70U);
  EXPECT_EQ(read_journal(two.substr(0, 4) + std::string(70, '\0')).zeroes, 70U);
  EXPECT_EQ(read_journal(one + std::string(70, '\0') + two).zeroes, 0U) << "there is more behind";
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

// Only the last record counts.
std::vector<std::string> last_of(const std::vector<std::string>& records) {
  return records.empty() ? records : std::vector<std::string>{records.back()};
}

Result<void> append(Journal& journal, const std::string& record) {
  std::promise<Result<void>> done;
  journal.append({record}, [&](Result<void> result) { done.set_value(std::move(result)); });
  return done.get_future().get();
}

class JournalFile : public testing::Test {
 protected:
  JournalFile()
      : folder_(testing::TempDir() + "journal." + std::to_string(getpid())),
        path_(folder_ + "/journal") {
    std::filesystem::create_directories(folder_);
  }
  ~JournalFile() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<Journal> open() {
    auto journal = Journal::open(path_, Journal::Damage::kRefuse, last_of);
    EXPECT_TRUE(journal) << journal.error().message();
    return std::move(*journal);
  }

  std::string folder_;
  std::string path_;
};

TEST_F(JournalFile, AJournalThatGrowsIsShortenedWhileItRunsAndNothingConfirmedIsLost) {
  const std::string filler(4000, 'x');
  for (int start = 0; start < 2; ++start) {
    const auto journal = open();
    for (int i = 0; i < 60; ++i) {
      const std::string record = filler + std::to_string(start * 100 + i);
      ASSERT_TRUE(append(*journal, record));
      const auto size = std::filesystem::file_size(path_);
      EXPECT_LT(size, Journal::kShortenAbove + 2 * filler.size()) << i;
    }
  }
  EXPECT_EQ(open()->records().back(), filler + "159");
}

TEST_F(JournalFile, ATailOfZeroesIsRefusedAndKeptAsItWasWhenRepaired) {
  { ASSERT_TRUE(append(*open(), "kept")); }
  const std::string text = journal_line("kept") + std::string(40, '\0');
  std::ofstream(path_, std::ios::binary) << text;
  const auto refused = Journal::open(path_, Journal::Damage::kRefuse, last_of);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::illegal_byte_sequence);
  EXPECT_NE(refused.error().message().find("last 40 bytes are zero"), std::string::npos);
  const auto repaired = Journal::open(path_, Journal::Damage::kRepair, last_of);
  ASSERT_TRUE(repaired);
  EXPECT_EQ((*repaired)->records(), std::vector<std::string>{"kept"});
  std::ifstream file(path_ + ".damaged", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

// As if it was truncated by a crash of its file system, or by mistake.
TEST_F(JournalFile, OneWithoutAWholeLineIsRefusedAndOneThatIsNewHasALine) {
  for (const std::string left : {"", "0123", "01234567 we"}) {
    { ASSERT_TRUE(append(*open(), "gone")); }
    std::ofstream(path_, std::ios::binary) << left;
    const auto refused = Journal::open(path_, Journal::Damage::kRefuse, last_of);
    ASSERT_FALSE(refused) << left;
    EXPECT_EQ(refused.error().code, std::errc::illegal_byte_sequence);
    {
      const auto repaired = Journal::open(path_, Journal::Damage::kRepair, last_of);
      ASSERT_TRUE(repaired);
      EXPECT_EQ((*repaired)->records(), std::vector<std::string>{});
      ASSERT_TRUE(append(**repaired, "kept"));
    }
    EXPECT_EQ(open()->records(), std::vector<std::string>{"kept"});
    std::filesystem::remove(path_);
    EXPECT_EQ(open()->records(), std::vector<std::string>{});
    EXPECT_EQ(open()->records(), std::vector<std::string>{}) << "nothing was written to it";
    std::filesystem::remove(path_);
  }
}

TEST_F(JournalFile, AGroupIsOneRecordAfterTheOther) {
  {
    const auto journal = open();
    std::promise<Result<void>> done;
    journal->append({"a", "b", "c"},
                    [&](Result<void> result) { done.set_value(std::move(result)); });
    ASSERT_TRUE(done.get_future().get());
    EXPECT_EQ(journal->syncs(), 1U);
  }
  EXPECT_EQ(open()->records(), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(JournalFile, AShortenedJournalIsStillHeld) {
  const auto journal = open();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(append(*journal, std::string(4000, 'x')));
  ASSERT_TRUE(append(*journal, "last"));
  EXPECT_EQ(Journal::open(path_, Journal::Damage::kRefuse, last_of).error().code,
            std::errc::device_or_resource_busy);
}

}  // namespace
}  // namespace weir::control
