// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/credentials.h"

#include <optional>
#include <utility>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include "weir/base/assert.h"

namespace weir::cluster {
namespace {

constexpr int kReconnectMinMs = 50;
constexpr int kReconnectMaxMs = 1000;
// Maximum time of a connection attempt: a TLS handshake between overloaded machines takes seconds,
// and an abandoned one is wasted work. A longer time would exceed the detection of a network cut.
constexpr int kConnectMs = 3000;
constexpr int kUnacknowledgedMaxMs = 2000;
// Pings are not needed, and an etcd or a server may reject too many; they are enabled because gRPC
// then also sets TCP_USER_TIMEOUT.
constexpr int kPingEveryMs = 3600 * 1000;

// Of a connection to a server.
constexpr int kCallsMax = 100;
constexpr int kHandshakeMs = 10'000;
constexpr int kIdleMs = 60'000;

constexpr const char* kWanted = "TLS requires this file";

using Pair = Certificates::Pair;

Result<Pair> read_pair(const std::string& directory, const std::string& role) {
  auto certificate = host::read_pem(directory + "/" + role + "-cert.pem", kWanted);
  if (!certificate) return tl::unexpected(certificate.error());
  auto key = host::read_pem(directory + "/" + role + "-key.pem", kWanted);
  if (!key) return tl::unexpected(key.error());
  if (auto checked = host::check_pair(*certificate, *key, "the certificate and the key must match");
      !checked) {
    return tl::unexpected(checked.error());
  }
  return Pair{*std::move(certificate), *std::move(key)};
}

bool is_missing(const Error& error) { return error.code == std::errc::no_such_file_or_directory; }

// The certificate for outgoing connections: the client's pair, otherwise the server's,
// otherwise none.
Result<std::optional<Pair>> client_pair(const std::string& directory, Credentials::Use use) {
  auto pair = read_pair(directory, "client");
  if (!pair && is_missing(pair.error())) pair = read_pair(directory, "server");
  if (pair) return std::optional<Pair>(*std::move(pair));
  if (use == Credentials::Use::kGoIfThere && is_missing(pair.error())) {
    return std::optional<Pair>();
  }
  return tl::unexpected(pair.error());
}

Result<Credentials::Renewed> read(const std::string& directory, Credentials::Use use) {
  auto read = std::make_shared<Certificates>();
  auto authority = host::read_pem(directory + "/ca-cert.pem", kWanted);
  if (!authority) return tl::unexpected(authority.error());
  if (auto checked = host::check_authority(*authority, kWanted); !checked) {
    return tl::unexpected(checked.error());
  }
  read->authority = *std::move(authority);
  if (use != Credentials::Use::kListen) {
    auto pair = client_pair(directory, use);
    if (!pair) return tl::unexpected(pair.error());
    read->client = *std::move(pair);
  }
  if (use == Credentials::Use::kListen || use == Credentials::Use::kBoth) {
    auto pair = read_pair(directory, "server");
    if (!pair) return tl::unexpected(pair.error());
    read->server = *std::move(pair);
  }
  return Credentials::Renewed(std::move(read));
}

// A new certificate must be valid.
Result<void> check_renewed(const std::optional<Pair>& now, const std::optional<Pair>& renewed) {
  if (!renewed || now == renewed) return {};
  return host::check_current(renewed->certificate);
}

// gRPC calls this before each handshake to get new certificates, in the thread that accepts from
// the socket, one connection after the other. A server has one socket (GRPC_ARG_ALLOW_REUSEPORT is
// off), because gRPC's own replacement of the old certificates is not thread-safe.
class FollowingCredentials final : public grpc::ServerCredentials {
 public:
  explicit FollowingCredentials(Credentials& source)
      : core_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, fetch, &source))) {}
  ~FollowingCredentials() override { grpc_server_credentials_release(core_); }
  FollowingCredentials(const FollowingCredentials&) = delete;
  FollowingCredentials& operator=(const FollowingCredentials&) = delete;

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    WEIR_ASSERT(false);
  }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), core_);
  }

  static grpc_ssl_certificate_config_reload_status fetch(
      void* source, grpc_ssl_server_certificate_config** config) {
    const Credentials::Renewed given = static_cast<Credentials*>(source)->take_new();
    if (given == nullptr) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{given->server->key.text.c_str(),
                                          given->server->certificate.text.c_str()};
    *config = grpc_ssl_server_certificate_config_create(given->authority.text.c_str(), &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  grpc_server_credentials* const core_;
};

}  // namespace

Credentials::Credentials(std::string directory, Use use, Renewed certificates)
    : directory_(std::move(directory)), use_(use), certificates_(std::move(certificates)) {}

Result<Credentials::Ptr> Credentials::load(const std::string& directory, Use use) {
  Renewed certificates;
  if (!directory.empty()) {
    auto done = read(directory, use);
    if (!done) return tl::unexpected(done.error());
    certificates = *std::move(done);
  }
  return Ptr(new Credentials(directory, use, std::move(certificates)));
}

Credentials::Renewed Credentials::current() const {
  const host::MutexLock lock(mutex_);
  return certificates_;
}

Credentials::Renewed Credentials::take_new() {
  const host::MutexLock lock(mutex_);
  if (given_ == certificates_) return nullptr;
  given_ = certificates_;
  return given_;
}

std::shared_ptr<grpc::ChannelCredentials> Credentials::channel() const {
  const Renewed now = current();
  if (now == nullptr) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = now->authority.text;
  if (now->client) {
    options.pem_private_key = now->client->key.text;
    options.pem_cert_chain = now->client->certificate.text;
  }
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> Credentials::server() {
  if (current() == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<FollowingCredentials>(*this);
}

Result<Credentials::Renewed> Credentials::read_again() const {
  const Renewed now = current();
  if (now == nullptr) return now;
  auto renewed = read(directory_, use_);
  if (!renewed) return renewed;
  for (const auto pair : {&Certificates::server, &Certificates::client}) {
    auto checked = check_renewed((*now).*pair, (**renewed).*pair);
    if (!checked) return tl::unexpected(checked.error());
  }
  if (**renewed == *now) return now;
  return renewed;
}

bool Credentials::use(Renewed renewed) {
  const host::MutexLock lock(mutex_);
  const bool differs = renewed != certificates_;
  certificates_ = std::move(renewed);
  return differs;
}

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  return arguments;
}

grpc::ChannelArguments peer_channel_arguments() {
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kUnacknowledgedMaxMs);
  return arguments;
}

void bound_connections(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kCallsMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
}

void quiet_grpc() {
  gpr_set_log_function([](gpr_log_func_args*) {});
}

}  // namespace weir::cluster
