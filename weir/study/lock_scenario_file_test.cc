// SPDX-License-Identifier: Apache-2.0
#include "weir/study/lock_scenario_file.h"

#include <string>

#include <gtest/gtest.h>

namespace weir::study {
namespace {

using namespace std::chrono_literals;

std::string error_of(std::string_view text) {
  const auto read = parse_lock_scenario(text, "s.toml");
  return read ? "" : read.error().message();
}

TEST(LockScenarioFile, IsToldFromScenariosOfStorage) {
  EXPECT_TRUE(is_lock_scenario("[locks]\n"));
  EXPECT_TRUE(is_lock_scenario("title = \"x\"\n[locks]\nlimit = 5\n"));
  EXPECT_FALSE(is_lock_scenario("[target]\ncapacity = 5\n"));
  EXPECT_FALSE(is_lock_scenario("[locks"));
  EXPECT_FALSE(is_lock_scenario(""));
}

TEST(LockScenarioFile, ReadsEveryKey) {
  const auto read = parse_lock_scenario(R"(title = "all"
length = "90s"
[locks]
limit = 500
clients = 7
rate = 11
working_set = 3
settled = "30s"
until = "80s"
delay = "2ms"
lease = "8s"
grace = "12s"
common_locks = 4
common_rate = 5
hold = "10ms"
appetites = ["zipf", "pareto"]
policies = ["weir", "lru-25", "frozen"]
hoarders = 1
crashes = ["10s", "20s"]
down = "1s"
reconnect = "3s"
vanish = 2
vanish_at = "40s"
drop_all = ["50s"]
)",
                                        "s.toml");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->title, "all");
  EXPECT_EQ(read->length, 90s);
  EXPECT_EQ(read->limit, 500);
  EXPECT_EQ(read->clients, 7U);
  EXPECT_EQ(read->rate, 11U);
  EXPECT_EQ(read->working_set, 3U);
  EXPECT_EQ(read->settled, 30s);
  EXPECT_EQ(read->until, 80s);
  EXPECT_EQ(read->delay, 2ms);
  EXPECT_EQ(read->lease, 8s);
  EXPECT_EQ(read->grace, 12s);
  EXPECT_EQ(read->common_locks, 4U);
  EXPECT_EQ(read->common_rate, 5U);
  EXPECT_EQ(read->hold, 10ms);
  EXPECT_EQ(read->appetites, (std::vector{sim::Appetite::kZipf, sim::Appetite::kPareto}));
  ASSERT_EQ(read->contenders.size(), 3U);
  EXPECT_EQ(read->contenders[1].fixed_size, 25U);
  EXPECT_TRUE(read->contenders[2].is_frozen);
  EXPECT_EQ(read->hoarders, 1U);
  EXPECT_EQ(read->crashes, (std::vector<Nanoseconds>{10s, 20s}));
  EXPECT_EQ(read->down, 1s);
  EXPECT_EQ(read->reconnect, 3s);
  EXPECT_EQ(read->vanish, 2U);
  EXPECT_EQ(read->vanish_at, 40s);
  EXPECT_EQ(read->drop_all, std::vector<Nanoseconds>{50s});
}

TEST(LockScenarioFile, WhatIsNotSaidIsAsInTheHeader) {
  const auto read = parse_lock_scenario("[locks]\n", "s.toml");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->limit, 100'000);
  EXPECT_EQ(read->clients, 1000U);
  EXPECT_EQ(read->appetites, std::vector{sim::Appetite::kEqual});
  EXPECT_EQ(read->contenders.size(), 3U);
  EXPECT_EQ(read->settled, 60s);
}

TEST(LockScenarioFile, TellsMistakesWithTheirPlace) {
  EXPECT_EQ(error_of("[locks]\nlimit = 0\n"),
            "s.toml:2:9: locks: limit must be a whole number from 1 to 1000000000");
  EXPECT_NE(error_of("[locks]\nclinets = 5\n").find("did you mean clients?"), std::string::npos);
  EXPECT_NE(error_of("[locks]\nappetites = [\"huge\"]\n").find("'huge' is not valid"),
            std::string::npos);
  EXPECT_NE(error_of("[locks]\npolicies = [\"lru-0\"]\n").find("'lru-0' is not valid"),
            std::string::npos);
  EXPECT_NE(error_of("[locks]\ncrashes = [\"soon\"]\n").find("invalid time"), std::string::npos);
  EXPECT_NE(error_of("[locks]\nlease = \"-1s\"\n"), "");
  EXPECT_NE(error_of("[locks]\nclients = 5\nhoarders = 6\n").find("s.toml: "), std::string::npos);
  EXPECT_NE(error_of("[locks"), "");
  EXPECT_NE(error_of("length = \"1ms\"\n[locks]\n"), "");
}

}  // namespace
}  // namespace weir::study
