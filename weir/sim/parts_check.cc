// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/parts_check.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace weir::sim {
namespace {

using Wide = unsigned __int128;

// Beside 1 %: requests that a fair order may be ahead or behind at either end of a stretch.
constexpr std::uint64_t kRequests = 2;

}  // namespace

std::uint64_t JobTree::part_of(std::size_t job, std::uint64_t whole) const {
  std::vector<std::uint64_t> sums(nodes.size());
  for (std::size_t i = 1; i < nodes.size(); ++i) sums[nodes[i].parent] += nodes[i].weight;
  std::vector<std::size_t> path;
  for (std::size_t at = jobs[job]; at != 0; at = nodes[at].parent) path.push_back(at);
  Wide part = whole;
  for (auto at = path.rbegin(); at != path.rend(); ++at) {
    part = part * nodes[*at].weight / sums[nodes[*at].parent];
  }
  return static_cast<std::uint64_t>(part);
}

PartsCheck::PartsCheck(JobTree tree, Tokens largest)
    : tree_(std::move(tree)), largest_(largest.count()), states_(tree_.nodes.size()) {
  for (std::size_t i = 1; i < tree_.nodes.size(); ++i) {
    states_[tree_.nodes[i].parent].children.push_back(i);
  }
}

std::optional<std::string> PartsCheck::take_finding() { return std::exchange(finding_, {}); }

void PartsCheck::wait(std::size_t job, Instant now) { change(job, true, now); }

void PartsCheck::dispatch(std::size_t job, Tokens cost, Instant now) {
  for (std::size_t at = tree_.jobs[job]; at != 0; at = tree_.nodes[at].parent) {
    states_[at].served += cost.count();
  }
  change(job, false, now);
}

// A child that gets its first or loses its last request ends the stretch of its parent.
void PartsCheck::change(std::size_t job, bool arrives, Instant now) {
  for (std::size_t at = tree_.jobs[job]; at != 0; at = tree_.nodes[at].parent) {
    State& state = states_[at];
    const bool changes = arrives ? state.waiting == 0 : state.waiting == 1;
    if (changes) end_stretch(tree_.nodes[at].parent, now);
    state.waiting += arrives ? 1 : 0;
    state.waiting -= !arrives && state.waiting > 0 ? 1 : 0;
  }
}

void PartsCheck::end_stretch(std::size_t node, Instant now) {
  State& state = states_[node];
  const Nanoseconds length = now - std::exchange(state.since, now);
  if (length >= kStretchMin) check(node, length);
  for (const std::size_t child : state.children) states_[child].served = 0;
}

void PartsCheck::check(std::size_t node, Nanoseconds length) {
  std::uint64_t weights = 0;
  std::uint64_t served = 0;
  std::size_t count = 0;
  for (const std::size_t child : states_[node].children) {
    if (states_[child].waiting == 0) continue;
    weights += tree_.nodes[child].weight;
    served += states_[child].served;
    ++count;
  }
  if (count < 2) return;
  ++checked_;
  for (const std::size_t child : states_[node].children) {
    if (states_[child].waiting == 0 || finding_) continue;
    const auto due = static_cast<std::uint64_t>(Wide{served} * tree_.nodes[child].weight / weights);
    const std::uint64_t got = states_[child].served;
    const std::uint64_t off = got > due ? got - due : due - got;
    if (off <= due / 100 + kRequests * largest_) continue;
    finding_ =
        fmt::format("node {} got {} in {:.1f} s, its part by weight is {}", tree_.nodes[child].path,
                    got, static_cast<double>(length.count()) / 1e9, due);
  }
}

void PartsCheck::end(Instant now) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!states_[i].children.empty()) end_stretch(i, now);
  }
}

}  // namespace weir::sim
