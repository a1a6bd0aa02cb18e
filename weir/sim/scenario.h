// SPDX-License-Identifier: Apache-2.0
//
// A scenario to simulate, as values: the targets and their stores, the jobs and their processes,
// and the faults. study/ reads it from files; tests create it directly.
//
//   Scenario
//    +- TargetSpec   capacity T, slots, service times, slow-downs and stalls
//    +- JobSpec      a name, its nodes
//    |   +- ProcessSpec  a number of processes: continuous, burst, or think
//    +- TraceEntry   or recorded arrivals, independent of completions
//    +- StreamSpec   or a recorded workload that is read while it runs
//    +- FaultSpec    late timers, lost wake-ups, steps of the clock
//    +- LustreSpec   or a Lustre server instead of the target's own scheduling
//
// A simulated process has at most `window` requests outstanding; further ones wait inside it and
// have not arrived yet. check() rejects a scenario that cannot be run; World assumes that it was
// called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/limits.h"
#include "weir/sim/store.h"

namespace weir::sim {

inline constexpr std::size_t kJobsMax = 2000;
inline constexpr std::size_t kProcessesMax = 100'000;
inline constexpr std::size_t kTargetsMax = 64;
inline constexpr std::uint64_t kNodesMax = 1'000'000;
inline constexpr std::uint32_t kWindowMax = 65'536;
inline constexpr Nanoseconds kLengthMax = std::chrono::hours{24 * 30};

struct TargetSpec {
  std::string name = "target";
  Rate capacity = Rate::per_second(1000);  // T, in units of cost
  bool estimate = false;                   // policies that can estimate the capacity must do so
  Cost cost;
  bool auto_slots = false;  // the target searches for the number of slots, from store.slots on
  std::optional<Nanoseconds> latency_target;
  // Levels above the jobs of a tree of shares, for policies that have one; the weights of its nodes
  // are by path.
  std::vector<FieldSet> tree;
  std::map<std::string, std::uint64_t> weights;
  StoreSpec store;
};

// A request size and its relative frequency.
struct SizeSpec {
  Bytes size{4096};
  std::uint32_t weight = 1;
};

struct ProcessSpec {
  enum class Kind : std::uint8_t {
    kContinuous,  // always `window` outstanding, `requests` in total or without end
    kBurst,       // `requests` more every `every`
    kThink,       // pauses, sends requests_min ... requests, waits for all of them, pauses again
  };
  static constexpr std::uint64_t kEndless = UINT64_MAX;

  Kind kind = Kind::kContinuous;
  std::uint32_t count = 1;  // number of such processes
  std::uint32_t window = 8;
  Nanoseconds start{0};
  Nanoseconds stagger{0};  // between the starts of two of these processes
  std::uint64_t requests = kEndless;
  std::uint64_t requests_min = 1;
  Nanoseconds every{0};
  Nanoseconds think{0};
  std::vector<SizeSpec> sizes = {SizeSpec{}};
  std::uint32_t reads_percent = 100;
  std::optional<std::size_t> target = 0;  // none: all targets in turn, one request each
};

struct JobSpec {
  std::string name;
  std::string group;  // common name of jobs that were defined together; otherwise the name
  std::uint64_t nodes = 1;
  // What the job gets before others on each target, under policies that have reservations: cost
  // units per second.
  std::optional<Rate> reserve = std::nullopt;
  std::vector<ProcessSpec> processes;
  std::uint32_t project = kUnknownId;
  std::uint32_t user = kUnknownId;
};

// A request of a recorded trace; it arrives at its time, whatever is outstanding.
struct TraceEntry {
  Nanoseconds at{0};
  std::uint32_t job = 0;
  bool is_read = true;
  Bytes size{4096};
};

// The requests of a recorded workload, which may be larger than memory.
class Arrivals {
 public:
  Arrivals() = default;
  Arrivals(const Arrivals&) = delete;
  Arrivals& operator=(const Arrivals&) = delete;
  virtual ~Arrivals() = default;

  // The next request, not before the previous one; none at the end.
  virtual Result<std::optional<TraceEntry>> next() = 0;
};

// A recorded workload as one client: its requests arrive at their times, but no more than `window`
// are outstanding. Further ones are held back, and so is what follows them in the stream.
struct StreamSpec {
  std::function<Result<std::unique_ptr<Arrivals>>()> open;  // once for each run
  std::uint32_t window = kWindowMax;
  Bytes largest{0};  // of its requests
};

struct ClockStep {
  Nanoseconds at{0};
  Nanoseconds by{0};  // negative: back
};

struct FaultSpec {
  // So many of 1000 timers fire late, each by up to late_by.
  std::uint32_t late_permille = 0;
  Nanoseconds late_by{0};
  // So many of 1000 times the target is not called although an event happened; it is called after
  // `recover`, unless another event happens before.
  std::uint32_t lost_permille = 0;
  Nanoseconds recover = std::chrono::milliseconds{10};
  std::vector<ClockStep> steps;
};

// The target is a Lustre server (lustre_model.h), controlled through its files.
struct LustreSpec {
  std::uint32_t cpts = 1;
  bool late_timers = true;            // plain rules deliver less than their rate
  std::uint32_t vanish_permille = 0;  // new jobs that make the others vanish from job_stats
  Nanoseconds vanish_for = std::chrono::seconds{3};
  std::uint32_t thin_percent = 100;  // service times while few requests are in service
};
inline constexpr std::uint32_t kCptsMax = 64;

struct Scenario {
  std::string name;
  std::string title;
  std::optional<Nanoseconds> length;  // none: until all processes are done
  std::vector<Nanoseconds> periods;   // a sweep runs controllers with each of these periods
  std::vector<TargetSpec> targets = {TargetSpec{}};
  std::vector<JobSpec> jobs;
  std::vector<TraceEntry> trace;  // in order of time
  std::vector<StreamSpec> streams;
  FaultSpec faults;
  std::optional<LustreSpec> lustre;

  std::uint64_t nodes() const;  // of all jobs
};

// EINVAL for a scenario that cannot be run; the error names the member and the remedy.
Result<void> check(const Scenario& scenario);

// The largest request of any process, trace or stream.
Bytes largest_request(const Scenario& scenario);

}  // namespace weir::sim
