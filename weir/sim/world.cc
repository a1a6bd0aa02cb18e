// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/world.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/heap.h"
#include "weir/base/rng.h"
#include "weir/classify/opcode.h"
#include "weir/sim/checkers.h"
#include "weir/sim/measures.h"
#include "weir/sim/rival.h"
#include "weir/sim/store.h"

namespace weir::sim {
namespace {

// If nothing was served for this time while requests wait, nothing ever will be.
constexpr Nanoseconds kStuckAfter = std::chrono::hours{1};
constexpr std::uint64_t kProgressEvery = 1 << 16;
constexpr Nanoseconds kBin = std::chrono::seconds{1};
constexpr Nanoseconds kShortBin = std::chrono::milliseconds{100};
constexpr Nanoseconds kShortRun = std::chrono::seconds{20};
constexpr std::size_t kBinsMax = 4096;
// A recorded workload may be of any length: short intervals at first, as many as a figure can show.
constexpr Nanoseconds kStreamBin = std::chrono::milliseconds{10};
constexpr std::size_t kStreamBins = 512;
constexpr std::size_t kPeriodRowsMax = 4'000'000;

// A source of events, in the heap by the time of its next event.
struct Source {
  enum class Kind : std::uint8_t { kRequest, kProcess, kTimer, kTrace, kStep, kMark };

  explicit Source(Kind of) : kind(of) {}

  Kind kind;
  HeapHook hook;
};

struct Process;
struct Stream;

// A request and its state in the world; in the heap while it is in service.
struct Flight final : Request, Source {
  Flight() : Source(Kind::kRequest) {}

  Process* process = nullptr;
  Stream* stream = nullptr;  // if there is no process
  std::uint32_t job = 0;
  std::uint32_t target = 0;
  std::uint32_t lane = 0;
  std::uint64_t number = 0;  // in its lane
  std::uint64_t cost = 0;
  Instant arrived;
  Instant dispatched;
};

struct Process final : Source {
  Process(const ProcessSpec& of, std::uint32_t its_job, std::uint32_t its_lane, Rng chance)
      : Source(Kind::kProcess), spec(&of), job(its_job), first_lane(its_lane), rng(chance) {}

  const ProcessSpec* spec;
  std::uint32_t job;
  std::uint32_t first_lane;  // then one for each further target
  std::uint32_t outstanding = 0;
  std::uint32_t turn = 0;     // which target is next, if they take turns
  std::uint64_t backlog = 0;  // requests beyond the window
  std::vector<Flight*> free;
  Rng rng;
};

// Recorded arrivals; in the heap by the time of the next one, unless it is held back.
struct Stream final : Source {
  Stream(std::unique_ptr<Arrivals> of, std::uint32_t most)
      : Source(Kind::kTrace), arrivals(std::move(of)), window(most) {}

  std::unique_ptr<Arrivals> arrivals;
  std::uint32_t window;
  std::uint32_t outstanding = 0;
  std::size_t first_lane = 0;  // then one for each further job
  bool is_held = false;
  std::optional<TraceEntry> entry;  // the next one
  std::vector<Flight*> free;
};

// The trace of a scenario, which is in memory.
class TraceArrivals final : public Arrivals {
 public:
  explicit TraceArrivals(const std::vector<TraceEntry>& trace) : trace_(trace) {}

  Result<std::optional<TraceEntry>> next() override {
    if (at_ == trace_.size()) return std::nullopt;
    return trace_[at_++];
  }

 private:
  const std::vector<TraceEntry>& trace_;
  std::size_t at_ = 0;
};

struct Timer final : Source {
  explicit Timer(std::uint32_t of) : Source(Kind::kTimer), target(of) {}
  std::uint32_t target;
};

// Cost served by each job at one moment.
using Snapshot = std::vector<std::uint64_t>;

struct JobState {
  JobId id;
  std::uint64_t queued = 0;
  std::uint64_t admitted_cost = 0;
  std::uint64_t unissued = 0;  // of continuous processes that end, or kEndless
  bool is_continuous = false;
  bool is_finite = true;
  bool is_exhausted = false;
  Instant last_completion;
};

// A Target, or another scheduler in its place.
struct Scheduler {
  std::unique_ptr<Target> target;
  std::unique_ptr<Rival> rival;
  Bounds bounds;

