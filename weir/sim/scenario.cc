// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/scenario.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "weir/adapt/options.h"
#include "weir/base/job_id.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::sim {
namespace {

tl::unexpected<Error> refuse(std::string_view where, std::string_view what,
                             std::string_view hint = {}) {
  return fail(std::errc::invalid_argument, where, what, hint);
}

// Names are used in rule commands, in file names of results and in tables.
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= JobId::kSizeMax &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "_-.") == std::string_view::npos;
}

Result<void> check_device(const StoreSpec& store, std::string_view where) {
  if (store.stall_for < Nanoseconds{0} || store.stall_for > store.stall_every / 2) {
    return refuse(where, "stalls for more than half of the time",
                  "give a stall_every of at least twice stall_for");
  }
  if ((store.clump > 0) != (store.clump_every > Nanoseconds{0})) {
    return refuse(where, "has only one of clump and clump_every", "give both, or neither");
  }
  if (store.seek > Nanoseconds{0} && store.seek_depth == 0) {
    return refuse(where, "has a seek_depth of 0", "give at least 1");
  }
  return {};
}

Result<void> check_target(const TargetSpec& target) {
  const std::string where = "target " + quote(target.name);
  if (!is_name(target.name))
    return refuse(where, "is not a valid name", "use letters, digits, _ - .");
  if (target.store.slots == 0) return refuse(where, "has 0 slots");
  if (target.store.slots > kWindowMax) {
    return refuse(where, fmt::format("has more than {} slots", kWindowMax));
  }
  if (target.latency_target && !target.auto_slots) {
    return refuse(where, "has a latency target and a fixed number of slots",
                  "use slots = 'auto', or remove latency_target");
  }
  for (const FieldSet level : target.tree) {
    if (level == FieldSet{Field::kProjid} || level == FieldSet{Field::kUid}) continue;
    return refuse(where, fmt::format("has a tree with the level {}", level.print_type()),
                  "jobs of a scenario have projid and uid only");
  }
  if (auto checked = check_device(target.store, where); !checked) return checked;
  if (target.store.service.base <= Nanoseconds{0} &&
      target.store.service.per_mib <= Nanoseconds{0} && target.store.seek <= Nanoseconds{0}) {
    return refuse(where, "has a service time of 0",
                  "give service or per_mib, such as service = '16ms'");
  }
  for (const Disturbance& disturbance : target.store.disturbances) {
    if (disturbance.length <= Nanoseconds{0}) return refuse(where, "has a disturbance of length 0");
    if (disturbance.percent == 0) {
      return refuse(where, "has a factor of 0", "give a factor above 0, or a stall");
    }
    if (disturbance.percent == Disturbance::kChannels &&
        (disturbance.channels == 0 || target.store.channels == 0)) {
      return refuse(where, "changes to or from 0 channels", "give channels above 0 for both");
    }
  }
  return {};
}

Result<void> check_process(const Scenario& scenario, const ProcessSpec& process,
                           std::string_view where) {
  using Kind = ProcessSpec::Kind;
  if (process.count == 0) return refuse(where, "count is 0", "remove the process instead");
  if (process.window == 0) return refuse(where, "a window of 0 issues no requests");
  if (process.window > kWindowMax) {
    return refuse(where, fmt::format("a window of more than {}", kWindowMax));
  }
  if (process.requests == 0) return refuse(where, "requests is 0", "remove the process instead");
  if (process.kind == Kind::kBurst) {
    if (process.requests == ProcessSpec::kEndless) return refuse(where, "a burst needs requests");
    if (process.every <= Nanoseconds{0}) {
      return refuse(where, "a burst needs a time between bursts", "give every, such as '5s'");
    }
  }
  if (process.kind == Kind::kThink) {
    if (process.requests == ProcessSpec::kEndless) return refuse(where, "think needs requests");
    if (process.requests_min == 0 || process.requests_min > process.requests) {
      return refuse(where, "requests_min must lie between 1 and requests");
    }
    if (process.think <= Nanoseconds{0}) return refuse(where, "think needs a think time");
  }
  if (process.sizes.empty()) return refuse(where, "has no sizes");
  for (const SizeSpec& size : process.sizes) {
    if (size.size == Bytes{0} || size.weight == 0)
      return refuse(where, "has a size or weight of 0");
  }
  if (process.reads_percent > 100) return refuse(where, "reads is above 100 %");
  if (process.target && *process.target >= scenario.targets.size()) {
    return refuse(where, "names a target that does not exist");
  }
  if (scenario.length && process.start >= *scenario.length) {
    return refuse(where, "starts after the scenario ends", "increase length");
  }
  const bool ends = process.kind == Kind::kContinuous && process.requests != ProcessSpec::kEndless;
  if (!scenario.length && !ends) {
    return refuse(where, "never ends, and neither does the scenario", "give the scenario a length");
  }
  return {};
}

