// SPDX-License-Identifier: Apache-2.0
#include "weir/control/job_sizes.h"

#include <gtest/gtest.h>

namespace weir::control {
namespace {

using Jobs = std::vector<std::string>;
using std::chrono::hours;

Instant at(hours time) { return Instant{} + time; }
constexpr hours kWeek{24 * 7};

Jobs jobs_of(const JobSizes& sizes) {
  Jobs jobs;
  sizes.each([&](const std::string& job, std::uint64_t) { jobs.push_back(job); });
  return jobs;
}

TEST(JobSizes, KeepsThemInOrderUntilTheyAreTakenBack) {
  JobSizes sizes;
  EXPECT_EQ(sizes.set("b", 3, at(hours{0})), std::nullopt);
  EXPECT_EQ(sizes.set("a", 1, at(hours{0})), std::nullopt);
  EXPECT_EQ(sizes.set("b", 4, at(hours{1})), std::nullopt);
  EXPECT_EQ(jobs_of(sizes), (Jobs{"a", "b"}));
  sizes.set("a", 0, at(hours{2}));
  sizes.set("none", 0, at(hours{2}));
  EXPECT_EQ(jobs_of(sizes), Jobs{"b"});
  sizes.each([](const std::string&, std::uint64_t nodes) { EXPECT_EQ(nodes, 4U); });
}

TEST(JobSizes, AreStaleAfterAWeekWithoutARequest) {
  JobSizes sizes;
  sizes.set("early", 1, at(hours{0}));
  sizes.set("late", 1, at(hours{5}));
  EXPECT_EQ(sizes.stale(at(kWeek), 9), Jobs{}) << "a week to begin in";
  EXPECT_EQ(sizes.stale(at(kWeek + hours{1}), 9), Jobs{"early"});
  EXPECT_EQ(sizes.stale(at(kWeek + hours{6}), 9), (Jobs{"early", "late"}));
  EXPECT_EQ(sizes.stale(at(kWeek + hours{6}), 1), Jobs{"early"});
  sizes.used("early", at(kWeek));
  sizes.used("none", at(kWeek));
  EXPECT_EQ(sizes.stale(at(kWeek + hours{6}), 9), Jobs{"late"});
  sizes.set("late", 2, at(kWeek));
  EXPECT_EQ(sizes.stale(at(kWeek + hours{6}), 9), Jobs{});
  EXPECT_EQ(sizes.stale(at(2 * kWeek + hours{1}), 9), (Jobs{"early", "late"}));
}

TEST(JobSizes, AboveTheBoundTheLongestUnusedMakesRoom) {
  JobSizes sizes(3);
  for (const char* job : {"a", "b", "c"}) {
    EXPECT_EQ(sizes.set(job, 1, at(hours{0})), std::nullopt);
  }
  sizes.used("a", at(hours{1}));
  EXPECT_EQ(sizes.set("d", 1, at(hours{2})), "b");
  EXPECT_EQ(sizes.set("a", 2, at(hours{3})), std::nullopt) << "it has a place";
  EXPECT_EQ(sizes.set("e", 1, at(hours{4})), "c");
  EXPECT_EQ(jobs_of(sizes), (Jobs{"a", "d", "e"}));
}

}  // namespace
}  // namespace weir::control
