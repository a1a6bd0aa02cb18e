// SPDX-License-Identifier: Apache-2.0
//
// A store in memory: gone with the server, as fast as memory, and everything at once. Pages that
// were never written take no memory (they are mapped, not filled), and trimmed ones are given back.
// Reads are not copied: replies are sent from where the bytes lie. A write that comes while such a
// reply is on its way may show in it, which is what reading and writing the same bytes at the same
// time means in NBD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weir/base/quantity.h"
#include "weir/serve/allocation_map.h"
#include "weir/serve/store.h"

namespace weir::serve {

class MemoryStore : public Store {
 public:
  static Result<std::unique_ptr<Store>> create(Bytes size);
  ~MemoryStore() override;

  std::uint64_t size() const override { return memory_.size(); }
  std::uint16_t flags() const override;
  bool copies_reads() const override { return false; }
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, const ExtentVisitor& visit) const override;

 private:
  explicit MemoryStore(std::span<std::byte> memory) : memory_(memory), written_(memory.size()) {}
  void zero(std::uint64_t offset, std::uint64_t length);

  std::span<std::byte> memory_;
  AllocationMap written_;
};

}  // namespace weir::serve
