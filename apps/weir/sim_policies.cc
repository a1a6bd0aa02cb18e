// SPDX-License-Identifier: Apache-2.0
#include "apps/weir/sim_policies.h"

#include <algorithm>

#include <fmt/format.h>

#include "apps/weir/command.h"
#include "weir/base/nearest.h"
#include "weir/base/quote.h"

namespace weir::app {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  for (;;) {
    const std::size_t comma = list.find(',', at);
    parts.push_back(list.substr(at, comma - at));
    if (comma == std::string::npos) return parts;
    at = comma + 1;
  }
}

std::vector<sim::Contender> policies_of(const std::string& list) {
  std::vector<sim::Contender> chosen;
  std::vector<std::string_view> names;
  names.reserve(std::size(sim::kContenders) + std::size(sim::kRivals));
  for (const sim::Contender contender : sim::kContenders) {
    names.push_back(sim::contender_name(contender));
  }
  for (const sim::Contender contender : sim::kRivals) {
    names.push_back(sim::contender_name(contender));
  }
  for (const std::string& name : split(list)) {
    const auto contender = sim::contender_by(name);
    if (!contender) {
      const auto meant = nearest(name, names);
      throw Failure{Exit::kUsage, fmt::format("--policy: no policy {}; {}", quote(name),
                                              meant ? fmt::format("did you mean {}?", *meant)
                                                    : fmt::format("expected one or more of: {}",
                                                                  fmt::join(names, ", ")))};
    }
    if (std::find(chosen.begin(), chosen.end(), *contender) == chosen.end()) {
      chosen.push_back(*contender);
    }
  }
  return chosen;
}

}  // namespace weir::app
