// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/slurm_feed.h"

#include <iterator>
#include <utility>

#include <poll.h>

#include "weir/host/clock.h"
#include "weir/serve/event_log.h"

namespace weir::app {
namespace {

// Interval of checks whether to query again.
constexpr int kTurnMs = 200;

}  // namespace

SlurmFeed::SlurmFeed(const serve::SlurmOptions& options, serve::Server& server, host::Wake stop,
                     OnHosts on_hosts)
    : pattern_(*config::JobPattern::parse_known(options.pattern)),
      poll_(options.squeue, options.every),
      server_(server),
      on_hosts_(std::move(on_hosts)),
      stop_(std::move(stop)),
      thread_([this] { run(); }) {}

SlurmFeed::~SlurmFeed() {
  stop_.set();
  thread_.join();
}

void SlurmFeed::run() {
  for (;;) {
    poll_.tick(host::now(), [this](std::string_view text) { take(text); });
    pollfd waiting[] = {{stop_.fd(), POLLIN, 0}, {poll_.fd(), POLLIN, 0}};
    if (poll(waiting, std::size(waiting), kTurnMs) > 0 && (waiting[0].revents & POLLIN) != 0) {
      return;
    }
  }
}

void SlurmFeed::take(std::string_view text) {
  const auto jobs = config::SlurmJobs::parse(text);
  if (!jobs) return tell(jobs.error().message());
  told_.clear();
  serve::JobTable table;
  for (config::JobNodes& job : jobs->sizes(pattern_, {}).jobs) {
    table[std::move(job.job)] = job.nodes;
  }
  const auto ordered =
      server_.order([table = std::move(table)](const Result<serve::Server*>& server) {
        if (server) (*server)->set_told_jobs(table);
      });
  if (!ordered) return tell(ordered.error().message());
  if (on_hosts_) on_hosts_(jobs->hosts(pattern_));
}

void SlurmFeed::tell(const std::string& trouble) {
  if (trouble == told_) return;
  told_ = trouble;
  serve::EventLog::say("slurm: " + trouble + "; the job sizes were not changed");
}

}  // namespace weir::app
