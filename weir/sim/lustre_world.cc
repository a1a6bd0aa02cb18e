// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/lustre_world.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weir/base/assert.h"
#include "weir/base/rng.h"
#include "weir/sim/world.h"

namespace weir::sim {
namespace {

// Requests that a process had to send from a moment on.
struct Released {
  Instant at;
  std::uint64_t count = 0;
};

struct Process {
  const ProcessSpec* spec = nullptr;
  std::uint32_t job = 0;
  std::uint32_t cpt = 0;
  std::uint32_t outstanding = 0;
  std::uint64_t backlog = 0;
  std::deque<Released> bursts;  // of which the backlog consists
  Rng rng{0};
};

LustreServer::Options server_options(const Scenario& scenario) {
  LustreServer::Options options;
  options.cpts = scenario.lustre->cpts;
  options.store = scenario.targets.front().store;
  options.late_timers = scenario.lustre->late_timers;
  options.thin_percent = scenario.lustre->thin_percent;
  options.stats.vanish_permille = scenario.lustre->vanish_permille;
  options.stats.vanish_for = scenario.lustre->vanish_for;
  return options;
}

class LustreWorld {
 public:
  LustreWorld(const Scenario& scenario, Contender contender, const LustreRunOptions& options)
      : scenario_(scenario),
        options_(options),
        end_(Instant{*scenario.length}),
        ticks_(Rng(options.seed).split("rounds")),
        server_(server_options(scenario), Rng(options.seed)) {
    outcome_.contender = contender;
    if (options.period > Nanoseconds{0}) outcome_.period = options.period;
    outcome_.bin = bin_of(scenario);
    outcome_.duration = *scenario.length;
    outcome_.targets.push_back({scenario.targets.front().name, 0, 0, 0});
    for (const JobSpec& job : scenario.jobs) add_job(job);
  }

  Outcome run() {
    if (options_.start) options_.start(server_, now_);
    const Nanoseconds part = options_.period / options_.parts;
    Instant tick = part > Nanoseconds{0} ? now_ + part : kNever;
    int parts = 0;
    for (;;) {
      const Instant wake = wakes_.empty() ? kNever : wakes_.begin()->first;
      const Instant next = std::min({wake, tick, server_.next()});
      if (next > end_) break;
      now_ = next;
      ++outcome_.events;
      server_.run(now_, [this](const Rpc& rpc, Instant started, Instant now) {
        complete(rpc, started, now);
      });
      while (!wakes_.empty() && wakes_.begin()->first <= now_) {
        const std::size_t process = wakes_.begin()->second;
        wakes_.erase(wakes_.begin());
        wake_up(process);
      }
      if (tick <= now_) {
        const bool is_glance = ++parts < options_.parts;
        (is_glance ? options_.glance : options_.tick)(server_, now_);
        if (!is_glance) parts = 0;
        tick += part + Nanoseconds{ticks_.between(-part.count() / 10, part.count() / 10)};
      }
    }
    finish();
    return std::move(outcome_);
  }

 private:
  using Kind = ProcessSpec::Kind;

  void add_job(const JobSpec& spec) {
    const auto job = static_cast<std::uint32_t>(outcome_.jobs.size());
    JobOutcome& outcome = outcome_.jobs.emplace_back();
    outcome.name = spec.name;
    outcome.group = spec.group.empty() ? spec.name : spec.group;
    outcome.nodes = spec.nodes;
    const Rng rng = Rng(options_.seed).split("workload").split(spec.name);
    std::uint32_t number = 0;
    for (const ProcessSpec& process : spec.processes) {
      for (std::uint32_t i = 0; i < process.count; ++i) {
        Process& added = processes_.emplace_back();
        added.spec = &process;
        added.job = job;
        added.cpt = number % scenario_.lustre->cpts;
        added.rng = rng.split(std::to_string(number++));
        const Nanoseconds phase{
            process.kind == Kind::kThink ? added.rng.between(0, process.think.count()) : 0};
        wakes_.emplace(Instant{process.start + process.stagger * i + phase}, processes_.size() - 1);
      }
    }
  }

