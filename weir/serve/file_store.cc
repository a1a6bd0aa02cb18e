// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/file_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::serve {
namespace {

constexpr std::uint32_t kZeroesAtOnce = 1U << 20;
constexpr std::uint32_t kDirectBlock = 4096;  // where the file does not say

// Aligned as O_DIRECT wants memory to be.
std::span<const std::byte> zeroes(std::size_t bytes) {
  alignas(kDirectBlock) static std::array<std::byte, kZeroesAtOnce> nothing;
  return std::span(nothing).first(bytes);
}

StoreOperation& operation_of(host::Operation& io) {
  return *reinterpret_cast<StoreOperation*>(reinterpret_cast<std::byte*>(&io) -
                                            offsetof(StoreOperation, io));
}

Result<std::uint64_t> size_of(int file, const StoreOptions& options) {
  const std::string where = quote(options.path);
  struct stat status {};
  if (fstat(file, &status) != 0) return fail_errno(errno, where);
  if (S_ISBLK(status.st_mode)) {
    std::uint64_t size = 0;
    if (ioctl(file, BLKGETSIZE64, &size) != 0) return fail_errno(errno, where);
    return size;
  }
  if (options.kind == StoreOptions::Kind::kDevice || !S_ISREG(status.st_mode)) {
    return fail(
        std::errc::invalid_argument, where,
        options.kind == StoreOptions::Kind::kDevice ? "is no block device" : "is no regular file",
        "expected file:PATH of a file, or device:PATH of a block device");
  }
  auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0 && options.size) {
    size = options.size->count();
    if (ftruncate(file, static_cast<off_t>(size)) != 0) return fail_errno(errno, where);
  }
  if (size == 0) {
    return fail(std::errc::invalid_argument, where, "is empty", "give it a size: ,size=4GiB");
  }
  if (options.size && options.size->count() != size) {
    return fail(std::errc::invalid_argument, where,
                fmt::format("has {}, not the size that was given", print_size(Bytes{size})),
                "leave size= out, or remove the file");
  }
  return size;
}

std::uint32_t direct_block(int file) {
  struct statx status {};
#ifdef STATX_DIOALIGN
  if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_offset_align != 0) {
    return status.stx_dio_offset_align;
  }
#else
  static_cast<void>(status);
  int sector = 0;
  if (ioctl(file, BLKSSZGET, &sector) == 0 && sector > 0) return static_cast<std::uint32_t>(sector);
#endif
  return kDirectBlock;
}