  void admit(Request& request, std::uint32_t job, Instant now) {
    target ? target->admit(request, Head::kRegular, now) : rival->admit(request, job, now);
  }
  Decision next(Instant now) { return target ? target->next(now) : rival->next(now); }
  void complete(Request& request, Instant now) {
    target ? void(target->complete(request, now)) : rival->complete(request, now);
  }
  // Removes a request that is queued, whatever the limits; nullptr if there is none.
  Request* drain(Instant now) {
    if (rival) return rival->take_any();
    const Decision decision = target->next(now);
    if (decision.kind() != Decision::Kind::kRun) return nullptr;
    target->complete(decision.request(), now);
    return &decision.request();
  }
};

struct Device {
  Device(Scheduler&& of, const TargetSpec& spec, Rng rng, std::uint32_t index)
      : scheduler(std::move(of)),
        searches_slots(spec.auto_slots && scheduler.target != nullptr),
        store(spec.store, rng),
        cost(spec.cost),
        timer(index),
        retry(index) {}

  Scheduler scheduler;
  bool searches_slots;
  Store store;
  Cost cost;
  Timer timer;
  Timer retry;
  Instant counted;         // the latest time passed to it
  Instant armed = kNever;  // time of the timer, before it is delayed
  bool touched = false;
  std::unique_ptr<Checkers> checkers;
  std::vector<ClassHint> hints;  // by job: requests of one job are in one class
};

class World {
 public:
  World(const Scenario& scenario, Contender contender, const RunOptions& options)
      : scenario_(scenario),
        options_(options),
        rng_(options.seed),
        fault_rng_(rng_.split("faults")),
        has_faults_(scenario.faults.late_permille > 0 || scenario.faults.lost_permille > 0),
        meter_(options.stopwatch) {
    outcome_.contender = contender;
    if (has_periods(contender)) outcome_.period = options.period.value_or(own_period(contender));
    outcome_.bin = bin_of(scenario);
  }

  Result<void> prepare() {
    auto schedulers = make_schedulers();
    if (!schedulers) return tl::unexpected(schedulers.error());
    for (std::size_t i = 0; i < scenario_.targets.size(); ++i) {
      const TargetSpec& spec = scenario_.targets[i];
      const Rng rng = rng_.split("store").split(spec.name);
      devices_.emplace_back(std::move((*schedulers)[i]), spec, rng, static_cast<std::uint32_t>(i));
      outcome_.targets.push_back({.name = spec.name});
    }
    for (const JobSpec& job : scenario_.jobs) add_job(job);
    if (auto added = add_streams(); !added) return added;
    for (std::size_t i = 0; i < devices_.size(); ++i) add_checkers(i);
    if (!scenario_.faults.steps.empty()) {
      events_.push(step_, Instant{scenario_.faults.steps.front().at});
    }
    mark_contention();
    if (options_.measures) measures_ = std::make_unique<Measures>(scenario_);
    return {};
  }

  Result<Outcome> run() {
    const Instant end{scenario_.length.value_or(kLengthMax)};
    while (!events_.empty() && events_.top_key() <= end && !is_stuck() && !failure_) turn();
    if (!scenario_.length && !events_.empty() && events_.top_key() > end) {
      findings_.add(now_, "the run does not end within 30 days");
    }
    now_ = scenario_.length ? end : last_completion_;
    finish();
    if (failure_) return tl::unexpected(*failure_);
    return std::move(outcome_);
  }

 private:
  using Kind = ProcessSpec::Kind;

  // ---- before ----

