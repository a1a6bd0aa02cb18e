// SPDX-License-Identifier: Apache-2.0
//
// A running `weir serve` as the node of a cluster (cluster_node.h): its services are Targets, and
// groups of clients take turns in courses of epochs that are named after their services.
//
// Thread-safe as ClusterNode says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weir/cluster/cluster_node.h"
#include "weir/coordinate/target_sink.h"
#include "weir/serve/server.h"

namespace weir::cluster {

class ServeNode final : public ClusterNode {
 public:
  // REQUIRES: the server outlives it, and does not run yet.
  explicit ServeNode(serve::Server& server);

  std::vector<Service> services() override;
  std::vector<Course> courses() override;
  Instant now() const override { return server_.now(); }
  void set_component(serve::LoopComponent* component) override { server_.set_component(component); }
  void hold_entrance() override { server_.hold_entrance(); }
  void open_entrance(std::optional<std::uint32_t> pace) override;
  Result<void> order(Command command) override;
  Result<void> post(Command command) override;

 private:
  serve::Server& server_;
  std::vector<std::unique_ptr<TargetSink>> sinks_;  // as the services
};

}  // namespace weir::cluster
