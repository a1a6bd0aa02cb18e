// SPDX-License-Identifier: Apache-2.0
//
// The way from a client of the lock service to its server: a gRPC channel of its own, that tries
// again soon after it broke. A lease is a matter of seconds, and gRPC would by itself wait for up
// to two minutes.
//
//   auto channel = open_channel({.server = "10.0.0.1:10811"});      connects with its first call
//
// With a directory of certificates it is TLS, and both ends show one (credentials.h).
#pragma once

#include <memory>

#include "weir/base/result.h"
#include "weir/cluster/lock_client.h"

namespace grpc {
class Channel;
}

namespace weir::cluster {

// The error names the certificate that cannot be read.
Result<std::shared_ptr<grpc::Channel>> open_channel(const lock::ConnectOptions& options);

}  // namespace weir::cluster
