// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rival.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "weir/base/assert.h"
#include "weir/sim/rivals/gift.h"
#include "weir/sim/rivals/io_latency.h"
#include "weir/sim/rivals/lustre_rules.h"
#include "weir/sim/rivals/mclock.h"
#include "weir/sim/rivals/sfq_d.h"
#include "weir/sim/rivals/themis.h"

namespace weir::sim {
namespace {

RivalSetup setup_of(const Scenario& scenario, const TargetSpec& spec, std::uint64_t seed) {
  RivalSetup setup;
  setup.slots = spec.store.slots;
  setup.capacity = spec.capacity;
  setup.cost = spec.cost;
  setup.seed = Rng(seed).split("rival").split(spec.name).next();
  for (const JobSpec& job : scenario.jobs) {
    setup.names.push_back(job.name);
    setup.nodes.push_back(job.nodes);
    setup.reserves.push_back(job.reserve);
  }
  return setup;
}

}  // namespace

std::uint64_t RivalSetup::all_nodes() const {
  return std::accumulate(nodes.begin(), nodes.end(), std::uint64_t{0});
}

Rate RivalSetup::share_of(std::size_t job, std::uint64_t parts, std::uint64_t whole) const {
  using Wide = unsigned __int128;
  const Wide per_second = Wide{capacity.tokens()} * 1'000'000'000 * nodes[job] * parts;
  const Wide share = per_second / (Wide{capacity.time_ns()} * all_nodes() * whole);
  return Rate::per_second(std::max<std::uint64_t>(static_cast<std::uint64_t>(share), 1));
}

Rival::Rival(RivalSetup setup) : setup_(std::move(setup)), queues_(setup_.nodes.size()) {
  for (std::size_t i = 0; i < queues_.size(); ++i) queues_[i].job = static_cast<Job>(i);
}

Rival::~Rival() { WEIR_ASSERT(queued_ == 0, queued_); }

Instant Rival::clock(Instant now) {
  latest_ = std::max(latest_, now);
  return latest_;
}

void Rival::admit(Request& request, std::uint32_t job, Instant now) {
  const Instant at = clock(now);
  Queue& queue = queues_[job];
  request.policy_group = &queue;
  request.policy_turn = static_cast<std::uint64_t>(ns_of(at));
  queue.requests.push_back(request);
  ++queued_;
  arrived(job, request, at);
}

Decision Rival::next(Instant now) {
  const Instant at = clock(now);
  if (queued_ == 0 || running_ >= setup_.slots) return Decision::idle();
  const Choice choice = choose(at);
  if (choice.job == kNoJob) {
    return choice.until == kNever ? Decision::idle() : Decision::wait_until(choice.until);
  }
  Queue& queue = queues_[choice.job];
  Request& request = queue.requests.front();
  queue.requests.erase(request);
  --queued_;
  ++running_;
  ++queue.running;
  started(choice.job, request, at);
  return Decision::run(request);
}

void Rival::complete(Request& request, Instant now) {
  auto& queue = *static_cast<Queue*>(request.policy_group);
  WEIR_ASSERT(queue.running > 0 && running_ > 0, queue.running, running_);
  --queue.running;
  --running_;
  finished(queue.job, request, clock(now));
}

Request* Rival::take_any() {
  for (Queue& queue : queues_) {
    if (queue.requests.empty()) continue;
    Request& request = queue.requests.front();
    queue.requests.erase(request);
    --queued_;
    return &request;
  }
  return nullptr;
}

Result<std::vector<std::unique_ptr<Rival>>> make_rivals(Contender contender,
                                                        const Scenario& scenario,
                                                        std::uint64_t seed) {
  if (const std::string why = obstacle(contender, scenario); !why.empty()) {
    return fail(std::errc::invalid_argument,
                "policy '" + std::string(contender_name(contender)) + "'",
                "cannot express the scenario: " + why, "leave the policy out");
  }
  std::vector<std::unique_ptr<Rival>> rivals;
  const auto centre = std::make_shared<GiftCentre>();
  for (const TargetSpec& spec : scenario.targets) {
    RivalSetup setup = setup_of(scenario, spec, seed);
    if (contender == Contender::kMclock) {
      auto shares = mclock_shares(setup);
      rivals.push_back(std::make_unique<Mclock>(std::move(setup), std::move(shares)));
    } else if (contender == Contender::kSfqD) {
      const std::uint32_t depth = setup.slots;
      rivals.push_back(std::make_unique<SfqD>(std::move(setup), depth, SfqD::Depth::kFixed));
    } else if (contender == Contender::kSfqDAuto) {
      const std::uint32_t depth = setup.slots;
      rivals.push_back(std::make_unique<SfqD>(std::move(setup), depth, SfqD::Depth::kAutomatic));
    } else if (contender == Contender::kGift) {
      rivals.push_back(std::make_unique<Gift>(std::move(setup), centre));
    } else if (contender == Contender::kThemis) {
      auto slots = size_fair_slots(setup);
      rivals.push_back(std::make_unique<Themis>(std::move(setup), std::move(slots)));
    } else if (contender == Contender::kIoLatency) {
      auto targets = latency_targets_by_nodes(setup);
      rivals.push_back(std::make_unique<IoLatency>(std::move(setup), std::move(targets)));
    } else {
      WEIR_ASSERT(contender == Contender::kLustreTbf);
      rivals.push_back(std::make_unique<LustreRules>(std::move(setup)));
    }
  }
  return rivals;
}

Bounds bounds_of(Contender contender, const Scenario& scenario) {
  Bounds bounds;
  bounds.jobs.resize(scenario.jobs.size());
  const bool keeps_busy = contender == Contender::kMclock || contender == Contender::kSfqD ||
                          contender == Contender::kThemis || contender == Contender::kGift;
  bounds.idling = keeps_busy ? Idling::kForbidden : Idling::kAllowed;
  return bounds;
}

}  // namespace weir::sim
