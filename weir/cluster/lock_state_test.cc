// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_state.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

namespace weir::cluster {
namespace {

namespace fs = std::filesystem;

host::Key some_key() {
  host::Key key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(7 * i + 1);
  return key;
}

TEST(LockState, ReadsWhatItWrote) {
  for (const LockState state : {LockState{1, false, some_key()}, LockState{7, true, some_key()},
                                LockState{1048575, false, host::Key{}}}) {
    const auto read = parse_lock_state(print_lock_state(state));
    ASSERT_TRUE(read);
    EXPECT_EQ(*read, state);
  }
}

TEST(LockState, ReadsWhatOlderServersAndAdministratorsWrote) {
  EXPECT_EQ(*parse_lock_state("incarnation 7\nclean 1\n"), (LockState{7, true}));
  EXPECT_EQ(*parse_lock_state("incarnation 7\nclean 0\n"), (LockState{7, false}));
  EXPECT_EQ(*parse_lock_state("incarnation 99 by hand\n"), (LockState{99, false}));
}

TEST(LockState, RefusesWhatItCannotHaveWritten) {
  for (const std::string text :
       {"", "\n", "7", "incarnation 7\n", "incarnation 0\nclean 1\n", "incarnation 07\nclean 1\n",
        "incarnation 1048576\nclean 1\n", "incarnation 7\nclean 2\n", "incarnation 7\nclean 1\n ",
        "incarnation -1\nclean 1\n", "incarnation 7 by hand", "incarnation 0 by hand\n",
        "weir lock state 2\nincarnation 7 by hand\n", "weir lock state 2\nincarnation 7\nclean 1\n",
        "weir lock state 2\nincarnation 7\nclean 1\nkey 00\n"}) {
    EXPECT_FALSE(parse_lock_state(text)) << text;
  }
}

TEST(LockState, RefusesEveryPartOfWhatItWrote) {
  const std::string whole = print_lock_state({123456, false, some_key()});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(parse_lock_state(whole.substr(0, size))) << size;
  }
  EXPECT_FALSE(parse_lock_state(std::string(whole.size(), '\0')));
}

class LockStateFiles : public testing::Test {
 protected:
  LockStateFiles() {
    std::string pattern = testing::TempDir() + "weir-lock-state-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~LockStateFiles() override { fs::remove_all(folder_); }

  // With a quote character, so that a repair command that does not quote names is detected.
  std::string path() const { return folder_ + "/it's the state"; }
  std::string copy() const { return path() + ".copy"; }
  std::uint64_t start() const {
    const auto begun = LockStateFile::begin(path());
    EXPECT_TRUE(begun) << begun.error().message();
    return begun ? begun->incarnation() : 0;
  }
  // The command that an administrator would paste from the error message.
  int run_cure() const {
    const auto refused = LockStateFile::begin(path());
    EXPECT_FALSE(refused);
    const std::string& hint = refused.error().hint;
    const auto begin = hint.find("run: ") + 5;
    return std::system(hint.substr(begin, hint.find("; otherwise") - begin).c_str());
  }
  static void write(const std::string& name, const std::string& text) {
    std::ofstream(name, std::ios::trunc) << text;
  }

 private:
  std::string folder_;
};

TEST_F(LockStateFiles, EachStartCountsAndKeepsItsKey) {
  host::Key key;
  {
    auto first = LockStateFile::begin(path());
    ASSERT_TRUE(first);
    EXPECT_EQ(first->incarnation(), 1U);
    EXPECT_TRUE(first->was_clean());
    key = first->key();
    EXPECT_NE(key, host::Key{});
    EXPECT_EQ(LockStateFile::begin(path()).error().code, std::errc::device_or_resource_busy);
  }
  {
    auto second = LockStateFile::begin(path());
    ASSERT_TRUE(second);
    EXPECT_EQ(second->incarnation(), 2U);
    EXPECT_FALSE(second->was_clean());
    EXPECT_EQ(second->key(), key);
    second->leave();
  }
  const auto third = LockStateFile::begin(path());
  EXPECT_EQ(third->incarnation(), 3U);
  EXPECT_TRUE(third->was_clean());
}

TEST_F(LockStateFiles, TheTermsOfAClusterAreKept) {
  host::Key shared{};
  shared[31] = std::byte{7};
  {
    auto first = LockStateFile::begin(path());
    ASSERT_TRUE(first);
    ASSERT_TRUE(first->follow(40, shared));
    EXPECT_EQ(first->incarnation(), 40U);
    ASSERT_TRUE(first->follow(39, shared));  // never lower
    EXPECT_EQ(first->incarnation(), 40U);
  }
  const auto second = LockStateFile::begin(path());
  ASSERT_TRUE(second);
  EXPECT_EQ(second->incarnation(), 41U);
  EXPECT_EQ(second->key(), shared);
  EXPECT_FALSE(second->was_clean());
}

TEST_F(LockStateFiles, NobodyElseReadsTheKey) {
  start();
  for (const std::string& name : {path(), copy()}) {
    struct stat status;
    ASSERT_EQ(stat(name.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U) << name;
  }
}

TEST_F(LockStateFiles, DamageIsRefusedAndItsCureWorksAndCountsOn) {
  std::uint64_t last = start();
  std::ifstream in(path());
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (const std::string& text :
       {std::string(), whole.substr(0, 30), whole.substr(0, whole.size() - 1),
        std::string("incarnation 1\n"), std::string(whole.size(), '\0')}) {
    write(path(), text);
    EXPECT_EQ(run_cure(), 0) << text;
    const std::uint64_t next = start();
    EXPECT_GT(next, last);
    last = next;
  }
  fs::remove(path());
  EXPECT_EQ(run_cure(), 0);
  EXPECT_GT(start(), last);
}

TEST_F(LockStateFiles, WithTheCopyLostTooTheCureCountsFromFarAhead) {
  const std::uint64_t last = start();
  write(path(), "");
  write(copy(), "");
  EXPECT_EQ(run_cure(), 0);
  EXPECT_GT(start(), last);
  EXPECT_EQ(start(), (1U << 19) + 2);
}

TEST_F(LockStateFiles, OfTwoTheLargerNumberCounts) {
  start();
  fs::copy_file(path(), path() + ".old");
  start();
  start();
  // A restored old file does not lower the number.
  fs::copy_file(path() + ".old", path(), fs::copy_options::overwrite_existing);
  EXPECT_EQ(start(), 4U);
  fs::remove(copy());
  EXPECT_EQ(start(), 5U);
  write(copy(), "damaged");
  EXPECT_EQ(start(), 6U);
}

TEST_F(LockStateFiles, AFileOfAnOlderServerGoesOn) {
  write(path(), "incarnation 7\nclean 1\n");
  const auto begun = LockStateFile::begin(path());
  ASSERT_TRUE(begun);
  EXPECT_EQ(begun->incarnation(), 8U);
  EXPECT_TRUE(begun->was_clean());
}

}  // namespace
}  // namespace weir::cluster
