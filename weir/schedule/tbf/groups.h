// SPDX-License-Identifier: Apache-2.0
//
// Groups of clients, one of which may be preferred: the group of a client, whether it has to wait,
// and how many queues of each group have requests. A client belongs to the first group whose list
// contains it; clients in no list form the last group.
//
// Only the regular head has groups. The Tbf decides where queues of other groups wait.
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

  // Whether there are any; otherwise nothing below is called.
  bool exist() const { return !lists_.empty(); }
  std::uint32_t group_of(const Nid& nid) const {
    std::uint32_t group = 0;
    while (group < lists_.size() && !lists_[group].matches(nid)) ++group;
    return group;
  }

  // None: no preference. Returns false if this changes nothing.
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
  // Number of its queues with requests; 0 for a group that does not exist.
  std::uint32_t busy(std::uint32_t group) const { return group < busy_.size() ? busy_[group] : 0; }

 private:
  std::vector<NidList> lists_;
  std::optional<std::uint32_t> preferred_;
  std::vector<std::uint32_t> busy_;  // number of queues; clients in no list last
};

}  // namespace weir::tbf
