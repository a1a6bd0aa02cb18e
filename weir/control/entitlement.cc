// SPDX-License-Identifier: Apache-2.0
#include "weir/control/entitlement.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/rule_spec.h"
#include "weir/control/words.h"

namespace weir::control {
namespace {

// The nodes above the job, top first; empty: they are not known.
std::vector<const NodeSnapshot*> nodes_above(const ServiceSnapshot& service,
                                             const JobSnapshot& job) {
  std::vector<const NodeSnapshot*> nodes;
  for (std::size_t at = 0; service.tree && !job.path.empty() && at <= job.path.size();) {
    const std::size_t end = std::min(job.path.find('/', at), job.path.size());
    const std::string_view path = std::string_view(job.path).substr(0, end);
    const auto& all = service.tree->nodes;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.path == path; });
    if (found == all.end()) return {};
    nodes.push_back(&*found);
    at = end + 1;
  }
  return nodes;
}

// "40 %", "33.3 %", or "all"
std::string part_words(std::uint64_t weight, std::uint64_t of) {
  if (weight >= of) return "all";
  const auto permille =
      static_cast<std::uint64_t>(static_cast<unsigned __int128>(weight) * 1000 / of);
  if (permille == 0) return "less than 0.1 %";
  if (permille % 10 == 0) return fmt::format("{} %", permille / 10);
  return fmt::format("{}.{} %", permille / 10, permille % 10);
}

// A part of a part of the capacity.
std::optional<std::uint64_t> entitlement_in_tree(const ServiceSnapshot& service,
                                                 const JobSnapshot& job) {
  const auto nodes = nodes_above(service, job);
  if (nodes.empty() || !job.share || !service.capacity || job.siblings < job.weight) return {};
  unsigned __int128 part = *service.capacity;
  for (const NodeSnapshot* const node : nodes) part = part * node->weight / node->siblings;
  return static_cast<std::uint64_t>(part * job.weight / job.siblings);
}

// The command that would enlarge its share; none for requests without a job.
std::string larger_share(const JobSnapshot& job, const RuleSnapshot* weighing) {
  if (weighing != nullptr) {
    RuleKeys more;
    more.weight = static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * job.weight, kWeightMax));
    return "weir rule " + print(change_of(weighing->name, more));
  }
  if (job.job.empty() || job.weight != job.nodes) return "";
  return fmt::format("weir job set {} {}", shell_word(printable_id(job.job.text())), 2 * job.nodes);
}

}  // namespace

std::string path_words(const ServiceSnapshot& service, const JobSnapshot& job) {
  const auto nodes = nodes_above(service, job);
  if (nodes.empty() || job.siblings < job.weight) return {};
  std::string text;
  for (const NodeSnapshot* const node : nodes) {
    text += fmt::format("{} {} {} -> ", node->level, node->shown(),
                        part_words(node->weight, node->siblings));
  }
  return text + printable_id(job.job.text()) + " " + part_words(job.weight, job.siblings);
}

std::string more_share(const ServiceSnapshot& service, const JobSnapshot& job,
                       const RuleSnapshot* weighing, std::string& cure) {
  const bool is_alone = service.tree && job.siblings <= job.weight;
  if (!is_alone) {
    cure = larger_share(job, weighing);
    return {};
  }
  const auto nodes = nodes_above(service, job);
  const auto shared = std::find_if(nodes.rbegin(), nodes.rend(), [](const NodeSnapshot* node) {
    return node->weight < node->siblings;
  });
  if (shared == nodes.rend()) return {};
  return fmt::format("; the weight of {} {} in [[shares]] determines it", (*shared)->level,
                     quote((*shared)->path));
}

std::optional<std::uint64_t> entitlement_of(const ServiceSnapshot& service,
                                            const JobSnapshot& job) {
  if (service.tree) return entitlement_in_tree(service, job);
  const auto& weights = service.share_weights;
  if (!job.share || !service.capacity || !weights || weights->sum < job.weight) return {};
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(*service.capacity) * job.weight /
                                    weights->sum);
}

}  // namespace weir::control