  Result<std::vector<Scheduler>> make_schedulers() {
    std::vector<Scheduler> made(scenario_.targets.size());
    if (is_rival(outcome_.contender)) {
      auto rivals = make_rivals(outcome_.contender, scenario_, options_.seed);
      if (!rivals) return tl::unexpected(rivals.error());
      for (std::size_t i = 0; i < made.size(); ++i) {
        made[i].rival = std::move((*rivals)[i]);
        made[i].bounds = bounds_of(outcome_.contender, scenario_);
      }
      return made;
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      auto stage =
          make_stage(outcome_.contender, scenario_, scenario_.targets[i], options_.period, now_);
      if (!stage) return tl::unexpected(stage.error());
      made[i].target = std::move(stage->target);
      made[i].bounds = std::move(stage->bounds);
    }
    return made;
  }

  void add_job(const JobSpec& spec) {
    const auto job = static_cast<std::uint32_t>(jobs_.size());
    JobState& state = jobs_.emplace_back();
    state.id = JobId(spec.name);
    JobOutcome& outcome = outcome_.jobs.emplace_back();
    outcome.name = spec.name;
    outcome.group = spec.group.empty() ? spec.name : spec.group;
    outcome.nodes = spec.nodes;
    const Rng rng = rng_.split("workload").split(spec.name);
    std::uint32_t number = 0;
    for (const ProcessSpec& process : spec.processes) {
      for (std::uint32_t i = 0; i < process.count; ++i) {
        Process& added = processes_.emplace_back(process, job, static_cast<std::uint32_t>(lanes_),
                                                 rng.split(std::to_string(number++)));
        lanes_ += devices_.size();
        add_work(state, process);
        // Users do not start to think at the same moment.
        const Nanoseconds phase{
            process.kind == Kind::kThink ? added.rng.between(0, process.think.count()) : 0};
        events_.push(added, Instant{process.start + process.stagger * i + phase});
      }
    }
  }

  Result<void> add_streams() {
    if (!scenario_.trace.empty()) {
      streams_.emplace_back(std::make_unique<TraceArrivals>(scenario_.trace), UINT32_MAX);
    }
    for (const StreamSpec& spec : scenario_.streams) {
      auto opened = spec.open();
      if (!opened) return tl::unexpected(opened.error());
      streams_.emplace_back(std::move(*opened), spec.window);
    }
    for (Stream& stream : streams_) {
      stream.first_lane = lanes_;
      lanes_ += scenario_.jobs.size();
      arm(stream);
      if (failure_) return tl::unexpected(*failure_);
    }
    return {};
  }

  static void add_work(JobState& state, const ProcessSpec& process) {
    const bool ends =
        process.kind == Kind::kContinuous && process.requests != ProcessSpec::kEndless;
    state.is_finite = state.is_finite && ends;
    if (process.kind != Kind::kContinuous) return;
    state.is_continuous = true;
    state.unissued = ends && state.unissued != ProcessSpec::kEndless
                         ? state.unissued + process.requests
                         : ProcessSpec::kEndless;
  }

  void add_checkers(std::size_t i) {
    Device& device = devices_[i];
    if (options_.checkers) {
      const TargetSpec& spec = scenario_.targets[i];
      device.checkers =
          std::make_unique<Checkers>(spec.name, device.scheduler.bounds, spec.store.slots, lanes_,
                                     spec.cost.of(largest_request(scenario_)), findings_);
    }
    if (!device.scheduler.target) return;
    device.scheduler.target->on_period(
        [this, i](const PeriodReport& report) { note_period(i, report); });
  }

  // The contended time starts when the last continuous job has started.
  void mark_contention() {
    Instant from{};
    for (const JobSpec& job : scenario_.jobs) {
      Instant first = kNever;
      for (const ProcessSpec& process : job.processes) {
        if (process.kind == Kind::kContinuous) first = std::min(first, Instant{process.start});
      }
      if (first != kNever) from = std::max(from, first);
    }
    events_.push(mark_, from);
  }

  // ---- one turn ----

  void turn() {
    now_ = events_.top_key();
    do {
      take_event();
    } while (!events_.empty() && events_.top_key() == now_);
    for (Device& device : devices_) {
      if (device.touched) ask(device);
    }
  }

