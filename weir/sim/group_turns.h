// SPDX-License-Identifier: Apache-2.0
//
// Groups of clients that take turns on many servers, in virtual time, with real schedulers. A
// client's operation is striped: it has one request on every server and is done when all of them
// are, so it is as slow as the server on which its group waits longest for its turn.
//
//   together   servers move through group epochs together (weir/coordinate/group_epochs.h); one of
//              them leads, and messages take time
//   apart      every server takes turns on its own
//   off        no groups: first come, first served within the policy
//
// Checked all the time: whether servers in step prefer the same group, and for how long they do not
// (the raggedness); that no slot is free while a request waits, except in quiet phases; and with
// `quiesce`, that nothing starts while another server still runs requests of an earlier epoch. A
// server may be cut off from the others for a while. The same spec and seed give the same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/time.h"
#include "weir/sim/quantiles.h"

namespace weir::sim {

enum class GroupMode : std::uint8_t { kTogether, kApart, kOff };
std::string_view group_mode_name(GroupMode mode);

struct GroupTurnsSpec {
  GroupMode mode = GroupMode::kTogether;
  std::size_t servers = 8;
  std::size_t groups = 3;    // 1 ... 9
  std::uint32_t window = 8;  // operations of a group in progress at a time
  std::uint32_t slots = 4;   // of a server
  Nanoseconds service = std::chrono::milliseconds{1};  // of a request, in the mean
  Nanoseconds turn = std::chrono::milliseconds{50};
  bool quiesce = false;
  Nanoseconds delay_min = std::chrono::microseconds{50};  // of a message
  Nanoseconds delay_max = std::chrono::microseconds{500};
  Nanoseconds length = std::chrono::seconds{10};
  struct Cut {
    std::size_t server = 0;
    Nanoseconds from{0};
    Nanoseconds to{0};
  };
  std::optional<Cut> cut = {};
  std::uint64_t seed = 1;
};

struct GroupTurnsResult {
  struct Group {
    std::uint64_t operations = 0;
    Quantiles latency;  // ns
  };
  std::vector<Group> groups;
  std::uint64_t epochs = 0;  // callbacks with a number, of all servers
  std::uint64_t errors = 0;  // callbacks without a number
  std::uint64_t messages = 0;
  Nanoseconds ragged_max{
      0};  // the longest time in which servers in step preferred different groups
  Nanoseconds ragged_sum{0};
  std::uint64_t idle_findings = 0;  // a slot was free while a request waited
  std::uint64_t crossing_findings =
      0;  // a request started while another server ran requests of an earlier epoch
  std::uint64_t cut_served = 0;  // by the server that was cut off, during that time
  bool all_in_step = false;      // at the end
};

// REQUIRES: groups and servers within their bounds.
GroupTurnsResult run_group_turns(const GroupTurnsSpec& spec);

}  // namespace weir::sim
