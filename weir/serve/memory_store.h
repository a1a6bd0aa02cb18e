// SPDX-License-Identifier: Apache-2.0
//
// A store in memory, which is lost when the server ends. Pages that were never written take no
// memory (they are mapped, not filled), and trimmed ones are given back. Reads are not copied:
// replies are sent from where the bytes lie. A write that comes while such a reply is on its way
// may show in it, which is what reading and writing the same bytes at the same time means in NBD.
//
// Copies, trims and zeroes take processor time of the loop, so each turn does a bounded part:
// kTurnBytes of them at once, and what is left in pieces, one of each waiting operation after the
// other, turn by turn. A trim of 2 GiB delays others by a piece of it at a time, about 0.2 ms. What
// was never written is skipped.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weir/base/quantity.h"
#include "weir/base/ring.h"
#include "weir/serve/allocation_map.h"
#include "weir/serve/store.h"

namespace weir::serve {

class MemoryStore : public Store {
 public:
  // Copied or given back in one turn. A fresh page costs about as much as copying it: 1 GB/s at
  // the least, so 512 KiB take at most 0.5 ms.
  static constexpr std::uint64_t kTurnBytes = std::uint64_t{1} << 19;
  static constexpr std::uint64_t kPiece = std::uint64_t{1} << 18;  // a multiple of a chunk

  static Result<std::unique_ptr<Store>> create(Bytes size);
  ~MemoryStore() override;

  std::uint64_t size() const override { return memory_.size(); }
  std::uint8_t features() const override;
  bool copies_reads() const override { return false; }
  bool can_hang() const override { return false; }
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, std::uint64_t length,
               const ExtentVisitor& visit) const override;
  Instant wakes_at() const override { return waiting_.empty() ? kNever : turn_; }
  void wake(Instant now) override;

 private:
  explicit MemoryStore(std::span<std::byte> memory) : memory_(memory), written_(memory.size()) {}
  void begin_turn(Instant now);
  // The next piece of it; true when nothing is left.
  bool advance(StoreOperation& operation);
  // Makes a piece zero, or skips what is; gives how much of it that was.
  std::uint64_t zero_piece(const StoreOperation& operation, std::uint64_t offset,
                           std::uint64_t length);
  void zero(std::uint64_t offset, std::uint64_t length);
  void charge(std::uint64_t bytes) { left_ -= std::min(left_, bytes); }

  std::span<std::byte> memory_;
  AllocationMap written_;
  Ring<StoreOperation, &StoreOperation::queue> waiting_;
  Instant turn_ = Instant::min();
  std::uint64_t left_ = 0;  // of kTurnBytes, in this turn
};

}  // namespace weir::serve
