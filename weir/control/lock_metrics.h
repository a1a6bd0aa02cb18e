// SPDX-License-Identifier: Apache-2.0
//
// Metrics of the lock service: by namespace, and by client for the kClientsMax clients with the
// most locks; all others are summed as client="other".
//
// A client keeps its series while it is among those that the service names, so that two of about
// the same size do not alternate. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "weir/lock/view.h"

namespace weir::control {

class LockMetrics {
 public:
  static constexpr std::size_t kClientsMax = 20;

  // Nothing where there is no lock service.
  void add_to(std::string& page, const std::vector<lock::NamespaceView>& locks);

 private:
  void choose_clients(const lock::NamespaceView& view);

  std::map<std::string, std::set<std::uint64_t>> clients_;  // with a series, by namespace
};

}  // namespace weir::control
