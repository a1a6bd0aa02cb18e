// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "weir/cluster/credentials.h"

namespace weir::cluster {
namespace {

// Of a server, which is trusted with more than its clients are.
constexpr int kAnswerBytesMax = 256 << 20;

}  // namespace

Result<std::shared_ptr<grpc::Channel>> open_channel(const lock::ConnectOptions& options) {
  quiet_grpc();
  auto credentials = channel_credentials(options.tls_directory);
  if (!credentials) return tl::unexpected(credentials.error());
  grpc::ChannelArguments arguments = channel_arguments();
  // Clients in one process do not share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kAnswerBytesMax);
  return grpc::CreateCustomChannel(options.server, *credentials, arguments);
}

}  // namespace weir::cluster
