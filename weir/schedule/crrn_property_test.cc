// SPDX-License-Identifier: Apache-2.0
//
// Compares crrn alone with the model in model_gate_for_tests.h: other quanta, changed while
// requests wait, and requests that are removed.
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "weir/base/rng.h"
#include "weir/schedule/crrn.h"
#include "weir/schedule/model_gate_for_tests.h"

namespace weir::model {
namespace {

// One step: an action, and its client, waiting request or quantum.
using CrrnStep = std::pair<int, int>;

// Whether Crrn and the model choose the same request at every step, and then until none is left.
bool crrn_decides_alike(const std::vector<CrrnStep>& steps, Flaw flaw) {
  constexpr int kClients = 4;
  const Instant now = instant_at(1000);
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<ModelRequest> waiting;
  Crrn crrn;
  ModelCrrn model(kClients, Crrn::kQuantumDefault, flaw);
  bool alike = true;
  const auto decide = [&] {
    const int expected = model.pick(0, Urge::kInTime).id;
    Request* const picked = crrn.pick(now, Urge::kInTime).request;
    alike = alike && picked == requests[static_cast<std::size_t>(expected)].get();
    std::erase_if(waiting, [&](const ModelRequest& one) {
      return requests[static_cast<std::size_t>(one.id)].get() == picked;
    });
  };
  for (const auto& [what, which] : steps) {
    if (what < 6) {
      waiting.push_back({static_cast<int>(requests.size()), 0, which % kClients, 0, 0});
      Request& request = *requests.emplace_back(std::make_unique<Request>());
      request.attributes.nid = nid_of(which % kClients);
      crrn.admit(request, now);
      model.admit(waiting.back(), 0);
    } else if (what == 6) {
      crrn.set_quantum(static_cast<std::uint16_t>(1 + which % 5));
      model.set_quantum(static_cast<std::uint64_t>(1 + which % 5));
    } else if (!waiting.empty() && what == 7) {
      const auto gone = waiting.begin() + which % static_cast<int>(waiting.size());
      crrn.remove(*requests[static_cast<std::size_t>(gone->id)], now);
      model.remove(*gone, 0);
      waiting.erase(gone);
    } else if (!waiting.empty()) {
      decide();
    }
    // After a difference the two no longer hold the same requests.
    if (!alike) break;
  }
  while (alike && !waiting.empty()) decide();
  while (crrn.pick(now, Urge::kInTime).request != nullptr) continue;
  return alike;
}

RC_GTEST_PROP(CrrnProperty, DecidesAsTheDescriptionDoes, ()) {
  const auto steps = *rc::gen::container<std::vector<CrrnStep>>(
      rc::gen::pair(rc::gen::inRange(0, 11), rc::gen::inRange(0, 1000)));
  RC_ASSERT(crrn_decides_alike(steps, Flaw::kNone));
}

TEST(CrrnModel, PredictsLongRunsAndCatchesEveryFlaw) {
  const auto steps_of = [](std::uint64_t seed) {
    Rng rng(seed);
    std::vector<CrrnStep> steps;
    for (int step = 0; step < 300; ++step) {
      steps.emplace_back(static_cast<int>(rng.below(11)), static_cast<int>(rng.below(1000)));
    }
    return steps;
  };
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    ASSERT_TRUE(crrn_decides_alike(steps_of(seed), Flaw::kNone)) << "seed " << seed;
  }
  for (const Flaw flaw :
       {Flaw::kReturnsToItsBatch, Flaw::kPauseKeepsTheRound, Flaw::kLateComersGoFirst}) {
    std::uint64_t seed = 1;
    while (seed <= 100 && crrn_decides_alike(steps_of(seed), flaw)) ++seed;
    EXPECT_LE(seed, 100U) << static_cast<int>(flaw);
  }
}

}  // namespace
}  // namespace weir::model
