// SPDX-License-Identifier: Apache-2.0
//
// The server: listening sockets, and the loops that serve their connections (loop.h). The thread
// that creates the server runs it and the first loop, which accepts connections for all and gives
// each to the loop with the fewest; the other loops have threads of their own. Loops share the
// services: a Target is entered by one at a time (dispatcher.h), so limits and shares hold whatever
// the number of loops.
//
// Other threads reach a server only with commands (command.h). They run on the first loop while no
// loop is inside a Target, so a change is in force for all loops when its command has returned.
//
// It runs until SIGTERM or SIGINT: then it accepts no connections, reads nothing more, and answers
// all accepted requests (requests that wait for tokens no longer wait, except under cluster-wide
// limits). run() returns at the latest after the drain timeout: then the connections are closed,
// and requests still in a store are abandoned. A separate thread receives signals from create() on
// (signal_watch.h): if the server still exists kEndPatience after the drain timeout, because a loop
// or another thread hangs in a system call, it terminates the process; during the start, when
// nothing has to drain, after kEndPatience. SIGHUP calls the function of on_reload(), or reads the
// jobs file again. Created and run by one thread; others may call only order(), ask() and post().
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/fd.h"
#include "weir/host/log.h"
#include "weir/host/mailbox.h"
#include "weir/host/signals.h"
#include "weir/serve/command.h"
#include "weir/serve/heap_trim.h"
#include "weir/serve/loop.h"
#include "weir/serve/loop_component.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/options.h"
#include "weir/serve/signal_watch.h"
#include "weir/serve/trace_file.h"

namespace weir::serve {

class Server {
 public:
  // Time for the remaining work after the drain timeout.
  static constexpr Nanoseconds kEndPatience = std::chrono::seconds{2};
  // Exit status of a process that was terminated because it hangs: EX_IOERR. 0 if all requests had
  // been answered.
  static constexpr int kHungStatus = 74;

