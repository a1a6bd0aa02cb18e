// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/slurm_feed.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>
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
      server_(server),
      on_hosts_(std::move(on_hosts)),
      stop_(std::move(stop)) {
  const bool has_accounts = serve::has_accounts(server.options());
  if (options.is_on || !has_accounts) poll_.emplace(options.squeue, options.every);
  if (has_accounts) {
    accounts_.emplace(options.sshare, options.every,
                      std::vector<std::string>{"-anP", "-o", "Account,User,RawShares"});
  }
  thread_ = std::thread([this] { run(); });
}

SlurmFeed::~SlurmFeed() {
  stop_.set();
  thread_.join();
}

void SlurmFeed::run() {
  for (;;) {
    if (poll_) poll_->tick(host::now(), [this](std::string_view text) { take(text); });
    if (accounts_) {
      accounts_->tick(host::now(), [this](std::string_view text) { take_accounts(text); });
    }
    pollfd waiting[] = {{stop_.fd(), POLLIN, 0},
                        {poll_ ? poll_->fd() : -1, POLLIN, 0},
                        {accounts_ ? accounts_->fd() : -1, POLLIN, 0}};
    if (poll(waiting, std::size(waiting), kTurnMs) > 0 && (waiting[0].revents & POLLIN) != 0) {
      return;
    }
  }
}

void SlurmFeed::take(std::string_view text) {
  const auto jobs = config::SlurmJobs::parse(text);
  constexpr std::string_view kWhat = "job sizes";
  if (!jobs) return tell(jobs.error().message(), told_, kWhat);
  told_.clear();
  serve::JobTable table;
  for (config::JobNodes& job : jobs->sizes(pattern_, {}).jobs) {
    table[std::move(job.job)] = job.nodes;
  }
  const auto ordered =
      server_.order([table = std::move(table)](const Result<serve::Server*>& server) {
        if (server) (*server)->set_told_jobs(table);
      });
  if (!ordered) return tell(ordered.error().message(), told_, kWhat);
  if (on_hosts_) on_hosts_(jobs->hosts(pattern_));
}

void SlurmFeed::take_accounts(std::string_view text) {
  constexpr std::string_view kWhat = "weights of nodes";
  auto shares = config::parse_account_shares(text);
  if (!shares) return tell(shares.error().message(), told_of_accounts_, kWhat);
  told_of_accounts_.clear();
  const auto ordered =
      server_.order([shares = std::move(*shares)](const Result<serve::Server*>& server) {
        if (!server) return;
        for (const auto& service : (*server)->services()) {
          const auto gone = serve::set_account_weights(*service, shares, (*server)->now());
          for (const std::string& line : gone) serve::EventLog::say("slurm: " + line);
        }
      });
  if (!ordered) tell(ordered.error().message(), told_of_accounts_, kWhat);
}

void SlurmFeed::tell(const std::string& trouble, std::string& told, std::string_view what) {
  if (trouble == told) return;
  told = trouble;
  serve::EventLog::say(fmt::format("slurm: {}; the {} were not changed", trouble, what));
}

}  // namespace weir::app
