// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/share_parts.h"

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weir::lustre {
namespace {

// One epoch of all servers: the leader adds up what they submit.
void epoch(std::vector<std::unique_ptr<ShareParts>>& servers) {
  EpochBytes sum(ShareParts::kRows * ShareParts::kPlaces * sizeof(std::int64_t));
  for (const auto& server : servers) {
    const EpochBytes data = server->ready(Instant{});
    EpochBytes next(sum.size());
    add_vectors(next, sum, data);
    sum = next;
  }
  for (const auto& server : servers) (void)server->start_epoch(1, sum, Instant{});
}

std::vector<std::unique_ptr<ShareParts>> servers(std::size_t count) {
  std::vector<std::unique_ptr<ShareParts>> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(std::make_unique<ShareParts>());
  return all;
}

void serve(ShareParts& server, const char* job, std::uint64_t requests) {
  const ServedByJob one{.job = JobId(job), .requests = requests};
  server.count({&one, 1});
}

TEST(ShareParts, AJobOfOneServerCountsWhole) {
  auto all = servers(3);
  serve(*all[0], "lone", 100);
  serve(*all[1], "other", 5);
  epoch(all);
  EXPECT_EQ(all[0]->part_of(JobId("lone")), ShareParts::kWhole);
  EXPECT_EQ(all[1]->part_of(JobId("other")), ShareParts::kWhole);
  EXPECT_EQ(all[0]->part_of(JobId("unknown")), ShareParts::kWhole);
  EXPECT_TRUE(all[0]->is_in_step());
}

// The reason for all this: a job that is spread over 100 servers does not get 100 shares.
TEST(ShareParts, PartsOfAJobThatIsSpreadAddUpToOne) {
  auto all = servers(100);
  for (auto& server : all) serve(*server, "wide", 50);
  serve(*all[7], "narrow", 50);
  epoch(all);
  std::uint64_t sum = 0;
  for (auto& server : all) sum += server->part_of(JobId("wide"));
  EXPECT_EQ(all[7]->part_of(JobId("wide")), ShareParts::kWhole / 100);
  EXPECT_LE(sum, ShareParts::kWhole);
  EXPECT_GE(sum, ShareParts::kWhole * 97 / 100);
  EXPECT_EQ(all[7]->part_of(JobId("narrow")), ShareParts::kWhole);
}

TEST(ShareParts, PartsFollowTheUse) {
  auto all = servers(2);
  for (int i = 0; i < 20; ++i) {
    serve(*all[0], "job", 300);
    serve(*all[1], "job", 100);
    epoch(all);
  }
  EXPECT_EQ(all[0]->part_of(JobId("job")), ShareParts::kWhole * 3 / 4);
  EXPECT_EQ(all[1]->part_of(JobId("job")), ShareParts::kWhole / 4);
  for (int i = 0; i < 20; ++i) {
    serve(*all[1], "job", 400);
    epoch(all);
  }
  EXPECT_GE(all[1]->part_of(JobId("job")), ShareParts::kWhole * 95 / 100);
}

TEST(ShareParts, AServerThatIsCutOffCountsJobsWhole) {
  auto all = servers(2);
  serve(*all[0], "job", 100);
  serve(*all[1], "job", 100);
  epoch(all);
  EXPECT_EQ(all[0]->part_of(JobId("job")), ShareParts::kWhole / 2);
  all[0]->alone(-110, Instant{});
  EXPECT_EQ(all[0]->part_of(JobId("job")), ShareParts::kWhole);
  EXPECT_FALSE(all[0]->is_in_step());
}

TEST(ShareParts, DataOfAnotherSizeIsIgnored) {
  auto all = servers(1);
  serve(*all[0], "job", 100);
  (void)all[0]->ready(Instant{});
  (void)all[0]->start_epoch(1, EpochBytes(24), Instant{});
  EXPECT_EQ(all[0]->part_of(JobId("job")), ShareParts::kWhole);
  EXPECT_FALSE(all[0]->is_in_step());
}

// Two rows: among 200 jobs few share their places with others in both.
TEST(ShareParts, FewJobsAreMistakenForEachOther) {
  auto all = servers(2);
  for (int i = 0; i < 200; ++i) {
    serve(*all[static_cast<std::size_t>(i % 2)], fmt::format("job{}", i).c_str(), 100);
  }
  epoch(all);
  int mistaken = 0;
  for (int i = 0; i < 200; ++i) {
    const ShareParts& server = *all[static_cast<std::size_t>(i % 2)];
    if (server.part_of(JobId(fmt::format("job{}", i))) < ShareParts::kWhole) ++mistaken;
  }
  EXPECT_LE(mistaken, 12);
}

TEST(ShareParts, JobsAreBounded) {
  ShareParts parts;
  for (std::size_t i = 0; i < ShareParts::kJobsMax + 10; ++i) {
    serve(parts, fmt::format("j{}", i).c_str(), UINT64_MAX);
  }
  EXPECT_EQ(parts.ready(Instant{}).size(),
            ShareParts::kRows * ShareParts::kPlaces * sizeof(std::int64_t));
  EXPECT_EQ(parts.part_of(JobId("j0")), ShareParts::kWhole);
}

}  // namespace
}  // namespace weir::lustre