  void take_event() {
    if (++outcome_.events % kProgressEvery == 0 && options_.progress) {
      options_.progress(now_.time_since_epoch());
    }
    Source& source = events_.pop();
    switch (source.kind) {
      case Source::Kind::kRequest:
        complete(static_cast<Flight&>(source));
        break;
      case Source::Kind::kProcess:
        wake(static_cast<Process&>(source));
        break;
      case Source::Kind::kTimer:
        fire(static_cast<Timer&>(source));
        break;
      case Source::Kind::kTrace:
        replay(static_cast<Stream&>(source));
        break;
      case Source::Kind::kStep:
        step_clock();
        break;
      case Source::Kind::kMark:
        begin_contention();
        break;
    }
  }

  // The time passed to a target, which treats a step back as standing still.
  Instant tell(Device& device) const {
    const Instant told = now_ + offset_;
    device.counted = std::max(device.counted, told);
    return told;
  }

  void touch(Device& device) {
    if (has_faults_ && is_lost()) {
      if (!device.retry.hook.is_linked()) {
        events_.push(device.retry, now_ + scenario_.faults.recover);
      }
      return;
    }
    device.touched = true;
  }

  bool is_lost() { return fault_rng_.chance(scenario_.faults.lost_permille, 1000); }

  void fire(Timer& timer) {
    Device& device = devices_[timer.target];
    if (&timer == &device.timer) device.armed = kNever;
    // The tick that replaces lost wake-ups is never lost.
    if (&timer == &device.retry) {
      device.touched = true;
    } else {
      touch(device);
    }
  }

  void step_clock() {
    offset_ += scenario_.faults.steps[steps_done_++].by;
    // Timers were set with the old time.
    for (Device& device : devices_) device.touched = true;
    if (steps_done_ < scenario_.faults.steps.size()) {
      events_.push(step_, std::max(now_, Instant{scenario_.faults.steps[steps_done_].at}));
    }
  }

  Decision decide(Device& device, Instant told) {
    const CallMeter::Span span = meter_.span();
    return device.scheduler.next(told);
  }

  void ask(Device& device) {
    device.touched = false;
    const Instant told = tell(device);
    for (;;) {
      const Decision decision = decide(device, told);
      follow_slots(device);
      if (decision.kind() == Decision::Kind::kRun) {
        dispatch(device, static_cast<Flight&>(decision.request()));
        continue;
      }
      Instant until = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
      if (device.checkers) {
        const Decision again = device.scheduler.next(told);
        follow_slots(device);
        const bool ran = again.kind() == Decision::Kind::kRun;
        device.checkers->rest(ran, device.counted);
        if (ran) {
          dispatch(device, static_cast<Flight&>(again.request()));
          continue;
        }
      }
      if (until != kNever) until -= offset_;
      arm(device, until);
      return;
    }
  }

  static void follow_slots(Device& device) {
    if (!device.searches_slots || !device.checkers) return;
    device.checkers->set_slots(device.scheduler.target->slots());
  }

  void arm(Device& device, Instant until) {
    if (until == device.armed) return;
    device.armed = until;
    if (until == kNever) {
      events_.erase(device.timer);
      return;
    }
    Instant at = std::max(until, now_);
    const FaultSpec& faults = scenario_.faults;
    if (faults.late_permille > 0 && fault_rng_.chance(faults.late_permille, 1000)) {
      at += Nanoseconds{fault_rng_.between(0, faults.late_by.count())};
    }
    if (device.timer.hook.is_linked()) {
      events_.update(device.timer, at);
    } else {
      events_.push(device.timer, at);
    }
  }

  // ---- requests ----

  void wake(Process& process) {
    const ProcessSpec& spec = *process.spec;
    switch (spec.kind) {
      case Kind::kContinuous:
        process.backlog = spec.requests;
        break;
      case Kind::kBurst:
        process.backlog += spec.requests;
        events_.push(process, now_ + spec.every);
        break;
      case Kind::kThink:
        process.backlog = static_cast<std::uint64_t>(
            process.rng.between(static_cast<std::int64_t>(spec.requests_min),
                                static_cast<std::int64_t>(spec.requests)));
        break;
    }
    issue(process);
  }