Result<void> check_jobs(const Scenario& scenario) {
  std::set<std::string_view> names;
  std::size_t processes = 0;
  for (const JobSpec& job : scenario.jobs) {
    const std::string where = "job " + quote(job.name);
    if (!is_name(job.name)) {
      return refuse(where, "is not a valid name",
                    fmt::format("use 1 to {} letters, digits, _ - .", JobId::kSizeMax));
    }
    if (!names.insert(job.name).second) return refuse(where, "is used twice");
    if (job.nodes == 0) return refuse(where, "has 0 nodes", "a job runs on at least one");
    if (job.nodes > kNodesMax) return refuse(where, fmt::format("more than {} nodes", kNodesMax));
    if (job.processes.empty() && scenario.trace.empty() && scenario.streams.empty()) {
      return refuse(where, "has no process");
    }
    for (const ProcessSpec& process : job.processes) {
      if (auto checked = check_process(scenario, process, where); !checked) return checked;
      processes += process.count;
    }
  }
  if (processes > kProcessesMax) {
    return refuse("jobs", fmt::format("have more than {} processes", kProcessesMax));
  }
  return {};
}

Result<void> check_faults(const FaultSpec& faults) {
  if (faults.late_permille > 1000 || faults.lost_permille > 1000) {
    return refuse("faults", "a probability is above 1");
  }
  if (faults.late_permille > 0 && faults.late_by <= Nanoseconds{0}) {
    return refuse("faults", "timers are late by 0", "give late_by");
  }
  if (faults.lost_permille > 0 && faults.recover <= Nanoseconds{0}) {
    return refuse("faults", "a lost wake-up is never recovered", "give recover");
  }
  return {};
}

Result<void> check_lustre(const Scenario& scenario) {
  if (!scenario.lustre) return {};
  const LustreSpec& lustre = *scenario.lustre;
  if (scenario.targets.size() != 1) return refuse("lustre", "has exactly one target");
  if (!scenario.trace.empty() || !scenario.streams.empty()) {
    return refuse("lustre", "replays no traces");
  }
  if (!scenario.length) return refuse("lustre", "needs a length");
  if (lustre.cpts == 0 || lustre.cpts > kCptsMax) {
    return refuse("lustre", fmt::format("has 1 to {} CPTs", kCptsMax));
  }
  if (lustre.thin_percent == 0) return refuse("lustre", "has a service time of 0");
  return {};
}

}  // namespace

std::uint64_t Scenario::nodes() const {
  std::uint64_t sum = 0;
  for (const JobSpec& job : jobs) sum += job.nodes;
  return sum;
}

Bytes largest_request(const Scenario& scenario) {
  Bytes largest{1};
  for (const JobSpec& job : scenario.jobs) {
    for (const ProcessSpec& process : job.processes) {
      for (const SizeSpec& size : process.sizes) largest = std::max(largest, size.size);
    }
  }
  for (const TraceEntry& entry : scenario.trace) largest = std::max(largest, entry.size);
  for (const StreamSpec& stream : scenario.streams) largest = std::max(largest, stream.largest);
  return largest;
}

Result<void> check(const Scenario& scenario) {
  if (scenario.length && *scenario.length <= Nanoseconds{0}) return refuse("length", "is 0");
  if (scenario.length && *scenario.length > kLengthMax) {
    return refuse("length", "is above " + print_duration(kLengthMax));
  }
  for (const Nanoseconds period : scenario.periods) {
    if (period < ControllerOptions::kPeriodMin || period > ControllerOptions::kPeriodMax) {
      return refuse("periods", fmt::format("'{}' is not a valid period", print_duration(period)),
                    "expected 1ms to 10s");
    }
  }
  if (scenario.targets.empty()) return refuse("scenario", "has no target");
  if (scenario.targets.size() > kTargetsMax) return refuse("scenario", "has too many targets");
  if (scenario.jobs.empty()) return refuse("scenario", "has no job");
  if (scenario.jobs.size() > kJobsMax) {
    return refuse("scenario", fmt::format("has more than {} jobs", kJobsMax));
  }
  std::set<std::string_view> names;
  for (const TargetSpec& target : scenario.targets) {
    if (auto checked = check_target(target); !checked) return checked;
    if (!names.insert(target.name).second) {
      return refuse("target " + quote(target.name), "is used twice");
    }
  }
  if (auto checked = check_faults(scenario.faults); !checked) return checked;
  if (auto checked = check_lustre(scenario); !checked) return checked;
  return check_jobs(scenario);
}

}  // namespace weir::sim
