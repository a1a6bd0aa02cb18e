// SPDX-License-Identifier: Apache-2.0
//
// The memory of connections, bounded for the whole server and for each connection: payload,
// requests, received bytes and queued replies. A connection that gets none waits; others do
// not.
//
//   if (!pool.reserve(kConnectionReserve)) ...    once per connection; if refused, do not accept it
//   MemoryAccount account;
//   if (Buffer buffer = pool.take(account, 4096)) ...
//   pool.give_back(account, std::move(buffer));
//   if (pool.charge(account, bytes)) ...          memory allocated elsewhere
//   pool.discharge(account, bytes);
//
// A minimum is reserved when a connection is accepted: the bytes of one receive, some requests, and
// a buffer of kGuaranteed bytes. At most three quarters of the limit are reserved, so the limit
// also bounds the number of connections. Other connections cannot use this reserve, so each
// connection can continue with small requests whatever the others hold.
//
// The rest is shared. A connection that reads slowly keeps its buffers until it has received its
// replies. So that such connections never use up everything, an additional buffer must leave a
// quarter of the shared memory free and may bring its holder to a quarter of the free memory; a
// first buffer may take half of the remaining memory. A buffer is always granted when no other one
// is in use. Charges may use a quarter of the shared memory, and an account may have as much of it
// as it leaves to the others.
//
// Buffers are powers of two from 4 KiB on, aligned to 4 KiB for O_DIRECT; some are kept for reuse,
// up to kKeptMax and within the limit, because fresh pages cost more than a copy. The others are
// not resident (buffer_slabs.h), so buffers never take more than the limit, whatever the mix of
// sizes.
//
// One budget for all loops of a server: after share() every call locks, for some nanoseconds. An
// account belongs to one loop. Without share() there is one owner and no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/host/entry_lock.h"
#include "weir/serve/buffer_slabs.h"

namespace weir::serve {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), power_(other.power_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(power_, other.power_);
    return *this;
  }
  // REQUIRES: it was given back.
  ~Buffer();

  explicit operator bool() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  std::size_t size() const { return std::size_t{1} << power_; }
  std::span<std::byte> first(std::size_t bytes) const { return {data_, bytes}; }

 private:
  friend class BufferPool;
  Buffer(std::byte* data, std::uint8_t power) : data_(data), power_(power) {}

  std::byte* data_ = nullptr;
  std::uint8_t power_ = 0;
};

struct MemoryAccount {
  std::uint64_t held = 0;     // bytes of buffers
  std::uint64_t charged = 0;  // bytes elsewhere
};

class BufferPool {
 public:
  static constexpr unsigned kPowerMin = BufferSlabs::kPowerMin;
  static constexpr unsigned kPowerMax = BufferSlabs::kPowerMax;
  static constexpr std::uint64_t kKeptMax = std::uint64_t{1} << 26;
  // Bytes of buffers that an account may always hold.
  static constexpr std::uint64_t kGuaranteed = std::uint64_t{1} << 15;

  BufferPool(Bytes limit, Bytes account_limit)
      : limit_(limit.count()), account_limit_(account_limit.count()) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Several loops use it from now on.
  void share() { is_shared_ = true; }

  // Reserves memory, kGuaranteed of it for buffers if it is for an account. False: not
  // enough memory.
  bool reserve(std::uint64_t bytes);
  void unreserve(std::uint64_t bytes);

  // Empty if there is no room. REQUIRES: 0 < bytes <= 2^kPowerMax.
  Buffer take(MemoryAccount& account, std::size_t bytes);
  void give_back(MemoryAccount& account, Buffer buffer);

  // Whether take() fails because of what others hold, and not because of its own buffers.
  bool is_refused_by_others(const MemoryAccount& account, std::size_t bytes) const {
    const Guard guard(*this);
    return account.held + bytes <= account_limit_;
  }

  // Whether charge() would succeed.
  bool has_room(const MemoryAccount& account, std::uint64_t bytes) const;
  bool charge(MemoryAccount& account, std::uint64_t bytes);
  void discharge(MemoryAccount& account, std::uint64_t bytes);

  // Takes effect for later requests; lent buffers stay with their holders.
  void set_limits(Bytes limit, Bytes account_limit) {
    const Guard guard(*this);
    limit_ = limit.count();
    account_limit_ = account_limit.count();
  }

  // Reserved, lent and charged: never more than the limit, unless that was lowered or a single
  // buffer is as large as the limit.
  std::uint64_t used() const {
    const Guard guard(*this);
    return in_use();
  }
  // Buffers kept for reuse; together with used() never more than the limit.
  std::uint64_t kept() const {
    const Guard guard(*this);
    return kept_;
  }
  // The part of used() that may be on the heap: everything except buffers.
  std::uint64_t on_heap() const {
    const Guard guard(*this);
    return reserved_ + charged_;
  }
  // How often take() found no room.
  std::uint64_t refused() const {
    const Guard guard(*this);
    return refused_;
  }

 private:
  // Locks nothing if one loop uses it, which clang cannot follow.
  class ABSL_SCOPED_LOCKABLE Guard {
   public:
    explicit Guard(const BufferPool& pool)
        ABSL_EXCLUSIVE_LOCK_FUNCTION(pool.lock_) ABSL_NO_THREAD_SAFETY_ANALYSIS
        : lock_(pool.is_shared_ ? &pool.lock_ : nullptr) {
      if (lock_ != nullptr) lock_->lock();
    }
    ~Guard() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (lock_ != nullptr) lock_->unlock();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    host::EntryLock* const lock_;
  };

  std::uint64_t in_use() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_) {
    return reserved_ + shared_ + charged_;
  }
  bool can_charge(const MemoryAccount& account, std::uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  bool fits(const MemoryAccount& account, std::uint64_t size) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  Buffer make(MemoryAccount& account, std::uint8_t power) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);
  void drop_kept(std::uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(lock_);

  bool is_shared_ = false;        // set before other loops start
  mutable host::EntryLock lock_;  // locked if shared
  BufferSlabs slabs_ ABSL_GUARDED_BY(lock_);
  std::uint64_t limit_ ABSL_GUARDED_BY(lock_);
  std::uint64_t account_limit_ ABSL_GUARDED_BY(lock_);
  std::uint64_t reserved_ ABSL_GUARDED_BY(lock_) = 0;
  std::uint64_t lent_ ABSL_GUARDED_BY(lock_) = 0;    // buffers
  std::uint64_t shared_ ABSL_GUARDED_BY(lock_) = 0;  // of it, beyond the reserve of its holders
  std::uint64_t charged_ ABSL_GUARDED_BY(lock_) = 0;
  std::uint64_t kept_ ABSL_GUARDED_BY(lock_) = 0;
  std::uint64_t refused_ ABSL_GUARDED_BY(lock_) = 0;
  std::array<std::vector<std::byte*>, kPowerMax + 1> free_ ABSL_GUARDED_BY(lock_);
};

}  // namespace weir::serve
