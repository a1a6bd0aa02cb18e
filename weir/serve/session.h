// SPDX-License-Identifier: Apache-2.0
//
// The interface of a protocol. A Session is the protocol of one client: bytes in, requests out and
// replies back. It has no socket, no clock and no thread; the server handles connections, TLS,
// memory, fairness, pacing, stores and timeouts, in the same way for all protocols.
//
//   greet(out)               once, before anything was received
//   negotiate(in, out)       until it returns kOpen. Its answers are bytes; it advances `in` past
//                            the bytes that it has used
//   next(in, request)        one event at a time:
//     kNeedBytes               all of `in` is used; call again with more
//     kRequest                 `request` is filled in (io_request.h). The payload of a write is the
//                              next `length` bytes received: they go directly to their buffer and
//                              do not pass through the session
//     kRefused                 `request` contains a reply, and nothing else is done
//     kEnd                     the client leaves: its requests are answered, then it closes
//     kBreak                   the following bytes cannot be parsed; problem() is the reason
//   reply(request, result)   the store is done, in any order: writes the header of the reply; the
//                            data of a read is sent after it
//   perform(request, room)   its turn has come, for requests that the session performs itself
//                            (is_own): answered with SessionPort::answer(), now or later; after
//                            that, the session must not use request and room any more
//
// A request may name any export that the session has opened and any identity, so clients behind one
// connection can be distinguished. A session that returns an invalid result is a bug in Weir: it is
// logged, its connection is closed, and no other connection is affected (session_check.h).
//
// Gateways. The session of a protocol that forwards requests to another server (is_gateway of its
// ProtocolKind) calls SessionPort::connect() before it is open and answers nothing itself: it
// appends bytes to to_server() when a request is performed, gets those of the server by
// from_server(), and appends bytes for the client to to_client(). SessionPort::answer() with
// is_forwarded then ends the request. Bytes that it holds beyond kHeldFree are charged with
// SessionPort::hold(); if that fails, next() returns kNoRoom and is called again with the same
// bytes when there may be room.
//
// All calls are made on the connection's loop. The session ends with its connection, when none of
// its requests is in progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/serve/byte_queue.h"
#include "weir/serve/claims.h"
#include "weir/serve/io_request.h"
#include "weir/serve/options.h"
#include "weir/serve/proxy_header.h"
#include "weir/serve/store.h"
#include "weir/serve/upstream.h"

namespace weir::serve {

// The result of a request in the store.
struct IoResult {
  int error = 0;               // an errno value
  std::string_view text = {};  // of the error; a string constant
  // All of the data of a read is zeroes, and none of it is sent. Only if the request takes it.
  bool is_hole = false;
};

// The result of a request that the session performed. Its reply is the request's header and the
// first `size` bytes of the given room.
struct OwnResult {
  int error = 0;  // an errno value: the request failed
  std::size_t size = 0;
  // The bytes it actually moved: the difference from what it was charged is settled. None:
  // no difference.
  std::optional<Bytes> moved = std::nullopt;
  // The number of operations that it amounted to; it was charged for one. Never 0.
  std::uint32_t operations = 1;
  // How long it occupied the loop, in microseconds: a turn starts none after kEffortOfTurn.
  std::uint32_t effort = 1;
  // Its reply was created by another server and is in to_client(): nothing else is sent.
  bool is_forwarded = false;
};

// What a session may call on its connection.
class SessionPort {
 public:
  SessionPort() = default;
  SessionPort(const SessionPort&) = delete;
  SessionPort& operator=(const SessionPort&) = delete;

  virtual std::size_t export_count() const = 0;
  virtual const ExportFacts& export_at(std::size_t index) const = 0;
  // The export of this name, the first for an empty name; nullptr if there is none.
  virtual const ExportFacts* find_export(std::string_view name) const = 0;
  // REQUIRES: `facts` is of this port.
  virtual void open(const ExportFacts& facts, OpenedExport& opened) = 0;
  // The identity of the client, with its claims; without the opcode. EACCES for claims that are not
  // allowed, which are counted and logged.
  virtual Result<Attributes> identify(const Claims& claims) = 0;
  virtual TlsOptions::Mode tls() const = 0;
  // See Store::extents().
  virtual void extents(const OpenedExport& opened, std::uint64_t offset, std::uint64_t length,
                       const Store::ExtentVisitor& visit) const = 0;
  // The minimum time that this request would wait if it were admitted now: a session may refuse it
  // instead. REQUIRES: it names an export.
  virtual Nanoseconds expected_wait(const IoRequest& request) const = 0;
  // Completes the request with this id, which was passed to perform(), and sends its reply.
  virtual void answer(std::uint64_t id, const OwnResult& result) = 0;

