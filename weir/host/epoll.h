// SPDX-License-Identifier: Apache-2.0
//
// The IoLoop on epoll, for kernels without a usable io_uring: nothing here is newer than Linux 4.18
// (docs/design/data-plane.md lists the calls).
//
//   sockets     level-triggered. A socket stays registered while it is in use, so a receive costs
//               one recv(2) and no epoll_ctl(2). A send is tried at once; what the socket does not
//               accept is sent when it has room
//   files       tried at once if the call can report that it would block (RWF_NOWAIT), otherwise
//               passed to a thread (file_workers.h)
//   deadlines   a timerfd, because epoll_wait(2) has a resolution of milliseconds
//
// A descriptor that reports an event which no operation waits for is removed from epoll until one
// does, so that a connection at its limits whose peer has hung up does not keep the loop busy.
//
// The work of a turn is bounded: one receive for each connection, kAcceptsMax connections for each
// listening socket, kEventsMax descriptors. The rest is reported again in the next turn, which
// starts with the descriptors that were not served.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sys/epoll.h>
#include <sys/uio.h>

#include "weir/host/fd.h"
#include "weir/host/file_workers.h"
#include "weir/host/io_loop.h"
#include "weir/host/timer_fd.h"

namespace weir::host {

class Epoll final : public IoLoop {
 public:
  // Per turn.
  static constexpr int kEventsMax = 256;
  static constexpr int kAcceptsMax = 64;
  // Copied by one receive_into(), about 0.2 ms.
  static constexpr std::size_t kReceiveMax = std::size_t{1} << 20;

  static Result<std::unique_ptr<Epoll>> create(const Options& options);
  ~Epoll() override;

  std::string_view name() const override { return "epoll"; }

  void accept(int socket, Operation& operation) override;
  void receive(int socket, Operation& operation) override;
  void give_back(const Completion& completion) override;
  void receive_into(int socket, std::span<std::byte> buffer, Operation& operation) override;
  void send(int socket, const msghdr& message, Operation& operation) override;
  void poll_data(int socket, Operation& operation) override;
  void poll_room(int socket, Operation& operation) override;
  void await_wake(int wake_fd, Operation& operation) override;
  void forget(int socket) override;

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
  enum class In : std::uint8_t { kAccept, kReceive, kReceiveInto, kData, kWake };
  enum class Out : std::uint8_t { kSend, kRoom };
  // What is in progress on a descriptor.
  struct Watched {
    int fd = -1;
    std::uint32_t events = 0;  // registered with epoll
    Operation* in = nullptr;
    Operation* out = nullptr;
    In in_kind = In::kReceive;
    Out out_kind = Out::kSend;
    bool refuses_nowait = false;   // of a file
    std::span<std::byte> into;     // of kReceiveInto
    std::size_t got = 0;           // bytes received into it
    std::vector<iovec> unsent;     // of kSend
    std::size_t first_unsent = 0;  // index of the first one not sent
    std::int32_t sent = 0;
  };
  struct Finished {
    Operation* operation;
    Completion completion;
  };

  Epoll(ReceiveMemory memory, const Options& options, Fd epoll, TimerFd timer,
        std::unique_ptr<FileWorkers> workers);

  Watched& watched(int fd);
  void begin_in(int fd, In kind, Operation& operation);
  void begin_out(Watched& one, Out kind, Operation& operation);
  // Sets the events that epoll reports; 0: none, not even that the peer has hung up. Returns 0, or
  // a negative errno if epoll does not support the descriptor.
  int set_events(Watched& one, std::uint32_t events);
  void occurred(const epoll_event& event);
  void go_in(Watched& one);
  void go_out(Watched& one, std::uint32_t events);
  void accept_some(Watched& one);
  void receive_one(Watched& one);
  void receive_rest(Watched& one);
  void send_rest(Watched& one);
  // Ends the operation and calls its done().
  static void end_in(Watched& one, const Completion& completion);
  void end_out(Watched& one, std::int32_t result);
  // Reported by the next reap().
  void finish(Operation& operation, std::int32_t result);
  bool may_try(int file);
  void tried(int file, Operation& operation, ssize_t result, const FileJob& job);

  Fd epoll_;
  TimerFd timer_;
  Instant armed_ = kNever;
  std::unique_ptr<FileWorkers> workers_;
  std::vector<std::uint32_t> free_buffers_;
  std::vector<std::unique_ptr<Watched>> watched_;  // by descriptor
  std::vector<Finished> finished_;
  std::vector<Finished> reaped_;
  std::array<epoll_event, kEventsMax> events_{};
  int event_count_ = 0;
};

}  // namespace weir::host
