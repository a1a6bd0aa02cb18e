// SPDX-License-Identifier: Apache-2.0
//
// The cluster as JSON: the bodies of GET /v1/cluster and /v1/cluster/rules.
//
// What is not known is null: the state of a leader that cannot be reached, the time since which a
// member is away. Slices are thousandths of a token per second. Functions of values; weir-api(7)
// describes every key.
#pragma once

#include <string>
#include <vector>

#include "weir/serve/cluster_port.h"

namespace weir::control {

std::string cluster_json(const serve::ClusterStatus& status);
std::string cluster_rules_json(const std::vector<serve::ClusterRule>& rules);

}  // namespace weir::control