  // ---- for gateways ----

  // Part of the reservation of a connection: a session may hold this much in each direction without
  // a charge.
  static constexpr std::size_t kHeldFree = std::size_t{32} << 10;

  // The addresses of the connection of the client.
  virtual Ends ends() const { return {}; }
  // A proxy that may name the addresses of its clients has done so: identify() returns the identity
  // of that client from now on.
  virtual void set_ends(const Ends& /*ends*/) {}
  // Connects to the server; Session::server_ended() is called if that fails. Once, in greet() or
  // negotiate().
  virtual void connect(const ServerAddress& /*server*/, const UpstreamSource& /*source*/) {}
  // There are bytes in to_client() or to_server(), or from_server() may be called again.
  virtual void transfer() {}
  // Sends what is in to_client() or to_server(), and then the piece, if that is possible at once.
  // Returns how much of the piece was sent: the rest has to be appended (send_directly.h).
  virtual std::size_t send_to_client(std::span<const std::byte> /*piece*/) { return 0; }
  virtual std::size_t send_to_server(std::span<const std::byte> /*piece*/) { return 0; }
  // Charges this much memory to the connection. False: there is not enough.
  virtual bool hold(std::size_t /*bytes*/) { return true; }
  // Whether hold() would succeed.
  virtual bool has_room(std::size_t /*bytes*/) const { return true; }
  virtual void release(std::size_t /*bytes*/) {}
  // The time of this turn.
  virtual Instant now() const { return {}; }
  // Calls Session::wake() at that time, once; kNever: cancels the call.
  virtual void wake_at(Instant /*when*/) {}
  // Writes a line about this client to the log.
  virtual void note(std::string_view /*text*/) {}
  // Closes the connection once to_client() is sent, and at once if called again. Requests in
  // progress are forgotten.
  virtual void hang_up() {}

 protected:
  ~SessionPort() = default;
};

class Session {
 public:
  using Input = std::span<const std::byte>;
  using Output = std::vector<std::byte>;

  enum class Step : std::uint8_t {
    kNeedBytes,  // all of `in` is used
    kGoOn,
    kStartTls,  // `out` ends with the last answer in plain text; the rest of `in` is TLS
    kOpen,      // negotiated: next() continues with the rest of `in`
    kEnd,       // `out` is sent, then the connection is closed
    kBreak,
  };
  enum class Event : std::uint8_t { kNeedBytes, kRequest, kRefused, kEnd, kBreak, kNoRoom };

  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;

  virtual void greet(Output& /*out*/) {}
  // A protocol without negotiation is open with its first bytes.
  virtual Step negotiate(Input& /*in*/, Output& /*out*/) { return Step::kOpen; }
  virtual Event next(Input& in, IoRequest& request) = 0;
  virtual void reply(IoRequest& request, const IoResult& result) = 0;
  // REQUIRES of the caller: request.is_own; `room` has reply_room bytes.
  virtual void perform(IoRequest& request, std::span<std::byte> room) = 0;
  // The connection has closed: a request that it performs, and its room, are gone when
  // this returns.
  virtual void forget(IoRequest& /*request*/) {}
  // After kBreak.
  virtual std::string_view problem() const = 0;

  // ---- gateways ----

  virtual ByteQueue* to_client() { return nullptr; }
  virtual ByteQueue* to_server() { return nullptr; }
  // Bytes of one of the two were sent.
  virtual void transferred() {}
  virtual void from_server(Input /*in*/) {}
  // False: what waits for the client has to be sent first; SessionPort::transfer() asks again.
  virtual bool takes_from_server() const { return true; }
  // False: what waits for the server has to be sent first.
  virtual bool takes_from_client() const { return true; }
  // Whether from_server() may get more bytes at once than usual.
  virtual bool takes_large_pieces() const { return false; }
  // How many of the next bytes belong to a message that is forwarded while it arrives: more of them
  // than usual may be received at once.
  virtual std::size_t streamed_from_client() const { return 0; }
  // The server has closed the connection, or it cannot be reached.
  virtual void server_ended(std::string_view /*reason*/) {}
  // The server of this session is stopping. True: nothing more is read from the client. False: the
  // rest of a request is needed; after it next() returns kEnd.
  virtual bool stop() { return true; }
  // Whether all that was forwarded is answered.
  virtual bool is_settled() const { return true; }
  virtual void wake() {}
  // The connection has closed: nothing more is sent, and no memory is held.
  virtual void closed() {}
};

}  // namespace weir::serve
