// SPDX-License-Identifier: Apache-2.0
//
// Sizes of jobs from Slurm: `squeue --json` in, job ids in the storage system and their nodes out.
// A pattern describes these ids with the codes of Lustre's jobid_name:
//
//   %j   the job's number (SLURM_JOB_ID)      %u   the user's number
//   %h %H the host, full and short name       %e %g %p   program, group and process
//   %.Nx the first N bytes of code x          other characters: themselves
//
//   "%j" -> 4711         "%j.%u" -> 4711.1000         "%e.%H" -> dd.n17
//
// If Slurm knows all codes of the pattern (%j, %u), ids are made from its running jobs. Otherwise
// ids that were seen in the storage system are parsed: the number or host in an id identifies its
// job, and the nodes of a job are divided by the number of its ids seen, at least one each. So a
// job with four nodes that writes from all of them has four ids with one node, and one that writes
// only from its first node has one id with four. An id whose host Slurm does not know counts as one
// node, and so does an id of a host that several jobs use; both are counted. Hosts are compared up
// to the first dot.
//
// Ids are truncated to 31 bytes, as by clients. A pattern without %j, %h and %H is rejected.
//
// Jobs in state RUNNING, COMPLETING, SUSPENDED or STOPPED count. The tasks of an array are jobs
// with their own numbers, as in SLURM_JOB_ID. The components of a heterogeneous job have their own
// numbers too, but share the id of the first (SLURM_JOB_ID of its steps is that of the first
// component), so their nodes are added up under it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"

namespace weir::config {

struct JobNodes {
  std::string job;  // id in the storage system
  std::uint64_t nodes = 1;

  bool operator==(const JobNodes&) const = default;
};

class JobPattern {
 public:
  enum class Code : std::uint8_t { kText, kJob, kUser, kHost, kAny };
  struct Piece {
    Code code = Code::kText;
    std::string text;      // of kText
    std::size_t most = 0;  // maximum bytes, of the other kinds
  };

  static Result<JobPattern> parse(std::string_view text);
  // The same, but only with codes that Slurm knows, for users that do not see ids in advance.
  static Result<JobPattern> parse_known(std::string_view text);

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Slurm knows every code of the pattern: ids need not be seen.
  bool is_known() const { return is_known_; }

 private:
  std::vector<Piece> pieces_;
  bool is_known_ = true;
};

// The jobs that hold nodes, from one output of squeue.
class SlurmJobs {
 public:
  static constexpr std::size_t kHostsMax = std::size_t{1} << 20;

  struct Job {
    std::uint64_t number = 0;  // of the first component, for heterogeneous jobs
    std::uint64_t user = 0;
    std::uint64_t nodes = 0;
  };
  struct Sizes {
    std::vector<JobNodes> jobs;  // in the order of ids, each once
    std::uint64_t shared = 0;    // ids of hosts that several jobs use
    std::uint64_t unknown = 0;   // ids that Slurm does not know
  };

  // EINVAL for text that is not JSON of squeue. Entries without a number or nodes are ignored.
  static Result<SlurmJobs> parse(std::string_view json);

  struct HostJob {
    std::string host;  // short name
    std::string job;   // id in the storage system

    bool operator==(const HostJob&) const = default;
  };

  // The job of each host that only one job uses. REQUIRES: the pattern is known.
  std::vector<HostJob> hosts(const JobPattern& pattern) const;

  // `seen` are ids in the storage system, in any order; they are ignored if the pattern is known.
  Sizes sizes(const JobPattern& pattern, const std::vector<std::string>& seen) const;

 private:
  struct Place {
    std::size_t job = 0;  // index
    bool is_shared = false;
  };
  class Matcher;

  void place(std::string_view hosts, std::size_t job);
  static std::string id_of(const Job& job, const JobPattern& pattern);

  std::vector<Job> jobs_;                            // in the order of numbers
  std::map<std::string, Place, std::less<>> hosts_;  // short names
};

// The shares of accounts and of their users, from `sshare -anP -o Account,User,RawShares`: by
// "physics" and "physics/alice". Shares that are those of the parent account are left out. EINVAL
// if the text lists no account.
Result<std::map<std::string, std::uint64_t, std::less<>>> parse_account_shares(
    std::string_view text);

// The hosts of an expression such as "n[1-3,7],rack[01-02]a". EINVAL: not a valid expression, or
// more than `most` hosts.
Result<std::vector<std::string>> expand_hosts(std::string_view text, std::size_t most);

// Lines "JOB NODES"; empty lines and lines that start with # are ignored. EINVAL names the line.
Result<std::vector<JobNodes>> parse_nodes(std::string_view text);

}  // namespace weir::config
