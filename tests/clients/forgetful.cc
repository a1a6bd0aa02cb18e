// SPDX-License-Identifier: Apache-2.0
//
// forgetful [--ignore-sync | --fail-sync=N] SIZE MOUNTPOINT [FUSE OPTION ...]
//
// A file system with one file, `disk`, that loses all data that was not synced when the process
// that has it open dies: the closest that a process can get to a power failure. `now` is the data
// that the kernel has written; `kept` is the data as of the last fsync. Opening the file starts
// with the kept data.
//
//   write --> now          fsync: now --> kept          open: kept --> now
//
// With --ignore-sync an fsync is acknowledged and ignored, as by a device that lies: a test of
// durability must fail on it. With --fail-sync=N the Nth fsync fails with EIO.
#define FUSE_USE_VERSION 31
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include <fuse.h>

namespace {

constexpr std::size_t kBlock = 4096;
constexpr std::string_view kName = "/disk";

struct Disk {
  std::vector<char> now;
  std::vector<char> kept;
  std::set<std::size_t> dirty;  // blocks in which they differ
  bool ignores_sync = false;
  unsigned long syncs = 0;
  unsigned long failing_sync = 0;  // 0: none
};
Disk disk;  // fuse runs one thread

// Copies the dirty blocks of one image to the other.
void settle(const std::vector<char>& from, std::vector<char>& to) {
  for (const std::size_t block : disk.dirty) {
    const std::size_t at = block * kBlock;
    std::memcpy(to.data() + at, from.data() + at, std::min(kBlock, from.size() - at));
  }
  disk.dirty.clear();
}

int get_attributes(const char* path, struct stat* attributes, fuse_file_info* /*file*/) {
  *attributes = {};
  if (std::string_view(path) == "/") {
    attributes->st_mode = S_IFDIR | 0755;
    attributes->st_nlink = 2;
    return 0;
  }
  if (path != kName) return -ENOENT;
  attributes->st_mode = S_IFREG | 0644;
  attributes->st_nlink = 1;
  attributes->st_size = static_cast<off_t>(disk.now.size());
  return 0;
}

int open_disk(const char* path, fuse_file_info* /*file*/) {
  if (path != kName) return -ENOENT;
  settle(disk.kept, disk.now);  // the kernel drops its cached pages with an open
  return 0;
}

int read_disk(const char* /*path*/, char* to, std::size_t size, off_t offset,
              fuse_file_info* /*file*/) {
  const auto at = std::min(static_cast<std::size_t>(offset), disk.now.size());
  const std::size_t count = std::min(size, disk.now.size() - at);
  std::memcpy(to, disk.now.data() + at, count);
  return static_cast<int>(count);
}

int write_disk(const char* /*path*/, const char* from, std::size_t size, off_t offset,
               fuse_file_info* /*file*/) {
  const auto at = static_cast<std::size_t>(offset);
  if (at > disk.now.size() || size > disk.now.size() - at) return -ENOSPC;
  std::memcpy(disk.now.data() + at, from, size);
  for (std::size_t block = at / kBlock; block * kBlock < at + size; ++block) {
    disk.dirty.insert(block);
  }
  return static_cast<int>(size);
}

// It keeps its size.
int truncate_disk(const char* /*path*/, off_t /*size*/, fuse_file_info* /*file*/) { return 0; }

int sync_disk(const char* /*path*/, int /*data_only*/, fuse_file_info* /*file*/) {
  if (++disk.syncs == disk.failing_sync) return -EIO;
  if (!disk.ignores_sync) settle(disk.now, disk.kept);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  constexpr std::string_view kFailSync = "--fail-sync=";
  const std::string_view option = arguments.size() > 1 ? arguments[1] : "";
  disk.ignores_sync = option == "--ignore-sync";
  if (option.starts_with(kFailSync)) {
    disk.failing_sync = std::strtoul(arguments[1] + kFailSync.size(), nullptr, 10);
  }
  if (disk.ignores_sync || disk.failing_sync != 0) arguments.erase(arguments.begin() + 1);
  const std::size_t size = arguments.size() < 3 ? 0 : std::strtoull(arguments[1], nullptr, 10);
  if (size == 0) {
    std::fputs(
        "usage: forgetful [--ignore-sync | --fail-sync=N] SIZE MOUNTPOINT [FUSE OPTION ...]\n",
        stderr);
    return 64;
  }
  arguments.erase(arguments.begin() + 1);
  disk.now.resize(size);
  disk.kept.resize(size);
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.open = open_disk;
  operations.read = read_disk;
  operations.write = write_disk;
  operations.truncate = truncate_disk;
  operations.fsync = sync_disk;
  return fuse_main(static_cast<int>(arguments.size()), arguments.data(), &operations, nullptr);
}
