// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/cluster_member.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir::cluster {
namespace {

// For message delays and late threads.
constexpr Nanoseconds kGrace = std::chrono::milliseconds{50};
// Retry interval after an error, when the server runs alone anyway.
constexpr Nanoseconds kRetry = std::chrono::milliseconds{10};

}  // namespace

ClusterMember::ClusterMember(const Options& options, ClusterNode& node, Send send,
                             std::function<void()> ended)
    : options_(options),
      sinks_(node.services()),
      send_(std::move(send)),
      ended_(std::move(ended)),
      slices_(options.terms),
      member_({.timeout = options.timeout, .grace = kGrace, .payload = &slices_}),
      participant_(member_, *this, {.retry = kRetry}) {
  for (const ClusterNode::Service& service : sinks_) {
    services_.push_back(
        std::make_unique<ClusterRules>(*service.sink, slices_, options.epoch, service.name + "/"));
  }
  for (const ClusterNode::Course& each : node.courses()) {
    auto course = std::make_unique<EpochCourse>(
        each.longest + options.timeout,
        [this, name = each.name](EpochMessage message) { send_(term_, name, std::move(message)); });
    each.join(*course, node.now());
    courses_[each.name] = std::move(course);
  }
}

ClusterMember::~ClusterMember() = default;

// Of all services.
std::uint64_t ClusterMember::policy_switches() const {
  std::uint64_t all = 0;
  for (const ClusterNode::Service& service : sinks_) all += service.sink->restarts();
  return all;
}

Instant ClusterMember::wakes_at() const {
  if (is_stopping_) return apply_at_;
  if (policy_switches() != switches_) return Instant::min();
  Instant at = std::min({participant_.next_wake(), member_.next_wake(), apply_at_});
  for (const auto& [name, course] : courses_) at = std::min(at, course->next_wake());
  return at;
}

void ClusterMember::wake(Instant now) {
  if (!is_stopping_) {
    // Errors are reported when the rules are next synchronized.
    if (policy_switches() != switches_) (void)put_in_force(now);
    participant_.tick(now);
    member_.tick(now);
    for (const auto& [name, course] : courses_) course->tick(now);
  }
  if (apply_at_ <= now) {
    for (const auto& service : services_) service->apply(now);
  }
  settle(now);
}

void ClusterMember::stopping(Instant now) {
  is_stopping_ = true;
  for (const auto& [name, course] : courses_) course->follow(false, now);
  ended_();
}

// Sends messages and updates the end of the lease.
void ClusterMember::settle(Instant now) {
  for (EpochMessage& message : member_.take_outgoing()) send_(term_, {}, std::move(message));
  apply_at_ = slices_.lease_end() > now ? slices_.lease_end() : kNever;
}

void ClusterMember::follow(std::uint32_t term, Instant now) {
  if (term == term_) return;
  const bool had_leader = std::exchange(term_, term) != 0;
  if (had_leader) member_.lose_leader(now);
  for (const auto& [name, course] : courses_) course->follow(term != 0, now);
  if (term != 0 && !has_started_) {
    has_started_ = true;
    participant_.start(now);
  }
  settle(now);
}

void ClusterMember::receive(std::uint32_t term, const std::string& course,
                            const EpochMessage& message, Instant now) {
  if (term != term_) return;
  if (course.empty()) {
    member_.receive(message, now);
    return settle(now);
  }
  if (const auto found = courses_.find(course); found != courses_.end()) {
    found->second->receive(message, now);
  }
}

EpochBytes ClusterMember::ready(Instant now) {
  for (const auto& service : services_) (void)service->ready(now);
  return slices_.demand();
}

void ClusterMember::called(Instant now) {
  for (const auto& service : services_) service->called(now);
}

Nanoseconds ClusterMember::start_epoch(std::int64_t epoch, EpochView reduced, Instant now) {
  for (const auto& service : services_) service->start_epoch(epoch, reduced, now);
  return options_.epoch;
}

void ClusterMember::alone(std::int64_t error, Instant now) {
  for (const auto& service : services_) service->alone(error, now);
}

// ---- the cluster's rules ----

SliceSink* ClusterMember::sink_of(std::string_view service) const {
  const auto found = std::find_if(sinks_.begin(), sinks_.end(),
                                  [&](const auto& each) { return each.name == service; });
  return found == sinks_.end() ? nullptr : found->sink;
}

void ClusterMember::stop_rule(const std::string& key, Instant now) {
  const auto [service, rule] = SharedRule::parts(key);
  if (SliceSink* const sink = sink_of(service)) {
    const RuleChange stop = stop_of(rule);
    // The policy may have changed, which removed the rule.
    (void)sink->apply_rules({&stop, 1}, now);
  }
}

Result<void> ClusterMember::sync_rule(const SharedRule& rule, Instant now) {
  SliceSink* const sink = sink_of(rule.service);
  if (sink == nullptr) return {};  // other servers have it
  const bool is_there = sink->has_rule(rule.name);
  const auto applied = applied_.find(rule.key());
  const bool is_ours = is_there && applied != applied_.end();
  if (is_ours && applied->second.modified == rule.modified) return {};
  std::span<const RuleChange> changes = rule.changes;
  if (is_ours) {
    changes = changes.subspan(1);  // already started
  } else {
    applied_.erase(rule.key());
  }
  if (auto done = sink->apply_rules(changes, now); !done) return done;
  applied_[rule.key()] = {rule.created, rule.modified};
  return {};
}

std::vector<std::string> ClusterMember::sync_rules(const std::vector<SharedRule>& rules,
                                                   std::uint32_t members, Instant now) {
  slices_.expect_members(members);
  member_.expect_members(members);
  rules_ = rules;
  return put_in_force(now);
}

std::vector<std::string> ClusterMember::put_in_force(Instant now) {
  switches_ = policy_switches();
  std::map<std::string, Applied> wanted;
  for (const SharedRule& rule : rules_) wanted[rule.key()] = {rule.created, rule.modified};
  std::erase_if(applied_, [&](const auto& one) {
    const auto& [key, applied] = one;
    const auto found = wanted.find(key);
    // A rule that was stopped and started again is a different rule.
    if (found != wanted.end() && found->second.created == applied.created) return false;
    stop_rule(key, now);
    return true;
  });
  std::vector<std::string> errors;
  for (const SharedRule& rule : rules_) {
    if (auto done = sync_rule(rule, now); !done) {
      errors.push_back(
          fmt::format("rule {} of the cluster: {}", quote(rule.key()), done.error().message()));
    }
  }
  for (const auto& service : services_) service->follow(now);
  return errors;
}

void ClusterMember::describe(serve::ClusterStatus& status, Instant now) const {
  status.term = term_;
  status.epoch = participant_.epoch();
  status.epochs = participant_.epochs();
  status.errors = participant_.errors();
  status.counted = slices_.members();
  for (SliceMember::ClassIndex i = 0; i < slices_.classes(); ++i) {
    if (!applied_.contains(SharedRule::parent(limit_name(slices_.name(i)))))
      continue;  // was stopped
    status.slices.push_back({.of = slices_.name(i),
                             .milli = slices_.slice(i, now),
                             .is_leased = slices_.is_leased(i, now)});
  }
}

}  // namespace weir::cluster
