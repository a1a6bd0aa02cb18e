// SPDX-License-Identifier: Apache-2.0
#include "weir/control/usage_sampler.h"

#include <algorithm>

#include "weir/control/snapshot.h"
#include "weir/schedule/rule_view.h"

namespace weir::control {
namespace {

void add_job(UsageSums& sums, const JobStats::Entry& entry) {
  sums.served += entry.finished.requests;
  sums.bytes += entry.read.count() + entry.written.count();
  sums.waited_ns += static_cast<std::uint64_t>(entry.wait_sum.count());
}

}  // namespace

bool UsageSampler::step(serve::Server& server) {
  const auto services = server.services();
  if (service_ >= services.size()) return true;
  const serve::Service& service = *services[service_];
  name_ = service.name;
  if (step_target(service.target, server.now())) ++service_;
  return service_ >= services.size();
}

void UsageSampler::add(serve::TargetPort& port, UsageHistory& history) {
  bool is_whole = false;
  while (!is_whole) {
    name_ = port.service();
    const auto look = [&](const Target& target, Instant now) {
      is_whole = step_target(target, now);
    };
    if (!port.look(look)) return;
    hand_over(history);
  }
}

bool UsageSampler::step_target(const Target& target, Instant now) {
  if (is_in_jobs_) return step_jobs(target);
  step_classes(target, now);
  return false;
}

void UsageSampler::step_classes(const Target& target, Instant now) {
  const RuleView* const rules = target.rules(Head::kRegular);
  const Rule* last = nullptr;
  const auto visit = [&](const ClassView& view) {
    ++classes_;
    if (&view.rule != last) rule_names_.push_back(view.rule.name());
    last = &view.rule;
    sums_.push_back({.rule = rule_names_.size() - 1,
                     .key = view.key,
                     .by = view.rule.by(),
                     .is_overflow = view.is_overflow,
                     .sums = {view.totals.served, view.totals.bytes, view.totals.waited_ns}});
  };
  const auto next = rules == nullptr ? std::nullopt : rules->visit_classes(at_, kStep, now, visit);
  at_ = next.value_or(0);
  is_in_jobs_ = !next;
}

bool UsageSampler::step_jobs(const Target& target) {
  const JobStats& stats = target.stats();
  if (at_ == 0) total_ = {};
  const std::size_t end = std::min(at_ + kStep, stats.size());
  for (; at_ < end; ++at_) add_job(total_, stats.entry(at_));
  if (at_ < stats.size()) return false;
  add_job(total_, stats.overflow());
  add_job(total_, stats.gone());
  at_ = 0;
  is_in_jobs_ = false;
  is_total_whole_ = true;
  return true;
}

void UsageSampler::hand_over(UsageHistory& history) {
  for (const ClassSums& one : sums_) {
    history.add(name_, class_name(rule_names_[one.rule], one.key, one.by, one.is_overflow),
                one.sums);
  }
  sums_.clear();
  rule_names_.clear();
  if (is_total_whole_) history.total(name_, total_);
  is_total_whole_ = false;
}

}  // namespace weir::control
