// SPDX-License-Identifier: Apache-2.0
//
// Sizes of jobs from Slurm: `squeue --json` in, job ids as the storage sees them and their nodes
// out. A pattern describes these ids in the codes of Lustre's jobid_name:
//
//   %j   the job's number (SLURM_JOB_ID)      %u   the user's number
//   %h %H the host, whole and short           %e %g %p   program, group and process
//   %.Nx the first N bytes of code x          else itself
//
//   "%j" -> 4711         "%j.%u" -> 4711.1000         "%e.%H" -> dd.n17
//
// Where Slurm knows all of it (%j, %u), ids are made of what it runs. Where it does not, ids that
// the storage has seen are taken apart: the number or the host in them says whose they are, and the
// nodes of a job are divided by how many of its ids were seen, one at least each. So a job of four
// nodes that writes from all of them has four ids of one, and one that writes from its first has
// one of four. An id whose host Slurm does not know counts one node, and so does one of a host that
// several jobs are on, since it may be any of theirs; both are counted. Hosts are compared up to
// their first dot.
//
// An id is cut to 31 bytes, as a client cuts it. A pattern without %j, %h and %H is rejected.
//
// Which jobs count: those in state RUNNING, COMPLETING, SUSPENDED or STOPPED. An array's tasks are
// jobs of their own, each with its own number, as SLURM_JOB_ID is theirs. The parts of a
// heterogeneous job have numbers of their own too, and share the id of the first (SLURM_JOB_ID of
// its steps is the leader's), so their nodes are added up under it.
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
  std::string job;  // as the storage sees it
  std::uint64_t nodes = 1;

  bool operator==(const JobNodes&) const = default;
};

class JobPattern {
 public:
  enum class Code : std::uint8_t { kText, kJob, kUser, kHost, kAny };
  struct Piece {
    Code code = Code::kText;
    std::string text;      // of kText
    std::size_t most = 0;  // bytes, of the others
  };

  static Result<JobPattern> parse(std::string_view text);
  // The same, of codes that Slurm knows only: for who does not see ids before they matter.
  static Result<JobPattern> parse_known(std::string_view text);

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Slurm knows every code in it: ids need not be seen.
  bool is_known() const { return is_known_; }

 private:
  std::vector<Piece> pieces_;
  bool is_known_ = true;
};

// What holds nodes, of one answer of squeue.
class SlurmJobs {
 public:
  static constexpr std::size_t kHostsMax = std::size_t{1} << 20;

  struct Job {
    std::uint64_t number = 0;  // of the leader, of one with parts
    std::uint64_t user = 0;
    std::uint64_t nodes = 0;
  };
  struct Sizes {
    std::vector<JobNodes> jobs;  // in the order of ids, each once
    std::uint64_t shared = 0;    // ids of a host that several jobs are on
    std::uint64_t unknown = 0;   // ids of which Slurm knows nothing
  };

  // EINVAL for text that is not squeue's JSON. Entries without a number or nodes are left out.
  static Result<SlurmJobs> parse(std::string_view json);

  // `seen` are ids of the storage, in any order; they do not matter if the pattern is known.
  Sizes sizes(const JobPattern& pattern, const std::vector<std::string>& seen) const;

 private:
  struct Place {
    std::size_t job = 0;  // index
    bool is_shared = false;
  };
  class Matcher;

  void place(std::string_view hosts, std::size_t job);

  std::vector<Job> jobs_;                            // in the order of numbers
  std::map<std::string, Place, std::less<>> hosts_;  // short names
};

// The hosts of an expression such as "n[1-3,7],rack[01-02]a": EINVAL for one that is none, or
// of more than `most`.
Result<std::vector<std::string>> expand_hosts(std::string_view text, std::size_t most);

// Lines "JOB NODES"; empty ones and those that begin with # are skipped. EINVAL names the line.
Result<std::vector<JobNodes>> parse_nodes(std::string_view text);

}  // namespace weir::config
