// SPDX-License-Identifier: Apache-2.0
//
// A store in a file or on a block device. A file is created on demand, sparse: it takes space for
// what was written. Trims and zeroes punch holes, and block status tells where they are.
//
//   large cached read  sent from the page cache (sendfile(2)), without a copy in this process
//   cached read        preadv2(RWF_NOWAIT), at once: no second turn of the loop for a hot page
//   above 256 KiB      copied by another thread, so that a copy does not block the loop
//   anything else      through the IoLoop, so a slow disk does not block the loop
//   file in memory     tmpfs has no "without waiting" and nothing to wait for: plain calls
//   network, FUSE      whatever is asked for may wait for ever: always another thread, and block
//                      status says data, since to ask for more would wait
//
// With direct, reads and writes go past the page cache and have to be aligned; the smallest block
// is what the file asks for. FLUSH is fdatasync(2), FUA is RWF_DSYNC: what was answered is durable.
//
// A block device discards and zeroes whole sectors. A trim is rounded inwards to them; zeroes are
// written at the edges:
//
//   asked      ....[zzz|zzzzzzzzzz|zz]....     | sectors
//   trim            ...|discarded |..          what is not discarded stays as it is
//   zeroes         [www|discarded |ww]
//
// One server at a time: the file is locked (flock(2)) as long as the store lives. A device is
// opened with O_EXCL unless it is read-only or the options say force, so a mounted device is
// rejected and a served one cannot be mounted. Both are waited for while a killed server still
// holds them (host/holder.h). A new file is created completely or not at all: with its size,
// durable, or removed again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weir/host/fd.h"
#include "weir/host/page_cache.h"
#include "weir/serve/store.h"
#include "weir/serve/sync_queue.h"

namespace weir::serve {

class FileStore : public Store {
 public:
  // EBUSY when another server or the system has it; ENOENT when it is missing and no size is given;
  // EROFS for a device that cannot be written.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options, bool read_only,
                                             host::IoLoop& io);

  std::uint64_t size() const override { return facts_.size; }
  std::uint8_t features() const override;
  std::uint32_t block_min() const override { return facts_.block_min; }
  bool copies_reads() const override { return true; }
  int sendable(std::uint64_t offset, std::uint32_t length) const override;
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, std::uint64_t length,
               const ExtentVisitor& visit) const override;

 private:
  using Copy = host::IoLoop::Copy;
  // How a file takes reads and writes.
  enum class Way : std::uint8_t {
    kLoop,    // every call may wait: ask the IoLoop
    kCached,  // a read can be tried first
    kMemory,  // no call waits
  };
  // Where an operation stands when its call to the kernel completes.
  enum Step : std::uint8_t { kMove, kPunch, kZeroes, kSync, kFetch };
  struct Range {
    std::uint64_t from = 0;
    std::uint64_t to = 0;  // from == to: empty
  };

  struct Facts {
    std::uint64_t size = 0;
    Way way = Way::kLoop;
    bool is_direct = false;
    bool is_remote = false;
    std::uint32_t block_min = 1;
    std::uint32_t granule = 1;  // what holes are punched in units of
  };
  FileStore(host::Fd file, const Facts& facts, host::IoLoop& io)
      : file_(std::move(file)), facts_(facts), io_(io), cache_(file_.get(), facts.size) {}
  static Result<Facts> inspect(int file, const StoreOptions& options, bool read_only);

  static void completed(host::Operation& io, const host::Completion& completion);
  // What follows a call that gave `result`; true when nothing does.
  bool advance(StoreOperation& operation, int result);
  bool move(StoreOperation& operation);
  bool move_here(StoreOperation& operation);
  Copy copier(std::size_t bytes) const;
  bool punch(StoreOperation& operation);
  // The whole granules of a trim or zeroes.
  Range inner(const StoreOperation& operation) const;
  bool write_zeroes(StoreOperation& operation);
  bool sync(StoreOperation& operation);
  // Of trims and zeroes: what is left to do when the bytes are.
  bool settle(StoreOperation& operation);
  bool finish(StoreOperation& operation, int error);

  host::Fd file_;
  Facts facts_;
  host::IoLoop& io_;
  mutable host::PageCache cache_;
  SyncQueue syncs_;
};

}  // namespace weir::serve
