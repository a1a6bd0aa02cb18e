// SPDX-License-Identifier: Apache-2.0
//
// A store in memory, which is lost when the server exits. Pages that were never written take no
// memory, and trimmed ones are returned to the system. Reads are not copied: replies are sent from
// the store. A write during such a reply may show in it, which NBD allows for concurrent reads and
// writes of the same bytes.
//
// Copies, trims and zeroes take CPU time of the loop, so each turn does a bounded amount:
// kTurnBytes at once, and the rest in pieces, one of each waiting operation in turn. A trim of 2
// GiB delays others by one piece at a time, about 0.2 ms. Unwritten chunks are skipped. Each loop
// does its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "weir/base/quantity.h"
#include "weir/base/ring.h"
#include "weir/serve/allocation_map.h"
#include "weir/serve/store.h"

namespace weir::serve {

class MemoryStore : public Store {
 public:
  // Copied or freed in one turn. A fresh page costs about as much as a copy: at least 1 GB/s, so
  // 512 KiB take at most 0.5 ms.
  static constexpr std::uint64_t kTurnBytes = std::uint64_t{1} << 19;
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;  // a multiple of a chunk

  static Result<std::unique_ptr<Store>> create(Bytes size);

  std::unique_ptr<Store> share(host::IoLoop& io) override;
  std::uint64_t size() const override { return shared_->bytes.size(); }
  std::uint8_t features() const override;
  bool copies_reads() const override { return false; }
  bool can_hang() const override { return false; }
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, std::uint64_t length,
               const ExtentVisitor& visit) const override;
  Instant wakes_at() const override { return waiting_.empty() ? kNever : turn_; }
  void wake(Instant now) override;

 private:
  // What all loops have in common.
  struct Shared {
    explicit Shared(std::span<std::byte> memory) : bytes(memory), written(memory.size()) {}
    ~Shared();
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    std::span<std::byte> bytes;
    AllocationMap written;
  };

  explicit MemoryStore(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  void begin_turn(Instant now);
  // Does the next piece; true if nothing is left.
  bool advance(StoreOperation& operation);
  // Zeroes a piece, or skips one that is zero; returns its size.
  std::uint64_t zero_piece(const StoreOperation& operation, std::uint64_t offset,
                           std::uint64_t length);
  void zero(std::uint64_t offset, std::uint64_t length);
  void charge(std::uint64_t bytes) { left_ -= std::min(left_, bytes); }

  std::shared_ptr<Shared> shared_;
  Ring<StoreOperation, &StoreOperation::queue> waiting_;
  Instant turn_ = Instant::min();
  std::uint64_t left_ = 0;  // of kTurnBytes, in this turn
};

}  // namespace weir::serve
