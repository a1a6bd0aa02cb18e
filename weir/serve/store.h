// SPDX-License-Identifier: Apache-2.0
//
// The storage of an export. A store gets operations that were checked against its size; it
// completes each at once, or later through its callback.
//
//   operation.finished = ...;
//   if (store.start(operation, now)) { ...done: operation.error says how... }
//
// A store that has its bytes in memory gives a read without copying it: `data` then points into the
// store, and stays valid as long as the store does. Others read into the caller's buffer, or name a
// file that the caller sends a large read from, without a copy. The loop is not delayed: work that
// takes CPU time is done in pieces, turn by turn. Several operations may overlap in time and in
// their bytes; as the protocol allows, nothing is promised about the order of those. What was
// written and finished is what a later read sees, and what a finished kFlush, or a write with
// kDurable, has made durable.
//
// memory_store.h, file_store.h (also block devices) and shaped_store.h (slow on purpose, over any).
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
  kFlush,     // what was written and finished is durable
  kDiscard,   // advice: nobody needs these bytes
  kZero,      // they read as zeroes
  kPrefetch,  // advice: they will be read soon
};

// Of an operation.
inline constexpr std::uint8_t kDurable = 1U << 0;        // of what writes: finished when durable
inline constexpr std::uint8_t kKeepAllocated = 1U << 1;  // of kZero: no hole
inline constexpr std::uint8_t kOnlyIfFast = 1U << 2;     // of kZero: else EOPNOTSUPP, at once

// What a store can do besides kRead and kWrite.
inline constexpr std::uint8_t kCanFlush = 1U << 0;
inline constexpr std::uint8_t kCanWriteDurably = 1U << 1;
inline constexpr std::uint8_t kCanDiscard = 1U << 2;
inline constexpr std::uint8_t kCanZero = 1U << 3;
inline constexpr std::uint8_t kCanZeroFast = 1U << 4;  // or say at once that it cannot
inline constexpr std::uint8_t kCanPrefetch = 1U << 5;
// A flush of one client is one of all that was written, whoever wrote it.
inline constexpr std::uint8_t kCanFlushForAll = 1U << 6;
inline constexpr std::uint8_t kCanAll = 0x7F;

struct StoreOperation {
  using Finished = void (*)(StoreOperation& operation);

  StoreCommand command = StoreCommand::kRead;
  std::uint8_t flags = 0;
  std::uint32_t length = 0;
  std::uint64_t offset = 0;
  std::span<std::byte> buffer;      // of a write: its payload; of a read: where to put it
  std::span<const std::byte> data;  // of a finished read: where it is
  int file = -1;                    // of a read that is sent from there, as sendable() said
  int error = 0;                    // of a finished one: an errno value
  bool sync_failed = false;         // of one with an error: what was written before may be lost
  Finished finished = nullptr;
  void* owner = nullptr;  // of whoever set `finished`

  // The store's own.
  host::Operation io;
  void* store = nullptr;
  std::uint32_t moved = 0;  // bytes read or written so far
  std::uint8_t step = 0;
  bool is_punched = false;   // of zeroes: all but the edges are done
  std::uint64_t ticket = 0;  // see sync_queue.h
  RingLink<StoreOperation> queue;
  HeapHook due;

  // Of the export's StoreWatch.
  RingLink<StoreOperation> watch;
  bool is_given_up = false;
};

class Store {
 public:
  // A hole reads as zeroes and takes no room; false ends the walk.
  using ExtentVisitor = std::function<bool(std::uint64_t length, bool is_hole)>;

  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  virtual std::uint64_t size() const = 0;
  // kCanFlush and so on.
  virtual std::uint8_t features() const = 0;
  // What every offset and length has to be a multiple of.
  virtual std::uint32_t block_min() const { return 1; }
  // Whether a read needs a buffer, unless it is sendable.
  virtual bool copies_reads() const = 0;
  // A file that has this range at the same place and gives it without waiting; -1: there is none.
  // An operation that names it needs no buffer, and is finished when the file may be sent.
  virtual int sendable(std::uint64_t /*offset*/, std::uint32_t /*length*/) const { return -1; }

  // Whether something behind it may never answer: a disk, a file server.
  virtual bool can_hang() const { return true; }
  // True: it is finished, and the callback will not be called.
  virtual bool start(StoreOperation& operation, Instant now) = 0;
  // Those of a range, until the visitor has enough or the range ends. Lengths above zero, in sum
  // the range's; what lies beyond it is not looked at.
  virtual void extents(std::uint64_t offset, std::uint64_t length,
                       const ExtentVisitor& visit) const = 0;

  // When wake() is to be called, for a store that waits for time or for its next turn.
  virtual Instant wakes_at() const { return kNever; }
  virtual void wake(Instant /*now*/) {}
  // Changes how slow a shaped store is; ENOTSUP for others.
  virtual Result<void> reshape(const Shape& shape, Instant now);
};

// Opens, and creates where the options say so. The IoLoop must outlive the store.
Result<std::unique_ptr<Store>> open_store(const StoreOptions& options, bool read_only,
                                          host::IoLoop& io);

}  // namespace weir::serve
