// SPDX-License-Identifier: Apache-2.0
//
// A round of the driver without the kernel's part: the text of all files is in memory. Wanted on a
// server of 8 OSTs: at most 10 ms with 205 jobs, and 40 ms with 1,000; 10,000 must not stop it.
#include <map>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "weir/lustre/driver.h"

namespace weir::lustre {
namespace {

constexpr int kTargets = 8;
constexpr const char* kCounters[] = {"read",     "write",    "getattr", "setattr", "punch",
                                     "sync",     "destroy",  "create",  "statfs",  "get_info",
                                     "set_info", "quotactl", "prealloc"};

// As 2.17 prints it: 2.2 KB for each job.
std::string job_stats(int jobs, std::uint64_t round) {
  std::string text = "job_stats:\n";
  for (int job = 0; job < jobs; ++job) {
    text += fmt::format(
        "- job_id:          job.{:05}\n  snapshot_time:   1794727698.582839239 secs.nsecs\n"
        "  start_time:      1794727697.871047114 secs.nsecs\n"
        "  elapsed_time:    0.711792125 secs.nsecs\n",
        job);
    for (const char* const bytes : {"read_bytes:", "write_bytes:"}) {
      text += fmt::format(
          "  {:<16} {{ samples: {:>11}, unit: bytes, min:  1048576, max:  1048576, sum: {:>16}, "
          "sumsq:     10995116277760, hist: {{ 1M: 10 }} }}\n",
          bytes, 1000 + round * static_cast<std::uint64_t>(job % 5), 1048576);
    }
    for (const char* const counter : kCounters) {
      text += fmt::format(
          "  {:<16} {{ samples:           0, unit: usecs, min:        0, max:        0, sum:       "
          "  "
          "       0, sumsq:                  0 }}\n",
          std::string(counter) + ":");
    }
  }
  return text;
}

std::string stats(int jobs, std::uint64_t round) {
  std::uint64_t sum = 0;
  for (int job = 0; job < jobs; ++job) sum += 1000 + round * static_cast<std::uint64_t>(job % 5);
  return fmt::format(
      "snapshot_time 1.0 secs.nsecs\nread_bytes {0} samples [bytes]\nwrite_bytes {0} "
      "samples [bytes]\n",
      sum);
}

constexpr const char* kPolicies = R"(
regular_requests:
  - name: fifo
    state: started
    fallback: yes
    queued: 0
    active: 0

  - name: tbf jobid
    state: started
    fallback: no
    queued: 500
    active: 64

high_priority_requests:
  - name: fifo
    state: started
    fallback: yes
    queued: 0
    active: 0

  - name: tbf jobid
    state: started
    fallback: no
    queued: 0
    active: 0
)";

// Follows the rules, and shows one of a few texts of counters.
class TextTree final : public Tree {
 public:
  static constexpr std::uint64_t kTexts = 8;

  explicit TextTree(int jobs) {
    for (std::uint64_t i = 0; i < kTexts; ++i) {
      job_stats_.push_back(job_stats(jobs, i));
      stats_.push_back(stats(jobs, i));
    }
  }

  Result<std::string> read(const std::string& path) override {
    if (path == kPoliciesPath) return std::string(kPolicies);
    if (path == kRulesPath) return rules();
    const std::uint64_t at = round % kTexts;
    return path.ends_with("job_stats") ? job_stats_[at] : stats_[at];
  }
  Result<void> write(const std::string&, std::string_view text) override {
    const std::size_t name = text.find(' ') + 1;
    const std::string key(text.substr(name, text.find(' ', name) - name));
    if (text.starts_with("stop")) rules_.erase(key);
    if (text.starts_with("start")) {
      rules_[key] = std::string(text.substr(text.find('{'), text.find('}') - text.find('{') + 1));
    }
    return {};
  }
  Result<std::vector<std::string>> list(const std::string& folder) override {
    if (!folder.ends_with("obdfilter")) return std::vector<std::string>{"job_stats"};
    std::vector<std::string> names;
    names.reserve(kTargets);
    for (int i = 0; i < kTargets; ++i) names.push_back(fmt::format("lustre-OST{:04}", i));
    return names;
  }

  std::uint64_t round = 0;

 private:
  std::string rules() const {
    std::string text;
    for (const char* const head : {"regular_requests:\n", "high_priority_requests:\n"}) {
      text += head;
      text += "CPT 0:\n";
      for (const auto& [name, job] : rules_)
        text += fmt::format("{} jobid={} 50, ref 1\n", name, job);
      text += "default * 10000, ref 1\n";
    }
    return text;
  }

  std::vector<std::string> job_stats_;
  std::vector<std::string> stats_;
  std::map<std::string, std::string> rules_;
};

void BM_DriverRound(benchmark::State& state) {
  TextTree tree(static_cast<int>(state.range(0)));
  auto names = *Names::read("weir", "");
  Driver::Options options;
  options.controller.capacity = Rate::per_second(100'000);
  Driver driver(
      options, tree, names, [](std::string_view) { return Result<void>{}; },
      [](std::string_view, std::string_view) {});
  Instant now{};
  for (auto _ : state) {
    now += options.controller.period;
    ++tree.round;
    if (!driver.round(now)) return state.SkipWithError("a round failed");
  }
}
BENCHMARK(BM_DriverRound)->Arg(205)->Arg(1000)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weir::lustre
