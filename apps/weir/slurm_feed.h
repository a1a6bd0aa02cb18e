// SPDX-License-Identifier: Apache-2.0
//
// Sizes of jobs from Slurm for a server that runs: a thread asks squeue every so often
// (apps/weir/slurm_poll.h) and posts what it heard to the server's loop, which never waits for it.
// Jobs that Slurm no longer lists are back to one node; what the jobs file names stays as it is
// there.
//
//   SlurmFeed feed(server.options().slurm, server, wake);       until it is destroyed
//
// An answer that is no list of jobs, or none at all, leaves the sizes as they were; it is told once
// until there is one again.
#pragma once

#include <string>
#include <string_view>
#include <thread>

#include "apps/weir/slurm_poll.h"
#include "weir/config/slurm.h"
#include "weir/host/mailbox.h"
#include "weir/serve/options.h"
#include "weir/serve/server.h"

namespace weir::app {

class SlurmFeed {
 public:
  // The server must outlive it. `stop` is its own (host::make_wake_fd). REQUIRES: the pattern is
  // one of codes that Slurm knows.
  SlurmFeed(const serve::SlurmOptions& options, serve::Server& server, host::Wake stop);
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
  host::Wake stop_;
  std::thread thread_;
};

}  // namespace weir::app
