// SPDX-License-Identifier: Apache-2.0
//
// A store in a file or on a block device. A missing file is created as a sparse file: it takes
// space only for written data. Trims and zeroes punch holes, and block status reports them.
//
//   large cached read  sent from the page cache (sendfile(2)), without a copy in this process
//   cached read        preadv2(RWF_NOWAIT), at once: no second turn of the loop for a cached page
//   above 256 KiB      copied by another thread, so that a copy does not block the loop
//   anything else      through the IoLoop, so that a slow disk does not block the loop
//   file in memory     tmpfs does not support RWF_NOWAIT and never waits: plain calls
//   network, FUSE      any call may wait for ever: always another thread, and block status reports
//                      data, since asking for more could wait
//
// With direct, reads and writes bypass the page cache and must be aligned; the minimum block is
// that of the file. FLUSH is fdatasync(2), FUA is RWF_DSYNC: acknowledged data is durable.
//
// A block device discards and zeroes whole sectors. A trim is rounded inwards to them; zeroes are
// written at the edges:
//
//   request    ....[zzz|zzzzzzzzzz|zz]....     | sectors
//   trim            ...|discarded |..          the rest is unchanged
//   zeroes         [www|discarded |ww]
//
// One server at a time: the file is locked (flock(2)) as long as the store exists. A device is
// opened with O_EXCL unless it is read-only or force is given, so a mounted device is rejected and
// a served one cannot be mounted. If a killed server still holds it, the store waits
// (host/holder.h). A new file is created with its size and synced, or removed again on failure.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "weir/host/fd.h"
#include "weir/host/mutex.h"
#include "weir/host/page_cache.h"
#include "weir/serve/store.h"
#include "weir/serve/sync_queue.h"

namespace weir::serve {

class FileStore : public Store {
 public:
  // EBUSY: another server or the system uses it; ENOENT: it is missing and no size is given; EROFS:
  // the device is not writable.
  static Result<std::unique_ptr<Store>> open(const StoreOptions& options, bool read_only,
                                             host::IoLoop& io);

  std::unique_ptr<Store> share(host::IoLoop& io) override;
  void set_listener(StoreListener& listener) override { listener_ = &listener; }
  std::uint64_t size() const override { return facts_.size; }
  std::uint8_t features() const override;
  std::uint32_t block_min() const override { return facts_.block_min; }
  bool copies_reads() const override { return true; }
  int sendable(std::uint64_t offset, std::uint32_t length) const override;
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, std::uint64_t length,
               const ExtentVisitor& visit) const override;
  // Instant::min() while there are syncs that other loops released.
  Instant wakes_at() const override { return has_released_ ? Instant::min() : kNever; }
  void wake(Instant now) override;

 private:
  using Copy = host::IoLoop::Copy;
  // How a file handles reads and writes.
  enum class Way : std::uint8_t {
    kLoop,    // every call may block: use the IoLoop
    kCached,  // a read can be tried first
    kMemory,  // no call blocks
  };
  // The step of an operation when its call to the kernel completes.
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
    std::uint32_t granule = 1;  // unit in which holes are punched
  };
  using Released = Ring<StoreOperation, &StoreOperation::queue>;
  // The open file, which all loops have in common.
  struct Shared {
    explicit Shared(host::Fd opened) : file(std::move(opened)) {}

    const host::Fd file;
    host::Mutex mutex;
    SyncQueue syncs ABSL_GUARDED_BY(mutex);
  };

  FileStore(std::shared_ptr<Shared> shared, const Facts& facts, host::IoLoop& io)
      : shared_(std::move(shared)),
        file_(shared_->file.get()),
        facts_(facts),
        io_(io),
        cache_(file_, facts.size) {}
  static Result<Facts> inspect(int file, const StoreOptions& options, bool read_only);

  static void completed(host::Operation& io, const host::Completion& completion);
  // The next step after a call with this `result`; true if there is none.
  bool advance(StoreOperation& operation, int result);
  bool move(StoreOperation& operation);
  bool move_here(StoreOperation& operation);
  Copy copier(std::size_t bytes) const;
  bool punch(StoreOperation& operation);
  // The whole granules of a trim or of zeroes.
  Range inner(const StoreOperation& operation) const;
  bool write_zeroes(StoreOperation& operation);
  bool sync(StoreOperation& operation);
  void begin_sync(StoreOperation& operation);
  // Answers syncs that need not wait any longer: those of this loop here, others there.
  void release_syncs();
  // For trims and zeroes: the remaining steps when the bytes are done.
  bool settle(StoreOperation& operation);
  bool finish(StoreOperation& operation, int error);

  std::shared_ptr<Shared> shared_;
  int file_;
  Facts facts_;
  host::IoLoop& io_;
  mutable host::PageCache cache_;
  StoreListener* listener_ = nullptr;
  Released released_;  // guarded by Shared::mutex
  std::atomic<bool> has_released_ = false;
};

}  // namespace weir::serve
