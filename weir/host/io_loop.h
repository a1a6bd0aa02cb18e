// SPDX-License-Identifier: Apache-2.0
//
// The I/O of one event loop: sockets, files and wake-ups, with a callback for each operation. There
// are two implementations, and nothing above weir/host/ knows which one runs:
//
//   uring.h    io_uring: Linux 6.1, one system call per turn
//   epoll.h    epoll and a few threads for files: Linux 4.18, or where io_uring is disabled
//
//   io.receive(socket, operation);            asked for
//   io.read(file, buffer, offset, other);
//   io.wait(until, now);                      until something completes
//   now = host::now();
//   io.reap();                                calls operation.done for completed operations
//
// An Operation is embedded in the object it belongs to, which must not be moved or destroyed before
// its completion; each is in progress at most once at a time (accept continues until it is
// stopped). Only reap() calls done(), never the call that starts the operation. A socket has at
// most one receiving and one sending operation at a time. Use receive() for sockets that may be
// idle: it takes a buffer from a common pool only when data arrives, so a thousand idle sockets
// hold none. A message header and its vectors may change after wait(). One owner, one thread.
//
// An IoLoop does not schedule anything and has no timers: the owner determines how long to wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <sys/socket.h>

#include "weir/base/assert.h"
#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir::host {

// The result of an operation: a count or a descriptor, or a negative errno.
struct Completion {
  // Flags, with the values that io_uring uses.
  static constexpr std::uint32_t kHasBuffer = 1U << 0;  // of the common pool
  static constexpr std::uint32_t kGoesOn = 1U << 1;     // the operation is still in progress
  static constexpr unsigned kBufferShift = 16;          // of the number of the buffer in the flags

  std::int32_t result = 0;
  std::uint32_t flags = 0;

  bool goes_on() const { return (flags & kGoesOn) != 0; }
  bool has_buffer() const { return (flags & kHasBuffer) != 0; }
  std::uint32_t buffer() const { return flags >> kBufferShift; }
};

struct Operation {
  using Done = void (*)(Operation& operation, const Completion& completion);
  Done done = nullptr;
  int descriptor = -1;  // the IoLoop's own
};

// Memory of the common pool, mapped directly: pages become resident when they are first used.
class ReceiveMemory {
 public:
  static Result<ReceiveMemory> create(std::uint32_t buffers, std::uint32_t bytes);
  ReceiveMemory(ReceiveMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, {})), bytes_(other.bytes_) {}
  ReceiveMemory& operator=(ReceiveMemory&&) = delete;
  ~ReceiveMemory();

  std::span<std::byte> at(std::uint32_t buffer) const {
    return memory_.subspan(std::size_t{buffer} * bytes_, bytes_);
  }

 private:
  ReceiveMemory(std::span<std::byte> memory, std::uint32_t bytes)
      : memory_(memory), bytes_(bytes) {}

  std::span<std::byte> memory_;
  std::uint32_t bytes_ = 0;  // of a buffer
};

class IoLoop {
 public:
  struct Options {
    std::uint32_t entries = 1024;         // operations submitted at once; more need another call
    std::uint32_t receive_buffers = 64;   // a power of 2
    std::uint32_t receive_bytes = 32768;  // of each
  };

  IoLoop(const IoLoop&) = delete;
  IoLoop& operator=(const IoLoop&) = delete;
  // REQUIRES: no operation on a file is in progress.
  virtual ~IoLoop() = default;

  // "io_uring" or "epoll".
  virtual std::string_view name() const = 0;

  // Completes for each new connection, with its descriptor (non-blocking), until it fails; see
  // Completion::goes_on().
  virtual void accept(int socket, Operation& operation) = 0;

  // Into a buffer of the common pool; received() is valid until give_back(), which must follow.
  // ENOBUFS when all are in use: try again in the next turn.
  virtual void receive(int socket, Operation& operation) = 0;
  std::span<const std::byte> received(const Completion& completion) const {
    if (completion.result <= 0) return {};
    WEIR_ASSERT(completion.has_buffer());
    return receive_memory_.at(completion.buffer())
        .first(static_cast<std::size_t>(completion.result));
  }
  virtual void give_back(const Completion& completion) = 0;
  // Into the caller's buffer, all of it: less if the connection ends, or if it is cancelled after
  // some bytes have arrived.
  virtual void receive_into(int socket, std::span<std::byte> buffer, Operation& operation) = 0;
  // All of it unless the connection breaks.
  virtual void send(int socket, const msghdr& message, Operation& operation) = 0;
  // Completes once, when a socket has bytes to receive, or its end: an operation that receives.
  virtual void poll_data(int socket, Operation& operation) = 0;
  // Completes once, when a socket has room to send.
  virtual void poll_room(int socket, Operation& operation) = 0;
  // Completes once, when a descriptor of make_wake_fd() (mailbox.h) was written to, and reads it.
  virtual void await_wake(int wake_fd, Operation& operation) = 0;
  // Call before closing a socket, when all its operations have completed. Its number may be reused.
  virtual void forget(int socket) = 0;

  // The thread that copies from or to the page cache.
  enum class Copy : std::uint8_t {
    kHere,    // the caller of wait(), if the pages are cached
    kDevice,  // not known beforehand: direct I/O, or pages that were just found not to be cached
    kWorker,  // another thread: for large copies, or if the call may block for ever
  };
  virtual void read(int file, std::span<std::byte> buffer, std::uint64_t offset,
                    Operation& operation, Copy copy) = 0;
  // `flags` as in pwritev2(2): RWF_DSYNC.
  virtual void write(int file, std::span<const std::byte> buffer, std::uint64_t offset, int flags,
                     Operation& operation, Copy copy) = 0;
  virtual void sync_data(int file, Operation& operation) = 0;
  // `mode` as in fallocate(2).
  virtual void allocate(int file, int mode, std::uint64_t offset, std::uint64_t length,
                        Operation& operation) = 0;
  // posix_fadvise(2): the pages will be needed.
  virtual void fetch(int file, std::uint64_t offset, std::uint32_t length,
                     Operation& operation) = 0;

  // The operation completes with ECANCELED, unless it completed before. An operation that the
  // kernel cannot cancel completes normally.
  virtual void cancel(Operation& operation) = 0;

  // Submits all operations and waits until one completes, or until that time.
  virtual void wait(Instant until, Instant now) = 0;
  // Calls done() for completed operations; operations started meanwhile are submitted by the next
  // wait(). Returns the number of completed sends if there were no other operations, otherwise a
  // larger number.
  virtual std::size_t reap() = 0;

 protected:
  explicit IoLoop(ReceiveMemory receive_memory) : receive_memory_(std::move(receive_memory)) {}

  const ReceiveMemory& receive_memory() const { return receive_memory_; }

 private:
  ReceiveMemory receive_memory_;
};

enum class IoChoice : std::uint8_t {
  kAuto,   // io_uring if it works on this system, otherwise epoll
  kUring,  // or an error
  kEpoll,
};

struct OpenedIo {
  std::unique_ptr<IoLoop> loop;
  std::string why_not_uring;  // with kAuto, if epoll is used
};

// Creates the loop and tries it; the error names the kernel or setting that is needed.
Result<OpenedIo> open_io(IoChoice choice, const IoLoop::Options& options = {});

}  // namespace weir::host
