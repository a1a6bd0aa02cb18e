// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/file_store.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/host/block_device.h"
#include "weir/host/durable.h"
#include "weir/host/file_lock.h"
#include "weir/host/holder.h"

namespace weir::serve {
namespace {

constexpr std::uint32_t kZeroesAtOnce = 1U << 20;
// Maximum copied from or to the page cache on the loop, at about 5 GB/s; larger copies are left to
// a thread.
constexpr std::uint32_t kCopyHereMax = 1U << 18;
constexpr std::uint64_t kFetchMax = 1U << 31;  // of advice to read ahead
constexpr std::uint32_t kDirectBlock = 4096;   // if the file does not report it

// Aligned for O_DIRECT.
std::span<const std::byte> zeroes(std::size_t bytes) {
  alignas(kDirectBlock) static std::array<std::byte, kZeroesAtOnce> nothing;
  return std::span(nothing).first(bytes);
}

StoreOperation& operation_of(host::Operation& io) {
  return *reinterpret_cast<StoreOperation*>(reinterpret_cast<std::byte*>(&io) -
                                            offsetof(StoreOperation, io));
}

constexpr const char* kKindHint = "use file:PATH for a file, or device:PATH for a block device";

// Sets the size of a new or empty file, and syncs it with its name.
Result<void> give_size(int file, const StoreOptions& options) {
  const std::string where = quote(options.path);
  if (ftruncate(file, static_cast<off_t>(options.size->count())) != 0 || fsync(file) != 0) {
    return fail_errno(errno, where, "check that the file system has enough space");
  }
  return host::sync_directory_of(options.path);
}

Result<std::uint64_t> size_of(int file, const struct stat& status, const StoreOptions& options) {
  const std::string where = quote(options.path);
  auto size = static_cast<std::uint64_t>(status.st_size);
  if (size == 0 && options.size) {
    if (auto given = give_size(file, options); !given) return tl::unexpected(given.error());
    size = options.size->count();
  }
  if (size == 0) {
    return fail(std::errc::invalid_argument, where, "is empty", "give it a size: ,size=4GiB");
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

// The kind of storage below a file. A device node is on a file system too, which does not matter.
enum class Ground : std::uint8_t {
  kDisk,    // RWF_NOWAIT is supported: a call that would block returns an error
  kMemory,  // no call blocks
  kRemote,  // a server or another process may never answer: any call may block
};

Ground ground_of(int file, const struct stat& status) {
  if (S_ISBLK(status.st_mode)) return Ground::kDisk;
  struct statfs system {};
  if (fstatfs(file, &system) != 0) return Ground::kRemote;
  switch (static_cast<std::uint32_t>(system.f_type)) {
    case TMPFS_MAGIC:
      return Ground::kMemory;
    case EXT4_SUPER_MAGIC:
    case XFS_SUPER_MAGIC:
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case OVERLAYFS_SUPER_MAGIC:
      return Ground::kDisk;
    default:
      return Ground::kRemote;
  }
}

bool can_try(int file) {
  std::byte probe;
  const iovec one{&probe, 1};
  return preadv2(file, &one, 1, 0, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

// An open file, and whether it is new.
struct Opened {
  host::Fd file;
  bool is_new = false;
};

dev_t device_at(const StoreOptions& options) {
  struct stat status {};
  return stat(options.path.c_str(), &status) == 0 ? status.st_rdev : 0;
}

// The user of a device that is still busy after waiting.
std::string use_of(const StoreOptions& options) {
  const dev_t device = device_at(options);
  if (std::string use = host::system_use_of(device); !use.empty()) return use;
  const long holder = host::process_with(device);
  if (holder == getpid()) return "this server already uses it";
  if (holder != 0) return fmt::format("process {} has it open (see ps -p {})", holder, holder);
  return "it is in use, but no process that has it open is visible; see lsblk and fuser -v";
}

tl::unexpected<Error> cannot_open(int error, const StoreOptions& options, bool is_device) {
  const std::string where = quote(options.path);
  if (error == EBUSY && is_device) {
    return fail(std::errc::device_or_resource_busy, where, use_of(options),
                "free it first, export it readonly, or add ,force to write to it anyway");
  }
  const bool missing = error == ENOENT && !options.size;
  const bool cannot_write = error == EROFS || error == EACCES;
  return fail_errno(error, where,
                    missing          ? "add a size to create it: ,size=4GiB"
                    : cannot_write   ? "export it readonly, or check its permissions"
                    : options.direct ? "check its permissions, or try without direct"
                                     : "");
}

Result<Opened> open_file(const StoreOptions& options, bool read_only) {
  struct stat status {};
  const bool is_device = stat(options.path.c_str(), &status) == 0 && S_ISBLK(status.st_mode);
  const bool is_alone = is_device && !read_only && !options.force;
  const int flags = (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | (is_alone ? O_EXCL : 0) |
                    (options.direct ? O_DIRECT : 0);
  // O_NOATIME, which saves time on each read, is allowed only for the owner.
  const auto open_with = [&](int more) {
    host::Fd file(::open(options.path.c_str(), flags | more | O_NOATIME, 0600));
    if (file.is_open() || errno != EPERM) return file;
    return host::Fd(::open(options.path.c_str(), flags | more, 0600));
  };
  if (options.kind == StoreOptions::Kind::kFile && options.size && !read_only && !is_device) {
    if (host::Fd file = open_with(O_CREAT | O_EXCL); file.is_open()) {
      return Opened{std::move(file), true};
    }
    if (errno != EEXIST) return cannot_open(errno, options, is_device);
  }
  host::Fd file = open_with(0);
  int error = errno;
  // A device used by the system does not become free by waiting.
  if (!file.is_open() && error == EBUSY && is_alone &&
      host::system_use_of(status.st_rdev).empty()) {
    const auto attempt = [&] {
      file = open_with(0);
      error = errno;
      return file.is_open() || error != EBUSY;
    };
    host::wait_until_free(
        attempt, [&] { return host::process_with(status.st_rdev); }, quote(options.path));
  }
  if (!file.is_open()) return cannot_open(error, options, is_device);
  return Opened{std::move(file), false};
}

}  // namespace

Result<FileStore::Facts> FileStore::inspect(int file, const StoreOptions& options, bool read_only) {
  const std::string where = quote(options.path);
  struct stat status {};
  if (fstat(file, &status) != 0) return fail_errno(errno, where);
  Facts facts;
  facts.is_direct = options.direct;
  if (S_ISBLK(status.st_mode)) {
    const auto device = host::inspect_device(file, where);
    if (!device) return tl::unexpected(device.error());
    if (device->is_read_only && !read_only) {
      return fail(std::errc::read_only_file_system, where, "is a read-only device",
                  "export it readonly: ,readonly");
    }
    facts.size = device->size;
    facts.granule = device->sector;
  } else if (options.kind == StoreOptions::Kind::kDevice || !S_ISREG(status.st_mode)) {
    const bool wants_device = options.kind == StoreOptions::Kind::kDevice;
    return fail(std::errc::invalid_argument, where,
                wants_device ? "is not a block device" : "is not a regular file", kKindHint);
  } else {
    const auto size = size_of(file, status, options);
    if (!size) return tl::unexpected(size.error());
    facts.size = *size;
  }
  if (options.size && options.size->count() != facts.size) {
    return fail(
        std::errc::invalid_argument, where,
        fmt::format("has {}, which differs from the given size", print_size(Bytes{facts.size})),
        "omit size=, or remove the file");
  }
  if (options.direct) {
    facts.block_min = direct_block(file);
    facts.granule = std::max(facts.granule, facts.block_min);
  }
  if (facts.size % facts.block_min != 0) {
    return fail(
        std::errc::invalid_argument, where,
        fmt::format("has {} bytes, which is not a multiple of the {} that direct needs", facts.size,
                    facts.block_min),
        fmt::format("omit direct, or extend the file: truncate -s %{} PATH", facts.block_min));
  }
  const Ground ground = ground_of(file, status);
  facts.is_remote = ground == Ground::kRemote;
  facts.way = options.direct || facts.is_remote ? Way::kLoop
              : ground == Ground::kMemory       ? Way::kMemory
              : can_try(file)                   ? Way::kCached
                                                : Way::kLoop;
  return facts;
}

Result<std::unique_ptr<Store>> FileStore::open(const StoreOptions& options, bool read_only,
                                               host::IoLoop& io) {
  auto opened = open_file(options, read_only);
  if (!opened) return tl::unexpected(opened.error());
  const int file = opened->file.get();
  auto locked =
      host::lock_file(file, read_only ? host::LockKind::kShared : host::LockKind::kExclusive,
                      quote(options.path), "stop the other server, or export it readonly in both");
  if (!locked) return tl::unexpected(locked.error());
  const auto facts = inspect(file, options, read_only);
  if (!facts) {
    if (opened->is_new) unlink(options.path.c_str());
    return tl::unexpected(facts.error());
  }
  return std::unique_ptr<Store>(
      new FileStore(std::make_shared<Shared>(std::move(opened->file)), *facts, io));
}

std::unique_ptr<Store> FileStore::share(host::IoLoop& io) {
  return std::unique_ptr<Store>(new FileStore(shared_, facts_, io));
}

std::uint8_t FileStore::features() const { return kCanAll; }

// A truncated file is left to a read, which reports the error to the client.
int FileStore::sendable(std::uint64_t offset, std::uint32_t length) const {
  if (facts_.way == Way::kLoop) return -1;
  struct stat status {};
  if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::uint64_t>(status.st_size) < offset + length) {
    return -1;
  }
  if (facts_.way == Way::kCached && !cache_.has(offset, length)) return -1;
  return file_;
}

bool FileStore::start(StoreOperation& operation, Instant /*now*/) {
  operation.error = 0;
  if (operation.file >= 0) return true;
  operation.store = this;
  operation.io.done = completed;
  operation.moved = 0;
  operation.is_punched = false;
  switch (operation.command) {
    case StoreCommand::kRead:
      operation.data = operation.buffer;
      [[fallthrough]];
    case StoreCommand::kWrite:
      operation.step = kMove;
      return facts_.way == Way::kLoop || operation.length > kCopyHereMax ? move(operation)
                                                                         : move_here(operation);
    case StoreCommand::kDiscard:
    case StoreCommand::kZero:
      return punch(operation);
    case StoreCommand::kFlush:
      return sync(operation);
    case StoreCommand::kPrefetch:
      operation.step = kFetch;
      io_.fetch(file_, operation.offset,
                static_cast<std::uint32_t>(std::min(operation.length, kFetchMax)), operation.io);
      return false;
  }
  WEIR_ASSERT(false, static_cast<int>(operation.command));
  return true;
}

// Submits the rest of a read or write to the IoLoop.
bool FileStore::move(StoreOperation& operation) {
  const std::span<std::byte> rest = operation.buffer.subspan(operation.moved);
  const std::uint64_t offset = operation.offset + operation.moved;
  if (operation.command == StoreCommand::kRead) {
    // The cached part of a short read was already copied.
    const Copy copy = copier(rest.size());
    const bool is_tried = copy == Copy::kHere && facts_.way == Way::kCached;
    io_.read(file_, rest, offset, operation.io, is_tried ? Copy::kDevice : copy);
  } else {
    const bool is_durable = (operation.flags & kDurable) != 0;
    if (is_durable) begin_sync(operation);
    io_.write(file_, rest, offset, is_durable ? RWF_DSYNC : 0, operation.io, copier(rest.size()));
  }
  return false;
}

FileStore::Copy FileStore::copier(std::size_t bytes) const {
  if (facts_.is_remote) return Copy::kWorker;
  if (facts_.is_direct) return Copy::kDevice;
  return bytes <= kCopyHereMax ? Copy::kHere : Copy::kWorker;
}

// As much as possible without blocking; the IoLoop does the rest.
bool FileStore::move_here(StoreOperation& operation) {
  const std::span<std::byte> whole = operation.buffer;
  const auto offset = static_cast<off_t>(operation.offset);
  ssize_t moved = 0;
  if (operation.command == StoreCommand::kRead && facts_.way == Way::kCached) {
    const iovec one{whole.data(), whole.size()};
    moved = preadv2(file_, &one, 1, offset, RWF_NOWAIT);
  } else if (operation.command == StoreCommand::kRead) {
    moved = pread(file_, whole.data(), whole.size(), offset);
  } else if (facts_.way == Way::kMemory) {
    moved = pwrite(file_, whole.data(), whole.size(), offset);
    if (moved < 0 && errno != EAGAIN) return finish(operation, errno);
  }
  if (moved > 0) operation.moved = static_cast<std::uint64_t>(moved);
  return operation.moved == operation.length ? finish(operation, 0) : move(operation);
}

void FileStore::begin_sync(StoreOperation& operation) {
  const host::MutexLock lock(shared_->mutex);
  shared_->syncs.begin(operation);
}

void FileStore::completed(host::Operation& io, const host::Completion& completion) {
  StoreOperation& operation = operation_of(io);
  auto& store = *static_cast<FileStore*>(operation.store);
  const int result = completion.result;
  const bool syncs =
      operation.step == kSync || (operation.step == kMove && (operation.flags & kDurable) != 0);
  if (!syncs) {
    if (store.advance(operation, result)) operation.finished(operation);
    return;
  }
  // Reported before other syncs can see that this one has ended, and before it is answered.
  const bool fails =
      result == 0 ? operation.step == kMove : result < 0 && result != -EINTR && result != -EAGAIN;
  if (fails && store.listener_ != nullptr) store.listener_->sync_failed(result < 0 ? -result : EIO);
  {
    const host::MutexLock lock(store.shared_->mutex);
    store.shared_->syncs.end(operation);
  }
  if (store.advance(operation, result)) {
    // Direct I/O gets its own errors: the kernel keeps none for the next sync.
    const host::MutexLock lock(store.shared_->mutex);
    const bool waits =
        operation.error == 0 && !store.facts_.is_direct && store.shared_->syncs.holds(operation);
    if (!waits) store.released_.push_back(operation);
  }
  store.release_syncs();
}

void FileStore::release_syncs() {
  std::vector<StoreListener*> others;
  {
    const host::MutexLock lock(shared_->mutex);
    while (StoreOperation* const one = shared_->syncs.release()) {
      auto& owner = *static_cast<FileStore*>(one->store);
      owner.released_.push_back(*one);
      if (&owner != this && !owner.has_released_.exchange(true)) others.push_back(owner.listener_);
    }
  }
  for (StoreListener* const other : others) other->wake_needed();
  wake({});
}

void FileStore::wake(Instant /*now*/) {
  Released done;
  {
    const host::MutexLock lock(shared_->mutex);
    has_released_ = false;
    std::swap(done, released_);
  }
  while (!done.empty()) {
    StoreOperation& operation = done.front();
    done.erase(operation);
    operation.finished(operation);
  }
}

bool FileStore::advance(StoreOperation& operation, int result) {
  const bool again = result == -EINTR || result == -EAGAIN;
  switch (operation.step) {
    case kMove:
      if (again) return move(operation);
      if (result < 0) return finish(operation, -result);
      if (result == 0) return finish(operation, EIO);  // the file was truncated
      operation.moved += static_cast<std::uint64_t>(result);
      return operation.moved == operation.length ? finish(operation, 0) : move(operation);
    case kPunch:
      if (again) return punch(operation);
      if (result == 0) {
        operation.is_punched = true;
      } else if (result != -EOPNOTSUPP ||
                 (operation.command != StoreCommand::kDiscard &&  // which is advice only
                  (operation.flags & kOnlyIfFast) != 0)) {
        return finish(operation, -result);
      }
      return operation.command == StoreCommand::kDiscard ? settle(operation)
                                                         : write_zeroes(operation);
    case kZeroes:
      if (again) return write_zeroes(operation);
      if (result <= 0) return finish(operation, result < 0 ? -result : EIO);
      operation.moved += static_cast<std::uint64_t>(result);
      return write_zeroes(operation);
    case kSync:
      if (again) return sync(operation);
      [[fallthrough]];
    default:
      if (again) return start(operation, {});
      return finish(operation, result < 0 ? -result : 0);
  }
}

FileStore::Range FileStore::inner(const StoreOperation& operation) const {
  const std::uint64_t granule = facts_.granule;
  const std::uint64_t from = (operation.offset + granule - 1) / granule * granule;
  const std::uint64_t to = (operation.offset + operation.length) / granule * granule;
  return from < to ? Range{from, to} : Range{};
}

bool FileStore::punch(StoreOperation& operation) {
  const Range range = inner(operation);
  if (range.from == range.to) {
    return operation.command == StoreCommand::kDiscard ? settle(operation)
                                                       : write_zeroes(operation);
  }
  operation.step = kPunch;
  const bool keeps = (operation.flags & kKeepAllocated) != 0;
  io_.allocate(file_, (keeps ? FALLOC_FL_ZERO_RANGE : FALLOC_FL_PUNCH_HOLE) | FALLOC_FL_KEEP_SIZE,
               range.from, range.to - range.from, operation.io);
  return false;
}

// Writes all zeroes, or those at the edges of a punched range.
bool FileStore::write_zeroes(StoreOperation& operation) {
  operation.step = kZeroes;
  const std::uint64_t end = operation.offset + operation.length;
  const Range punched = operation.is_punched ? inner(operation) : Range{end, end};
  std::uint64_t at = operation.offset + operation.moved;
  if (at == punched.from) at = punched.to;
  operation.moved = at - operation.offset;
  if (at == end) return settle(operation);
  const std::uint64_t left = (at < punched.from ? punched.from : end) - at;
  const std::span<const std::byte> piece = zeroes(std::min<std::uint64_t>(left, kZeroesAtOnce));
  io_.write(file_, piece, at, 0, operation.io, copier(piece.size()));
  return false;
}

bool FileStore::settle(StoreOperation& operation) {
  return (operation.flags & kDurable) != 0 ? sync(operation) : finish(operation, 0);
}

bool FileStore::sync(StoreOperation& operation) {
  operation.step = kSync;
  begin_sync(operation);
  io_.sync_data(file_, operation.io);
  return false;
}

bool FileStore::finish(StoreOperation& operation, int error) {
  operation.error = error;
  return true;
}

// The missing part of a truncated file is not a hole: reading it reports an error.
void FileStore::extents(std::uint64_t offset, std::uint64_t length,
                        const ExtentVisitor& visit) const {
  if (facts_.is_remote) {
    visit(length, false);
    return;
  }
  struct stat status {};
  const std::uint64_t asked_end = offset + length;
  const bool is_shorter = fstat(file_, &status) == 0 && S_ISREG(status.st_mode) &&
                          static_cast<std::uint64_t>(status.st_size) < asked_end;
  const std::uint64_t there = is_shorter ? static_cast<std::uint64_t>(status.st_size) : asked_end;
  const std::uint64_t block = facts_.block_min;
  while (offset < asked_end) {
    if (offset >= there) {
      visit(asked_end - offset, false);
      return;
    }
    const auto from = static_cast<off_t>(offset);
    const off_t data = lseek(file_, from, SEEK_DATA);
    const int error = data < 0 ? errno : 0;
    std::uint64_t end = there;
    bool is_hole = false;
    if (data > from || error == ENXIO) {  // ENXIO: no data from here to the end
      is_hole = true;
      if (data > from) end = static_cast<std::uint64_t>(data) / block * block;
    } else if (error == 0) {
      const off_t hole = lseek(file_, from, SEEK_HOLE);
      if (hole > from) end = (static_cast<std::uint64_t>(hole) + block - 1) / block * block;
    }
    if (end <= offset) {  // data somewhere in this block
      end = offset + block;
      is_hole = false;
    }
    end = std::min(end, asked_end);
    if (!visit(end - offset, is_hole)) return;
    offset = end;
  }
}

}  // namespace weir::serve
