// SPDX-License-Identifier: Apache-2.0
//
// Whether a part of a file is in the page cache, so that reading or sending it does not wait for a
// device:
//
//   PageCache cache(file, size);
//   if (cache.has(offset, length)) sendfile(...)
//
// From Linux 6.5 on, cachestat(2) answers. Before, the file is mapped without access to its bytes,
// and mincore(2) is called once for each 2 MiB. To a process that may not write the file, mincore
// reports everything as cached, so in that case this class reports nothing as cached.
//
// The answer holds for the moment: pages may leave the cache before they are used. The file must
// stay open. One thread.
#pragma once

#include <cstdint>
#include <span>

namespace weir::host {

class PageCache {
 public:
  PageCache(int file, std::uint64_t size) : file_(file), size_(size) {}
  ~PageCache();
  PageCache(const PageCache&) = delete;
  PageCache& operator=(const PageCache&) = delete;

  // REQUIRES: 0 < length, and it ends within the size.
  bool has(std::uint64_t offset, std::uint64_t length);

  // As before Linux 6.5, for tests.
  bool is_mapped(std::uint64_t offset, std::uint64_t length);

 private:
  void map();

  int file_;
  std::uint64_t size_;
  bool knows_cachestat_ = true;
  bool is_tried_ = false;            // mapping it
  std::span<unsigned char> mapped_;  // empty: it could not or must not be mapped
};

}  // namespace weir::host