  void issue(Process& process) {
    JobState& job = jobs_[process.job];
    while (process.backlog > 0 && process.outstanding < process.spec->window) {
      if (process.backlog != ProcessSpec::kEndless) {
        --process.backlog;
        if (process.spec->kind == Kind::kContinuous && job.unissued != ProcessSpec::kEndless) {
          --job.unissued;
        }
      }
      ++process.outstanding;
      Flight& flight = take_flight(process.free);
      flight.process = &process;
      flight.target = target_of(process);
      flight.lane = process.first_lane + flight.target;
      flight.bytes = draw_size(process);
      set_operation(flight, draw_read(process));
      admit(flight, process.job);
    }
  }

  std::uint32_t target_of(Process& process) const {
    if (process.spec->target) return static_cast<std::uint32_t>(*process.spec->target);
    const std::uint32_t target = process.turn;
    process.turn = (process.turn + 1) % static_cast<std::uint32_t>(devices_.size());
    return target;
  }

  static Bytes draw_size(Process& process) {
    const std::vector<SizeSpec>& sizes = process.spec->sizes;
    if (sizes.size() == 1) return sizes.front().size;
    std::uint64_t weights = 0;
    for (const SizeSpec& size : sizes) weights += size.weight;
    std::uint64_t drawn = process.rng.below(weights);
    std::size_t i = 0;
    while (drawn >= sizes[i].weight) drawn -= sizes[i++].weight;
    return sizes[i].size;
  }

  void set_operation(Flight& flight, bool reads) const {
    flight.operation = reads ? OperationKind::kRead : OperationKind::kWrite;
    flight.attributes.opcode = reads ? read_opcode_ : write_opcode_;
  }

  static bool draw_read(Process& process) {
    const std::uint32_t percent = process.spec->reads_percent;
    if (percent == 0 || percent == 100) return percent == 100;
    return process.rng.chance(percent, 100);
  }

  // Reads the next entry of a stream and waits for its time.
  void arm(Stream& stream) {
    read(stream);
    if (stream.entry) events_.push(stream, std::max(now_, Instant{stream.entry->at}));
  }

  void read(Stream& stream) {
    auto entry = stream.arrivals->next();
    if (!entry) failure_ = entry.error();
    stream.entry = entry ? *entry : std::nullopt;
  }

  void replay(Stream& stream) {
    while (stream.entry && Instant{stream.entry->at} <= now_) {
      if (stream.outstanding == stream.window) {
        stream.is_held = true;
        return;
      }
      const TraceEntry entry = *stream.entry;
      const Nanoseconds late = now_ - Instant{entry.at};
      if (late > Nanoseconds{0}) ++outcome_.held_back;
      outcome_.held_back_longest = std::max(outcome_.held_back_longest, late);
      ++stream.outstanding;
      Flight& flight = take_flight(stream.free);
      flight.process = nullptr;
      flight.stream = &stream;
      flight.target = 0;
      flight.lane = static_cast<std::uint32_t>(stream.first_lane + entry.job);
      flight.bytes = entry.size;
      set_operation(flight, entry.is_read);
      admit(flight, entry.job);
      read(stream);
    }
    if (stream.entry) events_.push(stream, Instant{stream.entry->at});
  }

  void release(Stream& stream, Flight& flight) {
    stream.free.push_back(&flight);
    --stream.outstanding;
    if (!stream.is_held) return;
    stream.is_held = false;
    events_.push(stream, now_);
  }

  Flight& take_flight(std::vector<Flight*>& free) {
    if (free.empty()) return flights_.emplace_back();
    Flight& flight = *free.back();
    free.pop_back();
    return flight;
  }

  void admit(Flight& flight, std::uint32_t job) {
    Device& device = devices_[flight.target];
    flight.job = job;
    if (!(flight.attributes.job == jobs_[job].id)) {
      flight.attributes.job = jobs_[job].id;
      flight.attributes.projid = scenario_.jobs[job].project;
      flight.attributes.uid = scenario_.jobs[job].user;
    }
    if (device.hints.size() <= job) device.hints.resize(jobs_.size());
    flight.hint = &device.hints[job];
    flight.cost = device.cost.of(flight.bytes).count();
    flight.arrived = now_;
    if (device.checkers) flight.number = device.checkers->arrive(flight.lane);
    if (measures_) measures_->arrive(job, now_);
    ++jobs_[job].queued;
    jobs_[job].admitted_cost += flight.cost;
    ++outcome_.jobs[job].arrived;
    ++queued_;
    {
      const CallMeter::Span span = meter_.span();
      device.scheduler.admit(flight, job, tell(device));
    }
    if (device.checkers) device.checkers->wait(job, device.counted);
    touch(device);
  }

