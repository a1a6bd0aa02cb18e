// SPDX-License-Identifier: Apache-2.0
//
// Lists on the command line of weir sim, separated by commas:
//
//   split("a,b")                  "a" and "b"
//   policies_of("weir,mclock")    the policies of these names
//
// Names are those of weir/sim/contender.h; an unknown one is reported with the nearest.
#pragma once

#include <string>
#include <vector>

#include "weir/sim/contender.h"

namespace weir::app {

std::vector<std::string> split(const std::string& list);
// Each policy once, in the order given. Throws a Failure for an unknown name.
std::vector<sim::Contender> policies_of(const std::string& list);

}  // namespace weir::app
