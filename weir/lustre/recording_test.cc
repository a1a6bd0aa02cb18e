// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/recording.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/big_endian.h"
#include "weir/base/crc32c.h"
#include "weir/base/rng.h"

namespace weir::lustre {
namespace {

constexpr Nanoseconds kPeriod = std::chrono::milliseconds{20};

RecordingReader::Source source_of(const std::string& text) {
  return [text, at = std::size_t{0}](std::span<char> bytes) mutable -> Result<std::size_t> {
    const std::size_t size = std::min(bytes.size(), text.size() - at);
    std::memcpy(bytes.data(), text.data() + at, size);
    at += size;
    return size;
  };
}

struct Read {
  std::vector<RecordedRound> rounds;
  bool is_cut = false;
  std::string error;
};

Read read_all(const std::string& text) {
  Read read;
  auto reader = RecordingReader::open(source_of(text), "'f'");
  if (!reader) {
    read.error = reader.error().message();
    return read;
  }
  for (;;) {
    auto round = reader->next();
    if (!round) {
      read.error = round.error().message();
      break;
    }
    if (!*round) break;
    read.rounds.push_back(std::move(**round));
  }
  read.is_cut = reader->is_cut();
  return read;
}

// Rounds of a server with jobs that come, go and vanish; ids of any bytes.
struct Source {
  explicit Source(std::uint64_t seed) : rng(seed) {}

