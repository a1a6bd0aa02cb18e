// SPDX-License-Identifier: Apache-2.0
#include "weir/control/metrics.h"

#include <algorithm>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "weir/control/metric_family.h"

namespace weir::control {
namespace {

// A job named "other" must not be confused with the sum of the others.
std::string job_label(const JobId& job) {
  return job.text() == "other" ? "\\x6Fther" : printable_id(job.text());
}

std::string job_labels(std::string_view service, std::string_view job, std::string_view direction) {
  return fmt::format("{{service={},jobid={},direction=\"{}\"}}", metric_label(service),
                     metric_label(job), direction);
}

std::uint64_t grown(std::uint64_t now, std::uint64_t before) {
  return now >= before ? now - before : now;
}

// One line of each metric for every thread.
void add_threads(std::string& page, const Snapshot& shot) {
  using Loop = serve::Server::LoopStatus;
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help,
                          auto add) {
    Family lines(page, name, type, help);
    for (std::size_t i = 0; i < shot.loops.size(); ++i) {
      add(lines, fmt::format("{{thread=\"{}\"}}", i), shot.loops[i]);
    }
  };
  using Label = const std::string&;
  family("weir_thread_connections", "gauge", "Connected clients of a thread.",
         [](Family& lines, Label label, const Loop& one) { lines.add(label, one.connections); });
  family("weir_thread_requests_total", "counter", "Requests read by a thread.",
         [](Family& lines, Label label, const Loop& one) { lines.add(label, one.requests); });
  family("weir_thread_turns_total", "counter", "Turns of the loop of a thread.",
         [](Family& lines, Label label, const Loop& one) { lines.add(label, one.stats.turns); });
  family("weir_thread_longest_turn_seconds", "gauge",
         "CPU time of the longest turn of the loop of a thread.",
         [](Family& lines, Label label, const Loop& one) {
           lines.add_seconds(label, one.stats.longest_turn_ns);
         });
  family("weir_thread_wake_ups_total", "counter", "Times a thread was woken by another thread.",
         [](Family& lines, Label label, const Loop& one) { lines.add(label, one.wake_ups); });
  family(
      "weir_thread_lock_busy_total", "counter", "Times a thread found the lock of a service taken.",
      [](Family& lines, Label label, const Loop& one) { lines.add(label, one.stats.lock_busy); });
  family("weir_thread_lock_wait_seconds_total", "counter",
         "Time that a thread waited for the lock of a service.",
         [](Family& lines, Label label, const Loop& one) {
           lines.add_seconds(label, one.stats.lock_wait_ns);
         });
}

void add_server(std::string& page, const Snapshot& shot) {
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help,
                       std::uint64_t value) { Family(page, name, type, help).add("", value); };
  Family(page, "weir_io", "gauge", "1, with the I/O backend in use as a label.")
      .add(fmt::format("{{backend=\"{}\"}}", shot.io), 1);
  add_threads(page, shot);
  one("weir_connections", "gauge", "Connected clients.", shot.connections);
  one("weir_connections_accepted_total", "counter", "Connections accepted.",
      shot.counters.accepted);
  one("weir_connections_refused_total", "counter",
      "Connections refused because a limit was reached.", shot.counters.refused);
  one("weir_connections_broken_total", "counter", "Connections closed because of a protocol error.",
      shot.counters.broken);
  one("weir_connections_stalled_total", "counter",
      "Connections closed because they announced a write and did not send it while others waited "
      "for memory.",
      shot.counters.stalled);
  one("weir_requests_total", "counter", "Requests read from clients.", shot.counters.requests);
  one("weir_requests_refused_total", "counter", "Requests answered with a protocol error.",
      shot.counters.requests_refused);
  one("weir_store_errors_total", "counter", "Store errors.", shot.counters.store_errors);
  one("weir_claims_refused_total", "counter",
      "Clients that claimed a job or id without permission.", shot.counters.claims_refused);
  one("weir_memory_bytes", "gauge", "Memory used by or reserved for connections.",
      shot.memory_used);
  one("weir_memory_kept_bytes", "gauge", "Memory of free buffers kept for later requests.",
      shot.memory_kept);
  one("weir_memory_history_bytes", "gauge", "Memory of the usage of the last two hours.",
      shot.memory_history);
  one("weir_memory_limit_bytes", "gauge", "Memory limit of all connections.", shot.memory_limit);
  one("weir_memory_waits_total", "counter", "Number of times a connection waited for memory.",
      shot.counters.memory_waits);
  one("weir_log_dropped_total", "counter", "Log lines that could not be written.",
      shot.log_dropped);
}