bool is_in_memory(int file) {
  struct statfs system {};
  return fstatfs(file, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

bool can_try(int file) {
  std::byte probe;
  const iovec one{&probe, 1};
  return preadv2(file, &one, 1, 0, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

// cachestat(2), of Linux 6.5, which is newer than the system's headers. ENOSYS before: not cached.
constexpr long kCachestat = 451;
constexpr std::uint64_t kPage = 4096;
struct CacheRange {
  std::uint64_t offset, length;
};
struct CacheCounts {
  std::uint64_t cached, dirty, written_back, evicted, recently_evicted;
};

bool is_cached(int file, std::uint64_t offset, std::uint32_t length) {
  const std::uint64_t first = offset / kPage;
  const std::uint64_t last = (offset + length - 1) / kPage;
  const CacheRange range{first * kPage, (last - first + 1) * kPage};
  CacheCounts counts{};
  if (syscall(kCachestat, file, &range, &counts, 0) != 0) return false;
  if (counts.cached != last - first + 1) return false;
  // A page that is still being read counts as cached: the ends tell of most.
  for (const std::uint64_t at : {offset, offset + length - 1}) {
    std::byte probe;
    const iovec one{&probe, 1};
    if (preadv2(file, &one, 1, static_cast<off_t>(at), RWF_NOWAIT) != 1) return false;
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<Store>> FileStore::open(const StoreOptions& options, bool read_only,
                                               host::Uring& uring) {
  const std::string where = quote(options.path);
  const bool creates = options.kind == StoreOptions::Kind::kFile && options.size && !read_only;
  const int flags = (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | (creates ? O_CREAT : 0) |
                    (options.direct ? O_DIRECT : 0);
  // When a page was last read is nobody's business here, and keeping it costs each read. Only the
  // file's owner may do without.
  host::Fd file(::open(options.path.c_str(), flags | O_NOATIME, 0600));
  if (!file.is_open() && errno == EPERM) file = host::Fd(::open(options.path.c_str(), flags, 0600));
  if (!file.is_open()) {
    const bool missing = errno == ENOENT && !options.size;
    return fail_errno(errno, where,
                      missing          ? "give it a size, and it is created: ,size=4GiB"
                      : options.direct ? "see whether it can be opened, and without direct"
                                       : "");
  }
  if (flock(file.get(), (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    return fail(std::errc::device_or_resource_busy, where, "another server has it",
                "stop that one, or export it readonly in both");
  }
  const auto size = size_of(file.get(), options);
  if (!size) return tl::unexpected(size.error());
  const std::uint32_t block = options.direct ? direct_block(file.get()) : 1;
  const Way way = options.direct             ? Way::kRing
                  : is_in_memory(file.get()) ? Way::kMemory
                  : can_try(file.get())      ? Way::kCached
                                             : Way::kRing;
  return std::unique_ptr<Store>(
      new FileStore(std::move(file), *size / block * block, way, block, uring));
}

std::uint16_t FileStore::flags() const {
  return nbd::kSendFlush | nbd::kSendFua | nbd::kSendTrim | nbd::kSendWriteZeroes |
         nbd::kSendFastZero | nbd::kSendCache | nbd::kCanMultiConn;
}

// One that was made shorter is left to a read, which says so to the client.
int FileStore::sendable(std::uint64_t offset, std::uint32_t length) const {
  if (way_ == Way::kRing) return -1;
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) < offset + length) {
    return -1;
  }
  if (way_ == Way::kCached && !is_cached(file_.get(), offset, length)) return -1;
  return file_.get();
}

bool FileStore::start(StoreOperation& operation, Instant /*now*/) {
  operation.error = 0;
  if (operation.file >= 0) return true;
  operation.store = this;
  operation.io.done = completed;
  operation.moved = 0;
  switch (operation.command) {
    case nbd::Command::kRead:
      operation.data = operation.buffer;
      [[fallthrough]];
    case nbd::Command::kWrite:
      operation.step = kMove;
      return way_ == Way::kRing ? move(operation) : move_here(operation);
    case nbd::Command::kTrim:
    case nbd::Command::kWriteZeroes: {
      operation.step = kPunch;
      const bool keeps = (operation.flags & nbd::kNoHole) != 0;
      uring_.allocate(file_.get(),
                      (keeps ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE) | FALLOC_FL_KEEP_SIZE,
                      operation.offset, operation.length, operation.io);
      return false;
    }
    case nbd::Command::kFlush:
      operation.step = kSync;
      uring_.sync_data(file_.get(), operation.io);
      return false;
    case nbd::Command::kCache:
      operation.step = kSync;
      uring_.fetch(file_.get(), operation.offset, operation.length, operation.io);
      return false;
    default:
      WEIR_ASSERT(false, static_cast<int>(operation.command));
      return true;
  }
}

// Asks the ring for what is left of a read or write.
bool FileStore::move(StoreOperation& operation) {
  const std::span<std::byte> rest = operation.buffer.subspan(operation.moved);
  const std::uint64_t offset = operation.offset + operation.moved;
  if (operation.command == nbd::Command::kRead) {
    uring_.read(file_.get(), rest, offset, operation.io);
  } else {
    uring_.write(file_.get(), rest, offset, (operation.flags & nbd::kFua) != 0 ? RWF_DSYNC : 0,
                 operation.io);
  }
  return false;
}

// As much as can be had without waiting; the ring does the rest.
bool FileStore::move_here(StoreOperation& operation) {
  const std::span<std::byte> whole = operation.buffer;
  const auto offset = static_cast<off_t>(operation.offset);
  ssize_t moved = 0;
  if (operation.command == nbd::Command::kRead && way_ == Way::kCached) {
    const iovec one{whole.data(), whole.size()};
    moved = preadv2(file_.get(), &one, 1, offset, RWF_NOWAIT);
  } else if (operation.command == nbd::Command::kRead) {
    moved = pread(file_.get(), whole.data(), whole.size(), offset);
  } else if (way_ == Way::kMemory) {
    moved = pwrite(file_.get(), whole.data(), whole.size(), offset);
    if (moved < 0 && errno != EAGAIN) return finish(operation, errno);
  }
  if (moved > 0) operation.moved = static_cast<std::uint32_t>(moved);
  return operation.moved == operation.length ? finish(operation, 0) : move(operation);
}

void FileStore::completed(host::Operation& io, const host::Completion& completion) {
  StoreOperation& operation = operation_of(io);
  auto& store = *static_cast<FileStore*>(operation.store);
  if (store.advance(operation, completion.result)) operation.finished(operation);
}

bool FileStore::advance(StoreOperation& operation, int result) {
  const bool again = result == -EINTR || result == -EAGAIN;
  switch (operation.step) {
    case kMove:
      if (again) return move(operation);
      if (result < 0) return finish(operation, -result);
      if (result == 0) return finish(operation, EIO);  // somebody has made the file shorter
      operation.moved += static_cast<std::uint32_t>(result);
      return operation.moved == operation.length ? finish(operation, 0) : move(operation);
    case kPunch:
      if (result == -EOPNOTSUPP && operation.command == nbd::Command::kTrim) break;  // advice only
      if (result == -EOPNOTSUPP && (operation.flags & nbd::kFastZero) == 0) {
        operation.step = kZeroes;
        return write_zeroes(operation);
      }
      if (again) return start(operation, {});
      if (result < 0) return finish(operation, -result);
      break;
    case kZeroes:
      if (again) return write_zeroes(operation);
      if (result <= 0) return finish(operation, result < 0 ? -result : EIO);
      operation.moved += static_cast<std::uint32_t>(result);
      if (operation.moved < operation.length) return write_zeroes(operation);
      break;
    default:
      if (again) return start(operation, {});
      return finish(operation, result < 0 ? -result : 0);
  }
  if ((operation.flags & nbd::kFua) == 0) return finish(operation, 0);
  operation.step = kSync;
  uring_.sync_data(file_.get(), operation.io);
  return false;
}

bool FileStore::write_zeroes(StoreOperation& operation) {
  const std::uint32_t left = operation.length - operation.moved;
  uring_.write(file_.get(), zeroes(std::min(left, kZeroesAtOnce)),
               operation.offset + operation.moved, 0, operation.io);
  return false;
}

bool FileStore::finish(StoreOperation& operation, int error) {
  operation.error = error;
  return true;
}

// What is missing of a file that was made shorter is no hole: whoever asks for it is to be told.
void FileStore::extents(std::uint64_t offset, const ExtentVisitor& visit) const {
  struct stat status {};
  const bool is_shorter = fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                          static_cast<std::uint64_t>(status.st_size) < size_;
  const std::uint64_t there = is_shorter ? static_cast<std::uint64_t>(status.st_size) : size_;
  while (offset < size_) {
    if (offset >= there) {
      visit(size_ - offset, 0);
      return;
    }
    const auto from = static_cast<off_t>(offset);
    const off_t data = lseek(file_.get(), from, SEEK_DATA);
    const int error = data < 0 ? errno : 0;
    std::uint64_t end = there;
    std::uint32_t state = 0;
    if (data > from || error == ENXIO) {  // ENXIO: no data from here to the end
      state = nbd::kStateHole | nbd::kStateZero;
      if (data > from) end = static_cast<std::uint64_t>(data) / block_min_ * block_min_;
    } else if (error == 0) {
      const off_t hole = lseek(file_.get(), from, SEEK_HOLE);
      if (hole > from) {
        end = (static_cast<std::uint64_t>(hole) + block_min_ - 1) / block_min_ * block_min_;
      }
    }
    end = std::clamp(end, offset + block_min_, size_);
    if (!visit(end - offset, state)) return;
    offset = end;
  }
}

}  // namespace weir::serve
