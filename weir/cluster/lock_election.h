// SPDX-License-Identifier: Apache-2.0
//
// Which lock server of a cluster is active: carries out what lock::Candidate (weir/lock/term.h)
// asks, with etcd, on a thread of its own that may block.
//
//   etcd  <--- lease, record, campaign ---  this thread  --- lead, proven, deposed --->  the owner
//         ---- the record has changed --->                                            of the locks
//
// All servers have the same name of the cluster's prefix, and derive the secrets of clients from
// one key, which the first active server writes. So etcd must be as well protected as the servers:
// with user and password or TLS.
//
// Listeners are called on this thread, one at a time. Times are of boot_now(), as leases are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/cluster/etcd_client.h"
#include "weir/host/secret.h"
#include "weir/lock/term.h"

namespace weir::cluster {

class LockElection {
 public:
  struct Options {
    std::string name;     // of this server
    std::string address;  // at which clients reach it, for messages
    std::string prefix;
    EtcdOptions etcd;
    std::uint64_t incarnation = 0;  // of its state file: terms are larger
    host::Key key{};                // used if etcd has none
    lock::OwnState own = lock::OwnState::kUnknown;
    Nanoseconds lease{0};  // after which locks of a lost server are granted again
  };
  struct Lead {
    lock::Succession next;
    host::Key key{};
    Instant proven_until{};
  };
  // The last term, and the active server, if any.
  struct Seen {
    std::uint64_t term = 0;
    std::string active;
    std::string address;
    host::Key key{};

    bool operator==(const Seen&) const = default;
  };
  struct Listener {
    std::function<void(const Lead&)> lead;
    std::function<void(Instant until)> proven;  // while it leads
    std::function<void()> deposed;
    std::function<void(const Seen&)> seen;  // when it has changed
    std::function<void(std::string_view line)> say;
  };

  // Reads the certificates; etcd need not be available.
  static Result<std::unique_ptr<LockElection>> create(const Options& options, Listener listener);
  // Calls stop() without a handover.
  ~LockElection();
  LockElection(const LockElection&) = delete;
  LockElection& operator=(const LockElection&) = delete;

  void start();
  // Stops the thread and lets another server become active at once. With a handover, of a server
  // that acts no more, the next one knows which clients to wait for. Calls without effect: all but
  // the first.
  void stop(const lock::Handover* left);
  // See EtcdClient.
  Result<std::function<void()>> read_certificates();

 private:
  class Thread;
  explicit LockElection(std::unique_ptr<Thread> thread);
  std::unique_ptr<Thread> thread_;
};

}  // namespace weir::cluster