// Counts of the same name are adjacent, one for each gateway.
void add_protocols(std::string& page, const Snapshot& shot) {
  const auto is_first = [&](std::size_t index) {
    return std::none_of(shot.protocols.begin(),
                        shot.protocols.begin() + static_cast<std::ptrdiff_t>(index),
                        [&](const auto& one) { return one.name == shot.protocols[index].name; });
  };
  for (std::size_t index = 0; index < shot.protocols.size(); ++index) {
    const serve::ProtocolCount& first = shot.protocols[index];
    if (!is_first(index)) continue;
    Family family(page, first.name, "counter", first.help);
    for (const serve::ProtocolCount& one : shot.protocols) {
      if (one.name != first.name) continue;
      const std::string labels = "{gateway=" + metric_label(one.gateway) + "}";
      one.is_time ? family.add_seconds(labels, one.value) : family.add(labels, one.value);
    }
  }
}

void add_services(std::string& page, const Snapshot& shot) {
  Family queued(page, "weir_queued_requests", "gauge", "Requests waiting in queues.");
  for (const ServiceSnapshot& one : shot.services) queued.add(labels_of(one.name), one.queued);
  Family running(page, "weir_running_requests", "gauge", "Requests running in stores.");
  for (const ServiceSnapshot& one : shot.services) running.add(labels_of(one.name), one.running);
  Family slots(page, "weir_slots", "gauge", "Requests that stores may work on at a time.");
  for (const ServiceSnapshot& one : shot.services) slots.add(labels_of(one.name), one.slots.count);
  Family classes(page, "weir_classes", "gauge", "Classes in memory.");
  for (const ServiceSnapshot& one : shot.services)
    classes.add(labels_of(one.name), one.classes.size());
  Family overflow(page, "weir_class_overflow_total", "counter",
                  "Requests that shared the overflow class because the class limit was reached.");
  for (const ServiceSnapshot& one : shot.services)
    overflow.add(labels_of(one.name), one.overflowed);
  Family capacity(page, "weir_capacity_tokens_per_second", "gauge",
                  "Capacity of the device in use, given or estimated.");
  for (const ServiceSnapshot& one : shot.services) {
    if (one.capacity) capacity.add(labels_of(one.name), *one.capacity);
  }
  Family delays(page, "weir_delay_seconds", "gauge",
                "Waiting time by cause, summed over the sampled queues.");
  for (const ServiceSnapshot& one : shot.services) {
    DelaySums sums{};
    for (const WaitView& wait : one.waits) {
      for (std::size_t i = 0; i < kDelays; ++i) sums[i] += wait.delays[i];
    }
    for (std::size_t i = 0; i < kDelays; ++i) {
      delays.add_seconds(labels_of(one.name, "cause", delay_name(static_cast<Delay>(i))), sums[i]);
    }
  }
  Family rates(page, "weir_rule_rate_limit", "gauge",
               "Operations per second that a rule allows each of its classes.");
  for (const ServiceSnapshot& one : shot.services) {
    for (const RuleSnapshot& rule : one.rules) {
      if (rule.heads == "hp" || rule.rate == 0) continue;  // 0: it is not limited
      rates.add(labels_of(one.name, "rule", rule.name), rule.rate);
    }
  }
}

