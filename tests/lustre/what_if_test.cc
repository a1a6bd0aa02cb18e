// SPDX-License-Identifier: Apache-2.0
//
// Recordings of the modelled server, and what the driver would have done in them, compared with
// what it does.
#include "weir/lustre/what_if.h"

#include <cstring>
#include <memory>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/lustre/beds.h"
#include "weir/lustre/recorder.h"

namespace weir {
namespace {

using beds::Measured;
using lustre::WhatIf;

constexpr Nanoseconds kPeriod = std::chrono::milliseconds{20};

// Of a bed under tbf without rules.
std::string record_bed(const sim::Scenario& scenario, std::uint64_t seed,
                       std::uint64_t bytes_per_day = lustre::Recorder::kBytesPerDay) {
  std::unique_ptr<lustre::Recorder> recorder;
  std::string text;
  Instant next{};
  app::LustreSimOptions options;
  const auto make = [&](lustre::Tree& tree, Instant now) {
    if (recorder) return;
    recorder = std::make_unique<lustre::Recorder>(
        tree,
        lustre::Recorder::Options{.head = {.started_s = 1'800'000'000, .period = kPeriod},
                                  .bytes_per_day = bytes_per_day,
                                  .costing = {}},
        now);
  };
  // The model makes a tree for each look, so that the recorder needs one that stays.
  struct Borrowed final : lustre::Tree {
    lustre::Tree* tree = nullptr;
    Result<std::string> read(const std::string& path) override { return tree->read(path); }
    Result<void> write(const std::string& path, std::string_view) override {
      ADD_FAILURE() << "it wrote " << path;
      return {};
    }
    Result<std::vector<std::string>> list(const std::string& folder) override {
      return tree->list(folder);
    }
  } borrowed;
  options.round = [&](lustre::Tree& tree, Instant now) {
    borrowed.tree = &tree;
    make(borrowed, now);
    if (now < next) return;
    next = now + recorder->period() * 9 / 10;
    EXPECT_TRUE(recorder->round(now));
    text += recorder->writer().take(lustre::RecordingWriter::Take::kWhole);
  };
  options.glance = [&](lustre::Tree& tree, Instant now) {
    borrowed.tree = &tree;
    if (recorder && !recorder->is_thinning()) recorder->glance(now);
  };
  beds::measure(scenario, beds::Policy::kTbf, seed, options);
  text += recorder->writer().take(lustre::RecordingWriter::Take::kAll);
  return text;
}

std::unique_ptr<WhatIf> decide_over(const std::string& text, const sim::Scenario& scenario,
                                    WhatIf::Work work, RuleController::Options options = {}) {
  auto reader = lustre::RecordingReader::open(
      [&text, at = std::size_t{0}](std::span<char> bytes) mutable -> Result<std::size_t> {
        const std::size_t size = std::min(bytes.size(), text.size() - at);
        std::memcpy(bytes.data(), text.data() + at, size);
        at += size;
        return size;
      },
      "recording");
  EXPECT_TRUE(reader);
  options.period = reader->head().period;
  auto what_if = std::make_unique<WhatIf>(options, work);
  for (const sim::JobSpec& job : scenario.jobs) what_if->set_nodes(JobId(job.name), job.nodes);
  for (;;) {
    const auto round = reader->next();
    EXPECT_TRUE(round);
    if (!round || !*round) break;
    what_if->add(**round);
  }
  what_if->finish();
  return what_if;
}

WhatIf::Job job_of(const WhatIf& what_if, std::string_view name) {
  for (const auto& [job, sums] : what_if.jobs()) {
    if (job.text() == name) return sums;
  }
  return {};
}

double ms(Nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// Bed B, which takes a while to record.
const std::string& recording() {
  static const std::string text = record_bed(beds::bed('b'), 1);
  return text;
}

// Whoever tries it on a recording sees what the driver does under the same load. Bursts that are
// served faster end earlier, which a recording does not show: the hog is held as often, and for a
// shorter time.
TEST(LustreWhatIf, HoldsTheHogAsTheDriverDoes) {
  const sim::Scenario scenario = beds::bed('b');
  const Measured driven = beds::measure(scenario, beds::Policy::kWeir, 1);
  const auto fixed = decide_over(recording(), scenario, WhatIf::Work::kFixed);
  const auto endless = decide_over(recording(), scenario, WhatIf::Work::kEndless);
  const WhatIf::Job hog = job_of(*fixed, "hog");
  fmt::print("held {:.0f} ms in {}; what-if {:.0f} ms in {} to {:.0f} ms\n", ms(driven.held),
             driven.pieces, ms(hog.hold.total), hog.hold.times,
             ms(job_of(*endless, "hog").hold.total));
  EXPECT_LT(ms(hog.hold.total), 2 * ms(driven.held));
  EXPECT_LT(ms(driven.held), ms(job_of(*endless, "hog").hold.total));
  const auto pieces = static_cast<double>(driven.pieces);
  EXPECT_NEAR(static_cast<double>(hog.hold.times), pieces, 0.3 * pieces);
  EXPECT_GT(hog.less, 0U);
  for (const char* const burst : {"ja", "jb", "jc"}) {
    EXPECT_EQ(job_of(*fixed, burst).more, 0U) << burst;
    EXPECT_GT(job_of(*endless, burst).more, 0U) << burst;
    EXPECT_EQ(job_of(*fixed, burst).hold.times, 0U) << burst;
  }
}

TEST(LustreWhatIf, ADayIsUnderAHundredMegabytes) {
  const std::size_t day = recording().size() * 86'400 / 30;
  fmt::print("{} bytes in 30 s, {} MB a day\n", recording().size(), day / 1'000'000);
  EXPECT_LT(day, 100'000'000U);
}

TEST(LustreWhatIf, ABudgetIsKeptByLongerPeriods) {
  constexpr std::uint64_t kDay = 500'000;
  sim::Scenario scenario = beds::bed('b');
  scenario.length = std::chrono::seconds{15};
  const std::string text = record_bed(scenario, 1, kDay);
  EXPECT_LT(text.size(), kDay * 15 / 86'400 + kDay / 100 + 1000);
  EXPECT_LT(text.size(), recording().size() / 2 * 9 / 10);
  EXPECT_GT(decide_over(text, scenario, WhatIf::Work::kFixed)->served(), 4'000U);
}

TEST(LustreWhatIf, TellsWhatThePublishedAlgorithmLosesToo) {
  const sim::Scenario scenario = beds::bed('b');
  RuleController::Options paper = RuleController::Options::paper();
  paper.capacity = Rate::per_second(400);
  const auto theirs = decide_over(recording(), scenario, WhatIf::Work::kEndless, paper);
  const auto ours = decide_over(recording(), scenario, WhatIf::Work::kEndless);
  EXPECT_GT(theirs->lost(), ours->lost());
  EXPECT_GT(theirs->changes(), 5 * ours->changes());
}

}  // namespace
}  // namespace weir
