// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/client_identity.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

namespace weir::serve {
namespace {

Nid ipv4_nid(std::uint32_t host_order) {
  return {.low = host_order, .net = NetType::kTcp, .family = AddressFamily::kIpv4};
}

const sockaddr_in6& as_six(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in6&>(address);
}

std::uint32_t ipv4_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr);
  }
  std::uint32_t mapped;
  std::memcpy(&mapped, as_six(address).sin6_addr.s6_addr + 12, sizeof mapped);
  return ntohl(mapped);
}

bool is_ipv4(const sockaddr_storage& address) {
  return address.ss_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&as_six(address).sin6_addr);
}

std::uint64_t word(const std::uint8_t* bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
  return value;
}

// An IPv6 address can be longer than an id: its end distinguishes the clients of a site.
JobId job_of(const Nid& nid) {
  const std::string text = print_nid(nid);
  if (text.size() <= JobId::kSizeMax) return JobId(text);
  const std::string_view address = std::string_view(text).substr(0, text.find('@'));
  return JobId(address.substr(address.size() - std::min(address.size(), JobId::kSizeMax)));
}

std::uint32_t nodemap_of(const Nid& nid, const std::vector<NodemapOptions>& nodemaps) {
  for (std::size_t i = 0; i < nodemaps.size(); ++i) {
    if (nodemaps[i].nids.matches(nid)) return static_cast<std::uint32_t>(i + 1);
  }
  return 0;
}

}  // namespace

Nid nid_of(const sockaddr_storage& address) {
  if (address.ss_family == AF_UNIX) return unix_nid();
  if (is_ipv4(address)) return ipv4_nid(ipv4_of(address));
  const std::uint8_t* const bytes = as_six(address).sin6_addr.s6_addr;
  return {.high = word(bytes),
          .low = word(bytes + 8),
          .net = NetType::kTcp,
          .family = AddressFamily::kIpv6};
}

Nid unix_nid() { return {.net = NetType::kLo, .family = AddressFamily::kNumber}; }

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_UNIX) return true;
  if (is_ipv4(address)) return ipv4_of(address) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&as_six(address).sin6_addr);
}

Result<ClientIdentity> identity_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return fail_errno(errno, "getpeername");
  }
  ClientIdentity identity;
  identity.nid = nid_of(address);
  identity.is_local = is_loopback(address);
  if (address.ss_family == AF_UNIX) {
    ucred who{};
    socklen_t who_size = sizeof who;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &who_size) == 0) {
      identity.uid = who.uid;
      identity.gid = who.gid;
    }
  }
  return identity;
}

Result<Attributes> attributes_of(const ClientIdentity& identity, const Claims& claims,
                                 const ClaimsOptions& policy,
                                 const std::vector<NodemapOptions>& nodemaps) {
  const bool counts =
      (policy.local && identity.is_local) || (policy.nids && policy.nids->matches(identity.nid));
  if (claims.any() && !counts) {
    return fail(std::errc::permission_denied, {},
                fmt::format("{} is not allowed to claim a job or id", print_nid(identity.nid)),
                "open the export by its name alone, or allow this client in [claims]");
  }
  Attributes attributes;
  attributes.nid = identity.nid;
  attributes.uid = claims.uid.value_or(identity.uid.value_or(kUnknownId));
  attributes.gid = claims.gid.value_or(identity.gid.value_or(kUnknownId));
  attributes.projid = claims.project.value_or(kUnknownId);
  attributes.nodemap = nodemap_of(identity.nid, nodemaps);
  if (claims.job) {
    attributes.job = *claims.job;
  } else if (attributes.uid != kUnknownId) {
    attributes.job = JobId(fmt::format("uid.{}", attributes.uid));
  } else {
    attributes.job = job_of(identity.nid);
  }
  return attributes;
}

}  // namespace weir::serve
