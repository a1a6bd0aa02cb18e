// SPDX-License-Identifier: Apache-2.0
//
// The IoLoop on io_uring: all operations of a turn are submitted in one system call, which also
// waits. liburing appears only in uring.cc.
//
//   wait()    one io_uring_enter
//   reap()    reads the completion queue, which is in shared memory
//
// create() probes the kernel's features and then tries them: a receive into a buffer of the pool
// must complete, because a seccomp filter may allow io_uring_setup and nothing else. The error
// names the kernel or setting that is needed.
//
// Buffers are not registered with the kernel: it would count them against the limit of locked
// memory, 8 MiB for an ordinary user, and copies of cached pages gain nothing from it.
#pragma once

#include <cstdint>
#include <memory>

#include "weir/host/io_loop.h"

namespace weir::host {

class Uring final : public IoLoop {
 public:
  static Result<std::unique_ptr<Uring>> create(const Options& options);
  ~Uring() override;

  std::string_view name() const override { return "io_uring"; }

  void accept(int socket, Operation& operation) override;
  void receive(int socket, Operation& operation) override;
  void give_back(const Completion& completion) override;
  void receive_into(int socket, std::span<std::byte> buffer, Operation& operation) override;
  void send(int socket, const msghdr& message, Operation& operation) override;
  void poll_data(int socket, Operation& operation) override;
  void poll_room(int socket, Operation& operation) override;
  void await_wake(int wake_fd, Operation& operation) override;
  void forget(int /*socket*/) override {}  // keeps no state of sockets

  void read(int file, std::span<std::byte> buffer, std::uint64_t offset, Operation& operation,
            Copy copy) override;
  void write(int file, std::span<const std::byte> buffer, std::uint64_t offset, int flags,
             Operation& operation, Copy copy) override;
  void sync_data(int file, Operation& operation) override;
  void allocate(int file, int mode, std::uint64_t offset, std::uint64_t length,
                Operation& operation) override;
  void fetch(int file, std::uint64_t offset, std::uint32_t length, Operation& operation) override;

  void cancel(Operation& operation) override;
  void wait(Instant until, Instant now) override;
  std::size_t reap() override;

 private:
  struct Kernel;

  Uring(ReceiveMemory memory, std::unique_ptr<Kernel> kernel);
  static Result<void> open(Kernel& kernel, const Options& options);
  static Result<void> open_buffers(Kernel& kernel, const ReceiveMemory& memory,
                                   const Options& options);
  Result<void> try_out();
  int submit_and_wait(Instant until, Instant now);

  std::unique_ptr<Kernel> kernel_;
};

}  // namespace weir::host
