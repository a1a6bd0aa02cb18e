// SPDX-License-Identifier: Apache-2.0
//
// The I/O of a server, submitted in one system call per turn: an io_uring with the few operations
// that the data plane needs. liburing appears only in uring.cc.
//
//   uring.receive(socket, operation);         queued, not submitted yet
//   uring.read(file, buffer, offset, other);
//   uring.wait(until);                        one io_uring_enter: submits all, waits for one
//   now = host::now();
//   uring.reap();                             calls operation.done for each completed operation
//
// An Operation is embedded in the object it belongs to, which must not be moved or destroyed before
// its completion; each is in progress at most once at a time (accept continues until it is
// stopped). Use receive() for sockets that may be idle: it takes a buffer from a common pool only
// when data arrives, so a thousand idle sockets hold none.
//
// Buffers are not registered with the kernel: they would count against the limit of locked memory,
// 8 MiB for an ordinary user, and copies of cached pages would not be faster. create() probes the
// kernel's features; the error names the kernel version or setting that is needed. One owner, one
// thread. A message header and its vectors may change after wait().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <sys/socket.h>

#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir::host {

// The result of an operation: a count or a descriptor, or a negative errno.
struct Completion {
  std::int32_t result = 0;
  std::uint32_t flags = 0;
};

struct Operation {
  using Done = void (*)(Operation& operation, const Completion& completion);
  Done done = nullptr;
};

class Uring {
 public:
  struct Options {
    std::uint32_t entries = 1024;         // operations submitted at once; more need another call
    std::uint32_t receive_buffers = 64;   // a power of 2
    std::uint32_t receive_bytes = 32768;  // of each
  };

  static Result<std::unique_ptr<Uring>> create(const Options& options);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Completes for each new connection, with its descriptor (non-blocking), until it fails; see
  // goes_on().
  void accept(int listener, Operation& operation);
  static bool goes_on(const Completion& completion);

  // Into a buffer of the common pool; received() is valid until give_back(), which must follow.
  // ENOBUFS if all are in use: try again in the next turn.
  void receive(int socket, Operation& operation);
  std::span<const std::byte> received(const Completion& completion) const;
  void give_back(const Completion& completion);
  // Into the caller's buffer; completes with the available data.
  void receive_into(int socket, std::span<std::byte> buffer, Operation& operation);
  // Sends everything, unless the connection breaks.
  void send(int socket, const msghdr& message, Operation& operation);

  // Who copies from or to the page cache: the caller of wait(), if the pages are cached, or a
  // thread of the kernel, which is better for large copies.
  enum class Copy : std::uint8_t { kHere, kWorker };
  void read(int file, std::span<std::byte> buffer, std::uint64_t offset, Operation& operation,
            Copy copy = Copy::kHere);
  // `flags` as in pwritev2(2): RWF_DSYNC.
  void write(int file, std::span<const std::byte> buffer, std::uint64_t offset, int flags,
             Operation& operation, Copy copy = Copy::kHere);
  void sync_data(int file, Operation& operation);
  // `mode` as in fallocate(2).
  void allocate(int file, int mode, std::uint64_t offset, std::uint64_t length,
                Operation& operation);
  // posix_fadvise(2): the pages will be needed.
  void fetch(int file, std::uint64_t offset, std::uint32_t length, Operation& operation);
  // Completes once, when the socket has room to send.
  void poll_room(int socket, Operation& operation);
  // The operation completes with ECANCELED, unless it completes first.
  void cancel(Operation& operation);

  // Submits everything and waits until an operation completes, or until that time.
  void wait(Instant until, Instant now);
  // Calls done() for completed operations; operations queued meanwhile are submitted by the
  // next wait().
  void reap();

  // System calls made so far.
  std::uint64_t enters() const { return enters_; }

 private:
  struct Kernel;

  explicit Uring(std::unique_ptr<Kernel> kernel);
  static Result<void> open(Kernel& kernel, const Options& options);
  static Result<void> open_buffers(Kernel& kernel, const Options& options);

  std::unique_ptr<Kernel> kernel_;
  std::uint64_t enters_ = 0;
};

}  // namespace weir::host
