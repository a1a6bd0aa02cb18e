// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/group_turns.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/rng.h"
#include "weir/classify/rule_spec.h"
#include "weir/coordinate/group_epochs.h"
#include "weir/coordinate/leader.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/target_epochs.h"
#include "weir/target/target.h"

namespace weir::sim {
namespace {

// There is no election here, but servers join during the first turns.
constexpr Nanoseconds kBegin = std::chrono::seconds{1};
constexpr std::size_t kLeader = 0;

// One request of a striped operation.
struct Part : Request {
  std::size_t operation = 0;
  std::size_t server = 0;
  std::int64_t epoch = 0;  // in which it started
};

struct Operation {
  std::size_t group = 0;
  std::size_t left = 0;  // requests that are not complete
  Instant begun{};
};

Target::Options target_options(const GroupTurnsSpec& spec) {
  Target::Options options;
  options.gate = {.slots = spec.slots, .rules = {.classes_max = 64}};
  for (std::size_t i = 0; i < spec.groups && spec.mode != GroupMode::kOff; ++i) {
    options.gate.rules.groups.push_back(*NidList::parse(fmt::format("10.0.{}.*@tcp", i)));
  }
  return options;
}

struct Server {
  explicit Server(const GroupTurnsSpec& spec)
      : target(target_options(spec), instant_at(0)),
        use(target, {.lengths = std::vector<Nanoseconds>(spec.groups, spec.turn),
                     .rest_length = spec.turn,
                     .quiesce = spec.quiesce}),
        member({.timeout = 4 * spec.turn}),
        epochs(target,
               spec.mode == GroupMode::kTogether ? static_cast<EpochHandler&>(member) : local,
               use) {
    RuleKeys most;
    most.rate = kRateMax;
    const bool started = target.set_policy("tbf", "nid", Heads::kBoth, instant_at(0)) &&
                         target.apply_rule(change_of("default", most), instant_at(0));
    WEIR_ASSERT(started);
  }
  bool is_in_step() const { return epochs.participant().epoch() != kFirstEpoch; }

  Target target;
  GroupEpochs use;
  LocalEpochHandler local;
  EpochMember member;
  TargetEpochs epochs;
  std::vector<Part*> running;
  Instant armed = kNever;
  Instant waits_until = kNever;  // of the Gate
};

struct Event {
  enum class Kind : std::uint8_t { kWake, kDone, kToLeader, kToMember };
  Instant at;
  std::uint64_t order = 0;
  Kind kind = Kind::kWake;
  std::size_t server = 0;  // receiver; of kToLeader, the sender
  Part* part = nullptr;
  EpochMessage message = {};
};
bool is_later(const Event& a, const Event& b) {
  return a.at != b.at ? a.at > b.at : a.order > b.order;
}

class World {
 public:
  explicit World(const GroupTurnsSpec& spec)
      : spec_(spec), rng_(spec.seed), leader_({.term = 1, .combine = add_vectors}) {
    WEIR_ASSERT(spec.groups >= 1 && spec.groups <= 9 && spec.servers >= 1);
    servers_.reserve(spec.servers);
    for (std::size_t i = 0; i < spec.servers; ++i) {
      servers_.push_back(std::make_unique<Server>(spec));
    }
    for (std::size_t group = 0; group < spec.groups; ++group) {
      nids_.push_back(*parse_nid(fmt::format("10.0.{}.1@tcp", group)));
    }
    result_.groups.resize(spec.groups);
  }

  GroupTurnsResult run() {
    if (spec_.mode != GroupMode::kOff) begin_epochs();
    for (std::size_t group = 0; group < spec_.groups; ++group) {
      for (std::uint32_t i = 0; i < spec_.window; ++i) {
        operations_.push_back({.group = group});
        issue(operations_.size() - 1);
      }
    }
    const Instant end = instant_at(0) + spec_.length;
    while (!heap_.empty() && heap_.front().at <= end) {
      std::pop_heap(heap_.begin(), heap_.end(), is_later);
      const Event event = std::move(heap_.back());
      heap_.pop_back();
      now_ = event.at;
      handle(event);
    }
    now_ = end;
    watch_preferences();
    finish();
    return std::move(result_);
  }

 private:
  // Each at a different time, as servers start.
  void begin_epochs() {
    for (std::size_t i = 0; i < servers_.size(); ++i) {
      now_ = instant_at(0) + i * spec_.turn / static_cast<std::int64_t>(2 * servers_.size());
      servers_[i]->epochs.init(now_);
      step(i);
    }
  }

  void push(Event event) {
    event.order = order_++;
    heap_.push_back(std::move(event));
    std::push_heap(heap_.begin(), heap_.end(), is_later);
  }

  void issue(std::size_t index) {
    Operation& operation = operations_[index];
    operation.begun = now_;
    operation.left = servers_.size();
    for (std::size_t server = 0; server < servers_.size(); ++server) {
      if (free_.empty()) free_.push_back(&parts_.emplace_back());
      Part& part = *free_.back();
      free_.pop_back();
      part.operation = index;
      part.server = server;
      part.attributes.nid = nids_[operation.group];
      servers_[server]->target.admit(part, Head::kRegular, now_);
      push({.at = now_, .kind = Event::Kind::kWake, .server = server});
    }
  }

  bool is_cut(std::size_t server) const {
    if (!spec_.cut || spec_.cut->server != server) return false;
    const Nanoseconds at = now_ - instant_at(0);
    return at >= spec_.cut->from && at < spec_.cut->to;
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Event::Kind::kWake:
        if (servers_[event.server]->armed <= now_) servers_[event.server]->armed = kNever;
        return step(event.server);
      case Event::Kind::kDone:
        return done(*event.part);
      case Event::Kind::kToLeader:
        leader_.receive(event.server, event.message, now_);
        return step(kLeader);
      case Event::Kind::kToMember:
        servers_[event.server]->member.receive(event.message, now_);
        return step(event.server);
    }
  }

