// SPDX-License-Identifier: Apache-2.0
//
// Invariants of servers that move through epochs, whatever the network and the machines do:
//
//   numbers    no two epochs have the same number and different data
//   once       no server is called back twice for one epoch, and numbers only increase
//   late       every callback is made within the timeout and a stated bound
//   order      the reduction does not depend on order or grouping
//   slices     those under lease sum to at most the limit; including servers that are cut off, to
//              at most limit + limit/10, or at most the limit if they have no end; plus each
//              server's minimum rate
//   recovery   when the faults have ended, epochs continue
//
// A restarted server counts as another server. Findings are counted, and the first few are kept as
// text. Time is an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "weir/base/time.h"
#include "weir/coordinate/epoch.h"
#include "weir/coordinate/slices.h"
#include "weir/sim/checkers.h"

namespace weir::sim {

class EpochCheckers {
 public:
  explicit EpochCheckers(Findings& findings) : findings_(findings) {}

  void called_back(std::uint64_t server, std::int64_t epoch, EpochView reduced, Instant at);
  // How long a call took, by the server's clock and without the time it was stopped.
  void answered(std::uint64_t server, Nanoseconds took, Nanoseconds bound, Instant at);
  // Wraps a combine: also tries its arguments in other orders.
  EpochCombine watched(EpochCombine combine, std::function<Instant()> now);
  void slices(std::int64_t leased, std::int64_t cut_off, std::int64_t limit, std::size_t servers,
              Instant at, Partition partition = Partition::kSafe);
  void recovered(std::uint64_t server, bool is_well, Instant at);

 private:
  Findings& findings_;
  std::map<std::int64_t, std::uint64_t> data_of_;  // hashes
  std::map<std::uint64_t, std::int64_t> last_of_;  // epochs of servers
  EpochBytes third_;
};

}  // namespace weir::sim
