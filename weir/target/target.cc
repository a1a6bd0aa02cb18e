// SPDX-License-Identifier: Apache-2.0
#include "weir/target/target.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/share_level.h"
#include "weir/schedule/policy_kinds.h"

namespace weir {
namespace {

// Depths of the root bucket as times of the capacity: after an idle time, and while requests wait
// for a device that was slower for a while
// (docs/decisions/0006-two-depths-of-the-root.md).
constexpr Nanoseconds kRootDepthTime = std::chrono::milliseconds{100};
constexpr Nanoseconds kRootBusyTime = std::chrono::seconds{1};
// Maximum of missed periods that are processed later.
constexpr Nanoseconds kMadeUpMax = std::chrono::minutes{1};
// Maximum number of clients counted per job, if they determine its nodes.
constexpr std::size_t kClientsMax = 65'536;
// The capacity is estimated after this time with one number of slots.
constexpr Nanoseconds kSlotsConstant = std::chrono::milliseconds{200};

JobStats::Entry& entry_of(const Request& request) {
  return *static_cast<JobStats::Entry*>(request.account);
}

Gate::Options gate_options(const Target::Options& options) {
  Gate::Options gate = options.gate;
  if (options.controller) {
    gate.rules.sharing = Sharing{.cost = options.cost,
                                 .lending = options.controller->lending,
                                 .levels = options.share_levels};
  }
  return gate;
}

ControllerOptions controller_options(const Target::Options& options) {
  ControllerOptions controller = *options.controller;
  controller.levels = options.share_levels.size();
  return controller;
}

// How much the scale of reservations has to change before it is set again.
constexpr std::uint32_t kReserveStepPercent = 5;

// The scale at which all reservations together take kPermille of the capacity.
std::uint32_t scale_for(std::uint64_t reserved, Rate capacity) {
  using Wide = unsigned __int128;
  if (reserved == 0) return kReserveScaleOne;
  const Wide most = Wide{tokens_in(capacity, RuleEngine::kReserveTime).count()} *
                    ReserveBound::kPermille * kReserveScaleOne / 1000;
  return static_cast<std::uint32_t>(std::clamp<Wide>(most / reserved, 1, kReserveScaleOne));
}

SlotOptions slot_options(const Target::Options& options) {
  return {.start = options.gate.slots,
          .min = options.gate.hp_slots + 1,
          .max = std::max(options.gate.slots, SlotOptions::kMaxDefault),
          .latency_target = options.latency_target};
}

}  // namespace

// The Gate as a controller's enforcer.
class Target::GateShares final : public Enforcer {
 public:
  GateShares(Gate& gate, bool lending) : gate_(gate), lending_(lending) {}

  Result<void> set(const JobId& job, const Share& share, Instant now) override {
    return change(job, share, now);
  }
  Result<void> change(const JobId& job, const Share& share, Instant now) override {
    RuleEngine* const engine = gate_.engine(Head::kRegular);
    if (engine == nullptr) {
      return fail(std::errc::no_such_device, std::string(job.text()),
                  policies_with_rules() + " is not running");
    }
    engine->set_share(job, share.rate, share.depth, share.nodes, now);
    return {};
  }
  Result<void> drop(const JobId& job, Instant now) override {
    RuleEngine* const engine = gate_.engine(Head::kRegular);
    if (engine == nullptr) return {};
    if (lending_ && engine->is_share_in_use(job, now)) {
      return fail(std::errc::resource_unavailable_try_again, std::string(job.text()),
                  "its share is not full yet");
    }
    engine->drop_share(job, now);
    return {};
  }
  Result<void> set_node(std::span<const JobId> path, const Share& share, Instant now) override {
    RuleEngine* const engine = gate_.engine(Head::kRegular);
    if (engine == nullptr) {
      return fail(std::errc::no_such_device, path_text(path),
                  policies_with_rules() + " is not running");
    }
    engine->set_node_share(path, share.rate, share.depth, share.nodes, now);
    return {};
  }
  Result<void> drop_node(std::span<const JobId> path, Instant now) override {
    if (RuleEngine* const engine = gate_.engine(Head::kRegular)) engine->drop_node_share(path, now);
    return {};
  }

