// SPDX-License-Identifier: Apache-2.0
//
// How a gateway forwards what it has received at once, without a turn of the loop for the end of
// the send: what is in a queue; or a large piece from the buffer into which it was received, which
// is not copied to the queue: copying 1 MiB costs a third as much as all else that forwarding it
// does.
//
//   queue:   | bytes that wait |          sendmsg(2): | bytes that wait | piece |
//   piece:   received just now            what the socket does not take of the piece is left to the
//                                         caller, who appends it to the queue
//
// One thread. No piece is sent if the queue is long, so order is kept in any case.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weir/host/io_loop.h"
#include "weir/serve/byte_queue.h"

namespace weir::serve {

struct LoopContext;

// Pieces below this size are not worth a system call of their own.
inline constexpr std::size_t kSendDirectlyMin = std::size_t{8} << 10;
// The kernel copies it twice during a turn, which takes about 0.1 ms.
inline constexpr std::size_t kLargePiece = std::size_t{256} << 10;

// Sends what is in the queue and then the piece, as much as the socket takes at once. Returns how
// much of the piece was sent; what was sent of the queue is dropped. Errors are left to the next
// send of the queue. REQUIRES: the kernel does not use the queue.
std::size_t send_directly(int socket, ByteQueue& queue, std::span<const std::byte> piece);

// Sends what the socket takes at once of the queue, up to 64 chunks, and drops it. Returns the
// bytes; errors are left to the next send of the queue. REQUIRES: the kernel does not use the
// queue.
std::size_t send_queue(int socket, ByteQueue& queue);

// Leaves the queue to the kernel, which completes `operation`. False: it is empty.
bool send_rest(LoopContext& context, int socket, const ByteQueue& queue,
               host::Operation& operation);

// What has arrived of at most `bytes`, in `room`, which grows to kLargePiece when it is first used.
struct LargeReceive {
  int result = 0;  // a count, 0 at the end, or a negative errno
  std::span<const std::byte> bytes;
};
LargeReceive receive_large(int socket, std::vector<std::byte>& room, std::size_t bytes);

}  // namespace weir::serve