  void wake_up(std::size_t index) {
    Process& process = processes_[index];
    const ProcessSpec& spec = *process.spec;
    if (spec.kind == Kind::kContinuous) process.backlog = spec.requests;
    if (spec.kind == Kind::kBurst) {
      process.backlog += spec.requests;
      process.bursts.push_back({now_, spec.requests});
      wakes_.emplace(now_ + spec.every, index);
    }
    if (spec.kind == Kind::kThink) {
      process.backlog = static_cast<std::uint64_t>(process.rng.between(
          static_cast<std::int64_t>(spec.requests_min), static_cast<std::int64_t>(spec.requests)));
    }
    issue(index, now_);
  }

  void issue(std::size_t index, Instant now) {
    Process& process = processes_[index];
    while (process.backlog > 0 && process.outstanding < process.spec->window) {
      if (process.backlog != ProcessSpec::kEndless) --process.backlog;
      ++process.outstanding;
      Rpc rpc;
      rpc.job = JobId(outcome_.jobs[process.job].name);
      rpc.tag = index;
      rpc.released = release(process, now);
      rpc.cpt = process.cpt;
      rpc.bytes = process.spec->sizes.front().size.count();
      rpc.is_read = process.spec->reads_percent == 100 ||
                    process.rng.chance(process.spec->reads_percent, 100);
      ++outcome_.jobs[process.job].arrived;
      server_.arrive(rpc, now);
    }
  }

  // When the next request of the process was released.
  static Instant release(Process& process, Instant now) {
    if (process.bursts.empty()) return now;
    const Instant at = process.bursts.front().at;
    if (--process.bursts.front().count == 0) process.bursts.pop_front();
    return at;
  }

  void complete(const Rpc& rpc, Instant started, Instant now) {
    Process& process = processes_[rpc.tag];
    JobOutcome& job = outcome_.jobs[process.job];
    ++job.served;
    ++job.cost;
    job.wait.record(static_cast<std::uint64_t>((started - rpc.arrived).count()));
    job.latency.record(static_cast<std::uint64_t>((now - rpc.arrived).count()));
    const auto bin =
        static_cast<std::size_t>(now.time_since_epoch().count() / outcome_.bin.count());
    if (job.bins.size() <= bin) job.bins.resize(bin + 1);
    ++job.bins[bin].served;
    ++job.bins[bin].cost;
    if (options_.done) options_.done(rpc, started, now);
    --process.outstanding;
    if (process.spec->kind == Kind::kThink && process.outstanding == 0 && process.backlog == 0) {
      wakes_.emplace(now + process.spec->think, rpc.tag);
    }
    issue(rpc.tag, now);
  }

  void finish() {
    const double seconds = static_cast<double>(outcome_.duration.count()) / 1e9;
    for (JobOutcome& job : outcome_.jobs) {
      job.throughput = static_cast<double>(job.served) / seconds;
      outcome_.served += job.served;
    }
    const Rate capacity = scenario_.targets.front().capacity;
    const double could = static_cast<double>(tokens_in(capacity, outcome_.duration).count());
    outcome_.utilisation = static_cast<double>(outcome_.served) / std::max(could, 1.0);
    TargetOutcome& target = outcome_.targets.front();
    target.served = target.cost = outcome_.served;
    target.utilisation = outcome_.utilisation;
  }

  const Scenario& scenario_;
  const LustreRunOptions& options_;
  Instant now_{};
  Instant end_;
  Rng ticks_{0};
  LustreServer server_;
  Outcome outcome_;
  std::vector<Process> processes_;
  std::multimap<Instant, std::size_t> wakes_;
};

}  // namespace

Outcome run_on_lustre(const Scenario& scenario, Contender contender,
                      const LustreRunOptions& options) {
  WEIR_ASSERT(scenario.lustre.has_value() && scenario.length.has_value());
  return LustreWorld(scenario, contender, options).run();
}

}  // namespace weir::sim