  // Opens the stores and listens; then switches to options.user. Accepts no clients before run().
  static Result<std::unique_ptr<Server>> create(ServeOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The addresses it listens on, with the port that the kernel chose for port 0.
  const std::vector<ListenAddress>& listening() const { return listening_; }

  // Reads the jobs file again. On an error the jobs stay unchanged.
  Result<void> read_jobs_again();
  // Reads and checks the certificates on disk. Calling the result makes new connections use them.
  // Does nothing with TLS off.
  Result<std::function<void()>> read_certificates();

  // Called on SIGHUP instead of reading the jobs file again.
  void on_reload(std::function<void(Server&)> reload) { reload_ = std::move(reload); }

  // At most one, which outlives run(). REQUIRES: the server does not run yet.
  void set_component(LoopComponent* component);
  const LoopComponent* component() const { return component_; }

  // Accepts no clients until open_entrance(). REQUIRES: the server does not run yet.
  void hold_entrance() { is_held_ = true; }

  // `ready` is called when clients can connect. False: some requests were abandoned, because their
  // store had not completed them by the drain timeout. The kernel may still use their memory then:
  // the server cannot be destroyed, so call leave() and exit the process.
  [[nodiscard]] bool run(const std::function<void()>& ready);
  // Removes the Unix sockets.
  void leave();

  // ---- thread-safe, see command.h ----

  // ECANCELED: it is shutting down. Then the command is not called.
  Result<void> order(Command command);
  // The same, and EAGAIN: too many commands wait.
  Result<void> post(Command command);
  // `function` takes a Server& and returns a Result, which is returned here when the loop has
  // run it.
  template <class Function>
  std::invoke_result_t<Function, Server&> ask(Function function);

  // ---- for commands and other code on the first loop ----

  // The time of this turn.
  Instant now() const { return first().now; }
  const ServeOptions& options() const { return options_; }
  // Of all loops together.
  Counters counters() const;
  // Memory held by connections, out of ServeLimits::memory; see buffer_pool.h.
  Bytes memory_used() const { return Bytes{context_.pool.used()}; }
  Bytes memory_kept() const { return Bytes{context_.pool.kept()}; }
  std::uint32_t connection_count() const;
  // How it does its I/O: "io_uring" or "epoll".
  std::string_view io_name() const { return first().io->name(); }
  // One for each loop.
  struct LoopStatus {
    std::uint32_t connections = 0;
    std::uint64_t requests = 0;
    std::uint64_t wake_ups = 0;  // by other loops
    LoopStatsOf<std::uint64_t> stats;
  };
  std::vector<LoopStatus> loops() const;
  // The state of an export's store if it hangs on any loop; none: it does not hang.
  struct HungStore {
    std::uint32_t unfinished = 0;
    std::uint32_t kept = 0;
    Nanoseconds silence{0};
  };
  std::optional<HungStore> hung(const ServedExport& served) const;
  std::span<const std::unique_ptr<Service>> services() const { return context_.services; }
  std::span<const std::unique_ptr<ServedExport>> exports() const { return context_.exports; }
  const KnownClients& known_clients() const { return context_.clients; }
  // nullptr if it does not exist.
  Service* find_service(std::string_view name) const;
  // Changes the speed of a shaped store. ENOENT: no such export; ENOTSUP: not shaped.
  Result<void> reshape(std::string_view export_name, const Shape& shape);
  // As ServeOptions::limits. Connections above a new limit keep what they have. EMFILE, ENOMEM: the
  // system cannot provide them; nothing changes.
  Result<void> check_limits(const ServeLimits& limits) const;
  Result<void> set_limits(const ServeLimits& limits);
  // The listed jobs and those of the file, which take precedence.
  static Result<JobTable> load_jobs(const std::string& file, const std::vector<JobNodes>& named);
  // The configured number of nodes of a job; 0: not listed.
  std::uint64_t named_nodes(const std::string& job) const {
    const auto found = jobs_.find(job);
    return found == jobs_.end() ? 0 : found->second;
  }
  // Sets them in all services; those of jobs that are no longer listed are removed.
  void set_jobs(JobTable jobs);
  // The same for jobs from another source, such as Slurm: set_jobs() takes precedence.
  void set_told_jobs(JobTable jobs);
  // Accepts clients from now on.
  void open_entrance();
  // Limits the whole server to this many operations per second, regardless of rules; none: no such
  // limit.
  void set_pace(std::optional<std::uint32_t> per_second);
  // The same as SIGTERM.
  void stop();

 private:
  struct ListeningSocket : host::Operation {
    Server* server = nullptr;
    host::Fd socket;
    std::string path;  // of a Unix socket, to be removed at the end
    bool is_pending = false;
    bool is_tcp = false;
    const ProtocolKind* protocol = nullptr;
  };
  enum class Stage : std::uint8_t { kStarting, kServing, kDrained };
  struct Waker : host::Operation {
    Server* server = nullptr;
  };

  Server(ServeOptions options, host::SignalFd signals, host::Fd watch_wake_fd, host::Fd wake_fd);
  Result<void> open();
  Result<void> open_loops();
  Result<void> open_services();
  Result<void> open_exports();
  void open_dispatchers();
  Result<void> listen();
  LoopContext& first() { return loops_.front()->context(); }
  const LoopContext& first() const { return loops_.front()->context(); }

  static void accepted(host::Operation& io, const host::Completion& completion);
  void add_connection(host::Fd socket, const ListeningSocket& listening);
  void accept_all();
  void signalled(int signal);
  void reload();
  [[noreturn]] void end_hung() const;
  void shut_down_targets();
  void tell_abandoned() const;
  void run_turn();
  std::uint32_t other_files() const;
  void apply_jobs();
  bool is_done() const;
  static void woken(host::Operation& io, const host::Completion& completion);
  void between_turns();
  // Calls the function while no other loop is inside a Target.
  template <class Function>
  void alone(Function function) ABSL_NO_THREAD_SAFETY_ANALYSIS;  // locks a list of locks
  void run_commands();
  void close_commands();
  Instant component_wakes_at() const;
  Instant wakes_at() const;

  host::LogWriter log_writer_;  // declared before everything that may log
  ServeOptions options_;
  std::unique_ptr<TraceFile> trace_;  // outlives the services that it records
  ServerContext context_;
  std::vector<std::unique_ptr<Loop>> loops_;  // use the context
  HeapTrim heap_trim_;
  host::Mailbox<Command> commands_;
  Waker command_waker_;
  std::vector<std::unique_ptr<ListeningSocket>> sockets_;
  std::vector<ListenAddress> listening_;
  std::function<void(Server&)> reload_;
  LoopComponent* component_ = nullptr;
  std::function<void()> ready_;  // called when clients are accepted
  bool is_held_ = false;         // no clients are accepted yet
  JobTable named_jobs_;
  JobTable told_jobs_;
  JobTable jobs_;  // of both sources, as set
  std::uint32_t connections_max_ = 0;
  Instant accepts_again_ = kNever;
  bool is_stopping_ = false;
  bool is_shut_down_ = false;  // the Targets
  bool has_commands_ = false;
  std::atomic<Stage> stage_ = Stage::kStarting;
  std::optional<SignalWatch> watch_;  // declared last: destroyed first
};

template <class Function>
std::invoke_result_t<Function, Server&> Server::ask(Function function) {
  using Answer = std::invoke_result_t<Function, Server&>;
  const auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  // The function is called before there is a result, so it need not be copied.
  auto ordered = order([promise, &function](const Result<Server*>& server) {
    promise->set_value(server ? function(**server) : Answer(tl::unexpected(server.error())));
  });
  if (!ordered) return tl::unexpected(ordered.error());
  return answer.get();
}

}  // namespace weir::serve
