// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/plain_text.h"

#include <algorithm>

#include <arpa/inet.h>
#include <fmt/format.h>

#include "weir/serve/client_identity.h"

namespace weir::serve {
namespace {

// A numeric address, or a name: only the name localhost is known to be local.
bool is_here(const std::string& host) {
  sockaddr_storage address{};
  auto& four = reinterpret_cast<sockaddr_in&>(address);
  auto& six = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET, host.c_str(), &four.sin_addr) == 1) {
    address.ss_family = AF_INET;
    return is_loopback(address);
  }
  if (inet_pton(AF_INET6, host.c_str(), &six.sin6_addr) == 1) {
    address.ss_family = AF_INET6;
    return is_loopback(address);
  }
  return host == "localhost";
}

bool is_here(const ListenAddress& address) {
  return address.kind == ListenAddress::Kind::kUnix || is_here(address.host);
}

// HOST:PORT or [ADDRESS]:PORT
std::string host_of(const std::string& endpoint) {
  std::string host = endpoint.substr(0, endpoint.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

void warn_of_locks(const ServeOptions& options, std::vector<std::string>& warnings) {
  const LockOptions& lock = options.lock;
  const bool is_plain = options.tls.mode == TlsOptions::Mode::kOff;
  if (!lock.listen || !is_plain || lock.insecure || is_here(*lock.listen)) return;
  warnings.push_back(
      fmt::format("warning: lock: {} serves other machines without TLS; anyone there can take "
                  "and release locks; use --tls require, or set insecure = true in [lock] or "
                  "--lock-insecure if the network is trusted",
                  print_listen(*lock.listen)));
}

void warn_of_cluster(const ClusterOptions& cluster, std::vector<std::string>& warnings) {
  if (!cluster.is_on() || cluster.insecure) return;
  const auto listen = parse_listen(cluster.listen);
  if (cluster.tls_directory.empty() && listen && !is_here(*listen)) {
    warnings.push_back(
        fmt::format("warning: cluster: {} serves other machines without TLS; anyone there can "
                    "join; name certificates with tls_directory in [cluster], or set insecure = "
                    "true there if the network is trusted",
                    cluster.listen));
  }
  const auto far = std::find_if(cluster.etcd.begin(), cluster.etcd.end(),
                                [](const std::string& one) { return !is_here(host_of(one)); });
  if (cluster.etcd_tls_directory.empty() && far != cluster.etcd.end()) {
    warnings.push_back(fmt::format(
        "warning: cluster: etcd at {} is used without TLS{}; name certificates with "
        "etcd_tls_directory in [cluster], or set insecure = true there if the network "
        "is trusted",
        *far, cluster.user.empty() ? "" : ", which exposes the password to the network"));
  }
}

}  // namespace

std::vector<std::string> plain_text_warnings(const ServeOptions& options) {
  std::vector<std::string> warnings;
  warn_of_locks(options, warnings);
  warn_of_cluster(options.cluster, warnings);
  return warnings;
}

}  // namespace weir::serve