// Every export always has a series, so that alerts can compare it.
void add_exports(std::string& page, const Snapshot& shot) {
  const auto family = [&](std::string_view name, std::string_view help, auto&& add) {
    Family lines(page, name, "gauge", help);
    for (const std::string& name_of_one : shot.exports) {
      const auto hung =
          std::find_if(shot.hung.begin(), shot.hung.end(),
                       [&](const HungExportSnapshot& one) { return one.name == name_of_one; });
      add(lines, "{export=" + metric_label(name_of_one) + "}",
          hung == shot.hung.end() ? HungExportSnapshot{} : *hung);
    }
  };
  family("weir_export_hung_requests",
         "Requests waiting for a store that hangs; 0 while the store completes requests.",
         [](Family& lines, const std::string& labels, const HungExportSnapshot& one) {
           lines.add(labels, one.unfinished + one.kept);
         });
  family("weir_export_hung_seconds", "Time since a store that hangs completed a request.",
         [](Family& lines, const std::string& labels, const HungExportSnapshot& one) {
           lines.add_seconds(labels, one.silent_ns);
         });
}

void add_groups(std::string& page, const Snapshot& shot) {
  std::vector<const ServiceSnapshot*> services;
  for (const ServiceSnapshot& one : shot.services) {
    if (one.groups) services.push_back(&one);
  }
  if (services.empty()) return;
  const auto by_group = [&](std::string_view name, std::string_view type, std::string_view help,
                            auto&& pick) {
    Family lines(page, name, type, help);
    for (const ServiceSnapshot* const one : services) {
      for (const GroupsSnapshot::Group& group : one->groups->groups) {
        lines.add(labels_of(one->name, "group", group.name), pick(*one->groups, group));
      }
    }
  };
  const auto by_service = [&](std::string_view name, std::string_view type, std::string_view help,
                              auto&& pick) {
    Family lines(page, name, type, help);
    for (const ServiceSnapshot* const one : services)
      lines.add(labels_of(one->name), pick(*one->groups));
  };
  by_group("weir_group_turns_total", "counter", "Number of turns in which a group was preferred.",
           [](const GroupsSnapshot&, const GroupsSnapshot::Group& group) { return group.turns; });
  by_group("weir_group_preferred", "gauge", "1 for the preferred group.",
           [](const GroupsSnapshot& all, const GroupsSnapshot::Group& group) {
             return std::uint64_t{all.preferred == group.name};
           });
  by_group("weir_group_waiting_queues", "gauge", "Queues of a group with waiting requests.",
           [](const GroupsSnapshot&, const GroupsSnapshot::Group& group) { return group.waiting; });
  by_service("weir_group_in_step", "gauge", "1 while turns are synchronized with other servers.",
             [](const GroupsSnapshot& all) { return std::uint64_t{all.step == "cluster"}; });
  by_service("weir_group_ragged_total", "counter",
             "Quiet phases that exceeded their maximum length.",
             [](const GroupsSnapshot& all) { return all.ragged; });
}

void add_cluster(std::string& page, const serve::ClusterStatus& status) {
  const auto one = [&](std::string_view name, std::string_view type, std::string_view help,
                       std::uint64_t value) { Family(page, name, type, help).add("", value); };
  one("weir_cluster_in_epoch", "gauge", "1 while this server takes part in epochs.",
      std::uint64_t{status.epoch > 0});
  one("weir_cluster_term", "gauge", "Term of the current leader; 0 if none.", status.term);
  one("weir_cluster_epochs_total", "counter", "Epochs that this server took part in.",
      status.epochs);
  one("weir_cluster_epoch_errors_total", "counter", "Epoch calls that failed or timed out.",
      status.errors);
  std::vector<const serve::SliceStatus*> slices;
  slices.reserve(status.slices.size());
  for (const auto& slice : status.slices) slices.push_back(&slice);
  std::stable_sort(slices.begin(), slices.end(),
                   [](const auto* a, const auto* b) { return a->milli > b->milli; });
  if (slices.size() > Metrics::kSlicesMax) slices.resize(Metrics::kSlicesMax);
  Family lines(
      page, "weir_cluster_slice_millis_per_second", "gauge",
      "Thousandths of a token per second that this server may use, for the largest slices.");
  for (const auto* const slice : slices) {
    lines.add_signed(fmt::format("{{of={},leased=\"{}\"}}", metric_label(slice->of),
                                 slice->is_leased ? "true" : "false"),
                     slice->milli);
  }
}

