// SPDX-License-Identifier: Apache-2.0
#include "weir/host/page_cache.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace weir::host {
namespace {

// cachestat(2), of Linux 6.5, which is newer than the system's headers.
constexpr long kCachestat = 451;
struct CacheRange {
  std::uint64_t offset, length;
};
struct CacheCounts {
  std::uint64_t cached, dirty, written_back, evicted, recently_evicted;
};

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPagesAtOnce = 512;

// A page that is still being read counts as cached: checking both ends detects most of these.
bool has_ends(int file, std::uint64_t offset, std::uint64_t length) {
  for (const std::uint64_t at : {offset, offset + length - 1}) {
    std::byte probe;
    const iovec one{&probe, 1};
    if (preadv2(file, &one, 1, static_cast<off_t>(at), RWF_NOWAIT) != 1) return false;
  }
  return true;
}

}  // namespace

PageCache::~PageCache() {
  if (!mapped_.empty()) munmap(mapped_.data(), mapped_.size());
}

bool PageCache::has(std::uint64_t offset, std::uint64_t length) {
  if (knows_cachestat_) {
    const std::uint64_t first = offset / kPage;
    const std::uint64_t last = (offset + length - 1) / kPage;
    const CacheRange range{first * kPage, (last - first + 1) * kPage};
    CacheCounts counts{};
    if (syscall(kCachestat, file_, &range, &counts, 0) == 0) {
      return counts.cached == last - first + 1 && has_ends(file_, offset, length);
    }
    // EPERM: a seccomp filter that does not know the call.
    knows_cachestat_ = errno != ENOSYS && errno != EPERM;
    if (knows_cachestat_) return false;
  }
  return is_mapped(offset, length) && has_ends(file_, offset, length);
}

bool PageCache::is_mapped(std::uint64_t offset, std::uint64_t length) {
  if (!std::exchange(is_tried_, true)) map();
  if (mapped_.empty()) return false;
  const std::uint64_t end = offset + length;
  std::array<unsigned char, kPagesAtOnce> pages;
  for (std::uint64_t at = offset / kPage * kPage; at < end; at += kPagesAtOnce * kPage) {
    const std::uint64_t bytes = std::min(end - at, kPagesAtOnce * kPage);
    if (mincore(mapped_.data() + at, bytes, pages.data()) != 0) return false;
    const std::uint64_t count = (bytes + kPage - 1) / kPage;
    const auto is_there = [](unsigned char page) { return (page & 1) != 0; };
    if (!std::all_of(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(count), is_there)) {
      return false;
    }
  }
  return true;
}

void PageCache::map() {
  const std::string path = fmt::format("/proc/self/fd/{}", file_);
  if (faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return;
  void* const memory = mmap(nullptr, size_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (memory != MAP_FAILED) mapped_ = {static_cast<unsigned char*>(memory), size_};
}

}  // namespace weir::host
