// SPDX-License-Identifier: Apache-2.0
//
// A server's part in the epochs of its cluster, on its own loop: what its services could use of the
// cluster's rules goes out with every epoch, and the slices that come back are set where requests
// are scheduled. So a slice ends with its lease by this server's clock, whatever else stands still.
//
//   services --gauges--> SliceMember --Ready--> send(term, message) ... the transport's thread
//            <--set_slice--          <--Start-- receive(term, message)
//
// Rules of the cluster are started, changed and stopped here to be what sync_rules() was told; they
// stand among the administrator's own in every service that they name, and from that moment on at
// no more than this server's part. Groups of clients take turns in step with the other servers, in
// a course of epochs for each service (epoch_course.h).
//
// After a change of policy and back, the cluster's rules are active again before another request is
// scheduled.
//
// When the server stops, it no longer takes part; accepted requests are served within its slices
// until their lease ends, and then as by an isolated server. It does not say goodbye to the leader,
// which would give its slices to others at once.
//
// A Guest of the loop: everything is called there. Time is given. One owner, no locks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/cluster/epoch_course.h"
#include "weir/cluster/shared_rule.h"
#include "weir/coordinate/cluster_rules.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/slices.h"
#include "weir/serve/cluster_port.h"
#include "weir/serve/guest.h"
#include "weir/serve/server.h"

namespace weir::cluster {

class ClusterMember final : public serve::Guest, private EpochUse {
 public:
  struct Options {
    Nanoseconds epoch = std::chrono::milliseconds{10};
    Nanoseconds timeout = std::chrono::milliseconds{100};
    SliceTerms terms = {};
  };
  // By a course of epochs: that of slices has no name, others are called as the service.
  using Send =
      std::function<void(std::uint32_t term, const std::string& course, EpochMessage message)>;

  // REQUIRES: the server outlives it and does not run yet. `ended` is called when the server stops:
  // the leader is not to wait for this member any more.
  ClusterMember(const Options& options, serve::Server& server, Send send,
                std::function<void()> ended);
  ~ClusterMember() override;

  Instant wakes_at() const override;
  void wake(Instant now) override;
  void stopping(Instant now) override;

  // Another leads, or nobody: term 0.
  void follow(std::uint32_t term, Instant now);
  void receive(std::uint32_t term, const std::string& course, const EpochMessage& message,
               Instant now);

  // These rules, in this order, and no others, on so many servers as far as is known. The errors of
  // those that do not fit here.
  std::vector<std::string> sync_rules(const std::vector<SharedRule>& rules, std::uint32_t members,
                                      Instant now);

  // That limits are shared among, as a leader has told; 0: none has.
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

  Result<void> sync_rule(const SharedRule& rule, Instant now);
  void stop_rule(const std::string& key, Instant now);
  void settle(Instant now);
  std::uint64_t policy_switches() const;
  std::vector<std::string> put_in_force(Instant now);

  Options options_;
  serve::Server& server_;
  Send send_;
  std::function<void()> ended_;
  SliceMember slices_;
  EpochMember member_;
  EpochParticipant participant_;
  std::vector<std::unique_ptr<ClusterRules>> services_;
  std::map<std::string, std::unique_ptr<EpochCourse>> courses_;  // by service, of those with groups
  std::map<std::string, Applied> applied_;                       // by SharedRule::key()
  std::vector<SharedRule> rules_;
  std::uint64_t switches_ = 0;  // of policies, when the rules were put in force
  std::uint32_t term_ = 0;
  Instant apply_at_ = kNever;
  bool has_started_ = false;
  bool is_stopping_ = false;
};

}  // namespace weir::cluster