// The first nodes of the first level, such as projects.
template <class Visit>
void each_node(const Snapshot& shot, Visit visit) {
  constexpr std::size_t kNodesMax = 100;
  for (const ServiceSnapshot& one : shot.services) {
    std::size_t count = 0;
    if (!one.tree) continue;
    for (const NodeSnapshot& node : one.tree->nodes) {
      if (node.path.find('/') != std::string::npos || count == kNodesMax) continue;
      ++count;
      visit(one, node);
    }
  }
}

}  // namespace

Metrics::RuleSums& Metrics::RuleSums::operator+=(const RuleSums& more) {
  requests += more.requests;
  bytes += more.bytes;
  wait_ns += more.wait_ns;
  return *this;
}

// A counter that decreased was removed and created again.
Metrics::RuleSums Metrics::RuleSums::grown_from(const RuleSums& before) const {
  if (requests < before.requests) return *this;
  return {requests - before.requests, grown(bytes, before.bytes), grown(wait_ns, before.wait_ns)};
}

Metrics::JobSums& Metrics::JobSums::operator+=(const JobSums& more) {
  requests += more.requests;
  read_bytes += more.read_bytes;
  written_bytes += more.written_bytes;
  wait_ns += more.wait_ns;
  latency_ns += more.latency_ns;
  return *this;
}

Metrics::JobSums Metrics::JobSums::grown_from(const JobSums& before) const {
  if (requests < before.requests) return *this;
  return {.requests = requests - before.requests,
          .read_bytes = grown(read_bytes, before.read_bytes),
          .written_bytes = grown(written_bytes, before.written_bytes),
          .wait_ns = grown(wait_ns, before.wait_ns),
          .latency_ns = grown(latency_ns, before.latency_ns)};
}

void Metrics::count_classes(Service& kept, const ServiceSnapshot& shot, Instant now) {
  absl::flat_hash_map<std::uint64_t, RuleSums> seen;
  seen.reserve(shot.classes.size());
  for (const ClassSnapshot& one : shot.classes) {
    const std::uint64_t key = hash_words(one.key.hash() ^ (one.is_overflow ? 1U : 0U),
                                         std::hash<std::string>()(one.rule));
    const RuleSums sums{one.totals.served, one.totals.bytes, one.totals.waited_ns};
    const auto before = kept.classes.find(key);
    const RuleSums more = before == kept.classes.end() ? sums : sums.grown_from(before->second);
    seen.emplace(key, sums);
    auto& series = kept.by_rule[one.rule];
    series.sums += more;
    if (more.requests > 0) series.moved = now;
  }
  kept.classes = std::move(seen);
  for (const RuleSnapshot& rule : shot.rules) {
    if (rule.heads != "hp") kept.by_rule[rule.name].moved = now;
  }
  std::erase_if(kept.by_rule, [&](const auto& one) { return now - one.second.moved > kIdleTime; });
}

void Metrics::count_jobs(Service& kept, const ServiceSnapshot& shot, Instant now) {
  std::erase_if(kept.by_job, [&](const auto& one) { return now - one.second.moved > kIdleTime; });
  std::vector<std::pair<JobSums, const JobSnapshot*>> newcomers;
  absl::flat_hash_map<JobId, JobSums, std::hash<JobId>> seen;
  seen.reserve(shot.jobs.size());
  for (const JobSnapshot& job : shot.jobs) {
    const JobSums sums{.requests = job.finished,
                       .read_bytes = job.read_bytes,
                       .written_bytes = job.written_bytes,
                       .wait_ns = job.wait_ns,
                       .latency_ns = job.latency_ns};
    const auto before = kept.jobs.find(job.job);
    const JobSums more = before == kept.jobs.end() ? sums : sums.grown_from(before->second);
    seen.emplace(job.job, sums);
    if (more.requests == 0) continue;
    if (const auto series = kept.by_job.find(job.job); series != kept.by_job.end()) {
      series->second.sums += more;
      series->second.moved = now;
    } else {
      newcomers.emplace_back(more, &job);
    }
  }
  kept.jobs = std::move(seen);
  std::sort(newcomers.begin(), newcomers.end(),
            [](const auto& a, const auto& b) { return a.first.requests > b.first.requests; });
  for (const auto& [more, job] : newcomers) {
    if (kept.by_job.size() < kJobsMax) {
      kept.by_job[job->job] = {more, now};
    } else {
      kept.other += more;
    }
  }
}

