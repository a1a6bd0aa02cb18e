// SPDX-License-Identifier: Apache-2.0
//
// The IoLoop on epoll, for kernels without a usable io_uring: nothing here is newer than Linux 4.18
// (docs/design/data-plane.md lists the calls).
//
//   sockets     level-triggered. A socket stays registered while it is in use, so a receive costs
//               one recv(2) and no epoll_ctl(2). A send is tried at once; what the socket does not
//               take is remembered and sent when it has room
//   files       tried at once if the call can say that it would wait (RWF_NOWAIT), else given to
//               a thread (file_workers.h)
//   deadlines   a timerfd: epoll_wait(2) counts milliseconds
//
// A descriptor that reports something nobody has asked for is taken out of epoll until somebody
// does, so that a hung-up peer of a connection at its limits does not keep the loop busy.
//
// A turn takes what is there: one receive for each socket, kAcceptsMax connections for each
// listener, kEventsMax descriptors. The rest is reported again in the next turn, in which the
// kernel begins with those that had no turn.
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
  // Of one turn.
  static constexpr int kEventsMax = 256;
  static constexpr int kAcceptsMax = 64;
  // Copied by one receive_into(), about 0.2 ms.
  static constexpr std::size_t kReceiveMax = std::size_t{1} << 20;

  static Result<std::unique_ptr<Epoll>> create(const Options& options);
  ~Epoll() override;

  std::string_view name() const override { return "epoll"; }

  void accept(int listener, Operation& operation) override;
  void receive(int socket, Operation& operation) override;
  void give_back(const Completion& completion) override;
  void receive_into(int socket, std::span<std::byte> buffer, Operation& operation) override;
  void send(int socket, const msghdr& message, Operation& operation) override;
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
  void reap() override;

 private:
  enum class In : std::uint8_t { kAccept, kReceive, kReceiveInto, kWake };
  enum class Out : std::uint8_t { kSend, kRoom };
  // What is in progress on a descriptor.
  struct Watched {
    int fd = -1;
    std::uint32_t events = 0;  // that epoll was told to report
    Operation* in = nullptr;
    Operation* out = nullptr;
    In in_kind = In::kReceive;
    Out out_kind = Out::kSend;
    bool refuses_nowait = false;   // of a file
    std::span<std::byte> into;     // of kReceiveInto
    std::size_t got = 0;           // of it
    std::vector<iovec> unsent;     // of kSend
    std::size_t first_unsent = 0;  // of them
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
  // What epoll reports from now on; 0: nothing, not even that the peer has hung up. Not 0: the
  // errno below zero of a descriptor that epoll cannot take.
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
  // For the next reap().
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
