// SPDX-License-Identifier: Apache-2.0
//
// The lock service on the network: gRPC streams of clients (lock.proto) and the one thread that
// owns the locks.
//
//   gRPC's threads                      letters                the owner's thread
//   a batch arrived: decode, check  ---------------------->  LockGate::receive ... turn
//   a batch was sent                ---------------------->  sends messages collected meanwhile
//   console, lists, statistics      ---------------------->  answers
//
// A stream has one read and one write in progress at a time. While a batch is being sent to a
// client, further messages are collected for the next one, so a busier service sends larger
// batches. If a client does not read its answers, the service stops reading from it, until its
// lease ends. A stream without a message for hello_time is closed, and at most kStreamsSpare
// streams are open beside those of sessions, so peers without a session cannot use up the memory.
//
// Incarnation. Each start takes the next number from the state file (lock_state.h) and saves it
// before it accepts clients: fences and client numbers increase with it. The file also records
// whether the last server shut down normally with no lock granted; otherwise this one recovers and
// grants nothing for its grace period.
//
// With TLS, it accepts only TLS, and clients need a certificate of its authority. A session belongs
// to the client that got its secret, and with TLS also to the subject of its certificate. The
// secret is a digest of the client's number and that subject, with a key from the state file, so it
// stays valid across restarts, as sessions do. Lock names are listed only for clients with a
// certificate or on a Unix socket; statistics for all clients.
//
// Memory. When it is short (weir/host/memory_pressure.h), the volume falls, so that clients return
// cached locks.
//
// With a cluster, this is one of several servers (weir/lock/term.h). Until it is active it has no
// locks, and its streams end with the name of the active server. While it cannot prove its term it
// lets messages wait. When it is no longer active all streams end.
//
//   LockElection's thread  -- lead, proven, deposed, seen -->  the owner's thread
//
// Time is boot time, which continues while the machine sleeps, as leases do. stop() ends all
// streams; clients keep their locks for their lease and replay them to the next server.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/host/memory_pressure.h"
#include "weir/host/secret.h"
#include "weir/lock/term.h"
#include "weir/lock/view.h"
#include "weir/serve/options.h"
#include "weir/serve/target_port.h"

namespace weir::cluster {

class LockElection;

// Its name in parameters; a server has one namespace.
inline constexpr std::string_view kLockNamespace = "locks";

struct LockServiceOptions {
  serve::LockOptions lock;  // with an address to listen on
  serve::ClaimsOptions claims;
  std::vector<serve::NodemapOptions> nodemaps;
  serve::TlsOptions tls;
  // Time for the first message of a stream.
  Nanoseconds hello_time = std::chrono::seconds{10};
  // Trace of the calls to the Target, for weir sim --replay; empty: none.
  std::string trace_file = {};
  // Sources of memory pressure; none: those of this process.
  std::optional<host::MemoryPressure::Sources> pressure = std::nullopt;
  // The cluster whose lock servers elect the active one; off: this one is active.
  serve::ClusterOptions cluster{};
};

class LockService : public lock::Console, public serve::TargetPort {
 public:
  static constexpr std::size_t kStreamsSpare = 1024;

  // Serves when it returns. EBUSY: another server uses the state file; EADDRINUSE: the address is
  // in use.
  static Result<std::unique_ptr<LockService>> create(const LockServiceOptions& options);
  ~LockService() override;

  // Where it listens, with the port that was chosen for port 0.
  const serve::ListenAddress& listening() const;
  // Hands over to the next server, then ends all streams and waits for them. The views are empty
  // afterwards.
  void stop();

  // Reads and checks the certificates on disk. Calling the result makes new connections use them;
  // existing ones continue.
  Result<std::function<void()>> read_certificates();

  // ---- for every thread ----
  std::vector<lock::NamespaceView> view() override;
  Result<lock::LockList> list(std::string_view name, const lock::ListOptions& options) override;
  Result<void> set(std::string_view name, lock::Tunable tunable, std::int64_t value) override;
  Result<std::size_t> revoke(std::string_view name, std::string_view resource,
                             std::uint64_t client) override;
  // The scheduler of lock requests.
  std::string_view service() const override { return serve::LockOptions::kService; }
  bool look(const Look& visit) override;

 private:
  class Owner;
  class Transport;
  Result<void> join(const LockServiceOptions& options, std::uint64_t incarnation,
                    const host::Key& key, lock::OwnState own);
  LockService(std::unique_ptr<Owner> owner, std::unique_ptr<Transport> transport);

  std::unique_ptr<Owner> owner_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<LockElection> election_;  // only in a cluster
};

}  // namespace weir::cluster
