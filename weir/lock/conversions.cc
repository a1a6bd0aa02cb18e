// SPDX-License-Identifier: Apache-2.0
#include "weir/lock/conversions.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "weir/base/assert.h"

namespace weir::lock {
namespace {

// A conversion ahead lets a lock pass if it waits for that lock.
bool lets_pass(ModeSet wanted_ahead, Mode held) {
  return (wanted_ahead & ~conflicts_of(held)) == 0;
}

}  // namespace

Conversions::Conversion Conversions::remove(std::uint32_t lock) {
  const auto found = std::find_if(line_.begin(), line_.end(),
                                  [&](const Conversion& each) { return each.lock == lock; });
  WEIR_ASSERT(found != line_.end(), lock);
  const Conversion removed = *found;
  line_.erase(found);
  return removed;
}

bool Conversions::is_ahead_of(Mode held) const {
  return std::any_of(line_.begin(), line_.end(),
                     [&](const Conversion& each) { return !lets_pass(set_of(each.wanted), held); });
}

std::size_t Conversions::first_allowed(const ModeCounts& granted) const {
  ModeSet ahead = 0;
  for (std::size_t at = 0; at < line_.size(); ++at) {
    const Conversion& each = line_[at];
    if (lets_pass(ahead, each.held) && granted.allow_beside(each.held, each.wanted)) return at;
    ahead |= set_of(each.wanted);
  }
  return line_.size();
}

// A search in breadth, so that the shortest cycle is found. Two conversions of the same modes
// differ only in what is ahead of them: one that is ahead of another that was visited leads to
// nothing new.
std::vector<Conversions::Conversion> Conversions::cycle_with(const Conversion& added) const {
  constexpr std::size_t kUnseen = SIZE_MAX;
  const std::size_t last = line_.size();  // the position of the new one
  std::vector<std::size_t> from(last, kUnseen);
  std::vector<std::size_t> found{last};
  std::array<std::size_t, kModes * kModes> visited{};  // positions below these
  for (std::size_t next = 0; next < found.size(); ++next) {
    const std::size_t at = found[next];
    const Conversion& self = at == last ? added : line_[at];
    if (at != last && conflict(self.wanted, added.held)) {
      std::vector<Conversion> cycle;
      for (std::size_t step = at; step != last; step = from[step]) cycle.push_back(line_[step]);
      cycle.push_back(added);
      std::reverse(cycle.begin(), cycle.end());
      return cycle;
    }
    std::size_t& done = visited[static_cast<std::size_t>(self.held) * kModes +
                                static_cast<std::size_t>(self.wanted)];
    if (at < done) continue;
    done = at + 1;
    for (std::size_t i = last; i-- > 0;) {
      const bool is_behind = i < at && !lets_pass(set_of(line_[i].wanted), self.held);
      const bool is_new = from[i] == kUnseen && i != at;
      if (!is_new || !(is_behind || conflict(self.wanted, line_[i].held))) continue;
      from[i] = at;
      found.push_back(i);
    }
  }
  return {};
}

}  // namespace weir::lock
