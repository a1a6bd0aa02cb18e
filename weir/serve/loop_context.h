// SPDX-License-Identifier: Apache-2.0
//
// LoopContext is what the connections of one loop share: its I/O, stores and free requests, the
// time of this turn, and the lists of connections with work at its end. A Loop owns it; a
// Connection uses it. ServerContext is what all loops of a server share: memory, exports, services
// and their dispatchers, settings that change while they run, and the doorbells by which loops wake
// each other.
//
// A PendingRequest is a request of a client until its reply is sent: the data from its session
// (io_request.h), the scheduler's Request and the store's operation in one object, which never
// moves:
//
//   queued (Gate) --> working (store) --> replies (to be sent) --> sending --> free again
//              \---> parked: may run, but has no buffer yet, or its store hangs
//
// Between its loop and the Target of its service a request passes through a Dispatcher
// (dispatcher.h), which may link it in one of its own lists.
//
// A parked request is deferred in its Target: it holds no slot, so it delays only its own
// connection. It is resumed, and takes a slot again, when a buffer is free.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/uio.h>

#include "weir/base/heap.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/host/io_loop.h"
#include "weir/host/mutex.h"
#include "weir/host/tls.h"
#include "weir/schedule/outcome.h"
#include "weir/serve/buffer_pool.h"
#include "weir/serve/doorbell.h"
#include "weir/serve/event_log.h"
#include "weir/serve/handshakes.h"
#include "weir/serve/intake.h"
#include "weir/serve/io_request.h"
#include "weir/serve/known_clients.h"
#include "weir/serve/options.h"
#include "weir/serve/service.h"
#include "weir/serve/store.h"
#include "weir/serve/store_watch.h"

namespace weir::serve {

class Connection;

struct PendingRequest : IoRequest {
  Connection* connection = nullptr;
  StoreOperation operation;
  Buffer buffer;
  bool is_performed = false;      // the session is performing it
  bool is_tried = false;          // tried although its store hangs
  RingLink<PendingRequest> link;  // in one list of its connection at a time

  // For the Dispatcher.
  enum class Call : std::uint8_t { kAdmit, kComplete };
  Call call = Call::kAdmit;
  bool is_counted = false;              // with kComplete: in the accounts of its export
  std::uint8_t loop = 0;                // of its connection
  Outcome outcome = {};                 // with kComplete
  PendingRequest* next = nullptr;       // in a list of calls, of decisions or of free requests
  std::atomic<bool> is_called = false;  // its call has not reached the Target yet

  // The payload of a reply is in the buffer, in the store, or in a file.
  bool sends_file() const { return operation.file >= 0 && head_size > 0; }
  std::size_t payload_size() const { return sends_file() ? length : payload.size(); }
};
using PendingRequestList = Ring<PendingRequest, &PendingRequest::link>;

inline ServedExport& served_by(const PendingRequest& request) { return *request.opened->served; }

// Reuses PendingRequests. After a flood it keeps at most kKept free ones.
class PendingRequestPool {
 public:
  PendingRequestPool() = default;
  PendingRequestPool(const PendingRequestPool&) = delete;
  PendingRequestPool& operator=(const PendingRequestPool&) = delete;
  ~PendingRequestPool();

  // The one that take() will return.
  PendingRequest& spare() {
    if (free_ == nullptr) [[unlikely]]
      add();
    return *free_;
  }
  PendingRequest& take() {
    PendingRequest& request = spare();
    free_ = std::exchange(request.next, nullptr);
    --count_;
    return request;
  }
  void give_back(PendingRequest& request) {
    if (count_ == kKept) [[unlikely]]
      return drop(request);
    request.next = std::exchange(free_, &request);
    ++count_;
  }

 private:
  static constexpr std::size_t kKept = 4096;
  void add();
  static void drop(PendingRequest& request);

