// SPDX-License-Identifier: Apache-2.0
#include "weir/host/state_file.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace weir::host {
namespace {

namespace fs = std::filesystem;

class StateFileTest : public testing::Test {
 protected:
  StateFileTest() {
    std::string pattern = testing::TempDir() + "weir-state-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~StateFileTest() override { fs::remove_all(folder_); }

  std::string path(const std::string& name = "state") const { return folder_ + "/" + name; }
  std::string content() const {
    std::ifstream in(path());
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string folder_;
};

TEST_F(StateFileTest, ANewFileIsThereWhenItHoldsWhatWasWritten) {
  {
    StateFile file = *StateFile::open(path());
    EXPECT_TRUE(file.is_new());
    EXPECT_EQ(file.text(), "");
    EXPECT_FALSE(fs::exists(path()));
    ASSERT_TRUE(file.replace("one"));
    EXPECT_EQ(content(), "one");
    ASSERT_TRUE(file.replace("two"));
    EXPECT_EQ(content(), "two");
  }
  const StateFile again = *StateFile::open(path());
  EXPECT_FALSE(again.is_new());
  EXPECT_EQ(again.text(), "two");
}

TEST_F(StateFileTest, AFileThatWasEmptiedIsNotNew) {
  std::ofstream(path()) << "";
  const StateFile file = *StateFile::open(path());
  EXPECT_FALSE(file.is_new());
  EXPECT_EQ(file.text(), "");
}

TEST_F(StateFileTest, IsReadByItsOwnerAloneIfToldSo) {
  std::ofstream(path("state.new")) << "left by a crash, for all to read";
  StateFile file = *StateFile::open(path(), StateFile::Readers::kOwner);
  for (const char* const text : {"one", "two"}) {
    ASSERT_TRUE(file.replace(text));
    EXPECT_EQ(fs::status(path()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
}

TEST_F(StateFileTest, HasOneUserAtATimeAlsoAfterItWasReplaced) {
  StateFile file = *StateFile::open(path());
  EXPECT_EQ(StateFile::open(path()).error().code, std::errc::device_or_resource_busy);
  ASSERT_TRUE(file.replace("one"));
  EXPECT_EQ(StateFile::open(path()).error().code, std::errc::device_or_resource_busy);
}

TEST_F(StateFileTest, WhatACrashLeftBesideItIsOverwritten) {
  std::ofstream(path("state.new")) << "half a sta";
  StateFile file = *StateFile::open(path());
  ASSERT_TRUE(file.replace("whole"));
  EXPECT_EQ(content(), "whole");
  EXPECT_FALSE(fs::exists(path("state.new")));
}

TEST_F(StateFileTest, AFailedReplaceLeavesTheOldText) {
  StateFile file = *StateFile::open(path());
  ASSERT_TRUE(file.replace("old"));
  fs::create_directory(path("state.new"));  // blocks the temporary file
  EXPECT_FALSE(file.replace("new"));
  EXPECT_EQ(content(), "old");
}

TEST_F(StateFileTest, RefusesWhatIsNoSmallPlainFile) {
  fs::create_directory(path("folder"));
  EXPECT_EQ(StateFile::open(path("folder")).error().code, std::errc::is_a_directory);
  EXPECT_EQ(StateFile::open(path("none/state")).error().code, std::errc::no_such_file_or_directory);
  EXPECT_EQ(StateFile::open("/dev/null").error().code, std::errc::invalid_argument);
  std::ofstream(path()) << std::string(StateFile::kSizeMax + 1, 'x');
  EXPECT_EQ(StateFile::open(path()).error().code, std::errc::file_too_large);
}

}  // namespace
}  // namespace weir::host
