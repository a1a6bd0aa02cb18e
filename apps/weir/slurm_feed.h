// SPDX-License-Identifier: Apache-2.0
//
// Sizes of jobs from Slurm for a running server: a thread queries squeue periodically
// (apps/weir/slurm_poll.h) and posts the result to the server's loop, which never waits for it.
// Jobs that Slurm no longer lists count as one node again; sizes in the jobs file take precedence.
//
//   SlurmFeed feed(server.options().slurm, server, wake);       runs until it is destroyed
//   SlurmFeed feed(..., wake, on_hosts);                        also reports the jobs of hosts
//
// If nodes of a tree of shares have accounts of Slurm, sshare is queried in the same way, and its
// shares are the weights of these nodes; then sizes are queried only if options.is_on.
//
// If squeue does not return a list of jobs, the sizes stay unchanged; this is logged once until it
// works again.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "apps/weir/slurm_poll.h"
#include "weir/config/slurm.h"
#include "weir/host/mailbox.h"
#include "weir/serve/options.h"
#include "weir/serve/server.h"

namespace weir::app {

class SlurmFeed {
 public:
  // Called by its thread, and may block.
  using OnHosts = std::function<void(const std::vector<config::SlurmJobs::HostJob>&)>;

  // REQUIRES: the server outlives it; the pattern contains only codes that Slurm knows. `stop` is
  // its own descriptor (host::make_wake_fd).
  SlurmFeed(const serve::SlurmOptions& options, serve::Server& server, host::Wake stop,
            OnHosts on_hosts = {});
  SlurmFeed(const SlurmFeed&) = delete;
  SlurmFeed& operator=(const SlurmFeed&) = delete;
  ~SlurmFeed();

 private:
  void run();
  void take(std::string_view text);
  void take_accounts(std::string_view text);
  static void tell(const std::string& trouble, std::string& told, std::string_view what);

  config::JobPattern pattern_;
  std::optional<SlurmPoll> poll_;      // none: sizes of jobs are not queried
  std::optional<SlurmPoll> accounts_;  // none: no node has an account
  serve::Server& server_;
  OnHosts on_hosts_;
  std::string told_;
  std::string told_of_accounts_;
  host::Wake stop_;
  std::thread thread_;
};

}  // namespace weir::app