  RecordedRound next() {
    RecordedRound made;
    at += kPeriod + std::chrono::microseconds{100 * rng.below(30)};
    made.round.at = at;
    const bool is_idle = rng.below(3) == 0;
    std::uint64_t sum = 0;
    if (!is_idle) {
      queued = rng.below(5) == 0 ? rng.below(100'000) : queued + rng.below(9);
      busy = rng.below(17);
    }
    made.round.queued = queued;
    made.round.busy = busy;
    for (int i = 0; i < 12; ++i) {
      if (!is_idle && rng.below(10) == 0) is_there[i] = !is_there[i];
      if (!is_there[i]) continue;
      const std::uint64_t served = is_idle || rng.below(2) == 0 ? 0 : rng.below(3000);
      const std::string id = fmt::format("j{}{}\n\0", i, static_cast<char>(128 + i));
      made.round.jobs.push_back({JobId(id), Tokens{served}, is_idle || rng.below(9) != 0, true});
      sum += served;
    }
    std::sort(made.round.jobs.begin(), made.round.jobs.end(),
              [](const JobCount& a, const JobCount& b) { return a.job < b.job; });
    if (is_idle || rng.below(8) != 0)
      made.round.served_all = Tokens{sum + (is_idle ? 0 : rng.below(3))};
    for (int i = 0; i < 3; ++i) {
      made.glances.push_back(
          {at, is_idle ? queued : rng.below(30), is_idle ? busy : rng.below(17)});
    }
    made.rules = is_idle ? rules : rules = rng.below(2);
    return made;
  }

  Rng rng;
  Instant at{};
  std::uint64_t queued = 0;
  std::uint64_t busy = 0;
  std::uint64_t rules = 0;
  bool is_there[12] = {};
};

std::string recorded(std::uint64_t seed, int rounds, std::vector<RecordedRound>* made = nullptr) {
  RecordingWriter writer(
      {.service = "ost_io", .cpts = 2, .depth = 3, .started_s = 1'000'000, .period = kPeriod},
      Instant{});
  Source source(seed);
  std::string text;
  for (int i = 0; i < rounds; ++i) {
    RecordedRound round = source.next();
    for (const RuleGlance& seen : round.glances) writer.glance(seen);
    writer.add(round.round, round.rules);
    text += writer.take(RecordingWriter::Take::kWhole);
    if (made != nullptr) made->push_back(std::move(round));
  }
  text += writer.take(RecordingWriter::Take::kAll);
  EXPECT_EQ(writer.bytes(), text.size());
  return text;
}

TEST(Recording, IsReadAsItWasWritten) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::vector<RecordedRound> made;
    const Read read = read_all(recorded(seed, 200, &made));
    EXPECT_EQ(read.error, "");
    EXPECT_FALSE(read.is_cut);
    ASSERT_EQ(read.rounds.size(), made.size());
    for (std::size_t i = 0; i < made.size(); ++i) {
      const RuleRound& a = made[i].round;
      const RuleRound& b = read.rounds[i].round;
      // Rounds without requests may be written as a run of equal length; the next one with requests
      // is at its time again.
      const Nanoseconds most = a.served_all == Tokens{0} ? kPeriod / 2 : RecordingWriter::kUnit;
      EXPECT_LE(std::abs((a.at - b.at).count()), most.count()) << i;
      EXPECT_EQ(a.queued, b.queued);
      EXPECT_EQ(a.busy, b.busy);
      EXPECT_EQ(a.served_all, b.served_all) << i;
      ASSERT_EQ(a.jobs.size(), b.jobs.size()) << i;
      for (std::size_t j = 0; j < a.jobs.size(); ++j) {
        EXPECT_EQ(a.jobs[j].job, b.jobs[j].job);
        EXPECT_EQ(a.jobs[j].served, b.jobs[j].served);
        EXPECT_EQ(a.jobs[j].known, b.jobs[j].known);
      }
      ASSERT_EQ(made[i].glances.size(), read.rounds[i].glances.size());
      for (std::size_t j = 0; j < made[i].glances.size(); ++j) {
        EXPECT_EQ(made[i].glances[j].queued, read.rounds[i].glances[j].queued);
        EXPECT_EQ(made[i].glances[j].busy, read.rounds[i].glances[j].busy);
      }
      EXPECT_EQ(made[i].rules, read.rounds[i].rules);
    }
  }
}

TEST(Recording, KeepsSizes) {
  RecordingWriter writer({}, Instant{});
  writer.set_size(JobId("b"), 7);
  writer.set_size(JobId("elsewhere"), 9);
  RuleRound round;
  round.at = Instant{kPeriod};
  round.jobs = {{JobId("a"), Tokens{1}}, {JobId("b"), Tokens{1}}};
  writer.add(round, 0);
  round.at += kPeriod;
  writer.set_size(JobId("b"), 8);
  writer.add(round, 0);
  const Read read = read_all(writer.take(RecordingWriter::Take::kAll));
  ASSERT_EQ(read.rounds.size(), 2U);
  using Sizes = std::vector<std::pair<JobId, std::uint64_t>>;
  EXPECT_EQ(read.rounds[0].sizes, (Sizes{{JobId("b"), 7}}));
  EXPECT_EQ(read.rounds[1].sizes, (Sizes{{JobId("b"), 8}}));
}

TEST(Recording, KeepsWhatRequestsCost) {
  RecordingWriter writer({.service = "mdt"}, Instant{});
  RuleRound round;
  round.jobs = {{JobId("make"), Tokens{5}}, {JobId("stat"), Tokens{5}}};
  const std::uint64_t costs[] = {5000, 5100, 400, 1024};
  for (const std::uint64_t cost : costs) {
    round.at += kPeriod;
    round.jobs[0].cost = cost;
    writer.add(round, 0);
  }
  const Read read = read_all(writer.take(RecordingWriter::Take::kAll));
  ASSERT_EQ(read.rounds.size(), 4U) << read.error;
  const std::uint64_t expected[] = {5000, 5000, 400, 1024};  // a fiftieth more is not written
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(read.rounds[i].round.jobs.at(0).cost, expected[i]);
    EXPECT_EQ(read.rounds[i].round.jobs.at(1).cost, JobCount::kToken);
  }
}