  PendingRequest* free_ = nullptr;  // a list, the last one given back first
  std::size_t count_ = 0;           // of them
};

// A large payload that a client has announced and not completely sent; see connection.h.
struct IncomingPayload {
  Connection* connection = nullptr;
  Instant marked;          // when it was last checked,
  std::uint32_t left = 0;  // and how much was missing then
  RingLink<IncomingPayload> link;
};

// The time at which a session wants to be woken.
struct Alarm {
  Connection* connection = nullptr;
  HeapHook hook;
};

// A message and its vectors, read by the kernel when a turn ends.
struct Outgoing {
  static constexpr std::size_t kPartsMax = 512;
  msghdr message{};
  std::array<iovec, kPartsMax> parts;
};

// A number that one thread increases and others may read.
class LoopCount {
 public:
  LoopCount& operator++() { return *this += 1; }
  LoopCount& operator+=(std::uint64_t more) {
    set(get() + more);
    return *this;
  }
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_ = 0;
};

template <class Number>
struct CountersOf {
  Number accepted{};           // connections
  Number refused{};            // connections above the limit
  Number broken{};             // connections closed because of a protocol violation
  Number handshake_expired{};  // connections whose handshake took too long
  Number stalled{};            // connections whose payload did not arrive
  Number tls_sessions{};       // negotiated
  Number tls_failed{};         // connections whose TLS failed
  Number claims_refused{};
  Number requests{};
  Number requests_refused{};
  Number session_faults{};  // connections whose session returned an invalid result
  Number store_errors{};
  Number memory_waits{};  // times a connection waited for memory or room

  // Calls function(a number of this, the same of the other) for all.
  template <class Other, class Function>
  void each(const CountersOf<Other>& other, Function function) {
    function(accepted, other.accepted);
    function(refused, other.refused);
    function(broken, other.broken);
    function(handshake_expired, other.handshake_expired);
    function(stalled, other.stalled);
    function(tls_sessions, other.tls_sessions);
    function(tls_failed, other.tls_failed);
    function(claims_refused, other.claims_refused);
    function(requests, other.requests);
    function(requests_refused, other.requests_refused);
    function(session_faults, other.session_faults);
    function(store_errors, other.store_errors);
    function(memory_waits, other.memory_waits);
  }
};
using Counters = CountersOf<std::uint64_t>;

// What a loop does beside requests.
template <class Number>
struct LoopStatsOf {
  Number turns{};
  Number longest_turn_ns{};  // of processor time
  Number lock_busy{};        // entries of a Target that found its lock taken
  Number lock_wait_ns{};     // time that calls which cannot be left to others waited for the lock
};

// One export as a loop uses it.
struct LocalExport final : StoreListener {
  // For other threads, while the store hangs.
  struct Hung {
    std::atomic<bool> is_hung = false;
    std::atomic<std::uint32_t> unfinished = 0;
    std::atomic<std::uint32_t> kept = 0;
    std::atomic<std::int64_t> silent_ns = 0;
  };

  LocalExport(ServedExport& shared, Doorbell& loop_bell) : served(shared), bell(loop_bell) {}
  void sync_failed(int error) override { served.sync_errors.failed(error); }
  void wake_needed() override { bell.ring(); }

  ServedExport& served;
  Doorbell& bell;
  std::unique_ptr<Store> store;
  StoreWatch watch;
  Hung hung;
};

class Dispatcher;
struct LoopContext;

struct ServerContext {
  static constexpr std::size_t kLoopsMax = 64;  // one bit each

  explicit ServerContext(const ServeOptions& serve_options);
  ~ServerContext();

  bool is_shared() const { return loops.size() > 1; }
  ServedExport* find_export(std::string_view name) const;
  Dispatcher& dispatcher_of(const ServedExport& served) const;
  // For new connections; none with TLS off.
  host::TlsKeys::Ptr tls_keys() const;
  void set_tls_keys(host::TlsKeys::Ptr keys);
  // Applies limits that loops use.
  void set_limits(const ServeLimits& limits);
  // Wakes these loops, one bit each.
  void ring(std::uint64_t which) const;

