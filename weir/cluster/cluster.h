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
//   the node's thread      ClusterMember: demand and slices
//   transport's thread     EpochTransport: streams to the leader; the leader's role
//   membership's thread    Membership: etcd, the leader, the rules of the cluster
//
// Each owns its state, and they communicate only through mailboxes. Without etcd the server
// continues alone: known rules of the cluster are limited to what an isolated server may use.
//
// Limits of the cluster hold from the first client on. Clients are accepted when the rules of the
// state file are active (cluster_state.h) and etcd was asked once for newer ones, whether it
// answered or not. A server without rules that cannot reach etcd accepts no clients, or serves at a
// configured rate, until etcd answers.
//
// Created, started, stopped and destroyed by the thread that runs the server, before and after it
// runs. The port may be called after stop(), until destruction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/cluster/cluster_node.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/options.h"
#include "weir/serve/server.h"

namespace weir::cluster {

class Cluster : public serve::ClusterPort {
 public:
  // Reads its state and listens for the other servers. The error names the file or the address.
  // REQUIRES: the server does not run yet, outlives it, and options.is_on().
  static Result<std::unique_ptr<Cluster>> create(serve::Server& server,
                                                 const serve::ClusterOptions& options);
  // The same for another program than weir serve.
  static Result<std::unique_ptr<Cluster>> create(std::unique_ptr<ClusterNode> node,
                                                 const serve::ClusterOptions& options);

  // Applies the rules it knows and starts to contact etcd. The server must run soon after, until
  // its end. REQUIRES: all other rules of the server have been started.
  virtual void start() = 0;
  // When it returns, all pending calls have been answered; later calls are answered with ECANCELED.
  virtual void stop() = 0;
  // The port for the other servers.
  virtual std::uint16_t port() const = 0;
  // Reads and checks the certificates on disk. Calling the result makes new connections to and from
  // other servers and to etcd use them.
  virtual Result<std::function<void()>> read_certificates() = 0;
};

}  // namespace weir::cluster
