// SPDX-License-Identifier: Apache-2.0
//
// The server: listeners, connections and the one loop that drives them. A turn of it:
//
//   wait, then read the clock once       one system call hands over all that was asked for
//   reap                                 bytes become requests, which are admitted to their Gate;
//                                        stores finish; replies have been sent
//   stores that wait for time, connections that waited for memory
//   each Gate: next() until it says wait what runs goes to its store
//   send                                 all replies of a connection in one message
//
// All services share the loop; nothing in it needs a lock. It runs until SIGTERM or SIGINT: then no
// connection is accepted, nothing more is read, everything that was accepted is answered (what
// waits for tokens no longer waits), and run() returns, at the latest after the drain timeout.
// SIGHUP reads the file of jobs again.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/signals.h"
#include "weir/serve/connection.h"
#include "weir/serve/options.h"
#include "weir/serve/plane.h"
#include "weir/serve/trace_file.h"

namespace weir::serve {

class Server {
 public:
  // Opens the stores and listens; then becomes options.user. Nobody is accepted before run().
  static Result<std::unique_ptr<Server>> create(ServeOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens, with the port the kernel chose for port 0.
  const std::vector<ListenAddress>& listening() const { return listening_; }

  // Called on SIGHUP, after the file of jobs was read.
  void on_reload(std::function<void(Server&)> reload) { reload_ = std::move(reload); }
  // Another pace for a shaped store. ENOENT: no such export; ENOTSUP: not shaped.
  Result<void> reshape(std::string_view export_name, const Shape& shape);

  // `ready` is called when clients can come.
  void run(const std::function<void()>& ready);

  const Counters& counters() const { return plane_.counters; }

 private:
  struct Listener : host::Operation {
    Server* server = nullptr;
    host::Fd socket;
    std::string path;  // of a Unix socket, to be removed at the end
    bool is_pending = false;
    bool is_tcp = false;
  };
  struct Waker : host::Operation {
    Server* server = nullptr;
  };

  Server(ServeOptions options, std::unique_ptr<host::Uring> uring, host::SignalFd signals);
  Result<void> open();
  Result<void> open_services();
  Result<void> listen();

  static void accepted(host::Operation& io, const host::Completion& completion);
  void add_connection(host::Fd socket, bool is_tcp);
  void accept_all();
  static void signalled(host::Operation& io, const host::Completion& completion);
  Result<JobTable> known_jobs() const;
  void read_jobs_again();
  void stop();
  bool is_done() const;

  void turn();
  void expire_handshakes();
  void wake_stores();
  void feed_hungry();
  void dispatch();
  void flush();
  void bury();
  Instant wakes_at() const;

  ServeOptions options_;
  std::unique_ptr<TraceFile> trace_;  // outlives the services it is told of
  Plane plane_;
  host::SignalFd signals_;
  Waker signal_waker_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<ListenAddress> listening_;
  std::function<void(Server&)> reload_;
  JobTable jobs_;
  Ring<Connection, &Connection::all_link> connections_;
  Ring<Connection, &Connection::handshake_link> handshakes_;  // the oldest first
  std::uint32_t connection_count_ = 0;
  std::uint32_t connections_max_ = 0;
  Instant accepts_again_ = kNever;
  Instant stop_at_ = kNever;
  bool is_stopping_ = false;
};

}  // namespace weir::serve