  const ServeOptions& options;
  BufferPool pool;
  std::vector<std::unique_ptr<Service>> services;
  std::vector<std::unique_ptr<ServedExport>> exports;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers;
  std::vector<LoopContext*> loops;
  EventLog log;
  KnownClients clients;

  std::atomic<std::uint32_t> connection_requests;
  std::atomic<std::int64_t> handshake_timeout_ns;
  // Bits of loops: with a connection that waits for memory; with one that waits for memory that
  // other connections hold.
  std::atomic<std::uint64_t> waiting = 0;
  std::atomic<std::uint64_t> starved = 0;
  std::atomic<std::uint64_t> freed = 0;  // turns in which memory was freed

 private:
  mutable host::Mutex mutex_;
  host::TlsKeys::Ptr tls_keys_ ABSL_GUARDED_BY(mutex_);
};

struct LoopContext {
  LoopContext(ServerContext& shared, std::uint8_t number, std::unique_ptr<host::IoLoop> io_loop,
              host::Fd wake_fd)
      : server(shared),
        index(number),
        options(shared.options),
        pool(shared.pool),
        log(shared.log),
        io(std::move(io_loop)),
        bell(std::move(wake_fd)),
        handshakes(bell) {}

  std::uint64_t bit() const { return std::uint64_t{1} << index; }
  LocalExport& local(const ServedExport& served) const { return *exports[served.index]; }

  ServerContext& server;
  const std::uint8_t index;
  const ServeOptions& options;
  BufferPool& pool;
  EventLog& log;
  std::unique_ptr<host::IoLoop> io;
  Doorbell bell;
  Handshakes handshakes;         // of TLS
  std::vector<std::byte> plain;  // scratch space within one call
  PendingRequestPool requests;
  std::vector<std::unique_ptr<LocalExport>> exports;  // in the order of ServerContext::exports
  CountersOf<LoopCount> counters;
  LoopStatsOf<LoopCount> stats;

  Instant now;  // of this turn
  // Completed sends after which their connection has nothing else to do, in this turn.
  std::size_t quiet_sends = 0;
  bool freed = false;  // memory or room for requests, in this turn
  // Work that sessions do themselves runs on the loop, such as block status with system calls on a
  // file: about 1 us per extent, at most 512 per answer. So a turn starts no more of it after this
  // many microseconds.
  static constexpr std::uint32_t kEffortOfTurn = 512;
  std::uint32_t effort_left = 0;         // microseconds left in this turn
  std::deque<PendingRequest*> performs;  // wait for a later turn
  Intake<Connection> intake;             // of requests
  // Bytes that are copied to sockets or encrypted in this turn, of all connections; those that come
  // later wait for the next one. About 0.3 ms.
  static constexpr std::uint64_t kSendOfTurn = std::uint64_t{1} << 20;
  std::uint64_t send_left = 0;
  std::vector<Connection*> dirty;    // have replies to send
  std::vector<Connection*> waiting;  // for memory or for room
  std::vector<Connection*> over;     // can be deleted
  std::vector<Connection*> calling;  // have requests to free whose last call is on its way
  bool is_starved = false;           // one of `waiting` waits for memory that others hold
  Ring<IncomingPayload, &IncomingPayload::link> payloads;  // the one unchecked for longest is first
  Heap<Alarm, Instant, &Alarm::hook> alarms;
  std::vector<std::unique_ptr<Outgoing>> outgoing;
  std::size_t outgoing_used = 0;      // of this turn
  std::vector<std::byte> large_room;  // of gateways, for receive_large()

  Outgoing& next_outgoing();
  // Counts bytes that are sent in this turn.
  void spend(std::uint64_t bytes) { send_left -= std::min(send_left, bytes); }
};

}  // namespace weir::serve