  void done(Part& part) {
    Server& server = *servers_[part.server];
    std::erase(server.running, &part);
    server.target.complete(part, now_);
    free_.push_back(&part);
    if (is_cut(part.server)) ++result_.cut_served;
    step(part.server);
    Operation& operation = operations_[part.operation];
    if (--operation.left > 0) return;
    if (now_ >= instant_at(0) + kBegin) {
      GroupTurnsResult::Group& group = result_.groups[operation.group];
      ++group.operations;
      group.latency.record(static_cast<std::uint64_t>((now_ - operation.begun).count()));
    }
    issue(part.operation);
  }

  // A turn of a server's loop.
  void step(std::size_t index) {
    Server& server = *servers_[index];
    if (spec_.mode != GroupMode::kOff) {
      server.epochs.tick(now_);
      server.member.tick(now_);
      if (index == kLeader) leader_.tick(now_);
      watch_preferences();
    }
    dispatch(index);
    exchange(index);
    arm(index);
  }

  void dispatch(std::size_t index) {
    Server& server = *servers_[index];
    for (;;) {
      const Decision decision = server.target.next(now_);
      server.waits_until = decision.kind() == Decision::Kind::kWait ? decision.until() : kNever;
      if (decision.kind() != Decision::Kind::kRun) break;
      auto& part = static_cast<Part&>(decision.request());
      part.epoch = server.epochs.participant().epoch();
      watch_crossing(part);
      server.running.push_back(&part);
      const Nanoseconds service{rng_.between(1, 2 * spec_.service.count())};
      push({.at = now_ + service, .kind = Event::Kind::kDone, .server = index, .part = &part});
    }
    const bool could_run = server.target.queued() > 0 && server.target.running() < spec_.slots;
    if (could_run && !server.use.is_quiet() && server.waits_until == kNever) {
      ++result_.idle_findings;
    }
  }

  void exchange(std::size_t index) {
    const auto send = [&](Event::Kind kind, std::size_t server, EpochMessage message) {
      ++result_.messages;
      const Nanoseconds delay{rng_.between(spec_.delay_min.count(), spec_.delay_max.count())};
      if (is_cut(server)) return;
      push({.at = now_ + delay, .kind = kind, .server = server, .message = std::move(message)});
    };
    for (EpochMessage& message : servers_[index]->member.take_outgoing()) {
      send(Event::Kind::kToLeader, index, std::move(message));
    }
    if (index != kLeader) return;
    for (auto& out : leader_.take_outgoing()) {
      send(Event::Kind::kToMember, out.to, std::move(out.message));
    }
  }

  void arm(std::size_t index) {
    Server& server = *servers_[index];
    Instant at = server.waits_until;
    if (spec_.mode != GroupMode::kOff) {
      at = std::min({at, server.epochs.next_wake(), server.member.next_wake()});
      if (index == kLeader) at = std::min(at, leader_.next_wake());
    }
    at = std::max(at, now_ + Nanoseconds{1000});
    if (at >= kNever || (at >= server.armed && server.armed > now_)) return;
    server.armed = at;
    push({.at = at, .kind = Event::Kind::kWake, .server = index});
  }

  // ---- checks ----

  void watch_preferences() {
    bool differ = false;
    const Server* first = nullptr;
    for (const auto& server : servers_) {
      if (!server->is_in_step()) continue;
      if (first == nullptr) first = server.get();
      differ = differ || server->use.preferred() != first->use.preferred();
    }
    if (ragged_since_) {
      const Nanoseconds ragged = now_ - std::max(*ragged_since_, instant_at(0) + kBegin);
      result_.ragged_max = std::max(result_.ragged_max, ragged);
      if (!differ) result_.ragged_sum += std::max(ragged, Nanoseconds{0});
    }
    if (!differ) {
      ragged_since_.reset();
    } else if (!ragged_since_) {
      ragged_since_ = now_;
    }
  }

  void watch_crossing(const Part& begun) {
    if (!spec_.quiesce || begun.epoch == kFirstEpoch) return;
    for (const auto& server : servers_) {
      if (!server->is_in_step()) continue;
      for (const Part* const part : server->running) {
        if (part->epoch != kFirstEpoch && part->epoch < begun.epoch) ++result_.crossing_findings;
      }
    }
  }

  void finish() {
    result_.all_in_step = true;
    for (const auto& server : servers_) {
      result_.epochs += server->epochs.participant().epochs();
      result_.errors += server->epochs.participant().errors();
      result_.all_in_step = result_.all_in_step && server->is_in_step();
      server->target.shutdown(now_);
      for (Part* const part : std::exchange(server->running, {}))
        server->target.complete(*part, now_);
      for (;;) {
        const Decision decision = server->target.next(now_);
        if (decision.kind() != Decision::Kind::kRun) break;
        server->target.complete(decision.request(), now_);
      }
    }
  }

  GroupTurnsSpec spec_;
  Rng rng_;
  std::vector<Nid> nids_;  // of the clients of each group
  std::deque<Part> parts_;
  std::vector<Part*> free_;
  std::vector<Operation> operations_;
  EpochLeader leader_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
  Instant now_ = instant_at(0);
  std::optional<Instant> ragged_since_;
  GroupTurnsResult result_;
};

}  // namespace

std::string_view group_mode_name(GroupMode mode) {
  constexpr std::array<std::string_view, 3> kNames = {"together", "apart", "off"};
  return kNames[static_cast<std::size_t>(mode)];
}

GroupTurnsResult run_group_turns(const GroupTurnsSpec& spec) { return World(spec).run(); }

}  // namespace weir::sim
