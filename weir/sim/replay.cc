// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/replay.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/opcode.h"
#include "weir/schedule/request.h"
#include "weir/target/recorder.h"
#include "weir/target/target.h"

namespace weir::sim {
namespace {

// Records what a Target does by itself inside a call.
class Periods final : public TargetRecorder {
 public:
  explicit Periods(ReplayObserver* observer) : observer_(observer) {}

  void period_ended(const PeriodReport& report, const std::optional<Rate>& capacity) override {
    sums.push_back(sum_of(report, capacity));
    if (observer_ != nullptr) observer_->period_ended(report);
  }
  std::vector<std::uint64_t> sums;

 private:
  ReplayObserver* observer_;
};

struct Stand {
  Stand(const TraceTarget& made, ReplayObserver* observer)
      : name(made.name), periods(observer), target(made.options, made.made_at) {
    target.record(&periods);
  }

  std::string name;
  Periods periods;
  std::vector<std::uint64_t> expected;  // sums of periods, since the last call
  Target target;
};

struct Outstanding {
  Request request;
  std::uint32_t target = 0;
};

std::string seconds(Instant at) {
  if (at == kNever) return "for ever";
  const std::int64_t ns = ns_of(at);
  return fmt::format("{}.{:09} s", ns / 1'000'000'000, ns % 1'000'000'000);
}

class Replay {
 public:
  Replay(TraceReader::Source source, ReplayObserver* observer)
      : reader_(std::move(source)), observer_(observer) {}
  // A Target must not be destroyed with requests in it.
  ~Replay() {
    for (const auto& [number, one] : requests_) {
      Target& target = stands_[one->target]->target;
      if (one->request.place() == Request::Place::kRunning) {
        target.complete(one->request, now_);
      } else if (one->request.place() != Request::Place::kOutside) {
        target.withdraw(one->request, now_);
      }
    }
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  ReplayReport run();

 private:
  bool repeat(const TraceRecord& record);
  bool admit(const TraceRecord& record, Stand& stand);
  bool decide(const TraceRecord& record, Stand& stand);
  bool tell(const TraceRecord& record, Stand& stand);
  bool finish(const TraceRecord& record, Stand& stand);
  void charge(const TraceRecord& record, Stand& stand);
  std::unique_ptr<Outstanding> make(const TraceRecord& record);
  bool command(const TraceRecord& record, Stand& stand);
  bool compare_periods(const TraceRecord& record, Stand& stand);
  std::string describe(const Decision& decision) const;
  std::string describe(const TraceRecord& record);
  bool differs(const TraceRecord& record, std::string_view expected, std::string_view got);
  bool nonsense(const TraceRecord& record, std::string_view what);

  TraceReader reader_;
  ReplayObserver* observer_;
  ReplayReport report_;
  std::vector<std::unique_ptr<Stand>> stands_;
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<Outstanding>> requests_;
  std::vector<std::unique_ptr<Outstanding>> spare_;
  Instant now_;
};

ReplayReport Replay::run() {
  std::optional<Instant> first;
  while (const TraceRecord* record = reader_.next()) {
    now_ = record->now;
    if (record->kind == TraceKind::kHead) {
      report_.head = {std::string(record->text), record->number};
      continue;
    }
    if (record->kind == TraceKind::kTarget) {
      stands_.push_back(std::make_unique<Stand>(*record->made, observer_));
      ++report_.targets;
      continue;
    }
    if (!first) first = now_;
    report_.length = now_ - *first;
    if (!repeat(*record)) break;
  }
  if (report_.ending == TraceReader::Ending::kNotYet) {
    report_.ending = reader_.ending();
    report_.complaint = reader_.complaint();
  }
  report_.good_bytes = reader_.good_bytes();
  return std::move(report_);
}

bool Replay::repeat(const TraceRecord& record) {
  Stand& stand = *stands_[record.target];
  if (record.kind == TraceKind::kPeriod) {
    stand.expected.push_back(record.number);
    ++report_.periods;
    return true;
  }
  ++report_.calls;
  switch (record.kind) {
    case TraceKind::kAdmit:
      if (!admit(record, stand)) return false;
      break;
    case TraceKind::kRun:
    case TraceKind::kWait:
    case TraceKind::kIdle:
      if (!decide(record, stand)) return false;
      break;
    case TraceKind::kComplete:
    case TraceKind::kWithdraw:
      if (!finish(record, stand)) return false;
      break;
    case TraceKind::kPromote:
    case TraceKind::kDefer:
    case TraceKind::kResume:
      if (!tell(record, stand)) return false;
      break;
    case TraceKind::kCharge:
      charge(record, stand);
      break;
    case TraceKind::kShutdown:
      stand.target.shutdown(now_);
      break;
    default:
      if (!command(record, stand)) return false;
      break;
  }
  return compare_periods(record, stand);
}

std::unique_ptr<Outstanding> Replay::make(const TraceRecord& record) {
  std::unique_ptr<Outstanding> one;
  if (spare_.empty()) {
    one = std::make_unique<Outstanding>();
  } else {
    one = std::move(spare_.back());
    spare_.pop_back();
  }
  one->target = record.target;
  one->request.attributes = *record.attributes;
  const std::uint32_t opcode = record.attributes->opcode;
  if (opcode != kUnknownId) one->request.operation = operation_kind(opcode);
  one->request.bytes = record.bytes;
  return one;
}

void Replay::charge(const TraceRecord& record, Stand& stand) {
  std::unique_ptr<Outstanding> one = make(record);
  stand.target.charge(one->request, record.head, now_);
  spare_.push_back(std::move(one));
  ++report_.charged;
}

bool Replay::admit(const TraceRecord& record, Stand& stand) {
  if (stand.target.is_shut_down()) {
    return nonsense(record, "a request was admitted after the shutdown");
  }
  std::unique_ptr<Outstanding> one = make(record);
  one->request.number = record.request;
  stand.target.admit(one->request, record.head, now_);
  if (observer_ != nullptr) observer_->admitted(one->request, now_);
  requests_.emplace(record.request, std::move(one));
  ++report_.admitted;
  return true;
}

bool Replay::decide(const TraceRecord& record, Stand& stand) {
  const Decision decision = stand.target.next(now_);
  ++report_.decisions;
  if (record.kind == TraceKind::kRun) ++report_.run;
  const bool is_same =
      record.kind == TraceKind::kRun
          ? decision.kind() == Decision::Kind::kRun && decision.request().number == record.request
      : record.kind == TraceKind::kWait
          ? decision.kind() == Decision::Kind::kWait && decision.until() == record.until
          : decision.kind() == Decision::Kind::kIdle;
  if (!is_same) return differs(record, describe(record), describe(decision));
  if (observer_ != nullptr && record.kind == TraceKind::kRun && !decision.is_resumed()) {
    observer_->started(decision.request(), now_);
  }
  return true;
}

// Calls for an existing request.
bool Replay::tell(const TraceRecord& record, Stand& stand) {
  const auto found = requests_.find(record.request);
  if (found == requests_.end() || found->second->target != record.target) {
    return nonsense(record, "it names a request that does not exist");
  }
  Request& request = found->second->request;
  if (record.kind == TraceKind::kPromote) {
    stand.target.promote(request, now_);
  } else if (record.kind == TraceKind::kDefer) {
    if (request.place() != Request::Place::kRunning) {
      return nonsense(record, "it defers a request that is not running");
    }
    stand.target.defer(request, now_);
    ++report_.deferred;
  } else {
    if (request.place() != Request::Place::kDeferred) {
      return nonsense(record, "it resumes a request that is not deferred");
    }
    stand.target.resume(request, now_);
  }
  return true;
}

bool Replay::finish(const TraceRecord& record, Stand& stand) {
  const auto found = requests_.find(record.request);
  if (found == requests_.end() || found->second->target != record.target) {
    return nonsense(record, "it names a request that does not exist");
  }
  Request& request = found->second->request;
  const bool completes = record.kind == TraceKind::kComplete;
  if ((request.place() == Request::Place::kRunning) != completes) {
    return nonsense(record, completes ? "it completes a request that waits"
                                      : "it withdraws a request that runs");
  }
  if (completes) {
    stand.target.complete(request, now_, record.outcome);
    if (observer_ != nullptr) observer_->completed(request, now_);
    ++report_.completed;
  } else {
    stand.target.withdraw(request, now_);
    ++report_.withdrawn;
  }
  spare_.push_back(std::move(found->second));
  requests_.erase(found);
  return true;
}

bool Replay::command(const TraceRecord& record, Stand& stand) {
  ++report_.commands;
  Target& target = stand.target;
  bool is_done = record.flag;
  switch (record.kind) {
    case TraceKind::kRule: {
      const auto change = parse_rule(record.text);
      is_done = change && target.apply_rule(*change, now_);
      break;
    }
    case TraceKind::kPolicy:
      is_done = target.set_policy(record.text, record.argument, record.heads, now_).has_value();
      break;
    case TraceKind::kTunable:
      is_done = target.set_tunable(record.head, record.text, record.number, now_).has_value();
      break;
    case TraceKind::kNodes:
      is_done = target.set_nodes(JobId(record.text), record.number, now_).has_value();
      break;
    case TraceKind::kWeight:
      is_done = target.set_node_weight(record.text, record.number, now_).has_value();
      break;
    case TraceKind::kClients:
      target.set_nodes_by_clients(record.flag, now_);
      break;
    case TraceKind::kRestore:
      is_done = target.restore(*record.state, now_).has_value();
      break;
    case TraceKind::kSlices:
      target.set_slices(record.slices, now_);
      break;
    case TraceKind::kPrefer:
      target.prefer_group(record.group, now_);
      break;
    case TraceKind::kHold:
      target.hold(record.flag, now_);
      break;
    default:
      target.replay_capacity(record.rate, record.source, now_);
      break;
  }
  if (is_done == record.flag) return true;
  const auto word = [](bool done) { return done ? "was applied" : "was rejected"; };
  return differs(record, fmt::format("{} {}", quote(record.text), word(record.flag)),
                 word(is_done));
}

bool Replay::compare_periods(const TraceRecord& record, Stand& stand) {
  const bool is_same = stand.expected == stand.periods.sums;
  const std::size_t expected = stand.expected.size();
  const std::size_t got = stand.periods.sums.size();
  stand.expected.clear();
  stand.periods.sums.clear();
  if (is_same) return true;
  if (expected == got) {
    return differs(record, "the controller decided differently in the period that ended here",
                   "other shares, records or another capacity");
  }
  return differs(record, fmt::format("{} periods ended in this call", expected),
                 fmt::format("{} did", got));
}

std::string Replay::describe(const Decision& decision) const {
  if (decision.kind() == Decision::Kind::kIdle) return "idle";
  if (decision.kind() == Decision::Kind::kWait) {
    return fmt::format("wait until {}", seconds(decision.until()));
  }
  const Request& request = decision.request();
  return fmt::format("run request {} of job {}", request.number,
                     quote(request.attributes.job.text()));
}

std::string Replay::describe(const TraceRecord& record) {
  if (record.kind == TraceKind::kIdle) return "idle";
  if (record.kind == TraceKind::kWait) return fmt::format("wait until {}", seconds(record.until));
  const auto found = requests_.find(record.request);
  if (found == requests_.end()) return fmt::format("run request {}, unknown", record.request);
  return fmt::format("run request {} of job {}", record.request,
                     quote(found->second->request.attributes.job.text()));
}

bool Replay::differs(const TraceRecord& record, std::string_view expected, std::string_view got) {
  report_.difference =
      fmt::format("call {} (at {}, target {}): the trace has: {}; repeated: {}", report_.calls,
                  seconds(record.now), quote(stands_[record.target]->name), expected, got);
  return false;
}

bool Replay::nonsense(const TraceRecord& record, std::string_view what) {
  report_.ending = TraceReader::Ending::kDamaged;
  report_.complaint =
      fmt::format("call {} (at {}) is not valid: {}", report_.calls, seconds(record.now), what);
  return false;
}

}  // namespace

ReplayReport replay(TraceReader::Source source, ReplayObserver* observer) {
  return Replay(std::move(source), observer).run();
}

}  // namespace weir::sim