  void dispatch(Device& device, Flight& flight) {
    JobState& job = jobs_[flight.job];
    --job.queued;
    --queued_;
    flight.dispatched = now_;
    outcome_.jobs[flight.job].wait.record(elapsed(flight.arrived));
    if (measures_) measures_->dispatch(flight.job, now_);
    if (device.checkers) {
      device.checkers->dispatch(flight.job, flight.lane, flight.number, Tokens{flight.cost},
                                device.counted);
    }
    events_.push(flight, device.store.finish(now_, flight.bytes));
    if (job.queued == 0 && job.unissued == 0 && job.is_continuous && !job.is_exhausted) {
      job.is_exhausted = true;
      end_contention();
    }
  }

  void complete(Flight& flight) {
    Device& device = devices_[flight.target];
    {
      const CallMeter::Span span = meter_.span();
      device.scheduler.complete(flight, tell(device));
    }
    if (device.checkers) device.checkers->complete(device.counted);
    JobOutcome& job = outcome_.jobs[flight.job];
    ++job.served;
    job.cost += flight.cost;
    job.latency.record(elapsed(flight.arrived));
    count_in_bin(job, flight.cost);
    if (measures_) measures_->complete(flight.job, flight.cost, now_);
    outcome_.targets[flight.target].served += 1;
    outcome_.targets[flight.target].cost += flight.cost;
    note_device(outcome_.targets[flight.target], flight);
    jobs_[flight.job].last_completion = now_;
    last_completion_ = now_;
    touch(device);
    Process* const process = flight.process;
    if (process == nullptr) {
      release(*flight.stream, flight);
      return;
    }
    process->free.push_back(&flight);
    --process->outstanding;
    if (process->backlog > 0) {
      issue(*process);
    } else if (process->outstanding == 0 && process->spec->kind == Kind::kThink) {
      events_.push(*process, now_ + process->spec->think);
    }
  }

  void note_device(TargetOutcome& target, const Flight& flight) const {
    if (!options_.measure_from || now_ < *options_.measure_from) return;
    target.in_device.record(elapsed(flight.dispatched));
  }

  std::uint64_t elapsed(Instant since) const {
    return static_cast<std::uint64_t>((now_ - since).count());
  }

  void count_in_bin(JobOutcome& job, std::uint64_t cost) {
    while (now_ >= bin_end_) {
      bin_end_ += outcome_.bin;
      if (++bin_ == kBinsMax) widen_bins();
    }
    if (job.bins.size() <= bin_) job.bins.resize(bin_ + 1);
    ++job.bins[bin_].served;
    job.bins[bin_].cost += cost;
  }

  // Long runs have wider intervals instead of more.
  void widen_bins() {
    for (JobOutcome& job : outcome_.jobs) {
      for (std::size_t i = 0; i < job.bins.size(); ++i) {
        const Bin bin = std::exchange(job.bins[i], Bin{});
        job.bins[i / 2].served += bin.served;
        job.bins[i / 2].cost += bin.cost;
      }
      job.bins.resize((job.bins.size() + 1) / 2);
    }
    outcome_.bin *= 2;
    bin_ /= 2;
    bin_end_ = Instant{} + outcome_.bin * static_cast<std::int64_t>(bin_ + 1);
  }

  // ---- checks ----

  Snapshot snapshot() const {
    Snapshot taken;
    taken.reserve(outcome_.jobs.size());
    for (const JobOutcome& job : outcome_.jobs) taken.push_back(job.cost);
    return taken;
  }

  void begin_contention() {
    for (const JobState& job : jobs_) {
      if (job.is_exhausted) return;
    }
    contended_from_ = snapshot();
    outcome_.contended_from = now_.time_since_epoch();
  }

