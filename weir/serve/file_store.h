// SPDX-License-Identifier: Apache-2.0
//
// A store in a file or on a block device. A file is created on demand, sparse: it takes space for
// what was written. Trims and zeroes punch holes, and block status tells where they are.
//
//   large cached read  sent from the page cache (sendfile(2)): the bytes are copied by nobody here
//   cached read        preadv2(RWF_NOWAIT), at once: no second turn of the loop for a hot page
//   anything else      through the Uring, so a slow disk stops nobody
//   file in memory     tmpfs has no "without waiting" and nothing to wait for: plain calls
//
// With direct, reads and writes go past the page cache and have to be aligned; the smallest block
// is what the file asks for. FLUSH is fdatasync(2), FUA is RWF_DSYNC: what was answered is durable.
// One server at a time: the file is locked (flock(2)) for as long as the store lives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weir/host/fd.h"
#include "weir/serve/store.h"

namespace weir::serve {

class FileStore : public Store {
 public:
  // EBUSY when another server has it; ENOENT when it is missing and no size is given.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options, bool read_only,
                                             host::Uring& uring);

  std::uint64_t size() const override { return size_; }
  std::uint16_t flags() const override;
  std::uint32_t block_min() const override { return block_min_; }
  bool copies_reads() const override { return true; }
  int sendable(std::uint64_t offset, std::uint32_t length) const override;
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, const ExtentVisitor& visit) const override;

 private:
  // How a file takes reads and writes.
  enum class Way : std::uint8_t {
    kRing,    // every call may wait: ask the ring
    kCached,  // a read can be tried first
    kMemory,  // no call waits
  };
  // Where an operation stands when its call to the kernel completes.
  enum Step : std::uint8_t { kMove, kPunch, kZeroes, kSync };

  FileStore(host::Fd file, std::uint64_t size, Way way, std::uint32_t block_min, host::Uring& uring)
      : file_(std::move(file)), size_(size), way_(way), block_min_(block_min), uring_(uring) {}

  static void completed(host::Operation& io, const host::Completion& completion);
  // What follows a call that gave `result`; true when nothing does.
  bool advance(StoreOperation& operation, int result);
  bool move(StoreOperation& operation);
  bool move_here(StoreOperation& operation);
  bool write_zeroes(StoreOperation& operation);
  bool finish(StoreOperation& operation, int error);

  host::Fd file_;
  std::uint64_t size_;
  Way way_;
  std::uint32_t block_min_;
  host::Uring& uring_;
};

}  // namespace weir::serve
