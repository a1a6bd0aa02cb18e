// SPDX-License-Identifier: Apache-2.0
//
// How a server of a cluster connects to etcd, from the options of [cluster] in weir.conf(5).
//
//   auto etcd = EtcdClient::create(*etcd_options(options, 500ms));
//
// One place, so that everything that uses etcd has the same user and certificates.
#pragma once

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/cluster/etcd_client.h"
#include "weir/serve/options.h"

namespace weir::cluster {

// Reads the password, which appears in no message.
Result<EtcdOptions> etcd_options(const serve::ClusterOptions& options, Nanoseconds timeout);

}  // namespace weir::cluster
