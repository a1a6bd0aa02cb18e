// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

namespace weir::cluster {
namespace {

constexpr int kReconnectMinMs = 100;
constexpr int kReconnectMaxMs = 1000;
// Of a server, which is trusted with more than its clients are.
constexpr int kAnswerBytesMax = 256 << 20;

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const lock::ConnectOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMinMs);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  // Clients in one process do not share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  return grpc::CreateCustomChannel(options.server, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace weir::cluster
