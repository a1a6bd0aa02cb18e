// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/etcd_options.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <utility>

namespace weir::cluster {
namespace {

Result<std::string> read_password(const std::string& path) {
  if (path.empty()) return std::string();
  errno = 0;
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty()) {
    return errno != 0 ? Result<std::string>(fail_errno(errno, path))
                      : fail(std::errc::invalid_argument, path, "contains no password");
  }
  return line;
}

}  // namespace

Result<EtcdOptions> etcd_options(const serve::ClusterOptions& options, Nanoseconds timeout) {
  auto password = read_password(options.password_file);
  if (!password) return tl::unexpected(password.error());
  return EtcdOptions{.endpoints = options.etcd,
                     .user = options.user,
                     .password = *std::move(password),
                     .tls_directory = options.etcd_tls_directory,
                     .timeout = timeout};
}

}  // namespace weir::cluster