  void end_contention() {
    if (!contended_from_ || contended_until_) return;
    contended_until_ = snapshot();
    unserved_ = unserved();
    outcome_.contended_until = now_.time_since_epoch();
  }

  // Cost that each job has asked for and not got.
  std::vector<double> unserved() const {
    std::vector<double> costs;
    costs.reserve(jobs_.size());
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      costs.push_back(static_cast<double>(jobs_[i].admitted_cost - outcome_.jobs[i].cost));
    }
    for (const Process& process : processes_) {
      const bool is_endless = process.backlog == ProcessSpec::kEndless;
      costs[process.job] += is_endless ? std::numeric_limits<double>::infinity()
                                       : static_cast<double>(process.backlog) * mean_cost(process);
    }
    return costs;
  }

  double mean_cost(const Process& process) const {
    const Device& device = devices_[process.spec->target.value_or(0)];
    double sum = 0;
    double weights = 0;
    for (const SizeSpec& size : process.spec->sizes) {
      sum += static_cast<double>(device.cost.of(size.size).count()) * size.weight;
      weights += size.weight;
    }
    return sum / weights;
  }

  void note_period(std::size_t target, const PeriodReport& report) {
    Device& device = devices_[target];
    if (device.checkers) device.checkers->period(report);
    if (options_.keep_periods) keep(target, report);
    records_.resize(devices_.size());
    records_[target] = report.records;
  }

  void keep(std::size_t target, const PeriodReport& report) {
    period_rows_ += 1 + report.jobs.size() + report.records.size();
    if (period_rows_ > kPeriodRowsMax) {
      ++outcome_.periods_left_out;
    } else {
      outcome_.periods.push_back({target, report});
    }
  }

  bool is_stuck() {
    if (queued_ == 0 || events_.top_key() - last_completion_ < kStuckAfter) return false;
    if (scenario_.length && queued_ == 0) return false;
    findings_.add(now_, fmt::format("nothing was served for an hour while {} wait", queued_));
    return true;
  }

  // ---- after ----

  void finish() {
    if (contended_from_ && !contended_until_) end_contention();
    if (measures_) outcome_.measured = measures_->end(now_);
    outcome_.decision_time = meter_.estimate();
    while (!scenario_.streams.empty() && bin_ >= kStreamBins) widen_bins();
    for (Device& device : devices_) drain(device);
    events_.clear();
    outcome_.duration = now_.time_since_epoch();
    sum_up();
    outcome_.findings = findings_.count();
    outcome_.first_findings = findings_.kept();
  }

  // Requests in service or waiting at the end of the scenario are dropped, uncounted.
  void drain(Device& device) {
    const Instant told = tell(device);
    for (Flight& flight : flights_) {
      // In the heap: in service.
      if (&devices_[flight.target] != &device || !flight.hook.is_linked()) continue;
      device.scheduler.complete(flight, told);
    }
    if (device.scheduler.target) device.scheduler.target->shutdown(told);
    std::uint64_t drained = 0;
    while (device.scheduler.drain(told) != nullptr) ++drained;
    if (!device.checkers) return;
    device.checkers->end(drained, device.counted);
    outcome_.parts_checked += device.checkers->parts_checked();
  }

  void sum_up() {
    const double seconds = std::max(static_cast<double>(outcome_.duration.count()) / 1e9, 1e-9);
    double possible = 0;
    double done = 0;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      const Rate rate = scenario_.targets[i].capacity;
      const double capacity =
          static_cast<double>(rate.tokens()) / static_cast<double>(rate.time_ns()) * 1e9 * seconds;
      TargetOutcome& target = outcome_.targets[i];
      const Scheduler& scheduler = devices_[i].scheduler;
      target.slots =
          scheduler.target ? scheduler.target->slots() : scenario_.targets[i].store.slots;
      target.utilisation = static_cast<double>(target.cost) / capacity;
      outcome_.served += target.served;
      possible += capacity;
      done += static_cast<double>(target.cost);
    }
    outcome_.utilisation = done / possible;
    for (std::size_t i = 0; i < jobs_.size(); ++i) sum_up(i, seconds);
    sum_up_shares();
  }

