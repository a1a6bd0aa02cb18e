// SPDX-License-Identifier: Apache-2.0
//
// The way from a client of the lock service to its server: a gRPC channel of its own, that tries
// again soon after it broke. A lease is a matter of seconds, and gRPC would by itself wait for up
// to two minutes.
//
//   auto channel = open_channel({.server = "10.0.0.1:10811"});      connects with its first call
#pragma once

#include <memory>

#include "weir/cluster/lock_client.h"

namespace grpc {
class Channel;
}

namespace weir::cluster {

std::shared_ptr<grpc::Channel> open_channel(const lock::ConnectOptions& options);

}  // namespace weir::cluster
