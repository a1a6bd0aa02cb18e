// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/serve_node.h"

namespace weir::cluster {
namespace {

serve::Command on_server(ClusterNode::Command command) {
  return [command = std::move(command)](const Result<serve::Server*>& server) {
    command(server ? Result<Instant>((*server)->now()) : tl::unexpected(server.error()));
  };
}

}  // namespace

ServeNode::ServeNode(serve::Server& server) : server_(server) {
  for (const auto& service : server.services()) {
    sinks_.push_back(std::make_unique<TargetSink>(service->target));
  }
}

std::vector<ClusterNode::Service> ServeNode::services() {
  std::vector<Service> services;
  services.reserve(sinks_.size());
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    services.push_back({server_.services()[i]->name, sinks_[i].get()});
  }
  return services;
}

std::vector<ClusterNode::Course> ServeNode::courses() {
  std::vector<Course> courses;
  for (const auto& service : server_.services()) {
    serve::ServiceGroups* const groups = service->groups.get();
    if (groups == nullptr) continue;
    courses.push_back(
        {service->name, server_.options().groups.longest(),
         [groups](EpochHandler& handler, Instant now) { groups->join(handler, now); }});
  }
  return courses;
}

void ServeNode::open_entrance(std::optional<std::uint32_t> pace) {
  server_.set_pace(pace);
  server_.open_entrance();
}

Result<void> ServeNode::order(Command command) {
  return server_.order(on_server(std::move(command)));
}

Result<void> ServeNode::post(Command command) {
  return server_.post(on_server(std::move(command)));
}

}  // namespace weir::cluster