void Metrics::count_times(Service& kept, const ServiceSnapshot& shot, Instant now) {
  std::erase_if(kept.by_timed_job,
                [&](const auto& one) { return now - one.second.moved > kIdleTime; });
  // A sum can be too low (snapshot.h); no counter decreases.
  kept.times.raise_to(shot.times);
  for (const auto& [job, times] : shot.job_times) {
    auto found = kept.by_timed_job.find(job);
    if (found == kept.by_timed_job.end()) {
      if (kept.by_timed_job.size() >= kTimedJobsMax) continue;
      found = kept.by_timed_job.emplace(job, Timed{}).first;
      found->second.moved = now;
    }
    Timed& timed = found->second;
    if (times == timed.seen) continue;
    timed.sums += times.since(timed.seen);
    timed.seen = times;
    timed.moved = now;
  }
}

void Metrics::add_rules(std::string& page) const {
  const auto family = [&](std::string_view name, std::string_view help, auto add) {
    Family lines(page, name, "counter", help);
    for (const auto& [service, kept] : services_) {
      for (const auto& [rule, series] : kept.by_rule) {
        add(lines, labels_of(service, "rule", rule), series.sums);
      }
    }
  };
  using Label = const std::string&;
  family("weir_rule_requests_total", "Requests dispatched under a rule, of all its classes.",
         [](Family& lines, Label label, const RuleSums& sums) { lines.add(label, sums.requests); });
  family("weir_rule_bytes_total", "Bytes of requests dispatched under a rule.",
         [](Family& lines, Label label, const RuleSums& sums) { lines.add(label, sums.bytes); });
  family("weir_rule_wait_seconds_total",
         "Time that requests under a rule waited before dispatch, summed over requests.",
         [](Family& lines, Label label, const RuleSums& sums) {
           lines.add_seconds(label, sums.wait_ns);
         });
}

void Metrics::add_jobs(std::string& page, const Snapshot& shot) const {
  const auto family = [&](std::string_view name, std::string_view type, std::string_view help,
                          auto add) {
    Family lines(page, name, type, help);
    for (const auto& [service, kept] : services_) {
      for (const auto& [job, series] : kept.by_job)
        add(lines, service, job_label(job), series.sums);
      add(lines, service, "other", kept.other);
    }
  };
  using Text = const std::string&;
  family("weir_job_requests_total", "counter",
         "Completed requests of a job. Jobs beyond the busiest 50 are summed as jobid=other.",
         [](Family& lines, Text service, Text job, const JobSums& sums) {
           lines.add(labels_of(service, "jobid", job), sums.requests);
         });
  family("weir_job_bytes_total", "counter", "Bytes that completed requests of a job moved.",
         [](Family& lines, Text service, Text job, const JobSums& sums) {
           lines.add(job_labels(service, job, "read"), sums.read_bytes);
           lines.add(job_labels(service, job, "write"), sums.written_bytes);
         });
  family(
      "weir_job_wait_seconds_total", "counter",
      "Time from arrival to dispatch, summed over requests: what rules, shares and other requests "
      "cost a job.",
      [](Family& lines, Text service, Text job, const JobSums& sums) {
        lines.add_seconds(labels_of(service, "jobid", job), sums.wait_ns);
      });
  family("weir_job_latency_seconds_total", "counter",
         "Time from arrival to completion, summed over completed requests of a job.",
         [](Family& lines, Text service, Text job, const JobSums& sums) {
           lines.add_seconds(labels_of(service, "jobid", job), sums.latency_ns);
         });
  Family records(page, "weir_job_record_tokens", "gauge",
                 "Tokens that a job has lent (above 0) or owes other jobs (below 0).");
  for (const ServiceSnapshot& one : shot.services) {
    const Service& kept = services_.at(one.name);
    for (const JobSnapshot& job : one.jobs) {
      if (!kept.by_job.contains(job.job)) continue;
      records.add_signed(labels_of(one.name, "jobid", job_label(job.job)), job.record);
    }
  }
}

