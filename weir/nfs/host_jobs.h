// SPDX-License-Identifier: Apache-2.0
//
// Which job runs on which client, from a batch system that gives whole hosts to jobs:
//
//   HostJobs jobs = host_jobs(hosts, resolver)      names of hosts become addresses
//   gateway.set_jobs(jobs)                          calls of a listed client belong to its job
//
// Only names are known to the batch system, and only addresses to the gateway. A host that several
// jobs use is not listed, nor is an address that the resolver returns for hosts of several jobs:
// calls of such clients belong to their user. Addresses are kept for kKeptFor, so that the resolver
// is not asked at each poll. HostResolver: one thread, which may block.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weir/base/job_id.h"
#include "weir/base/time.h"
#include "weir/classify/nid.h"

namespace weir::nfs {

struct NidHash {
  std::size_t operator()(const Nid& nid) const { return nid.hash(); }
};
using HostJobs = std::unordered_map<Nid, JobId, NidHash>;

class HostResolver {
 public:
  using Addresses = std::vector<Nid>;
  using Resolve = std::function<Addresses(const std::string& host)>;
  static constexpr Nanoseconds kKeptFor = std::chrono::minutes{10};

  // The system's resolver unless another one is given.
  explicit HostResolver(Resolve resolve = resolve_host);

  // Pairs of host and job. Counts hosts without an address in `unknown`.
  HostJobs addresses(const std::vector<std::pair<std::string, std::string>>& hosts, Instant now,
                     std::size_t& unknown);

  static Addresses resolve_host(const std::string& host);

 private:
  struct Known {
    Addresses addresses;
    Instant since;
  };

  Resolve resolve_;
  std::unordered_map<std::string, Known> known_;  // of the last call only
};

}  // namespace weir::nfs
