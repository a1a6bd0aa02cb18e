// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/cluster_state.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace weir::cluster {
namespace {

SharedRule rule(const std::string& service, const std::string& name, const std::string& command) {
  return {.service = service,
          .name = name,
          .changes = {parse_rule(command).value()},
          .created = 12,
          .modified = 40};
}

ClusterState whole() {
  ClusterState state{.prefix = "/weir", .history = 0x9f3c07d1a2b4e586, .revision = 57};
  state.members = 3;
  state.rules = {rule("ost_io", "wide", "start wide jobid={*} rate=1500 by=rule scope=cluster"),
                 rule("ost_io", "dd", "start dd jobid={dd.*} bps=2MB scope=cluster")};
  state.rules[0].changes.push_back(parse_rule("change wide rate=2000").value());
  return state;
}

TEST(ClusterState, IsReadAsItWasWritten) {
  for (const ClusterState& state : {whole(), ClusterState{.prefix = "/a/b"}}) {
    const auto read = parse_cluster_state(print_cluster_state(state));
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, state);
  }
}

TEST(ClusterState, ThatThereAreNoRulesIsKnownToo) {
  ClusterState state{.prefix = "/weir"};
  EXPECT_FALSE(state.knows_rules());
  state.revision = 1;
  EXPECT_TRUE(state.knows_rules());
}

TEST(ClusterState, EveryCutAndEveryFlippedBitIsDamage) {
  const std::string text = print_cluster_state(whole());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(parse_cluster_state(text.substr(0, size))) << size;
  }
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(parse_cluster_state(flipped)) << bit;
  }
  EXPECT_FALSE(parse_cluster_state(text + "\n"));
  EXPECT_FALSE(parse_cluster_state(std::string(4096, '\0')));
}

TEST(ClusterState, RulesThatCouldNotBeReadAgainAreLeftOut) {
  ClusterState state = whole();
  state.rules.push_back(rule("a\nb", "x", "start x jobid={*} rate=5 scope=cluster"));
  const auto read = parse_cluster_state(print_cluster_state(state));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, whole());
}

TEST(ClusterState, TheRevisionDecides) {
  const ClusterState state = whole();
  EXPECT_TRUE(state.is_followed_by(state.history, 57));
  EXPECT_TRUE(state.is_followed_by(state.history, 58));
  EXPECT_FALSE(state.is_followed_by(state.history, 56)) << "it has lost what it knew";
  EXPECT_FALSE(state.is_followed_by(1, 100)) << "another history";
  EXPECT_TRUE(ClusterState{}.is_followed_by(1, 1)) << "nothing is known yet";
}

class ClusterStateFileTest : public testing::Test {
 protected:
  ClusterStateFileTest() {
    std::string name = testing::TempDir() + "cluster_state.XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ / "state";
  }
  ~ClusterStateFileTest() override { std::filesystem::remove_all(folder_); }

  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(ClusterStateFileTest, WhatIsKeptIsThereAfterARestart) {
  {
    auto file = ClusterStateFile::open(path_, "/weir");
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_FALSE(file->state().knows_rules());
    ASSERT_TRUE(file->keep(whole()));
  }
  auto file = ClusterStateFile::open(path_, "/weir");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->state(), whole());
}

TEST_F(ClusterStateFileTest, TheSameIsNotWrittenAgain) {
  auto file = ClusterStateFile::open(path_, "/weir");
  ASSERT_TRUE(file && file->keep(whole()));
  std::filesystem::remove(path_);
  ASSERT_TRUE(file->keep(whole()));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ClusterStateFileTest, DamageIsRefusedWithTheFileAndTheCure) {
  for (const std::string& damage :
       {std::string("garbage\n"), print_cluster_state(whole()).substr(0, 60),
        std::string(100, '\0'), std::string()}) {
    write(damage);
    const auto file = ClusterStateFile::open(path_, "/weir");
    ASSERT_FALSE(file);
    EXPECT_NE(file.error().message().find(path_.string()), std::string::npos);
    EXPECT_NE(file.error().message().find("remove it"), std::string::npos);
    EXPECT_EQ(text(), damage) << "it is left as it was";
  }
}

TEST_F(ClusterStateFileTest, TheStateOfAnotherClusterIsRefused) {
  write(print_cluster_state(whole()));
  const auto file = ClusterStateFile::open(path_, "/other");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message().find("'/weir'"), std::string::npos);
  EXPECT_EQ(text(), print_cluster_state(whole()));
}

TEST_F(ClusterStateFileTest, TwoServersDoNotShareAFile) {
  const auto first = ClusterStateFile::open(path_, "/weir");
  ASSERT_TRUE(first);
  const auto second = ClusterStateFile::open(path_, "/weir");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
}

TEST_F(ClusterStateFileTest, AFolderThatIsNotThereIsToldAtTheStart) {
  const auto file = ClusterStateFile::open(folder_ / "missing" / "state", "/weir");
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().message().find("missing"), std::string::npos);
}

// A state that could not be written is still in effect, and is written when there is room again.
TEST_F(ClusterStateFileTest, AWriteThatFailedIsRepeated) {
  auto file = ClusterStateFile::open(path_, "/weir");
  ASSERT_TRUE(file);
  std::filesystem::create_directory(path_.string() + ".new");
  EXPECT_FALSE(file->keep(whole()));
  EXPECT_EQ(file->state(), whole());
  std::filesystem::remove(path_.string() + ".new");
  EXPECT_TRUE(file->keep(whole()));
  EXPECT_EQ(text(), print_cluster_state(whole()));
}

}  // namespace
}  // namespace weir::cluster
