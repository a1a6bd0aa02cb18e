// SPDX-License-Identifier: Apache-2.0
#include "weir/target/target.h"

namespace weir {

Target::Target(const Options& options, Instant /*now*/) : options_(options), gate_(options.gate) {}

void Target::set_nodes(const JobId& /*job*/, std::uint64_t /*nodes*/, Instant /*now*/) {}

}  // namespace weir
