// SPDX-License-Identifier: Apache-2.0
//
// What the connections of one loop share: I/O, memory, exports and services, the
// time of this turn, and the lists of connections with work at its end. A Server owns it; a
// Connection uses it.
//
// A PendingRequest is a request of a client on its way to its reply: what its session says of it
// (io_request.h), the scheduler's Request and the store's operation in one object, which never
// moves:
//
//   queued (Gate) --> working (store) --> replies (to be sent) --> sending --> free again
//              \---> parked: may run, but has no buffer yet, or its store hangs
//
// A parked one is deferred in its Target: it holds no slot, so it delays only its own connection.
// It is resumed, and takes a slot again, when a buffer is free.
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
  bool is_performed = false;      // by the session, now
  bool is_tried = false;          // although its store hangs
  RingLink<PendingRequest> link;  // in one list of its connection at a time

  // Payload of a reply is in the buffer, in the store, or in a file.
  bool sends_file() const { return operation.file >= 0 && head_size > 0; }
  std::size_t payload_size() const { return sends_file() ? length : payload.size(); }
};
using PendingRequestList = Ring<PendingRequest, &PendingRequest::link>;

// Reuses PendingRequests. After a flood it keeps at most kKept free ones.
class PendingRequestPool {
 public:
  // The one that take() will give.
  PendingRequest& spare();
  PendingRequest& take();
  void give_back(PendingRequest& request);

 private:
  static constexpr std::size_t kKept = 4096;
  std::vector<std::unique_ptr<PendingRequest>> free_;
};

// A large payload that a client has announced and not sent wholly; see connection.h.
struct IncomingPayload {
  Connection* connection = nullptr;
  Instant marked;          // when it was last looked at,
  std::uint32_t left = 0;  // and what had not come then
  RingLink<IncomingPayload> link;
};

// A message and its parts, for the kernel to read when a turn ends.
struct Outgoing {
  static constexpr std::size_t kPartsMax = 512;
  msghdr message{};
  std::array<iovec, kPartsMax> parts;
};

struct Counters {
  std::uint64_t accepted = 0;           // connections
  std::uint64_t refused = 0;            // connections above the limit
  std::uint64_t broken = 0;             // connections that broke the protocol
  std::uint64_t handshake_expired = 0;  // connections that took too long to begin
  std::uint64_t stalled = 0;            // connections whose payload did not come
  std::uint64_t tls_sessions = 0;       // that were agreed on
  std::uint64_t tls_failed = 0;         // connections whose TLS failed
  std::uint64_t claims_refused = 0;
  std::uint64_t requests = 0;
  std::uint64_t requests_refused = 0;
  std::uint64_t session_faults = 0;  // connections whose session said something impossible
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
  host::TlsKeys::Ptr tls_keys;   // none with TLS off; of connections that are yet to come
  std::vector<std::byte> plain;  // room for a piece of text, within one call
  BufferPool pool;
  PendingRequestPool requests;
  std::vector<std::unique_ptr<Service>> services;
  std::vector<std::unique_ptr<ServedExport>> exports;
  Counters counters;
  EventLog log;

  Instant now;         // of this turn
  bool freed = false;  // memory or room for requests, in this turn
  // What sessions perform themselves is done on the loop, such as block status by system calls of a
  // file: about 1 us an extent, 512 at most in an answer. So a turn begins no further one after as
  // many microseconds.
  static constexpr std::uint32_t kEffortOfTurn = 512;
  std::uint32_t effort_left = 0;         // of them, in this turn
  std::deque<PendingRequest*> performs;  // wait for a later turn
  Intake<Connection> intake;             // of requests
  std::vector<Connection*> dirty;        // have replies to send
  std::vector<Connection*> waiting;      // for memory or for room
  std::vector<Connection*> over;         // are done with
  bool is_starved = false;               // one of `waiting` waits for memory that others hold
  Ring<IncomingPayload, &IncomingPayload::link> payloads;  // the longest unseen first
  std::vector<std::unique_ptr<Outgoing>> outgoing;
  std::size_t outgoing_used = 0;  // of this turn

  // The one of the name, the first for no name; nullptr if there is none.
  ServedExport* find_export(std::string_view name) const;
  Outgoing& next_outgoing();
};

}  // namespace weir::serve
