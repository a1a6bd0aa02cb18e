// SPDX-License-Identifier: Apache-2.0
//
// A model of a Lustre server (an OSS, or an MDS): requests in, completions out, and the files that
// a driver reads and writes. It has the properties that make such a server hard to control: rules
// apply for each CPT and each head, commands are executed head by head and stop at the first error,
// invalid types destroy the running policy, job_stats counts only served requests, and timers are
// late.
//
//   server.arrive(rpc, now);        a request, with its CPT and head
//   server.run(now, done);          everything that happens up to now, in order
//   server.next()                   time of the next event
//   server.read(path, now)  server.write(path, text, now)         the files of the same names
//
//   /proc/fs/lustre/obdfilter/OST/{job_stats,stats}                              of an OSS
//   /sys/kernel/debug/lustre/ost/OSS/ost_io/{nrs_policies,nrs_tbf_rule}
//   /proc/fs/lustre/mdt/MDT/{job_stats,md_stats}                                 of an MDS
//   /sys/kernel/debug/lustre/mds/MDS/mdt/{nrs_policies,nrs_tbf_rule}
//   /sys/kernel/debug/lnet/cpu_partition_table      /sys/module/ptlrpc/parameters/tbf_{rate,depth}
//
// Differences from a real server: a change of type does not wait up to 30 s for the old instance to
// drain, its requests go to fifo at once; an MDS has one service, which serves all operations;
// classes are never removed; and commands that Weir's rule language refuses for safety
// (docs/design/rules.md) are refused here too.
//
// Pure: the same calls give the same answers. One owner.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/rng.h"
#include "weir/base/time.h"
#include "weir/sim/lustre_stats.h"
#include "weir/sim/lustre_tbf.h"
#include "weir/sim/store.h"

namespace weir::sim {

class LustreServer {
 public:
  struct Options {
    std::uint32_t cpts = 1;
    LustreStats::Kind kind = LustreStats::Kind::kOst;
    std::vector<std::string> osts = {"lustre-OST0000"};  // or MDTs
    // Service times in percent of the store's: of requests to an OST, as `osts`, and of operations
    // of an MDS. What is missing takes 100.
    std::vector<std::uint32_t> ost_percent = {};
    std::map<std::string, std::uint32_t, std::less<>> operation_percent = {};
    StoreSpec store;  // slots are the service's threads, spread evenly over CPTs
    std::uint32_t tbf_rate = 10000;
    std::uint32_t tbf_depth = 3;
    // Timers fire 200 us plus a fiftieth of their interval late, so that plain rules deliver 364
    // for 400, 189 for 200 and 24.4 for 25 (recorded: 365, 190, 24).
    bool late_timers = false;
    // Service times, in percent, of requests that start while less than half of the threads are
    // busy: the loss of a device that needs many requests at once.
    std::uint32_t thin_percent = 100;
    LustreStats::Options stats;
    // If not 0, every write fails with this errno.
    int write_error = 0;
  };
  // A request is done; with the time when it was taken from its queue.
  using Done = std::function<void(const Rpc& rpc, Instant started, Instant now)>;

  static constexpr std::string_view kService = "/sys/kernel/debug/lustre/ost/OSS/ost_io/";
  static constexpr std::string_view kTargets = "/proc/fs/lustre/obdfilter/";
  static constexpr std::string_view kMdsService = "/sys/kernel/debug/lustre/mds/MDS/mdt/";
  static constexpr std::string_view kMdtTargets = "/proc/fs/lustre/mdt/";

  LustreServer(Options options, Rng rng);
  LustreServer(const LustreServer&) = delete;
  LustreServer& operator=(const LustreServer&) = delete;

  void arrive(const Rpc& rpc, Instant now);
  Instant next() const;
  void run(Instant now, const Done& done);

  // All files.
  std::vector<std::string> paths() const;
  // ENOENT for a missing file; otherwise the answer of a server.
  Result<std::string> read(std::string_view path, Instant now) const;
  // The same in the pieces that successive read(2) calls return.
  Result<std::vector<std::string>> read_parts(std::string_view path, Instant now) const;
  Result<void> write(std::string_view path, std::string_view text, Instant now);

  // Discards rules and policy, as a restart of the service does.
  void restart();
  void set_write_error(int error) { options_.write_error = error; }
  std::uint64_t queued() const;
  const LustreStats& stats_of(std::size_t ost) const { return stats_[ost]; }

 private:
  struct Head {
    std::deque<Rpc> fifo;
    std::unique_ptr<LustreTbf> tbf;       // started
    std::unique_ptr<LustreTbf> draining;  // stopping, with requests
    std::string argument;                 // of the last started policy
    bool tbf_turn = false;                // two policies with requests take turns
  };
  struct Partition {
    Head heads[2];  // regular, high priority
    std::uint32_t busy = 0;
  };
  struct Flight {
    Rpc rpc;
    Instant started;
  };

  std::string file_of(std::size_t ost, std::string_view name) const;
  std::uint32_t percent_of(const Partition& partition, const Rpc& rpc) const;
  std::optional<Rpc> take(Head& head, Instant now);
  void dispatch(Partition& partition, Instant now);
  Instant fires_at(const LustreTbf& tbf) const;
  void fire_timers(Instant now);
  static void drain_to_fifo(Head& head);
  std::string policies_of(std::size_t head) const;
  Result<std::string> read_policies() const;
  Result<std::string> read_rules() const;
  Result<void> write_policies(std::string_view text);
  Result<void> start_policy(Head& head, std::string_view name, std::string_view argument);
  Result<void> write_rule(std::string_view text);
  Result<void> write_job_stats(std::size_t ost, std::string_view text);

  Options options_;
  std::string_view service_;  // folders
  std::string_view targets_;
  std::string_view totals_;  // name of a file
  Instant clock_{};          // the latest time passed in or acted at
  Store store_;
  std::uint32_t threads_;  // per CPT
  std::vector<Partition> partitions_;
  std::vector<LustreStats> stats_;
  std::multimap<Instant, Flight> flights_;
};

}  // namespace weir::sim
