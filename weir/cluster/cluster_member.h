// SPDX-License-Identifier: Apache-2.0
//
// A server's role as a member of its cluster, on its own loop: every epoch it reports how much its
// services could use of the cluster's rules, and sets the slices that it is granted where requests
// are scheduled. So a slice ends with its lease by this server's clock, even if other threads hang.
//
//   services --gauges--> SliceMember --Ready--> send(term, message) ... the transport's thread
//            <--set_slice--          <--Start-- receive(term, message)
//
// sync_rules() starts, changes and stops the rules of the cluster here. They are listed among the
// administrator's own rules in every service that they name, and are limited to this server's slice
// from the start. Groups of clients take turns in step with the other servers, in a course of
// epochs for each service (epoch_course.h).
//
// After a change of policy and back, the cluster's rules are active again before another request is
// scheduled.
//
// When the server stops, it no longer takes part in epochs; accepted requests are served within its
// slices until their lease ends, and then at the amount of an isolated server. It does not notify
// the leader, which would give its slices to others at once.
//
// A LoopComponent: all calls are made on the loop. Time is an argument. One owner, no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/cluster/cluster_node.h"
#include "weir/cluster/epoch_course.h"
#include "weir/cluster/shared_rule.h"
#include "weir/coordinate/cluster_rules.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/slices.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/loop_component.h"

namespace weir::cluster {

class ClusterMember final : public serve::LoopComponent, private EpochUse {
 public:
  struct Options {
    Nanoseconds epoch = std::chrono::milliseconds{10};
    Nanoseconds timeout = std::chrono::milliseconds{100};
    SliceTerms terms = {};
  };
  // Sends by a course of epochs: the course of slices has no name, the others have the name of
  // their service.
  using Send =
      std::function<void(std::uint32_t term, const std::string& course, EpochMessage message)>;

  // REQUIRES: the node outlives it and does not run yet. `ended` is called when the server stops:
  // the leader must no longer wait for this member.
  ClusterMember(const Options& options, ClusterNode& node, Send send, std::function<void()> ended);
  ~ClusterMember() override;

  Instant wakes_at() const override;
  void wake(Instant now) override;
  void stopping(Instant now) override;

  // There is another leader, or none: term 0.
  void follow(std::uint32_t term, Instant now);
  void receive(std::uint32_t term, const std::string& course, const EpochMessage& message,
               Instant now);

  // Applies exactly these rules, in this order, for this known number of servers. Returns the
  // errors of rules that cannot be applied here.
  std::vector<std::string> sync_rules(const std::vector<SharedRule>& rules, std::uint32_t members,
                                      Instant now);

  // The number of members that share the limits, as last received from a leader; 0: never received.
  std::uint32_t members_told() const { return slices_.is_told() ? slices_.members() : 0; }

  void describe(serve::ClusterStatus& status, Instant now) const override;

 private:
  struct Applied {
    std::int64_t created = 0;
    std::int64_t modified = 0;
  };

  EpochBytes ready(Instant now) override;
  void called(Instant now) override;
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;

  SliceSink* sink_of(std::string_view service) const;
  Result<void> sync_rule(const SharedRule& rule, Instant now);
  void stop_rule(const std::string& key, Instant now);
  void settle(Instant now);
  std::uint64_t policy_switches() const;
  std::vector<std::string> put_in_force(Instant now);

  Options options_;
  std::vector<ClusterNode::Service> sinks_;
  Send send_;
  std::function<void()> ended_;
  SliceMember slices_;
  EpochMember member_;
  EpochParticipant participant_;
  std::vector<std::unique_ptr<ClusterRules>> services_;
  std::map<std::string, std::unique_ptr<EpochCourse>> courses_;  // by name
  std::map<std::string, Applied> applied_;                       // by SharedRule::key()
  std::vector<SharedRule> rules_;
  std::uint64_t switches_ = 0;  // number of policy switches when the rules were applied
  std::uint32_t term_ = 0;
  Instant apply_at_ = kNever;
  bool has_started_ = false;
  bool is_stopping_ = false;
};

}  // namespace weir::cluster
