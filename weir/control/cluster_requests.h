// SPDX-License-Identifier: Apache-2.0
//
// Answers the requests about a cluster, for each program whose control socket has them:
//
//   GET /v1/cluster                  its members, leader and slices
//   GET /v1/cluster/rules            its rules
//   POST /v1/cluster/rules           starts, changes or stops one
//   DELETE /v1/cluster/members/NAME  forgets a member that will not come back
//
// Called in the thread of the HTTP server; answers of the cluster arrive on its own threads and are
// passed on with `post`.
#pragma once

#include <functional>
#include <string_view>

#include "weir/base/result.h"
#include "weir/control/audit.h"
#include "weir/control/http.h"
#include "weir/serve/cluster_port.h"

namespace weir::control {

struct ClusterRequestHost {
  // Calls the function in the thread of the HTTP server.
  std::function<void(std::function<void()>)> post;
  // A change was made or refused; called in that thread, before the reply.
  std::function<void(const AuditEntry& entry, const Result<void>& done)> changed;
};

bool is_cluster_path(std::string_view path);
// Replies 404 without a cluster. REQUIRES: is_cluster_path(request.path), and the access that the
// method needs; the cluster outlives the HTTP server, or is stopped before.
void answer_cluster(serve::ClusterPort* cluster, const ClusterRequestHost& host,
                    const HttpRequest& request, const HttpServer::Reply& reply);

}  // namespace weir::control
