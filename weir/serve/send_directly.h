// SPDX-License-Identifier: Apache-2.0
//
// Large messages that a gateway forwards while they arrive are sent from the buffer into which they
// were received, in large pieces, and not copied to a queue: copying 1 MiB costs a third as much as
// all else that forwarding it does, and each piece costs a turn of the loop.
//
//   queue:   | bytes that wait |          sendmsg(2): | bytes that wait | piece |
//   piece:   received just now            what the socket does not take of the piece is left to the
//                                         caller, who appends it to the queue
//
// One thread. Nothing is sent if the queue is long, so order is kept in any case.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weir/serve/byte_queue.h"

namespace weir::serve {

// Pieces below this size are not worth a system call of their own.
inline constexpr std::size_t kSendDirectlyMin = std::size_t{8} << 10;
// The kernel copies it twice during a turn, which takes about 0.1 ms.
inline constexpr std::size_t kLargePiece = std::size_t{256} << 10;

// Sends what is in the queue and then the piece, as much as the socket takes at once. Returns how
// much of the piece was sent; what was sent of the queue is dropped. Errors are left to the next
// send of the queue. REQUIRES: the kernel does not use the queue.
std::size_t send_directly(int socket, ByteQueue& queue, std::span<const std::byte> piece);

// What has arrived of at most `bytes`, in `room`, which grows to kLargePiece when it is first used.
// Empty: nothing, or too few bytes were asked for. Errors and ends are left to the next receive.
std::span<const std::byte> receive_more(int socket, std::vector<std::byte>& room,
                                        std::size_t bytes);

}  // namespace weir::serve
