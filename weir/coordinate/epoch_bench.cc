// SPDX-License-Identifier: Apache-2.0
//
// What a leader spends on each member of a round whose messages come in bundles, and what a relay
// spends on each that it carries: all but the transport. The time of a round divided by its members
// is `carried` in the file of bench/epochs.py.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/epoch_relay.h"
#include "weir/coordinate/epoch_tree.h"
#include "weir/coordinate/leader.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/slices.h"

namespace weir {
namespace {

constexpr std::int64_t kLimit = 1'000'000 * kMilli;

// A member of the slices of one limit.
struct Member {
  Member() : slices(SliceTerms{}), member({.payload = &slices}) {
    slices.set_demand(slices.open("ost_io/wide/ops", kLimit), kLimit / 100);
  }
  // Its Ready for the next epoch.
  EpochBytes signal(Instant now) {
    member.next_epoch(
        epoch, slices.demand(), [this](std::int64_t next, EpochView, Instant) { epoch = next; },
        now);
    return encode(member.take_outgoing().back());
  }
  SliceMember slices;
  EpochMember member;
  std::int64_t epoch = kFirstEpoch;
};

void a_round_at_the_leader(benchmark::State& state) {
  const auto count = static_cast<MemberId>(state.range(0));
  Instant now = instant_at(1'000'000'000);
  SliceLeader slices(
      {.is_first = true}, [](std::string_view) { return kLimit; }, now);
  EpochLeader leader({.combine = add_vectors, .payload = &slices});
  EpochTree tree;
  std::vector<std::unique_ptr<Member>> members;
  for (MemberId id = 0; id < count; ++id) {
    members.push_back(std::make_unique<Member>());
    tree.add(id);
  }
  // The first is in an epoch by itself, and all are in the next one.
  for (MemberId id = 0; id <= count; ++id) {
    const MemberId from = id % count;
    leader.receive(from, *decode(members[from]->signal(now)), now);
    for (const auto& [to, message] : leader.take_outgoing()) {
      members[to]->member.receive(message, now);
    }
  }
  for (auto _ : state) {
    state.PauseTiming();
    now += std::chrono::milliseconds{10};
    std::map<MemberId, EpochBundle> bundles;
    for (MemberId id = 0; id < count; ++id) {
      bundles[tree.parent_of(id).value_or(id)].push_back({id, {}, members[id]->signal(now)});
    }
    std::vector<std::pair<MemberId, EpochBytes>> received;
    received.reserve(bundles.size());
    for (const auto& [relay, bundle] : bundles) received.emplace_back(relay, pack_bundle(bundle));
    state.ResumeTiming();
    for (const auto& [relay, bytes] : received) {
      const auto bundle = read_bundle(bytes);
      for (const CarriedMessage& one : *bundle) {
        if (tree.came(one.member, relay)) leader.receive(one.member, *decode(one.message), now);
      }
    }
    const auto outgoing = leader.take_outgoing();
    std::map<MemberId, EpochBundle> answers;
    for (const auto& [to, message] : outgoing) {
      answers[tree.way_to(to)].push_back({to, {}, encode(message)});
    }
    for (const auto& [relay, bundle] : answers) benchmark::DoNotOptimize(pack_bundle(bundle));
    state.PauseTiming();
    for (const auto& [to, message] : outgoing) members[to]->member.receive(message, now);
    state.ResumeTiming();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(count));
}
BENCHMARK(a_round_at_the_leader)->Arg(32)->Arg(1000);

void a_round_at_a_relay(benchmark::State& state) {
  constexpr MemberId kChildren = 31;
  Instant now = instant_at(1'000'000'000);
  EpochRelay relay(0);
  Member sample;
  const EpochBytes ready = sample.signal(now);
  std::int64_t epoch = 0;
  for (auto _ : state) {
    for (MemberId id = 0; id <= kChildren; ++id) (void)relay.up(id, {id, {}, ready}, now);
    const EpochBytes up = pack_bundle(relay.take_up(now));
    benchmark::DoNotOptimize(up);
    const EpochBytes start = encode(Start{.epoch = ++epoch, .data = {}, .grant = {}});
    EpochBundle answers;
    for (MemberId id = 0; id <= kChildren; ++id) answers.push_back({id, {}, start});
    relay.down(std::move(answers));
    benchmark::DoNotOptimize(relay.take_down());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kChildren + 1));
}
BENCHMARK(a_round_at_a_relay);

}  // namespace
}  // namespace weir
