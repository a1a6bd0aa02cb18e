// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/memory_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "weir/base/units.h"

namespace weir::serve {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

Result<std::unique_ptr<Store>> MemoryStore::create(Bytes size) {
  const std::string where = "memory:" + print_size(size);
  if (size.count() == 0) {
    return fail(std::errc::invalid_argument, where, "is empty", "give it a size, such as 1GiB");
  }
  // NORESERVE: a store may be larger than memory, as long as the written data is not.
  void* const memory = mmap(nullptr, size.count(), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, where, "make it smaller");
  const std::span<std::byte> bytes(static_cast<std::byte*>(memory), size.count());
  return std::unique_ptr<Store>(new MemoryStore(std::make_shared<Shared>(bytes)));
}

MemoryStore::Shared::~Shared() { munmap(bytes.data(), bytes.size()); }

std::unique_ptr<Store> MemoryStore::share(host::IoLoop& /*io*/) {
  return std::unique_ptr<Store>(new MemoryStore(shared_));
}

std::uint8_t MemoryStore::features() const { return kCanAll; }

// REQUIRES: within one piece.
void MemoryStore::zero(std::uint64_t offset, std::uint64_t length) {
  std::byte* const from = shared_->bytes.data() + offset;
  shared_->written.clear(offset, length);
  const std::uint64_t first = (offset + kPage - 1) / kPage * kPage;
  const std::uint64_t last = (offset + length) / kPage * kPage;
  if (first >= last) {
    std::memset(from, 0, length);
    return;
  }
  std::memset(from, 0, first - offset);
  std::memset(shared_->bytes.data() + last, 0, offset + length - last);
  // Freed private pages read as zeroes.
  madvise(shared_->bytes.data() + first, last - first, MADV_DONTNEED);
}

std::uint64_t MemoryStore::zero_piece(const StoreOperation& operation, std::uint64_t offset,
                                      std::uint64_t length) {
  AllocationMap::Run run = shared_->written.run(offset, length);
  if (run.is_data) {
    run.length = std::min(run.length, kPiece - offset % kPiece);
    zero(offset, run.length);
    charge(run.length);
  } else {
    charge(kPage);  // for the time to read the map
  }
  if ((operation.flags & kKeepAllocated) != 0) shared_->written.mark(offset, run.length);
  return run.length;
}

bool MemoryStore::advance(StoreOperation& operation) {
  const std::uint64_t at = operation.offset + operation.moved;
  std::uint64_t length = operation.length - operation.moved;
  if (operation.command == StoreCommand::kWrite) {
    length = std::min(length, kPiece);
    std::memcpy(shared_->bytes.data() + at, operation.buffer.data() + operation.moved, length);
    shared_->written.mark(at, length);
    charge(length);
  } else {
    length = zero_piece(operation, at, length);
  }
  operation.moved += length;
  return operation.moved == operation.length;
}

void MemoryStore::begin_turn(Instant now) {
  if (now == turn_) return;
  turn_ = now;
  left_ = kTurnBytes;
}

bool MemoryStore::start(StoreOperation& operation, Instant now) {
  operation.error = 0;
  switch (operation.command) {
    case StoreCommand::kRead:
      operation.data = shared_->bytes.subspan(operation.offset, operation.length);
      return true;
    case StoreCommand::kWrite:
    case StoreCommand::kDiscard:
    case StoreCommand::kZero:
      break;
    default:  // flush and cache: nothing to do for memory
      return true;
  }
  begin_turn(now);
  operation.moved = 0;
  while (waiting_.empty() && left_ > 0) {
    if (advance(operation)) return true;
  }
  waiting_.push_back(operation);
  return false;
}

void MemoryStore::wake(Instant now) {
  begin_turn(now);
  while (!waiting_.empty() && left_ > 0) {
    StoreOperation& operation = waiting_.front();
    waiting_.erase(operation);
    if (advance(operation)) {
      operation.finished(operation);
    } else {
      waiting_.push_back(operation);
    }
  }
}

void MemoryStore::extents(std::uint64_t offset, std::uint64_t length,
                          const ExtentVisitor& visit) const {
  while (length > 0) {
    const AllocationMap::Run run = shared_->written.run(offset, length);
    if (!visit(run.length, !run.is_data)) return;
    offset += run.length;
    length -= run.length;
  }
}

}  // namespace weir::serve
