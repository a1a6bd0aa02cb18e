// SPDX-License-Identifier: Apache-2.0
//
// The interface of a protocol. A Session is one client's side of a protocol as bytes in, requests
// out and replies back. It has no socket, no clock and no thread; connections, TLS, memory,
// fairness, pacing, stores and timeouts are the server's, the same for all protocols.
//
//   greet(out)               once, before anything has come
//   negotiate(in, out)       until it says kOpen: what the two sides agree on first. Its answers
//                            are bytes; what it takes from `in` it has used up
//   next(in, request)        one event at a time:
//     kNeedBytes               all of `in` is used up; come again with more
//     kRequest                 `request` says what is asked (io_request.h). The payload of a write
//                              is the next `length` bytes that come: they go straight to their
//                              place and the session never sees them
//     kRefused                 `request` holds a reply, and nothing else is done
//     kEnd                     the client leaves: its requests are answered, then it closes
//     kBreak                   the following bytes cannot be parsed; problem() says why
//   reply(request, result)   the store is done, in whatever order: makes the head of the reply; the
//                            data of a read is sent behind it
//   perform(request, room)   its turn has come, for requests that are the session's own to do
//                            (is_own): answered with SessionPort::answer(), now or later; after
//                            that, request and room are not the session's any more
//
// A request may name any export that the session has opened and any identity, so clients behind one
// connection can be told apart. A session that returns something impossible is a bug in Weir: it is
// logged, its connection is closed, and no other connection is affected (session_check.h).
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
#include "weir/serve/claims.h"
#include "weir/serve/io_request.h"
#include "weir/serve/options.h"
#include "weir/serve/store.h"

namespace weir::serve {

// How the store has ended a request.
struct IoResult {
  int error = 0;          // an errno value
  std::string_view text;  // of the error, for ever
};

// How a session has ended one of its own. Its reply is what it put into the request's head, then
// the first `size` bytes of the room it was given.
struct OwnResult {
  int error = 0;  // an errno value: it counts as failed
  std::size_t size = 0;
  // What it moved in the end: the difference to what it was charged for is settled. None: as much.
  std::optional<Bytes> moved = std::nullopt;
  // How long it has kept the loop, in microseconds: a turn begins none after kEffortOfTurn.
  std::uint32_t effort = 1;
};

// What a session may ask of its connection.
class SessionPort {
 public:
  SessionPort() = default;
  SessionPort(const SessionPort&) = delete;
  SessionPort& operator=(const SessionPort&) = delete;

  virtual std::size_t export_count() const = 0;
  virtual const ExportFacts& export_at(std::size_t index) const = 0;
  // The one of the name, the first for no name; nullptr if there is none.
  virtual const ExportFacts* find_export(std::string_view name) const = 0;
  // REQUIRES: `facts` is of this port.
  virtual void open(const ExportFacts& facts, OpenedExport& opened) = 0;
  // Who the client is, with what it claims; without the opcode. EACCES for claims that do not
  // count, which are counted and logged.
  virtual Result<Attributes> identify(const Claims& claims) = 0;
  virtual TlsOptions::Mode tls() const = 0;
  // See Store::extents().
  virtual void extents(const OpenedExport& opened, std::uint64_t offset, std::uint64_t length,
                       const Store::ExtentVisitor& visit) const = 0;
  // How long a request as it is filled in would wait at least, if it were admitted now: a session
  // may refuse it instead. REQUIRES: it names an export.
  virtual Nanoseconds expected_wait(const IoRequest& request) const = 0;
  // Ends the request of this id, which perform() was called with, and sends its reply.
  virtual void answer(std::uint64_t id, const OwnResult& result) = 0;

 protected:
  ~SessionPort() = default;
};

class Session {
 public:
  using Input = std::span<const std::byte>;
  using Output = std::vector<std::byte>;

  enum class Step : std::uint8_t {
    kNeedBytes,  // all of `in` is used up
    kGoOn,
    kStartTls,  // `out` ends with the last words in plain text; what is left of `in` is TLS
    kOpen,      // agreed: next() goes on with what is left of `in`
    kEnd,       // `out` is sent, then it closes
    kBreak,
  };
  enum class Event : std::uint8_t { kNeedBytes, kRequest, kRefused, kEnd, kBreak };

  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;

  virtual void greet(Output& /*out*/) {}
  // A protocol that agrees on nothing is open with its first bytes.
  virtual Step negotiate(Input& /*in*/, Output& /*out*/) { return Step::kOpen; }
  virtual Event next(Input& in, IoRequest& request) = 0;
  virtual void reply(IoRequest& request, const IoResult& result) = 0;
  // REQUIRES of the caller: request.is_own; `room` has reply_room bytes.
  virtual void perform(IoRequest& request, std::span<std::byte> room) = 0;
  // The connection has closed: one that it performs is gone when this returns, and its room.
  virtual void forget(IoRequest& /*request*/) {}
  // After kBreak.
  virtual std::string_view problem() const = 0;
};

}  // namespace weir::serve
