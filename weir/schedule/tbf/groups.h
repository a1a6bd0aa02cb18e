// SPDX-License-Identifier: Apache-2.0
//
// Groups of clients, of which one at a time may be preferred: which group a client is in, who has
// to stand back, and how many queues of each have requests. A client belongs to the first group
// whose list has it; those in no list are a group of their own, the last.
//
// Only the regular head knows groups. Where queues stand that are set back is for the Tbf to
// decide.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "weir/classify/nid.h"
#include "weir/schedule/request.h"

namespace weir::tbf {

class Groups {
 public:
  explicit Groups(std::vector<NidList> lists)
      : lists_(std::move(lists)), busy_(lists_.empty() ? 0 : lists_.size() + 1) {}

  // Whether there are any; without, nothing below is called.
  bool exist() const { return !lists_.empty(); }
  std::uint32_t group_of(const Nid& nid) const {
    std::uint32_t group = 0;
    while (group < lists_.size() && !lists_[group].matches(nid)) ++group;
    return group;
  }

  // None: all are alike. False if it was so before.
  bool prefer(std::optional<std::uint32_t> group) {
    if (!exist() || group == preferred_) return false;
    preferred_ = group;
    return true;
  }
  bool is_set_back(std::uint32_t group, Head head) const {
    return preferred_ && head == Head::kRegular && group != *preferred_;
  }

  // A queue of the group gets its first request, or loses its last.
  void become_busy(std::uint32_t group, Head head) {
    if (exist() && head == Head::kRegular) ++busy_[group];
  }
  void become_idle(std::uint32_t group, Head head) {
    if (exist() && head == Head::kRegular) --busy_[group];
  }
  // How many of its queues have requests; 0 for a group that is not there.
  std::uint32_t busy(std::uint32_t group) const { return group < busy_.size() ? busy_[group] : 0; }

 private:
  std::vector<NidList> lists_;
  std::optional<std::uint32_t> preferred_;
  std::vector<std::uint32_t> busy_;  // queues; clients of no list last
};

}  // namespace weir::tbf