  void sum_up(std::size_t i, double seconds) {
    const JobState& state = jobs_[i];
    JobOutcome& job = outcome_.jobs[i];
    const bool is_done = state.is_finite && state.is_continuous && state.unissued == 0 &&
                         job.served == job.arrived && streams_.empty();
    if (is_done) seconds = static_cast<double>(ns_of(state.last_completion)) / 1e9;
    job.throughput = static_cast<double>(job.served) / std::max(seconds, 1e-9);
    for (const std::vector<JobRecord>& records : records_) {
      for (const JobRecord& record : records) {
        if (record.job == state.id) job.record += record.record;
      }
    }
  }

  void sum_up_shares() {
    if (!contended_until_) return;
    double all = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) all += contended_cost(i);
    if (all <= 0) return;
    const auto nodes = static_cast<double>(scenario_.nodes());
    const JobTree tree = job_tree(scenario_, scenario_.targets[0]);
    std::vector<std::uint64_t> weights;
    std::vector<double> demands;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      JobOutcome& job = outcome_.jobs[i];
      job.share = contended_cost(i) / all;
      job.entitlement = static_cast<double>(job.nodes) / nodes;
      weights.push_back(job.nodes);
      if (!scenario_.targets[0].tree.empty()) {
        constexpr std::uint64_t kWhole = 1'000'000'000'000;
        weights.back() = std::max<std::uint64_t>(tree.part_of(i, kWhole), 1);
        job.entitlement = static_cast<double>(weights.back()) / static_cast<double>(kWhole);
      }
      demands.push_back(contended_cost(i) + unserved_[i]);
    }
    const std::vector<double> fair = fair_parts(all, weights, demands);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (fair[i] > 0) ratios.push_back(contended_cost(i) / fair[i]);
    }
    outcome_.fairness = jain_index(ratios);
  }

  double contended_cost(std::size_t i) const {
    return static_cast<double>((*contended_until_)[i] - (*contended_from_)[i]);
  }

  const Scenario& scenario_;
  const RunOptions& options_;
  Rng rng_;
  Rng fault_rng_;
  const bool has_faults_;
  const std::uint32_t read_opcode_ = opcode_number("ost_read").value_or(0);
  const std::uint32_t write_opcode_ = opcode_number("ost_write").value_or(0);

  Instant now_{};
  Nanoseconds offset_{0};  // of the clock that the targets see
  std::deque<Flight> flights_;
  std::deque<Process> processes_;
  std::deque<Device> devices_;
  std::deque<Stream> streams_;
  Source step_{Source::Kind::kStep};
  Source mark_{Source::Kind::kMark};
  std::vector<JobState> jobs_;
  std::vector<std::vector<JobRecord>> records_;  // by target, of the last period
  std::size_t lanes_ = 0;
  std::optional<Error> failure_;  // of a stream
  std::size_t period_rows_ = 0;
  std::size_t steps_done_ = 0;
  std::size_t bin_ = 0;
  Instant bin_end_ = Instant{} + bin_of(scenario_);
  std::uint64_t queued_ = 0;
  Instant last_completion_{};
  std::optional<Snapshot> contended_from_;
  std::optional<Snapshot> contended_until_;
  std::vector<double> unserved_;  // at that time
  Findings findings_;
  std::unique_ptr<Measures> measures_;
  CallMeter meter_;  // of the schedulers' calls
  Outcome outcome_;
  Heap<Source, Instant, &Source::hook>
      events_;  // declared last: destroyed before the objects that it links
};

}  // namespace

Nanoseconds bin_of(const Scenario& scenario) {
  if (!scenario.streams.empty()) return kStreamBin;
  return scenario.length && *scenario.length <= kShortRun ? kShortBin : kBin;
}

Result<Outcome> run(const Scenario& scenario, Contender contender, const RunOptions& options) {
  World world(scenario, contender, options);
  if (auto prepared = world.prepare(); !prepared) return tl::unexpected(prepared.error());
  return world.run();
}

}  // namespace weir::sim
