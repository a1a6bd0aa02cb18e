// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_channel.h"

#include <utility>

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "weir/cluster/credentials.h"

namespace weir::cluster {
namespace {

// Maximum answer of a server, which is trusted more than its clients.
constexpr int kAnswerBytesMax = 256 << 20;
// Maximum time of one connection attempt, which gRPC calls the minimum pause between attempts. A
// TLS handshake on a busy machine takes long; a stream tries again, a single call does not.
constexpr int kStreamAttemptMs = 1000;
constexpr int kCallAttemptMs = 5000;

}  // namespace

LockChannel::LockChannel(std::unique_ptr<Credentials> credentials)
    : credentials_(std::move(credentials)) {}
LockChannel::~LockChannel() = default;

Result<std::unique_ptr<LockChannel>> LockChannel::load(const lock::ConnectOptions& options) {
  quiet_grpc();
  auto credentials = Credentials::load(options.tls_directory, Credentials::Use::kGo);
  if (!credentials) return tl::unexpected(credentials.error());
  return std::unique_ptr<LockChannel>(new LockChannel(*std::move(credentials)));
}

std::shared_ptr<grpc::Channel> LockChannel::open(const std::string& server, For what) const {
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   what == For::kStreams ? kStreamAttemptMs : kCallAttemptMs);
  // Clients in one process do not share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  return grpc::CreateCustomChannel(server, credentials_->channel(), arguments);
}

bool LockChannel::renew() {
  auto renewed = credentials_->read_again();
  return renewed && credentials_->use(*std::move(renewed));
}

Result<std::shared_ptr<grpc::Channel>> open_channel(const lock::ConnectOptions& options) {
  const auto opener = LockChannel::load(options);
  if (!opener) return tl::unexpected(opener.error());
  return (*opener)->open(lock::servers_of(options).front(), LockChannel::For::kCalls);
}

}  // namespace weir::cluster
