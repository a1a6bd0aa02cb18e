// SPDX-License-Identifier: Apache-2.0
//
// Sizes of jobs from Slurm for a server that runs: a thread asks squeue every so often
// (apps/weir/slurm_poll.h) and posts what it heard to the server's loop, which never waits for it.
// Jobs that Slurm no longer lists are back to one node; what the file of jobs names stays as it is
// there.
//
//   SlurmFeed feed(server.options().slurm, server);       until it is destroyed
//
// An answer that is no list of jobs, or none at all, leaves the sizes as they were; it is told once
// until there is one again.
#pragma once

#include <string>
#include <string_view>
#include <thread>

#include "apps/weir/slurm_poll.h"
#include "weir/config/slurm.h"
#include "weir/host/fd.h"
#include "weir/serve/options.h"
#include "weir/serve/server.h"

namespace weir::app {

class SlurmFeed {
 public:
  // The server must outlive it. REQUIRES: the pattern is one of codes that Slurm knows.
  SlurmFeed(const serve::SlurmOptions& options, serve::Server& server);
  SlurmFeed(const SlurmFeed&) = delete;
  SlurmFeed& operator=(const SlurmFeed&) = delete;
  ~SlurmFeed();

 private:
  void run();
  void take(std::string_view text);
  void tell(const std::string& trouble);

  config::JobPattern pattern_;
  SlurmPoll poll_;
  serve::Server& server_;
  std::string told_;
  host::Fd stop_;  // written to when it is to end
  std::thread thread_;
};

}  // namespace weir::app
