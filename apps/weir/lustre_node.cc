// SPDX-License-Identifier: Apache-2.0
//
// The drivers of a Lustre server as the node of a cluster: commands from the threads of the cluster
// run in the loop of the drivers, which also takes part in the epochs of limits and of shares.
#include <algorithm>
#include <deque>
#include <utility>

#include <poll.h>

#include "apps/weir/lustre_cluster.h"
#include "weir/cluster/cluster.h"
#include "weir/cluster/cluster_node.h"
#include "weir/coordinate/participant.h"
#include "weir/host/clock.h"
#include "weir/host/mailbox.h"
#include "weir/serve/command.h"

namespace weir::app {
namespace {

// How often the number of members is asked for.
constexpr Nanoseconds kMembersEvery = std::chrono::milliseconds{200};
// Between two tries of a server that is cut off to share the parts of jobs.
constexpr Nanoseconds kRetry = std::chrono::milliseconds{100};

tl::unexpected<Error> stopped() {
  return fail(std::errc::operation_canceled, "the driver", "stops");
}

class LustreNode final : public cluster::ClusterNode {
 public:
  LustreNode(host::Fd wake_fd, std::vector<LustreCluster::Service> services)
      : services_(std::move(services)), box_(std::move(wake_fd), serve::kCommandsMax) {}

  int fd() const { return box_.fd(); }

  Instant wakes_at() const {
    Instant at = component_ == nullptr ? kNever : component_->wakes_at();
    for (const EpochParticipant& each : participants_) at = std::min(at, each.next_wake());
    return at;
  }

  void wake(Instant now) {
    pollfd readable{box_.fd(), POLLIN, 0};
    if (poll(&readable, 1, 0) > 0) {
      box_.clear();
      for (const Command& command : box_.take()) command(now);
    }
    if (component_ != nullptr) component_->wake(now);
    for (EpochParticipant& each : participants_) each.tick(now);
    tell_members(now);
  }

  // Commands that wait are answered; later ones are refused.
  void stop(Instant now) {
    if (component_ != nullptr) component_->stopping(now);
    for (EpochParticipant& each : participants_) each.shutdown(now);
    for (const Command& command : box_.close()) command(stopped());
  }

  // ---- ClusterNode ----

  std::vector<Service> services() override {
    std::vector<Service> all;
    all.reserve(services_.size());
    for (const LustreCluster::Service& each : services_) all.push_back({each.name, each.limits});
    return all;
  }
  std::vector<Course> courses() override {
    std::vector<Course> all;
    for (const LustreCluster::Service& each : services_) {
      all.push_back({each.name + "/parts", lustre::ShareParts::kLength,
                     [this, parts = each.parts](EpochHandler& handler, Instant now) {
                       participants_.emplace_back(handler, *parts,
                                                  EpochParticipant::Options{.retry = kRetry});
                       participants_.back().start(now);
                     }});
    }
    return all;
  }
  Instant now() const override { return host::now(); }
  void set_component(serve::LoopComponent* component) override { component_ = component; }
  // A Lustre server accepts its own clients.
  void hold_entrance() override {}
  void open_entrance(std::optional<std::uint32_t> /*pace*/) override {}
  Result<void> order(Command command) override {
    if (!box_.put_always(std::move(command))) return stopped();
    return {};
  }
  Result<void> post(Command command) override {
    switch (box_.put(std::move(command))) {
      case host::Put::kDone:
        return {};
      case host::Put::kFull:
        return fail(std::errc::resource_unavailable_try_again, "the driver",
                    "has too many commands waiting");
      case host::Put::kClosed:
        break;
    }
    return stopped();
  }

 private:
  void tell_members(Instant now) {
    if (component_ == nullptr || now < members_at_) return;
    members_at_ = now + kMembersEvery;
    serve::ClusterStatus status;
    component_->describe(status, now);
    for (const LustreCluster::Service& each : services_) each.limits->set_members(status.counted);
  }

  const std::vector<LustreCluster::Service> services_;
  host::Mailbox<Command> box_;
  serve::LoopComponent* component_ = nullptr;
  std::deque<EpochParticipant> participants_;  // refer to handlers of the component
  Instant members_at_{};
};

class JoinedCluster final : public LustreCluster {
 public:
  JoinedCluster(std::unique_ptr<cluster::Cluster> cluster, LustreNode& node)
      : cluster_(std::move(cluster)), node_(node) {}
  ~JoinedCluster() override { stop(); }

  void start() override { cluster_->start(); }
  void stop() override {
    if (std::exchange(is_stopped_, true)) return;
    node_.stop(host::now());  // first: its threads may wait for commands
    cluster_->stop();
  }
  int fd() const override { return node_.fd(); }
  Instant wakes_at() const override { return node_.wakes_at(); }
  void wake(Instant now) override { node_.wake(now); }
  serve::ClusterPort& port() override { return *cluster_; }
  std::uint16_t listening() const override { return cluster_->port(); }

 private:
  const std::unique_ptr<cluster::Cluster> cluster_;
  LustreNode& node_;  // of the cluster
  bool is_stopped_ = false;
};

Result<std::unique_ptr<LustreCluster>> open_lustre_cluster(
    const serve::ClusterOptions& options, std::vector<LustreCluster::Service> services) {
  auto wake = host::make_wake_fd();
  if (!wake) return tl::unexpected(wake.error());
  auto node = std::make_unique<LustreNode>(*std::move(wake), std::move(services));
  LustreNode& at = *node;
  auto cluster = cluster::Cluster::create(std::move(node), options);
  if (!cluster) return tl::unexpected(cluster.error());
  return std::make_unique<JoinedCluster>(*std::move(cluster), at);
}

}  // namespace

void add_lustre_with_cluster(CLI::App& weir, int& status) {
  add_lustre_command(weir, status, open_lustre_cluster);
}

}  // namespace weir::app
