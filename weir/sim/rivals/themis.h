// SPDX-License-Identifier: Apache-2.0
//
// ThemisIO: statistical tokens. Every job has a slot of the interval from 0 to 1, as long as its
// share; a worker that is free draws a number and serves the job in whose slot it lies. Slots of
// jobs without requests are left out, so that no worker idles ("opportunity fairness").
//
// Source: Karrels et al., "Fine-grained Policy-driven I/O Sharing for Burst Buffers", SC 2023, of
// which only the abstract was available; so the authors' code (github.com/bbThemis/ThemisIO,
// src/fair_queue.cpp: chooseRandomNonemptyQueue and Update_Job_Weight) was read for the rest.
//
//   size-fair                a job's slot is its nodes / all nodes
//   user-then-size-fair      users share equally, and the jobs of a user by their nodes
//
// A draw pays for one request of any size, as in the code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir/sim/rival.h"
#include "weir/sim/rivals/weighted_draw.h"

namespace weir::sim {

// The lengths of the slots of all jobs, in parts of their sum.
std::vector<std::uint64_t> size_fair_slots(const RivalSetup& setup);
// `users` has the user of each job.
std::vector<std::uint64_t> user_size_fair_slots(const RivalSetup& setup,
                                                const std::vector<std::string>& users);

class Themis final : public Rival {
 public:
  Themis(RivalSetup setup, std::vector<std::uint64_t> slots);

 private:
  void arrived(Job job, const Request& request, Instant now) override;
  Choice choose(Instant now) override;
  void started(Job job, Request& request, Instant now) override;

  std::vector<std::uint64_t> slots_;
  WeightedDraw draw_;
  Rng rng_;
};

}  // namespace weir::sim
