// SPDX-License-Identifier: Apache-2.0
//
// The storage of an export. A store gets operations that were checked against its size; it
// completes each at once, or later through its callback.
//
//   operation.finished = ...;
//   if (store.start(operation, now)) { ...done: operation.error is the result... }
//
// A store that has its bytes in memory returns a read without copying it: `data` then points into
// the store, and is valid as long as the store exists. Others read into the caller's buffer, or
// name a file from which the caller sends a large read without a copy. The loop is not delayed:
// work that takes CPU time is done in pieces, turn by turn. Several operations may overlap in time
// and in their bytes; as the protocol allows, their order is not defined. A later read sees what
// was written and completed; a completed kFlush, or a write with kDurable, has made it durable.
//
// Each loop has its own object for a store (share()), and uses only that. They have the storage in
// common; operations of several loops overlap as those of one loop do.
//
// Implementations: memory_store.h, file_store.h (also block devices) and shaped_store.h (slows
// down another).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "weir/base/heap.h"
#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/host/io_loop.h"
#include "weir/serve/options.h"

namespace weir::serve {

enum class StoreCommand : std::uint8_t {
  kRead,
  kWrite,
  kFlush,     // makes completed writes durable
  kDiscard,   // advice: these bytes are no longer needed
  kZero,      // makes them read as zeroes
  kPrefetch,  // advice: they will be read soon
};

// Flags of an operation.
inline constexpr std::uint8_t kDurable = 1U
                                         << 0;  // of writing operations: complete only when durable
inline constexpr std::uint8_t kKeepAllocated = 1U << 1;  // of kZero: no hole
inline constexpr std::uint8_t kOnlyIfFast = 1U << 2;     // of kZero: otherwise EOPNOTSUPP, at once

// What a store supports in addition to kRead and kWrite.
inline constexpr std::uint8_t kCanFlush = 1U << 0;
inline constexpr std::uint8_t kCanWriteDurably = 1U << 1;
inline constexpr std::uint8_t kCanDiscard = 1U << 2;
inline constexpr std::uint8_t kCanZero = 1U << 3;
inline constexpr std::uint8_t kCanZeroFast = 1U << 4;  // or reports at once that it cannot
inline constexpr std::uint8_t kCanPrefetch = 1U << 5;
// A flush of one client covers all writes of all clients.
inline constexpr std::uint8_t kCanFlushForAll = 1U << 6;
inline constexpr std::uint8_t kCanAll = 0x7F;

struct StoreOperation {
  using Finished = void (*)(StoreOperation& operation);

  StoreCommand command = StoreCommand::kRead;
  std::uint8_t flags = 0;
  std::uint64_t length = 0;
  std::uint64_t offset = 0;
  std::span<std::byte> buffer;      // of a write: its payload; of a read: its destination
  std::span<const std::byte> data;  // of a completed read: its data
  int file = -1;                    // of a read that is sent from a file, as returned by sendable()
  int error = 0;                    // of a completed operation: an errno value
  Finished finished = nullptr;
  void* owner = nullptr;  // of the code that set `finished`

  // For the store.
  host::Operation io;
  void* store = nullptr;
  std::uint64_t moved = 0;  // bytes read or written so far
  std::uint8_t step = 0;
  bool is_punched = false;   // of zeroes: everything except the edges is done
  std::uint64_t ticket = 0;  // see sync_queue.h
  RingLink<StoreOperation> queue;
  HeapHook due;

  // For the export's StoreWatch.
  RingLink<StoreOperation> watch;
  bool is_given_up = false;
};

// What a store reports outside of its operations. Called on the thread of any loop.
class StoreListener {
 public:
  // Earlier writes of any client may be lost; called before any sync is answered that was in
  // progress at the same time.
  virtual void sync_failed(int error) = 0;
  // wakes_at() of this store is earlier than before.
  virtual void wake_needed() = 0;

 protected:
  ~StoreListener() = default;
};

class Store {
 public:
  // A hole reads as zeroes and takes no space; returning false stops the visit.
  using ExtentVisitor = std::function<bool(std::uint64_t length, bool is_hole)>;

  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  // The same storage for another loop. REQUIRES: the IoLoop outlives the result.
  virtual std::unique_ptr<Store> share(host::IoLoop& io) = 0;
  // REQUIRES: no operation was started, and the listener outlives the store.
  virtual void set_listener(StoreListener& /*listener*/) {}

  virtual std::uint64_t size() const = 0;
  // kCanFlush and so on.
  virtual std::uint8_t features() const = 0;
  // Every offset and length must be a multiple of it.
  virtual std::uint32_t block_min() const { return 1; }
  // Whether a read needs a buffer, unless it is sendable.
  virtual bool copies_reads() const = 0;
  // A file that contains this range at the same offset and returns it without blocking; -1: none.
  // An operation that names it needs no buffer, and completes when the file may be sent.
  virtual int sendable(std::uint64_t /*offset*/, std::uint32_t /*length*/) const { return -1; }

  // Whether the device below may never answer: a disk, a file server.
  virtual bool can_hang() const { return true; }
  // True: it is complete, and the callback will not be called.
  virtual bool start(StoreOperation& operation, Instant now) = 0;
  // The extents of a range, until the visitor stops or the range ends. Lengths are above zero and
  // sum to the range; nothing beyond it is visited.
  virtual void extents(std::uint64_t offset, std::uint64_t length,
                       const ExtentVisitor& visit) const = 0;

  // When to call wake(), for a store that waits for time or for its next turn.
  virtual Instant wakes_at() const { return kNever; }
  virtual void wake(Instant /*now*/) {}
  // Changes the speed of a shaped store; ENOTSUP for others.
  virtual Result<void> reshape(const Shape& shape, Instant now);
};

// Opens it, and creates it if the options say so. REQUIRES: the IoLoop outlives the store.
Result<std::unique_ptr<Store>> open_store(const StoreOptions& options, bool read_only,
                                          host::IoLoop& io);

}  // namespace weir::serve
