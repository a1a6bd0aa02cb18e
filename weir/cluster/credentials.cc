// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/credentials.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>

#include <grpc/support/log.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/channel_arguments.h>

namespace weir::cluster {
namespace {

constexpr int kReconnectMinMs = 50;
constexpr int kReconnectMaxMs = 1000;
constexpr int kUnacknowledgedMaxMs = 2000;
// Not the pings are wanted, which an etcd or a server may find too many, but what gRPC sets with
// them: the TCP_USER_TIMEOUT of the socket.
constexpr int kPingEveryMs = 3600 * 1000;

Result<std::string> read(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad() || !file.is_open()) {
    return fail_errno(errno == 0 ? EIO : errno, path, "it is needed for TLS in the cluster");
  }
  if (text.find("-----BEGIN ") == std::string::npos) {
    return fail(std::errc::invalid_argument, path, "holds nothing in PEM form");
  }
  return text;
}

struct Pair {
  std::string certificate;
  std::string key;
};

Result<Pair> read_pair(const std::string& directory, const std::string& role) {
  auto certificate = read(directory + "/" + role + "-cert.pem");
  if (!certificate) return tl::unexpected(certificate.error());
  auto key = read(directory + "/" + role + "-key.pem");
  if (!key) return tl::unexpected(key.error());
  return Pair{std::move(*certificate), std::move(*key)};
}

bool is_missing(const Error& error) { return error.code == std::errc::no_such_file_or_directory; }

// What we show where we go: the client's pair, else the server's, else nothing.
Result<std::optional<Pair>> own_pair(const std::string& directory, OwnCertificate own) {
  auto pair = read_pair(directory, "client");
  if (!pair && is_missing(pair.error())) pair = read_pair(directory, "server");
  if (pair) return std::optional<Pair>(std::move(*pair));
  if (own == OwnCertificate::kIfThere && is_missing(pair.error())) {
    return std::optional<Pair>();
  }
  return tl::unexpected(pair.error());
}

}  // namespace

Result<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials(const std::string& directory,
                                                                      OwnCertificate own) {
  if (directory.empty()) return grpc::InsecureChannelCredentials();
  auto authority = read(directory + "/ca-cert.pem");
  if (!authority) return tl::unexpected(authority.error());
  auto pair = own_pair(directory, own);
  if (!pair) return tl::unexpected(pair.error());
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = std::move(*authority);
  if (*pair) {
    options.pem_private_key = (*pair)->key;
    options.pem_cert_chain = (*pair)->certificate;
  }
  return grpc::SslCredentials(options);
}

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const std::string& directory) {
  if (directory.empty()) return grpc::InsecureServerCredentials();
  auto authority = read(directory + "/ca-cert.pem");
  if (!authority) return tl::unexpected(authority.error());
  auto pair = read_pair(directory, "server");
  if (!pair) return tl::unexpected(pair.error());
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = std::move(*authority);
  options.pem_key_cert_pairs.push_back({pair->key, pair->certificate});
  return grpc::SslServerCredentials(options);
}

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  return arguments;
}

grpc::ChannelArguments peer_channel_arguments() {
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kUnacknowledgedMaxMs);
  return arguments;
}

void quiet_grpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace weir::cluster
