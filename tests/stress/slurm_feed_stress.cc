// SPDX-License-Identifier: Apache-2.0
//
// The thread that queries Slurm for sizes of jobs, beside the server that it updates: with a fake
// squeue that leaves a mark when it has run.
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "apps/weir/slurm_feed.h"
#include "tests/stress/running_server.h"

namespace weir::app {
namespace {

TEST(SlurmFeedStress, TellsARunningServerAndEndsAtAnyTime) {
  serve::Running running;
  const std::string squeue = running.folder() + "/squeue";
  const std::string mark = running.folder() + "/mark";
  std::ofstream(squeue) << "#!/bin/sh\necho '{\"jobs\":[{\"job_id\":12,\"node_count\":4,"
                           "\"job_state\":\"RUNNING\",\"user_id\":0}]}'\n: >"
                        << mark << "\n";
  std::filesystem::permissions(squeue, std::filesystem::perms::owner_all);
  serve::SlurmOptions options;
  options.is_on = true;
  options.squeue = squeue;
  const auto wake = [] { return host::Wake(std::move(*host::make_wake_fd())); };
  for (int i = 0; i < 20; ++i) const SlurmFeed feed(options, running.server(), wake());
  const SlurmFeed feed(options, running.server(), wake());
  while (!std::filesystem::exists(mark)) {
    ASSERT_TRUE(running.server().ask([](serve::Server&) -> Result<void> { return {}; }));
  }
}

}  // namespace
}  // namespace weir::app
