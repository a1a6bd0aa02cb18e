// SPDX-License-Identifier: Apache-2.0
//
// The status of a leader on the wire: the only place that knows both the structs of
// weir/serve/cluster_port.h and the messages of epoch.proto.
//
//   to_wire(leader.describe(now), reply);
//   serve::LeaderStatus status = from_wire(reply);
//
// The messages are only named here, so no user of this header needs Protocol Buffers.
#pragma once

#include "weir/serve/cluster_port.h"

namespace weir::cluster {

class DescribeReply;

void to_wire(const serve::LeaderStatus& status, DescribeReply& reply);
serve::LeaderStatus from_wire(const DescribeReply& reply);

}  // namespace weir::cluster
