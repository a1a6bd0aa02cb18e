// SPDX-License-Identifier: Apache-2.0
//
// What calls cost: operations and bytes, charged when a call arrives and settled by its reply.
//
//                         charged on arrival      settled
//   READ of 1 MiB         1 operation, 1 MiB      10 bytes are returned: 1 operation, 10 bytes
//   WRITE of 64 KiB       1 operation, 64 KiB     the same: the bytes have been transferred
//   READDIRPLUS, 32 KiB   1 operation, 32 KiB     8,000 bytes are returned: 2 and 8,000
//   COPY of 1 GiB         1 operation, 64 MiB     1/16 of what the server has copied
//
// Bytes are those that a client asks for or sends: READ counts, WRITE payloads, room for directory
// entries. A call that moves bytes on the server only (COPY, CLONE, ALLOCATE, DEALLOCATE,
// WRITE_SAME) costs a fraction of them, up to a bound. The cost does not reflect the server's
// effort for metadata: one compound is one operation, whatever it looks up.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weir/base/operation_kind.h"

namespace weir::nfs {

struct Cost {
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;

  bool operator==(const Cost&) const = default;
};

// READDIRPLUS, which reads an inode per entry, costs one operation for each this many bytes.
inline constexpr std::uint32_t kDirectoryBytesPerOperation = 4096;

struct CostModel {
  // Bytes that only the server moves: their number, up to a maximum, is divided by this.
  std::uint32_t server_side_divisor = 16;
  std::uint64_t server_side_max = std::uint64_t{1} << 30;

  // The charge for `count` bytes; 0 means an unknown number, "to the end of the file".
  std::uint64_t server_side(std::uint64_t count) const {
    const std::uint64_t bytes = count == 0 ? server_side_max : std::min(count, server_side_max);
    return bytes / server_side_divisor;
  }
};

// How a call takes its turn.
enum class Urgency : std::uint8_t {
  kQueued,  // waits for its class
  kExempt,  // is charged, and does not wait: it releases what others wait for
  kFree,    // is not charged: it keeps leases, sessions and connections alive
};

// Saturates, so that sums stay below 2^64 whatever a client claims.
constexpr std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
  return a + b < a ? ~std::uint64_t{0} : a + b;
}

}  // namespace weir::nfs
