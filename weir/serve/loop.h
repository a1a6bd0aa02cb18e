// SPDX-License-Identifier: Apache-2.0
//
// One loop of a server and its connections. A turn:
//
//   wait, then read the clock once       one system call submits everything
//   start                                what other loops have decided for this one
//   reap                                 bytes become requests, which are admitted to their Gate;
//                                        stores complete operations; replies have been sent
//   new connections, commands            of other threads; commands only on the first loop
//   stores that wait for time, connections that waited for memory or sent much (intake.h)
//   each Dispatcher                      calls and decisions; dispatched requests go to their store
//   send                                 all replies of a connection in one message
//
// The first loop belongs to the thread that creates and runs the server. Each other loop has a
// thread of its own from start() on, which opens its I/O, because the kernel binds io_uring to a
// thread. Loops share only the state in ServerContext. An error that a loop cannot handle ends the
// process (die()).
//
// add(), end() and the reading functions are thread-safe; the others are for the loop's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/mutex.h"
#include "weir/serve/client_identity.h"
#include "weir/serve/connection.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/protocol.h"

namespace weir::serve {

// An accepted socket for a loop. Connection::kConnectionReserve is reserved for it.
struct NewConnection {
  host::Fd socket;
  ClientIdentity identity;
  const ProtocolKind* protocol = nullptr;
};

class Loop {
 public:
  using OpenIo = std::function<Result<std::unique_ptr<host::IoLoop>>()>;

  // With its I/O open; a loop other than the first starts its thread, which waits for run().
  static Result<std::unique_ptr<Loop>> create(ServerContext& server, std::uint8_t index,
                                              const OpenIo& open_io);
  // REQUIRES: it was not run, or has ended without connections.
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  LoopContext& context() { return context_; }
  const LoopContext& context() const { return context_; }

  // ---- thread-safe ----

  // A new connection; it counts from now on.
  void add(NewConnection connection);
  // Accepted requests are answered, then connections are closed, at the latest at `until`.
  void end(Instant until);
  std::uint32_t connection_count() const { return count_; }
  // It reads nothing more, and its last admissions have left it.
  bool has_ended() const { return has_ended_; }
  // All its connections are closed or wait for their store.
  bool is_drained() const { return is_drained_; }
  // Connections were refused for lack of memory: clients that hold memory and send nothing are
  // disconnected.
  void note_refused();

  // ---- threads ----

  // Runs a loop other than the first, until finish().
  void run();
  // Ends it. REQUIRES: it is drained, or run() was not called.
  void finish();

  // ---- for the thread of the loop ----

  // Does what end() has ordered.
  void begin_end();
  // Ends the process, because the requests of its clients would never be answered.
  [[noreturn]] void die(const char* why) const;

  // One turn, that waits at most until then. `between` is called where commands run. With io_uring
  // a send that completes ends the wait: a turn with nothing else is quiet and ends there.
  template <class Between>
  void turn(Instant until, Between between);
  bool is_done() const;
  bool has_connections() const { return !connections_.empty(); }
  // Adds the requests that stores have not completed, by export.
  void count_working(std::map<const ServedExport*, std::uint64_t>& counts) const;
  // Deletes closed connections.
  void bury();

 private:
  struct Waker : host::Operation {
    Loop* loop = nullptr;
  };

  Loop(ServerContext& server, std::uint8_t index, std::unique_ptr<host::IoLoop> io,
       host::Fd wake_fd);
  static void woken(host::Operation& io, const host::Completion& completion);
  void run_thread(const OpenIo& open_io, std::promise<Result<void>>& opened);

  void begin_turn(Instant until);
  bool is_quiet();
  void end_turn();
  void sleep(Instant until);
  Instant wakes_at() const;
  void take_arrivals();
  void end_handshakes();
  bool needs_bell() const;
  void close_all();
  void start_decided();
  void expire_handshakes();
  void wake_sessions();
  void check_payloads();
  void wake_stores();
  void watch_store(LocalExport& local);
  void perform_waiting();
  void resume_waiting();
  void free_called();
  void read_on();
  void dispatch();
  void flush();
  void share_memory_state();
  void note_turn();

  LoopContext context_;
  Waker waker_;
  bool is_awaited_ = false;  // the doorbell
  Ring<Connection, &Connection::all_link> connections_;
  Ring<Connection, &Connection::handshake_link> handshakes_;  // the oldest first
  std::atomic<std::uint32_t> count_ = 0;                      // with those that arrive
  host::Mutex mutex_;
  std::vector<NewConnection> arrivals_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_arrivals_ = false;
  std::atomic<bool> has_refused_ = false;
  std::atomic<std::int64_t> end_ns_;  // from end()
  bool is_ending_ = false;
  std::atomic<bool> has_ended_ = false;
  Instant stop_at_ = kNever;
  Instant abandon_at_ = kNever;
  std::uint64_t freed_seen_ = 0;  // of ServerContext::freed
  Instant armed_ = kNever;        // until when it slept at most
  std::size_t completed_ = 0;     // operations in this turn
  bool was_quiet_ = false;        // its last turn
  Nanoseconds thread_time_{0};    // at the end of the last turn
  std::atomic<bool> is_drained_ = false;
  std::atomic<bool> is_finished_ = false;
  std::promise<bool> go_;  // false: end without a turn
  bool has_gone_ = false;
  std::thread thread_;
};

template <class Between>
void Loop::turn(Instant until, Between between) {
  begin_turn(until);
  between();
  if (!is_quiet()) end_turn();
}

}  // namespace weir::serve
