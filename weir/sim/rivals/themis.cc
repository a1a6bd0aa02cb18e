// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/rivals/themis.h"

#include <map>
#include <utility>

namespace weir::sim {

std::vector<std::uint64_t> size_fair_slots(const RivalSetup& setup) { return setup.nodes; }

std::vector<std::uint64_t> user_size_fair_slots(const RivalSetup& setup,
                                                const std::vector<std::string>& users) {
  constexpr std::uint64_t kUserSlot = std::uint64_t{1} << 32;
  std::map<std::string, std::uint64_t> nodes;
  for (std::size_t i = 0; i < users.size(); ++i) nodes[users[i]] += setup.nodes[i];
  std::vector<std::uint64_t> slots;
  slots.reserve(users.size());
  for (std::size_t i = 0; i < users.size(); ++i) {
    slots.push_back(kUserSlot * setup.nodes[i] / nodes[users[i]]);
  }
  return slots;
}

Themis::Themis(RivalSetup setup, std::vector<std::uint64_t> slots)
    : Rival(std::move(setup)),
      slots_(std::move(slots)),
      draw_(slots_.size()),
      rng_(this->setup().seed) {}

void Themis::arrived(Job job, const Request& request, Instant /*now*/) {
  if (&first_of(job) == &request) draw_.set(job, slots_[job]);
}

Rival::Choice Themis::choose(Instant /*now*/) {
  return {.job = static_cast<Job>(draw_.draw(rng_))};
}

void Themis::started(Job job, Request& /*request*/, Instant /*now*/) {
  if (is_empty(job)) draw_.set(job, 0);
}

}  // namespace weir::sim
