// SPDX-License-Identifier: Apache-2.0
#include "tests/lustre/beds.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weir/base/assert.h"
#include "weir/study/scenario_file.h"

namespace weir::beds {
namespace {

constexpr Nanoseconds kStagger = std::chrono::microseconds{2500};

double seconds(Nanoseconds time) { return static_cast<double>(time.count()) / 1e9; }

// Follows the rules of all jobs by the commands, and what their jobs are served meanwhile.
class Follower {
 public:
  explicit Follower(Measured& measured) : measured_(measured) {}

  void command(std::string_view text, Instant now) {
    ++measured_.writes;
    measured_.commands.push_back(fmt::format("{:.3f} {}", seconds(now.time_since_epoch()), text));
    const std::string_view verb = text.substr(0, text.find(' '));
    std::string_view rest = text.substr(verb.size() + 1);
    const std::string name(rest.substr(0, rest.find(' ')));
    if (verb == "start") {
      const std::size_t from = text.find('{') + 1;
      jobs_[name] = std::string(text.substr(from, text.find('}') - from));
    }
    std::optional<std::uint32_t> rate;
    if (const std::size_t at = text.find("rate="); at != std::string_view::npos) {
      rate = 0;
      std::from_chars(text.data() + at + 5, text.data() + text.size(), *rate);
    }
    set(jobs_[name], verb == "stop" ? std::nullopt : rate, now);
  }

  void complete(std::string_view job, Instant now) {
    Held& held = held_[std::string(job)];
    if (!is_low(held)) return;
    measured_.raw.served += 1;
    if (now > held.low_since + kServiceTime) measured_.settled.served += 1;
  }

  void end(Instant now) {
    for (auto& [job, held] : held_) account(job, held, now);
  }

 private:
  struct Held {
    std::optional<std::uint32_t> rate;
    Instant at{};         // accounted up to here
    Instant low_since{};  // when the rate became low
  };

  static bool is_low(const Held& held) { return held.rate && *held.rate <= kLowRate; }

  void account(const std::string& job, Held& held, Instant now) {
    if (held.rate && job == "hog") measured_.held += now - held.at;
    if (is_low(held)) {
      measured_.raw.allowed += *held.rate * seconds(now - held.at);
      const Instant from = std::max(held.at, held.low_since + kServiceTime);
      if (now > from) measured_.settled.allowed += *held.rate * seconds(now - from);
    }
    held.at = now;
  }

  void set(const std::string& job, std::optional<std::uint32_t> rate, Instant now) {
    Held& held = held_[job];
    account(job, held, now);
    const bool was_low = is_low(held);
    if (!held.rate && rate && job == "hog") ++measured_.pieces;
    held.rate = rate;
    if (is_low(held) && !was_low) held.low_since = now;
  }

  Measured& measured_;
  std::map<std::string, std::string> jobs_;  // by the name of their rule
  std::map<std::string, Held> held_;
};

double p99_of(std::vector<Nanoseconds>& times) {
  if (times.empty()) return 0;
  const std::size_t at = (times.size() * 99 + 99) / 100 - 1;
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(at), times.end());
  return seconds(times[at]) * 1e3;
}

}  // namespace

sim::Scenario bed(char which) {
  const auto loaded = study::load_scenario(fmt::format("lustre-bed-{}", which));
  WEIR_ASSERT(loaded.has_value());
  return *loaded;
}

sim::Scenario greedy(const std::vector<std::uint64_t>& sizes, Nanoseconds length,
                     std::uint32_t processes) {
  sim::Scenario scenario = bed('b');
  scenario.length = length;
  // No spread: requests that start together stay together, and completions come in clumps.
  scenario.targets.front().store.service.kind = sim::ServiceTime::Kind::kConstant;
  sim::JobSpec job = scenario.jobs.back();
  job.processes.front().count = processes;
  scenario.jobs.clear();
  for (const std::uint64_t size : sizes) {
    job.nodes = size;
    // As on the server: the processes of the first job start together, those of the others do not.
    job.processes.front().stagger = scenario.jobs.empty() ? Nanoseconds{0} : kStagger;
    job.name = job.group = fmt::format("j{}", scenario.jobs.size() + 1);
    scenario.jobs.push_back(job);
  }
  return scenario;
}

Measured measure(const sim::Scenario& scenario, Policy policy, std::uint64_t seed,
                 app::LustreSimOptions options) {
  Measured measured;
  Follower follower(measured);
  std::map<std::string, std::vector<Nanoseconds>> times;
  options.seed = seed;
  options.tbf_without_rules = policy == Policy::kTbf;
  options.written = [&](std::string_view command, Instant now) { follower.command(command, now); };
  options.done = [&, also = std::move(options.done)](const sim::Rpc& rpc, Instant started,
                                                     Instant now) {
    const std::string job(rpc.job.text());
    times[job].push_back(now - rpc.released);
    follower.complete(job, now);
    if (also) also(rpc, started, now);
  };
  const sim::Contender contender = policy == Policy::kPaper  ? sim::Contender::kAdaptbf
                                   : policy == Policy::kWeir ? sim::Contender::kWeir
                                                             : sim::Contender::kNone;
  const auto outcome = app::simulate_lustre(scenario, contender, options);
  WEIR_ASSERT(outcome.has_value());
  follower.end(Instant{*scenario.length});
  measured.served = outcome->served;
  for (const sim::JobOutcome& job : outcome->jobs) measured.by_job[job.name] = job.served;
  for (auto& [job, list] : times) measured.p99_ms[job] = p99_of(list);
  return measured;
}

}  // namespace weir::beds