void Metrics::add_nodes(std::string& page, const Snapshot& shot) {
  Family shares(page, "weir_node_share_tokens", "gauge",
                "Tokens per second of a node of the first level of a tree of shares.");
  each_node(shot, [&](const ServiceSnapshot& one, const NodeSnapshot& node) {
    if (node.share) shares.add(labels_of(one.name, "node", node.path), *node.share);
  });
  Family records(page, "weir_node_record_tokens", "gauge",
                 "Tokens that such a node has lent (above 0) or owes the others (below 0).");
  each_node(shot, [&](const ServiceSnapshot& one, const NodeSnapshot& node) {
    records.add_signed(labels_of(one.name, "node", node.path), node.record);
  });
}

// Every direction of a service has a series; of a job, those that it uses.
void Metrics::add_times(std::string& page) const {
  static constexpr std::string_view kDirections[] = {"read", "write", "other"};
  Family waits(page, "weir_wait_seconds", "histogram",
               "Time from arrival to dispatch of all requests: what limits, shares and other "
               "requests cost. Long waits while the device is fast are caused by a limit.");
  for (const auto& [service, kept] : services_) {
    waits.add_times(labels_of(service), kept.times.wait);
  }
  Family device(page, "weir_device_seconds", "histogram",
                "Time from dispatch to completion of all requests: the store alone, without the "
                "wait. Long times mean a slow or overloaded device.");
  for (const auto& [service, kept] : services_) {
    for (std::size_t i = 0; i < JobTimes::kKinds; ++i) {
      device.add_times(labels_of(service, "direction", kDirections[i]), kept.times.device[i]);
    }
  }
  Family job_waits(page, "weir_job_wait_seconds", "histogram",
                   "Time from arrival to dispatch of the requests of a job, for the 20 most "
                   "delayed jobs of a service.");
  for (const auto& [service, kept] : services_) {
    for (const auto& [job, timed] : kept.by_timed_job) {
      job_waits.add_times(labels_of(service, "jobid", job_label(job)), timed.sums.wait);
    }
  }
  Family job_device(page, "weir_job_device_seconds", "histogram",
                    "Time from dispatch to completion of the requests of a job, for the same "
                    "jobs.");
  for (const auto& [service, kept] : services_) {
    for (const auto& [job, timed] : kept.by_timed_job) {
      for (std::size_t i = 0; i < JobTimes::kKinds; ++i) {
        if (timed.sums.device[i].count() == 0) continue;
        job_device.add_times(job_labels(service, job_label(job), kDirections[i]),
                             timed.sums.device[i]);
      }
    }
  }
}

std::string Metrics::scrape(const Snapshot& shot) {
  for (const ServiceSnapshot& one : shot.services) {
    count_classes(services_[one.name], one, shot.moment.now);
    count_jobs(services_[one.name], one, shot.moment.now);
    count_times(services_[one.name], one, shot.moment.now);
  }
  std::string page;
  Family(page, "weir_build_info", "gauge", "1, with the version of the server as a label.")
      .add("{version=" + metric_label(version_) + "}", 1);
  add_server(page, shot);
  add_protocols(page, shot);
  add_services(page, shot);
  add_exports(page, shot);
  add_groups(page, shot);
  if (shot.cluster) add_cluster(page, *shot.cluster);
  locks_.add_to(page, shot.locks);
  add_rules(page);
  add_jobs(page, shot);
  add_nodes(page, shot);
  add_times(page);
  return page;
}

}  // namespace weir::control
