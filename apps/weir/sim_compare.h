// SPDX-License-Identifier: Apache-2.0
//
// weir sim compare: scenarios x policies x seeds on all processors. Each thread takes the next run
// of the plan, runs it and appends its line to runs.jsonl, under one mutex; so a comparison that is
// interrupted loses at most the runs that were under way, and continues from the file.
//
// weir/study/compare.h defines the measurements and the ranking.
#pragma once

#include <CLI/CLI.hpp>

namespace weir::app {

// Adds the subcommand to weir sim; returns it.
CLI::App* add_sim_compare(CLI::App& sim, int& status);

}  // namespace weir::app
