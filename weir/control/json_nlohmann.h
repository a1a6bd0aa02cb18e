// SPDX-License-Identifier: Apache-2.0
//
// JSON as every response of the API prints it, and the objects that several responses contain.
//
// For sources of this module only: it includes the JSON library, which users of the installed
// headers need not have, so it is not installed. Numbers are integers; times are nanoseconds
// ("_ns"), rates are per second.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "weir/control/snapshot.h"

namespace weir::control {

using Json = nlohmann::ordered_json;  // keys stay in the order of the documentation

// One line. Bytes that are not UTF-8 are replaced.
std::string text_of(const Json& json);

Json class_json(const ClassSnapshot& one);
Json job_json(const JobSnapshot& job);
// The policy of the regular head as it is written to nrs_policies.
std::string policy_text(const ServiceSnapshot& shot);

}  // namespace weir::control
