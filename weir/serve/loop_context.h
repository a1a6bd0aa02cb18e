// SPDX-License-Identifier: Apache-2.0
//
// State shared by the connections of one loop: its I/O, memory, exports and services, the time of
// this turn, and the lists of connections with work at its end. A Server owns it; a Connection
// uses it.
//
// A PendingRequest is a request of a client until its reply is sent: the data from its
// session (io_request.h), the scheduler's Request and the store's operation in one object,
// which never moves:
//
//   queued (Gate) --> working (store) --> replies (to be sent) --> sending --> free again
//              \---> parked: may run, but has no buffer yet, or its store hangs
//
// A parked request is deferred in its Target: it holds no slot, so it delays only its own
// connection. It is resumed, and takes a slot again, when a buffer is free.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <sys/socket.h>
#include <sys/uio.h>

#include "weir/base/heap.h"
#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/host/io_loop.h"
#include "weir/host/tls.h"
#include "weir/serve/buffer_pool.h"
#include "weir/serve/event_log.h"
#include "weir/serve/intake.h"
#include "weir/serve/io_request.h"
#include "weir/serve/options.h"
#include "weir/serve/service.h"
#include "weir/serve/store.h"

namespace weir::serve {

class Connection;

struct PendingRequest : IoRequest {
  Connection* connection = nullptr;
  StoreOperation operation;
  Buffer buffer;
  bool is_performed = false;      // the session is performing it
  bool is_tried = false;          // tried although its store hangs
  RingLink<PendingRequest> link;  // in one list of its connection at a time

  // The payload of a reply is in the buffer, in the store, or in a file.
  bool sends_file() const { return operation.file >= 0 && head_size > 0; }
  std::size_t payload_size() const { return sends_file() ? length : payload.size(); }
};
using PendingRequestList = Ring<PendingRequest, &PendingRequest::link>;

// Reuses PendingRequests. After a flood it keeps at most kKept free ones.
class PendingRequestPool {
 public:
  // The one that take() will return.
  PendingRequest& spare();
  PendingRequest& take();
  void give_back(PendingRequest& request);

 private:
  static constexpr std::size_t kKept = 4096;
  std::vector<std::unique_ptr<PendingRequest>> free_;
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

struct Counters {
  std::uint64_t accepted = 0;           // connections
  std::uint64_t refused = 0;            // connections above the limit
  std::uint64_t broken = 0;             // connections closed because of a protocol violation
  std::uint64_t handshake_expired = 0;  // connections whose handshake took too long
  std::uint64_t stalled = 0;            // connections whose payload did not arrive
  std::uint64_t tls_sessions = 0;       // negotiated
  std::uint64_t tls_failed = 0;         // connections whose TLS failed
  std::uint64_t claims_refused = 0;
  std::uint64_t requests = 0;
  std::uint64_t requests_refused = 0;
  std::uint64_t session_faults = 0;  // connections whose session returned an invalid result
  std::uint64_t store_errors = 0;
  std::uint64_t memory_waits = 0;  // times a connection waited for memory or room
};

struct LoopContext {
  LoopContext(const ServeOptions& serve_options, std::unique_ptr<host::IoLoop> io_loop)
      : options(serve_options),
        io(std::move(io_loop)),
        pool(options.limits.memory, options.limits.connection_memory) {}

  const ServeOptions& options;
  std::unique_ptr<host::IoLoop> io;
  host::TlsKeys::Ptr tls_keys;   // for new connections; none with TLS off
  std::vector<std::byte> plain;  // scratch space within one call
  BufferPool pool;
  PendingRequestPool requests;
  std::vector<std::unique_ptr<Service>> services;
  std::vector<std::unique_ptr<ServedExport>> exports;
  Counters counters;
  EventLog log;

  Instant now;         // of this turn
  bool freed = false;  // memory or room for requests, in this turn
  // Work that sessions do themselves runs on the loop, such as block status with system calls on a
  // file: about 1 us per extent, at most 512 per answer. So a turn starts no further one after as
  // many microseconds.
  static constexpr std::uint32_t kEffortOfTurn = 512;
  std::uint32_t effort_left = 0;         // microseconds left in this turn
  std::deque<PendingRequest*> performs;  // wait for a later turn
  Intake<Connection> intake;             // of requests
  std::vector<Connection*> dirty;        // have replies to send
  std::vector<Connection*> waiting;      // for memory or for room
  std::vector<Connection*> over;         // can be deleted
  bool is_starved = false;               // one of `waiting` waits for memory that others hold
  Ring<IncomingPayload, &IncomingPayload::link> payloads;  // the one unchecked for longest is first
  Heap<Alarm, Instant, &Alarm::hook> alarms;
  std::vector<std::unique_ptr<Outgoing>> outgoing;
  std::size_t outgoing_used = 0;  // of this turn

  // The export of this name, the first for an empty name; nullptr if there is none.
  ServedExport* find_export(std::string_view name) const;
  Outgoing& next_outgoing();
};

}  // namespace weir::serve
