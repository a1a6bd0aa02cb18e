// SPDX-License-Identifier: Apache-2.0
//
// The memory that payload lies in, bounded twice: for the whole server, and for each connection.
// Who gets none waits; nobody else does.
//
//   MemoryAccount account;                        one a connection
//   if (Buffer buffer = pool.take(account, 4096)) ...
//   pool.give_back(account, std::move(buffer));
//
// A connection that reads slowly keeps what it was given until it has taken its replies. So that
// such connections never use up everything, a further buffer must leave a quarter of the limit free
// and may bring its holder to a quarter of what is free; a first buffer may take half of what is
// left. So whoever holds nothing finds room for a small request, and moves.
//
// Buffers are powers of two from 4 KiB on, aligned to 4 KiB for O_DIRECT; some are kept for the
// next taker, up to kKeptMax, because fresh pages cost more than a copy. One owner, no locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "weir/base/quantity.h"

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
  std::uint64_t held = 0;  // bytes
};

class BufferPool {
 public:
  static constexpr unsigned kPowerMin = 12;
  static constexpr unsigned kPowerMax = 26;
  static constexpr std::uint64_t kKeptMax = std::uint64_t{1} << 26;

  BufferPool(Bytes limit, Bytes account_limit)
      : limit_(limit.count()), account_limit_(account_limit.count()) {}
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Empty when there is no room. REQUIRES: 0 < bytes <= 2^kPowerMax.
  Buffer take(MemoryAccount& account, std::size_t bytes);
  // The smallest buffer whatever the bounds say: for what other bounds hold, such as answers to
  // requests.
  Buffer take_small(MemoryAccount& account);
  void give_back(MemoryAccount& account, Buffer buffer);

  // Of further buffers; what is lent stays with its holders.
  void set_limits(Bytes limit, Bytes account_limit) {
    limit_ = limit.count();
    account_limit_ = account_limit.count();
  }

  std::uint64_t used() const { return used_; }
  // How often take() found no room.
  std::uint64_t refused() const { return refused_; }

 private:
  Buffer make(MemoryAccount& account, std::uint8_t power);

  std::uint64_t limit_;
  std::uint64_t account_limit_;
  std::uint64_t used_ = 0;
  std::uint64_t kept_ = 0;
  std::uint64_t refused_ = 0;
  std::array<std::vector<std::byte*>, kPowerMax + 1> free_;
};

}  // namespace weir::serve
