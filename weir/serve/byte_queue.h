// SPDX-License-Identifier: Apache-2.0
//
// Bytes on their way to a socket, in order: appended at one end, sent and dropped at the other.
//
//   queue.append(bytes);                        copied
//   const std::size_t parts = queue.parts(vectors);      for sendmsg(2)
//   queue.drop(sent);
//
// Bytes never move once they are in the queue, so that the kernel may still be reading them while
// more are appended. They lie in chunks of up to kChunk bytes; an empty queue keeps at most
// kKept bytes of memory. One owner, no locks.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include <sys/uio.h>

namespace weir::serve {

class ByteQueue {
 public:
  static constexpr std::size_t kChunk = std::size_t{1} << 17;
  static constexpr std::size_t kKept = std::size_t{1} << 12;

  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  void append(std::span<const std::byte> bytes);
  // Moves everything of another queue behind the bytes of this one.
  void append(ByteQueue&& other);
  // The first bytes, as many as fit into the vectors. Returns how many vectors are used.
  std::size_t parts(std::span<iovec> vectors) const;
  // REQUIRES: bytes <= size(); the kernel no longer uses them.
  void drop(std::size_t bytes);
  void clear();

 private:
  std::deque<std::vector<std::byte>> chunks_;  // none is empty, except one kept for reuse
  std::size_t first_ = 0;                      // bytes of the first chunk that were dropped
  std::size_t size_ = 0;
};

}  // namespace weir::serve
