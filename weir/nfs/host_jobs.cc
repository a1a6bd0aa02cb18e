// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/host_jobs.h"

#include <cstring>
#include <memory>
#include <unordered_set>

#include <netdb.h>

#include "weir/serve/client_identity.h"

namespace weir::nfs {

HostResolver::HostResolver(Resolve resolve) : resolve_(std::move(resolve)) {}

HostResolver::Addresses HostResolver::resolve_host(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* all = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &all) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(all, freeaddrinfo);
  Addresses addresses;
  for (const addrinfo* one = all; one != nullptr; one = one->ai_next) {
    sockaddr_storage address{};
    std::memcpy(&address, one->ai_addr, one->ai_addrlen);
    addresses.push_back(serve::nid_of(address));
  }
  return addresses;
}

HostJobs HostResolver::addresses(const std::vector<std::pair<std::string, std::string>>& hosts,
                                 Instant now, std::size_t& unknown) {
  unknown = 0;
  std::unordered_map<std::string, Known> known;
  HostJobs jobs;
  std::unordered_set<Nid, NidHash> shared;
  for (const auto& [host, job] : hosts) {
    const auto before = known_.find(host);
    const bool is_fresh = before != known_.end() && now - before->second.since < kKeptFor;
    const Known& found = known[host] = is_fresh ? before->second : Known{resolve_(host), now};
    if (found.addresses.empty()) ++unknown;
    for (const Nid& nid : found.addresses) {
      const auto [at, is_new] = jobs.try_emplace(nid, job);
      if (!is_new && at->second != JobId(job)) shared.insert(nid);
    }
  }
  for (const Nid& nid : shared) jobs.erase(nid);
  known_ = std::move(known);
  return jobs;
}

}  // namespace weir::nfs
