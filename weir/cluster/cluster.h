// SPDX-License-Identifier: Apache-2.0
//
// A server's membership in a cluster. It joins the other servers through etcd, and from then on the
// limits of the cluster's rules hold for all servers together.
//
//   auto cluster = Cluster::create(*server, server->options().cluster);
//   cluster->start();
//   server->run(...);
//   cluster->stop();                    leaves; others take over at once
//
//   the server's loop      ClusterMember: what is used, what may be used
//   transport's thread     EpochTransport: streams to the leader; the leader's part
//   membership's thread    Membership: etcd, who leads, which rules there are
//
// Each owns its state, and they communicate by letters only. Without etcd the server continues
// alone: known rules of the cluster are limited to what an isolated server may use.
//
// Limits of the cluster hold from the first client on. Clients are accepted when the rules of the
// state file are active (cluster_state.h) and etcd was asked once for newer ones, whether it
// answered or not. A server without rules that cannot reach etcd accepts no clients, or serves at a
// configured rate, until etcd answers.
//
// Made, started, stopped and destroyed by the thread that runs the server, before and after it
// runs. Callers of the port may call it after stop(), until the destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/options.h"
#include "weir/serve/server.h"

namespace weir::cluster {

class Cluster : public serve::ClusterPort {
 public:
  // Reads its state and listens for the others. The error names the file or the address.
  // REQUIRES: the server does not run yet, outlives it, and options.is_on().
  static Result<std::unique_ptr<Cluster>> create(serve::Server& server,
                                                 const serve::ClusterOptions& options);

  // Puts the rules it knows in force, and begins to look for etcd. The server must run soon, and to
  // its end. REQUIRES: all other rules of the server have been started.
  virtual void start() = 0;
  // All that was asked has been answered then, and what follows is answered with ECANCELED.
  virtual void stop() = 0;
  // Where the others come in.
  virtual std::uint16_t port() const = 0;
  // The certificates as they are on disk now, checked; connections to and from the others and to
  // etcd use them that are made after the call of what is returned.
  virtual Result<std::function<void()>> read_certificates() = 0;
};

}  // namespace weir::cluster
