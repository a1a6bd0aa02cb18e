// SPDX-License-Identifier: Apache-2.0
//
// Rates with a unit in rule commands: "rate=10k" for "rate=10000". Lustre accepts digits only, and
// so do lctl and nrs_tbf_rule; Weir's own command line, configuration and API convert first.
//
//   with_plain_rates("start dd jobid={dd.*} rate=1.5k") == "start dd jobid={dd.*} rate=1500"
//
// A rate that is not a count with a unit is left unchanged; parse_rule() then rejects it by name.
#pragma once

#include <string>
#include <string_view>

namespace weir {

std::string with_plain_rates(std::string_view command);

}  // namespace weir