 private:
  Gate& gate_;
  bool lending_;
};

Target::Target(const Options& options, Instant now)
    : options_(options),
      gate_(gate_options(options)),
      stats_(options.jobs_max, options.timed_jobs_max),
      watched_to_(now) {
  if (options_.auto_slots) {
    slot_search_.emplace(slot_options(options));
    slots_since_ = now;
  }
  set_reserve_bound();
  if (options_.controller) {
    stats_.on_forget([this](const JobId& job) { forget_clients(job); });
    shares_ = std::make_unique<GateShares>(gate_, options_.controller->lending);
    controller_ = std::make_unique<Controller>(controller_options(options_), *shares_);
    period_end_ = now + options_.controller->period;
  }
  take_capacity(options_.capacity, now);
  follow_policy(now);
}

Target::~Target() {
  for (const Active& job : active_) stats_.release(*job.entry);
}

// ---- requests ----

// Part of every call, so the usual case is inline and the end of a period is not.
inline void Target::advance(Instant now) {
  if (options_.estimate_capacity || slot_search_) watch_slots(now);
  if (controller_ == nullptr) return;
  if (now >= period_end_) [[unlikely]]
    catch_up(now);
}

// A request of the job has arrived: the first one gives it a share.
inline JobStats::Entry& Target::arrive(Request& request, Head head, Instant now) {
  ClassHint* const hint = request.hint;
  auto* const last = hint == nullptr ? nullptr : static_cast<JobStats::Entry*>(hint->account_);
  JobStats::Entry& entry = stats_.hold(request.attributes.job, now, last);
  if (hint != nullptr) hint->account_ = &entry;
  request.account = &entry;
  if (options_.nodes_by_clients && controller_ != nullptr) count_client(request, now);
  if (controller_ != nullptr && entry.mark != period_) note_active(entry, request, head, now);
  entry.arrive(cost_of(request), now);
  return entry;
}

void Target::admit(Request& request, Head head, Instant now) {
  advance(now);
  arrive(request, head, now);
  gate_.admit(request, head, now);
  if (recorder_ != nullptr) recorder_->admitted(request, head, now);
}

inline Decision Target::decide(Instant now) {
  const Decision decision = gate_.next(now);
  if (decision.kind() == Decision::Kind::kRun) {
    Request& request = decision.request();
    if (decision.is_resumed()) return decision;  // it was started before
    stats_.start(entry_of(request), request.starting(now), cost_of(request));
    return decision;
  }
  if (active_.empty()) return decision;
  const Instant until = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
  return Decision::wait_until(std::min(until, period_end_));
}

Decision Target::next(Instant now) {
  advance(now);
  const Decision decision = decide(now);
  if (recorder_ != nullptr) recorder_->decided(decision, now);
  return decision;
}

RequestRecord Target::complete(Request& request, Instant now, const Outcome& outcome) {
  advance(now);
  JobStats::Entry& entry = entry_of(request);
  const RequestRecord record = request.ending(now, outcome);
  const Tokens cost = cost_of(request);
  if (outcome.how == Outcome::How::kNotStarted) {
    entry.abandon(cost);
  } else {
    const Tokens settled = record.moved == request.bytes ? cost : options_.cost.of(record.moved);
    entry.finish(record, cost, settled);
    const bool is_done = outcome.how == Outcome::How::kDone;
    if (options_.estimate_capacity && is_done) estimate_.complete(settled, now);
    if (slot_search_ && is_done) {
      slot_search_->complete(now - request.started_at(), settled, now);
    }
  }
  request.account = nullptr;
  stats_.release(entry);
  gate_.complete(request, now, outcome);
  if (slot_search_) follow_slots(now);
  if (recorder_ != nullptr) recorder_->completed(request, outcome, now);
  return record;
}

void Target::defer(Request& request, Instant now) {
  advance(now);
  gate_.defer(request, now);
  if (recorder_ != nullptr) recorder_->deferred(request, now);
}

void Target::resume(Request& request, Instant now) {
  advance(now);
  gate_.resume(request, now);
  if (recorder_ != nullptr) recorder_->resumed(request, now);
}

void Target::charge(Request& request, Head head, Instant now) {
  advance(now);
  JobStats::Entry& entry = arrive(request, head, now);
  const Tokens cost = cost_of(request);
  gate_.charge(request, head, now);
  const RequestRecord record = request.starting(now);  // and ends
  stats_.start(entry, record, cost);
  entry.finish(record, cost, cost);
  request.account = nullptr;
  stats_.release(entry);
  if (recorder_ != nullptr) recorder_->charged(request, head, now);
}

void Target::withdraw(Request& request, Instant now) {
  advance(now);
  const bool was_queued = request.place() == Request::Place::kQueued;
  gate_.withdraw(request, now);
  JobStats::Entry& entry = entry_of(request);
  was_queued ? entry.withdraw(cost_of(request)) : entry.abandon(cost_of(request));
  request.account = nullptr;
  stats_.release(entry);
  if (recorder_ != nullptr) recorder_->withdrawn(request, now);
}

void Target::promote(Request& request, Instant now) {
  gate_.promote(request, now);
  if (recorder_ != nullptr) recorder_->promoted(request, now);
}

void Target::shutdown(Instant now) {
  gate_.shutdown(now);
  if (recorder_ != nullptr) recorder_->shut_down(now);
}

void Target::record(TargetRecorder* recorder) { recorder_ = recorder; }

// ---- policies and rules ----

Result<void> Target::set_policy(std::string_view name, std::string_view argument, Heads heads,
                                Instant now) {
  advance(now);
  auto set = gate_.start_policy(name, argument, heads);
  if (set) follow_policy(now);
  if (recorder_ != nullptr) recorder_->policy_set(name, argument, heads, set.has_value(), now);
  return set;
}

Result<void> Target::set_tunable(Head head, std::string_view name, std::uint64_t value,
                                 Instant now) {
  auto set = gate_.set_tunable(head, name, value);
  if (recorder_ != nullptr) recorder_->tunable_set(head, name, value, set.has_value(), now);
  return set;
}

Result<void> Target::apply_rule(const RuleChange& change, Instant now) {
  auto applied = gate_.apply_rule(change, now);
  // The next request of each job tells whether its weight is another one now.
  for (const Active& job : active_) job.entry->mark = period_ - 1;
  if (recorder_ != nullptr) recorder_->rule_applied(change, applied.has_value(), now);
  return applied;
}

Result<void> Target::write_rule(std::string_view text, Instant now) {
  const auto change = read_rule(text);
  if (!change) return tl::unexpected(change.error());
  return apply_rule(*change, now);
}

Result<void> Target::apply_rules(std::span<const RuleChange> changes, Instant now) {
  if (auto checked = check_rules(changes); !checked) return checked;
  for (const RuleChange& change : changes) {
    const auto applied = apply_rule(change, now);
    WEIR_ASSERT(applied.has_value());
  }
  return {};
}

void Target::set_slices(std::span<const ClassSlice> slices, Instant now) {
  RuleEngine* const engine = gate_.engine(Head::kRegular);
  if (engine == nullptr) return;
  engine->set_slices(slices, now);
  if (recorder_ != nullptr) recorder_->slices_set(slices, now);
}

void Target::prefer_group(std::optional<std::uint32_t> group, Instant now) {
  RuleEngine* const engine = gate_.engine(Head::kRegular);
  if (engine == nullptr) return;
  engine->prefer(group, now);
  if (recorder_ != nullptr) recorder_->group_preferred(group, now);
}

void Target::hold(bool is_held, Instant now) {
  gate_.hold_regular(is_held);
  if (recorder_ != nullptr) recorder_->held(is_held, now);
}

// The device is the bottleneck while every slot is busy and requests wait. Events of one instant
// count together: only their result matters.
void Target::watch_slots(Instant now) {
  if (now <= watched_to_) return;
  const bool is_busy = gate_.running() >= gate_.slots() && gate_.queued() + gate_.resumed() > 0;
  bool counts = is_busy;
  if (slot_search_) {
    slot_search_->saturated(is_busy, watched_to_);
    follow_slots(watched_to_);
    counts = counts && !slot_search_->is_probing() && watched_to_ - slots_since_ >= kSlotsConstant;
  }
  if (counts) {
    estimate_.saturate(watched_to_);
  } else {
    estimate_.relax(watched_to_);
  }
  watched_to_ = now;
}

void Target::follow_slots(Instant now) {
  if (slot_search_->slots() == gate_.slots()) return;
  gate_.set_slots(slot_search_->slots());
  slots_since_ = now;
}

// ---- the controller ----

Result<void> Target::set_nodes(const JobId& job, std::uint64_t nodes, Instant now) {
  advance(now);
  Result<void> set;
  if (controller_ != nullptr && nodes == 0) {
    if (named_.erase(job) > 0) controller_->forget_nodes(job);
  } else if (controller_ != nullptr) {
    set = controller_->set_nodes(job, nodes, now);
    if (set) {
      named_.insert(job);
      clients_.erase(job);
    }
  }
  if (recorder_ != nullptr) recorder_->nodes_set(job, nodes, set.has_value(), now);
  return set;
}

Result<void> Target::set_node_weight(std::string_view path, std::uint64_t weight, Instant now) {
  advance(now);
  TreeShares* const tree = controller_ == nullptr ? nullptr : controller_->tree();
  Result<void> set;
  if (tree != nullptr) {
    set = tree->set_weight(path, weight);
  } else {
    set = fail(std::errc::invalid_argument, "node " + quote(path),
               "has no weight, because there is no tree of shares",
               "name its levels, such as tree = ['projid', 'uid', 'jobid']");
  }
  if (recorder_ != nullptr) recorder_->node_weight_set(path, weight, set.has_value(), now);
  return set;
}

Result<void> Target::restore(const Controller::State& state, Instant now) {
  if (controller_ == nullptr) return {};
  auto restored = controller_->restore(state);
  if (recorder_ != nullptr) recorder_->restored(state, restored.has_value(), now);
  return restored;
}

std::optional<Instant> Target::nodes_used_at(const JobId& job) const {
  return controller_ == nullptr ? std::nullopt : controller_->nodes_used_at(job);
}

// Jobs without room in stats_, and clients of a job beyond the bound, are not counted.
void Target::count_client(const Request& request, Instant now) {
  const JobId& job = request.attributes.job;
  if (named_.contains(job) || request.account == &stats_.overflow()) return;
  Clients& clients = clients_[job];
  if (clients.size() >= kClientsMax || !clients.insert(request.attributes.nid).second) return;
  // Refused only if an administrator has set the nodes of as many jobs as there is room for.
  (void)controller_->set_nodes(job, clients.size(), now);
}

void Target::forget_clients(const JobId& job) {
  if (clients_.erase(job) > 0) controller_->forget_nodes(job);
}

std::optional<Rate> Target::capacity() const {
  return controller_ == nullptr ? options_.capacity : controller_->capacity();
}

Result<void> Target::set_capacity(const Capacity& capacity, Instant now) {
  if (auto fits = capacity.check_unit(options_.cost); !fits) return fits;
  replay_capacity(
      capacity.rate,
      capacity.kind == Capacity::Kind::kAuto ? CapacitySource::kEstimated : CapacitySource::kGiven,
      now);
  return {};
}

void Target::replay_capacity(std::optional<Rate> capacity, std::optional<CapacitySource> source,
                             Instant now) {
  if (source) {
    advance(now);
    const bool estimates = *source == CapacitySource::kEstimated && controller_ != nullptr;
    if (estimates && !options_.estimate_capacity) {
      estimate_ = CapacityEstimate();
      watched_to_ = now;
    }
    options_.estimate_capacity = estimates;
  }
  take_capacity(capacity, now);
  if (recorder_ != nullptr) recorder_->capacity_set(capacity, source, now);
}

void Target::take_capacity(std::optional<Rate> capacity, Instant now) {
  options_.capacity = capacity;
  estimate_.set_ceiling(capacity);
  if (slot_search_) {
    slot_search_->set_capacity(options_.estimate_capacity ? std::nullopt : capacity);
  }
  set_reserve_bound();
  if (controller_ != nullptr) {
    controller_->set_capacity(options_.estimate_capacity ? estimate_.rate(now) : capacity);
  }
  set_root(now);
}

RootBucket Target::root_of(Rate capacity, std::uint32_t slots) {
  const Tokens depth = std::max(Tokens{slots}, tokens_in(capacity, kRootDepthTime));
  const Tokens busy = std::max(depth, tokens_in(capacity, kRootBusyTime));
  return {BucketShape(capacity, depth), BucketShape(capacity, busy)};
}

void Target::set_nodes_by_clients(bool counts, Instant now) {
  if (recorder_ != nullptr) recorder_->nodes_by_clients_set(counts, now);
  if (options_.nodes_by_clients == counts) return;
  options_.nodes_by_clients = counts;
  for (const auto& [job, clients] : clients_) controller_->forget_nodes(job);
  clients_.clear();
}

// With an estimated capacity there is no root bucket, only slots; nor in the published algorithm,
// whose shares add up to the capacity.
void Target::set_root(Instant now) {
  const bool shares_hold_it = options_.controller && !options_.controller->lending &&
                              gate_.engine(Head::kRegular) != nullptr;
  std::optional<RootBucket> root;
  if (options_.capacity && !options_.estimate_capacity && !shares_hold_it) {
    root = root_of(*options_.capacity, options_.gate.slots);
    root->cost = options_.cost;
  }
  gate_.set_root(root, now);
}

void Target::set_reserve_bound() {
  const bool is_known = options_.capacity && !options_.estimate_capacity;
  ReserveBound bound;
  if (is_known) bound.capacity = options_.capacity;
  if (is_known || controller_ != nullptr) bound.cost = options_.cost;
  gate_.set_reserve_bound(bound);
}

// Reservations of all classes that use theirs take at most a part of the capacity.
void Target::scale_reserves(Instant now) {
  RuleEngine* const engine = gate_.engine(Head::kRegular);
  if (engine == nullptr) return;
  const std::uint64_t reserved = engine->reserves_in_use();
  const std::uint32_t scale = engine->reserve_scale();
  const std::optional<Rate> capacity = controller_->capacity();
  const std::uint32_t wanted = capacity ? scale_for(reserved, *capacity) : kReserveScaleOne;
  const std::uint32_t step = scale / 100 * kReserveStepPercent;
  const bool is_all = wanted == kReserveScaleOne && wanted != scale;
  if (is_all || wanted > scale + step || wanted < scale - step) {
    engine->set_reserve_scale(wanted, now);
  }
}

// Ends the periods that are over. REQUIRES: a controller.
[[gnu::noinline]] void Target::catch_up(Instant now) {
  const Nanoseconds period = options_.controller->period;
  const std::int64_t missed = (now - period_end_) / period;
  const std::int64_t made_up = std::max<std::int64_t>(kMadeUpMax / period, 1);
  if (missed > made_up) period_end_ += (missed - made_up) * period;
  for (; period_end_ <= now; period_end_ += period) end_period(now);
}

// A new engine has no shares: current jobs get theirs again.
void Target::follow_policy(Instant now) {
  set_root(now);
  if (controller_ == nullptr) return;
  const Policy& policy = gate_.policy_in_force(Head::kRegular);
  controller_->suspend(
      fmt::format("policy {} is running; shares require {}", policy.name(), policies_with_rules()),
      now);
  if (gate_.engine(Head::kRegular) == nullptr) return;
  controller_->resume();
  give_all_shares(now);
}

void Target::give_all_shares(Instant now) {
  follow_places();
  for (const Active& job : active_) {
    controller_->first_request(job.entry->job, now, weight_of(job.entry->job));
  }
}

std::optional<std::uint64_t> Target::weight_of(const JobId& job) const {
  const auto found = weights_.find(job);
  return found == weights_.end() ? std::nullopt : std::optional(found->second);
}

void Target::note_active(JobStats::Entry& entry, const Request& request, Head head, Instant now) {
  const bool is_listed = entry.mark == period_ - 1;
  entry.mark = period_;
  if (!is_listed) {
    stats_.hold(entry.job, now);
    active_.emplace_back(entry);
  }
  const RuleEngine* const engine = gate_.engine(head);
  const auto weight =
      engine == nullptr ? std::nullopt : engine->weight_of(request.attributes, head);
  if (weight) {
    weights_[entry.job] = *weight;
  } else if (!weights_.empty()) {
    weights_.erase(entry.job);
  }
  if (controller_->tree() != nullptr) place(entry.job, request.attributes, head);
  controller_->first_request(entry.job, now, weight);
}

// The job's place as the attributes of a request tell it. Its queues move there when the request
// begins to wait.
void Target::place(const JobId& job, const Attributes& attributes, Head head) {
  const RuleEngine* const engine = gate_.engine(head);
  std::vector<JobId>& path = places_[job];
  path.clear();
  for (const FieldSet level : options_.share_levels) {
    const bool has_rule = level == kRuleLevel && engine != nullptr;
    const std::string_view rule =
        has_rule ? engine->first_rule(attributes, head).name() : kNoShareValue;
    path.push_back(node_name(level, attributes, rule));
  }
  controller_->tree()->place(job, path);
}

// A job may have moved in the meantime: requests of several kinds waited in turn.
void Target::follow_places() {
  TreeShares* const tree = controller_->tree();
  if (tree == nullptr) return;
  const RuleEngine* const engine = gate_.engine(Head::kRegular);
  for (auto& [job, place] : places_) {
    std::vector<JobId> now_at = engine == nullptr ? std::vector<JobId>{} : engine->path_of(job);
    if (now_at.size() == options_.share_levels.size()) place = std::move(now_at);
    tree->place(job, place);
  }
}

void Target::end_period(Instant now) {
  if (options_.estimate_capacity) controller_->set_capacity(estimate_.rate(now));
  scale_reserves(now);
  observe(now);
  const PeriodReport& report = controller_->decide(now);
  begin_period();
  if (recorder_ != nullptr) recorder_->period_ended(report, controller_->capacity());
  if (listener_) listener_(report);
}

// Its demand is counted with the actual cost.
JobSample Target::Active::sample() const {
  const Tokens asked = (entry->arrived - arrived).cost + (entry->surcharged - surcharged);
  const Tokens back = entry->refunded - refunded;
  return {.job = entry->job,
          .arrived = asked - std::min(asked, back),
          .served = (entry->served() - served).cost,
          .waiting = waiting.cost};
}

void Target::observe(Instant now) {
  absl::flat_hash_map<JobId, JobSample, std::hash<JobId>> samples;
  for (const Active& job : active_) {
    JobSample& sample = samples.emplace(job.entry->job, job.sample()).first->second;
    sample.weight = weight_of(job.entry->job);
  }
  if (RuleEngine* const engine = gate_.engine(Head::kRegular)) {
    engine->report_shares(options_.controller->period, now, [&](const ShareReport& share) {
      JobSample& sample = samples[share.job];
      sample.job = share.job;
      sample.limit = share.limit;
      sample.borrowed = share.borrowed;
      sample.lent = share.lent;
      sample.reserved = share.reserved;
    });
    if (TreeShares* const tree = controller_->tree()) {
      follow_places();
      engine->report_nodes(
          now, [&](const NodeReport& node) { tree->observe(node.path, node.lent, node.borrowed); });
    }
  }
  for (const auto& [job, sample] : samples) controller_->observe(sample);
}

// A job with waiting or running requests is active from the start. If all of them are running, its
// share may be dropped: its next request is a first one again.
void Target::begin_period() {
  const std::uint64_t not_seen = period_ - 1;  // since it was listed, or rules changed
  period_ += 2;
  std::erase_if(active_, [&](Active& job) {
    JobStats::Entry& entry = *job.entry;
    if (entry.waiting().requests == 0 && entry.running().requests == 0) {
      weights_.erase(entry.job);
      places_.erase(entry.job);
      stats_.release(entry);
      return true;
    }
    const bool is_seen = entry.waiting().requests > 0 && entry.mark != not_seen;
    entry.mark = is_seen ? period_ : period_ - 1;
    job = Active(entry);
    return false;
  });
}

}  // namespace weir