TEST(Recording, TenIdleMinutesAreNextToNothing) {
  RecordingWriter writer({}, Instant{});
  RuleRound round;
  round.served_all = Tokens{0};
  round.jobs = {{JobId("a"), Tokens{0}}};
  for (int i = 1; i <= 30'000; ++i) {
    round.at = Instant{kPeriod * i + std::chrono::microseconds{i % 3 * 100}};
    writer.add(round, 0);
  }
  const std::string text = writer.take(RecordingWriter::Take::kAll);
  EXPECT_LT(text.size(), 400U);
  const Read read = read_all(text);
  ASSERT_EQ(read.rounds.size(), 30'000U);
  EXPECT_EQ(read.rounds.back().round.at, round.at);
}

TEST(Recording, AFileThatIsCutIsReadUpToTheCut) {
  const std::string whole = recorded(1, 150);
  const std::size_t all = read_all(whole).rounds.size();
  std::size_t before = 0;
  bool cuts = false;
  const std::size_t head = whole.find('B');
  for (std::size_t size = head; size < whole.size(); size += 41) {
    const Read read = read_all(whole.substr(0, size));
    EXPECT_EQ(read.error, "") << size;
    EXPECT_GE(read.rounds.size(), before);
    EXPECT_LT(read.rounds.size(), all);
    before = read.rounds.size();
    cuts = cuts || read.is_cut;
  }
  EXPECT_TRUE(cuts);
  EXPECT_GT(before, all / 2);
}

TEST(Recording, OtherFilesAreRefused) {
  const std::string whole = recorded(1, 300);
  EXPECT_NE(read_all("").error.find("is empty"), std::string::npos);
  EXPECT_NE(read_all("job_stats:\n").error.find("is not a recording"), std::string::npos);
  std::string other = whole;
  other[other.find('\n') - 1] = '2';
  EXPECT_NE(read_all(other).error.find("version '2' of the format; expected 1"), std::string::npos)
      << read_all(other).error;
  EXPECT_NE(read_all(whole + whole).error.find("another recording begins"), std::string::npos);
  EXPECT_EQ(read_all(whole + whole).rounds.size(), read_all(whole).rounds.size());
}

// Blocks that were exchanged, lost or changed.
TEST(Recording, DamageIsNamedWithItsPlace) {
  const std::string whole = recorded(1, 300);
  const std::size_t first = whole.find('B');
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 1);
  EXPECT_NE(read_all(flipped).error.find("is damaged before byte "), std::string::npos);
  // Two bytes of size: 128 to 16383.
  const auto size = static_cast<std::size_t>((whole[first + 1] & 127) | (whole[first + 2] << 7));
  const std::size_t second = first + 3 + 4 + size;
  ASSERT_EQ(whole[second], 'B');
  const std::string lost = whole.substr(0, first) + whole.substr(second);
  EXPECT_NE(read_all(lost).error.find("missing or not in order"), std::string::npos)
      << read_all(lost).error;
}

// Bytes that a checksum does not protect, since it was computed over them.
TEST(Recording, SurvivesAnyRecords) {
  const std::string whole = recorded(2, 40);
  const std::size_t first = whole.find('B');
  const auto size = static_cast<std::size_t>((whole[first + 1] & 127) | (whole[first + 2] << 7));
  const std::string inside = whole.substr(first + 7, size);
  Rng rng(5);
  int valid = 0;
  for (int i = 0; i < 600; ++i) {
    std::string text = inside;
    const std::uint64_t changes = rng.below(4);
    for (std::uint64_t j = 0; j < changes; ++j) {
      text[2 + rng.below(text.size() - 2)] = static_cast<char>(rng.below(256));
    }
    std::byte sum[4];
    store_be<std::uint32_t>(sum, crc32c(text));
    const Read read = read_all(whole.substr(0, first + 3) +
                               std::string(reinterpret_cast<const char*>(sum), 4) + text);
    valid += read.error.empty();
    if (changes == 0) {
      EXPECT_EQ(read.error, "");
    }
  }
  EXPECT_GT(valid, 100);
  EXPECT_LT(valid, 580);
}

}  // namespace
}  // namespace weir::lustre
