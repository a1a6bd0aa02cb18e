// SPDX-License-Identifier: Apache-2.0
//
// The membership of weir lustre run in a cluster, as its loop uses it. The implementation
// (lustre_node.cc) needs gRPC, which the program weir-lustre and the first program of weir do not
// have: they get no function that opens one.
//
//   auto cluster = open({options, services});     before the loop
//   cluster->start();
//   poll fd() until wakes_at(), then wake(now):    caps of the limits may have changed
//   cluster->stop();                               leaves; the limits hold until the rules are gone
//
// The owner's thread calls everything but port(), which is thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lustre/job_limits.h"
#include "weir/lustre/share_parts.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/options.h"

namespace CLI {
class App;
}

namespace weir::app {

class LustreCluster {
 public:
  struct Service {
    std::string name;
    lustre::JobLimits* limits = nullptr;
    lustre::ShareParts* parts = nullptr;
  };

  LustreCluster() = default;
  LustreCluster(const LustreCluster&) = delete;
  LustreCluster& operator=(const LustreCluster&) = delete;
  virtual ~LustreCluster() = default;

  virtual void start() = 0;
  virtual void stop() = 0;
  virtual int fd() const = 0;
  virtual Instant wakes_at() const = 0;
  virtual void wake(Instant now) = 0;
  virtual serve::ClusterPort& port() = 0;
  // The TCP port for the other servers.
  virtual std::uint16_t listening() const = 0;
};

// REQUIRES: what the services name outlives the result.
using OpenLustreCluster = Result<std::unique_ptr<LustreCluster>> (*)(
    const serve::ClusterOptions& options, std::vector<LustreCluster::Service> services);

// weir lustre on a command line; without `open`, --cluster is an error.
void add_lustre_command(CLI::App& weir, int& status, OpenLustreCluster open);
// The same with the implementation that needs gRPC.
void add_lustre_with_cluster(CLI::App& weir, int& status);

}  // namespace weir::app
