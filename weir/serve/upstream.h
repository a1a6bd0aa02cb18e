// SPDX-License-Identifier: Apache-2.0
//
// The connection of a gateway to its server: one for each client, made when the client connects and
// closed when it leaves. Only sockets are handled here; the bytes are the session's (session.h).
//
//   upstream.connect(address, source)   received(), room() and ended() of the owner follow
//   upstream.flush()                    sends what is in `out`, as much as possible at once
//   upstream.send_directly(piece)       sends `out` and a piece, as much as is possible at once
//   upstream.receive()                  asks for more bytes; one received() or ended() follows
//   upstream.close()                    with a reset, so that its port can be used again at once
//
// The server sees the address that UpstreamSource names. A connection uses the source port of its
// predecessor if that is free (source_ports.h).
//
// ended() is called at most once, and not after close(). It must live until is_over(): the kernel
// may still use the memory of this object and of `out`. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <sys/socket.h>

#include "weir/base/result.h"
#include "weir/host/fd.h"
#include "weir/host/io_loop.h"
#include "weir/serve/byte_queue.h"
#include "weir/serve/loop_context.h"
#include "weir/serve/options.h"
#include "weir/serve/source_ports.h"

namespace weir::serve {

// Where the server of a gateway listens.
struct ServerAddress {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string text;  // as it was given, for messages
};

// Where a connection to the server comes from.
struct UpstreamSource {
  SourceMode mode = SourceMode::kAny;
  sockaddr_storage client{};     // for kClient, and for the port
  SourcePorts* ports = nullptr;  // outlives the connection; nullptr only with kAny
};

class Upstream {
 public:
  class Owner {
   public:
    virtual void upstream_received(std::span<const std::byte> bytes) = 0;
    // Whether more bytes than usual may be received at once.
    virtual bool takes_large_pieces() const = 0;
    // Bytes of `out` were sent, but not by flush().
    virtual void upstream_sent() = 0;
    virtual void upstream_ended(const std::string& reason) = 0;
    // is_over() after close().
    virtual void upstream_over() = 0;

   protected:
    ~Owner() = default;
  };

  // REQUIRES: the owner and `out` live until is_over().
  Upstream(LoopContext& context, Owner& owner, ByteQueue& out)
      : context_(context), owner_(owner), out_(out) {}
  // REQUIRES: is_over().
  ~Upstream();
  Upstream(const Upstream&) = delete;
  Upstream& operator=(const Upstream&) = delete;

  // ended() follows if it fails.
  void connect(const ServerAddress& address, const UpstreamSource& source);
  // Whether bytes were sent.
  bool flush();
  // Returns how much of the piece was sent.
  std::size_t send_directly(std::span<const std::byte> piece);
  void receive();
  void close();
  bool is_over() const { return !receive_.is_pending && !send_.is_pending; }

 private:
  enum class State : std::uint8_t { kConnecting, kOpen, kClosed };
  struct Io : host::Operation {
    Upstream* upstream = nullptr;
    bool is_pending = false;
  };

  static void received(host::Operation& io, const host::Completion& completion);
  static void sent(host::Operation& io, const host::Completion& completion);
  // These return an errno value, 0 if the connection is being made.
  int begin(const ServerAddress& address, const UpstreamSource& source);
  int begin_from_last(const ServerAddress& address, std::uint16_t last);
  int begin_reserved(const ServerAddress& address, std::uint64_t client);
  int begin_as_client(const ServerAddress& address, const sockaddr_storage& client);
  int try_from(const ServerAddress& address, const sockaddr_storage* from, bool is_transparent);
  void polled(int result);
  void connected();
  void fail(int error);
  void give_back_port();
  void settle();

  LoopContext& context_;
  Owner& owner_;
  ByteQueue& out_;
  host::Fd socket_;
  State state_ = State::kConnecting;
  bool is_told_ = false;  // ended() was called
  SourcePorts* ports_ = nullptr;
  std::uint16_t taken_port_ = 0;  // of ports_
  std::string server_;
  bool has_much_ = false;  // the last receive was full
  bool polls_ = false;     // the pending receive only waits for data
  Io receive_;
  Io send_;  // also: until it is connected
};

}  // namespace weir::serve
