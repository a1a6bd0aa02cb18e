// SPDX-License-Identifier: Apache-2.0
//
// The status of a leader as a message: the only code that uses both the structs of
// weir/serve/cluster_port.h and the messages of epoch.proto.
//
//   to_wire(leader.describe(now), reply);
//   serve::LeaderStatus status = from_wire(reply);
//
// The messages are only declared here, so users of this header do not need Protocol Buffers.
#pragma once

#include "weir/serve/cluster_port.h"

namespace weir::cluster {

class DescribeReply;

void to_wire(const serve::LeaderStatus& status, DescribeReply& reply);
serve::LeaderStatus from_wire(const DescribeReply& reply);

}  // namespace weir::cluster
