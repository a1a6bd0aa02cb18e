// SPDX-License-Identifier: Apache-2.0
#include "weir/host/page_cache.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "weir/host/fd.h"

namespace weir::host {
namespace {

constexpr std::size_t kBytes = std::size_t{5} << 20;  // more than one call of mincore(2)

Fd make_file() {
  std::string path = testing::TempDir() + "weir_cache_XXXXXX";
  Fd file(mkostemp(path.data(), O_CLOEXEC));
  unlink(path.c_str());
  const std::vector<char> bytes(kBytes, 'x');
  EXPECT_EQ(write(file.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(kBytes));
  return file;
}

bool is_in_memory(const Fd& file) {
  struct statfs system {};
  return fstatfs(file.get(), &system) == 0 && system.f_type == TMPFS_MAGIC;
}

TEST(PageCache, HasWhatWasWrittenAndNotWhatWasDropped) {
  const Fd file = make_file();
  if (is_in_memory(file)) GTEST_SKIP() << "a file in memory stays there";
  PageCache cache(file.get(), kBytes);
  const auto both = [&](std::uint64_t offset, std::uint64_t length) {
    const bool has = cache.has(offset, length);
    EXPECT_EQ(cache.is_mapped(offset, length), has) << offset << " " << length;
    return has;
  };
  EXPECT_TRUE(both(0, kBytes));
  EXPECT_TRUE(both(1, 1));
  EXPECT_TRUE(both(kBytes - 1, 1));
  EXPECT_TRUE(both(4095, 2));
  // Without read-ahead, pages can be dropped and read one by one.
  ASSERT_EQ(fdatasync(file.get()), 0);
  ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  ASSERT_EQ(posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM), 0);
  EXPECT_FALSE(both(0, kBytes));
  EXPECT_FALSE(both(kBytes - 1, 1));
  std::vector<char> bytes(kBytes - (1 << 19));  // into the part of the third call
  ASSERT_EQ(pread(file.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  EXPECT_TRUE(both(0, bytes.size()));
  EXPECT_FALSE(both(0, kBytes));
  EXPECT_FALSE(both(bytes.size() - 1, 4097));
}

TEST(PageCache, AHoleIsNotCached) {
  const Fd file = make_file();
  if (is_in_memory(file)) GTEST_SKIP() << "a file in memory stays there";
  ASSERT_EQ(ftruncate(file.get(), 2 * kBytes), 0);
  PageCache cache(file.get(), 2 * kBytes);
  EXPECT_TRUE(cache.is_mapped(0, kBytes));
  EXPECT_FALSE(cache.is_mapped(kBytes, kBytes));
  EXPECT_FALSE(cache.has(kBytes, 4096));
}

// The kernel reports everything as cached.
TEST(PageCache, SaysNothingAboutFilesThatMayNotBeWritten) {
  if (geteuid() == 0) {
    const Fd file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    PageCache cache(file.get(), 4096);
    // Root may write everything, except a running program.
    EXPECT_EQ(cache.is_mapped(0, 4096),
              faccessat(AT_FDCWD, "/proc/self/exe", W_OK, AT_EACCESS) == 0);
    return;
  }
  const Fd file(open("/bin/sh", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(file.is_open());
  PageCache cache(file.get(), 4096);
  EXPECT_FALSE(cache.is_mapped(0, 4096));
}

}  // namespace
}  // namespace weir::host
