// SPDX-License-Identifier: Apache-2.0
#include "weir/control/slurm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/base/job_id.h"
#include "weir/base/quote.h"

namespace weir::control {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kHolding = {"RUNNING", "COMPLETING", "SUSPENDED",
                                                      "STOPPED"};

tl::unexpected<Error> refuse_pattern(std::string_view pattern, std::string_view what) {
  return fail(std::errc::invalid_argument, "job pattern " + quote(pattern), what,
              "use one with %j and no other code than %u, or weir job from a prolog");
}

// Numbers are plain in 22.05 and {"set": true, "number": N} from 23.02 on.
std::optional<std::uint64_t> number_of(const Json& job, const char* key) {
  const auto found = job.find(key);
  if (found == job.end()) return std::nullopt;
  if (found->is_number_unsigned()) return found->get<std::uint64_t>();
  if (!found->is_object()) return std::nullopt;
  const auto number = found->find("number");
  const auto set = found->find("set");
  if (set != found->end() && set->is_boolean() && !set->get<bool>()) return std::nullopt;
  if (number == found->end() || !number->is_number_unsigned()) return std::nullopt;
  return number->get<std::uint64_t>();
}

// A word in 22.05, an array of them from 23.02 on.
bool holds_nodes(const Json& job) {
  const auto found = job.find("job_state");
  if (found == job.end()) return false;
  const auto counts = [](const Json& word) {
    return word.is_string() && std::find(kHolding.begin(), kHolding.end(),
                                         word.get_ref<const std::string&>()) != kHolding.end();
  };
  if (found->is_string()) return counts(*found);
  return found->is_array() && std::any_of(found->begin(), found->end(), counts);
}

Result<std::string> expand(std::string_view pattern, std::uint64_t job, std::uint64_t user) {
  std::string id;
  bool has_job = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      if (pattern[i] != ' ') id += pattern[i];  // blanks are dropped, as on a client
      continue;
    }
    std::size_t most = JobId::kSizeMax;
    if (i + 1 < pattern.size() && pattern[i + 1] == '.') {
      std::size_t stop = i + 2;
      const auto read =
          std::from_chars(pattern.data() + stop, pattern.data() + pattern.size(), most);
      if (read.ec != std::errc()) return refuse_pattern(pattern, "has no number behind %.");
      i = static_cast<std::size_t>(read.ptr - pattern.data()) - 1;
    }
    if (++i >= pattern.size()) return refuse_pattern(pattern, "ends in a %");
    if (pattern[i] == 'j') {
      id += std::to_string(job).substr(0, most);
      has_job = true;
    } else if (pattern[i] == 'u') {
      id += std::to_string(user).substr(0, most);
    } else {
      return refuse_pattern(pattern,
                            fmt::format("has a code that Slurm does not know: %{}", pattern[i]));
    }
  }
  if (!has_job) return refuse_pattern(pattern, "has no %j");
  id.resize(std::min(id.size(), JobId::kSizeMax));
  return id;
}

}  // namespace

Result<std::vector<JobNodes>> parse_squeue(std::string_view json, std::string_view pattern) {
  if (auto tried = expand(pattern, 1, 1); !tried) return tl::unexpected(tried.error());
  const Json all = Json::parse(json, nullptr, false);
  const auto jobs = all.is_object() ? all.find("jobs") : all.end();
  if (!all.is_object() || jobs == all.end() || !jobs->is_array()) {
    return fail(std::errc::invalid_argument, "squeue --json", "this is no list of jobs",
                "does 'squeue --json' work here? it needs Slurm 21.08 or newer");
  }
  std::map<std::string, std::uint64_t> sums;
  for (const Json& job : *jobs) {
    if (!job.is_object() || !holds_nodes(job)) continue;
    const auto number = number_of(job, "job_id");
    const auto nodes = number_of(job, "node_count");
    if (!number || !nodes || *nodes == 0) continue;
    const std::uint64_t leader = number_of(job, "het_job_id").value_or(0);
    const auto id =
        expand(pattern, leader == 0 ? *number : leader, number_of(job, "user_id").value_or(0));
    if (id) sums[*id] += *nodes;
  }
  std::vector<JobNodes> sizes;
  sizes.reserve(sums.size());
  for (const auto& [job, nodes] : sums) sizes.push_back({job, nodes});
  return sizes;
}

Result<std::vector<JobNodes>> parse_nodes(std::string_view text) {
  std::map<std::string, std::uint64_t> sizes;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.empty() || line.front() == '#') continue;
    const std::size_t blank = line.rfind(' ');
    std::uint64_t nodes = 0;
    const char* const end = line.data() + line.size();
    const bool has_both = blank != std::string_view::npos && blank > 0;
    const auto read = has_both ? std::from_chars(line.data() + blank + 1, end, nodes)
                               : std::from_chars_result{line.data(), std::errc::invalid_argument};
    if (read.ec != std::errc() || read.ptr != end || nodes == 0) {
      return fail(std::errc::invalid_argument, fmt::format("line {}", number),
                  quote(line) + " is no job with its nodes", "expected JOB NODES, as in dd.0 4");
    }
    sizes[std::string(line.substr(0, blank))] = nodes;
  }
  std::vector<JobNodes> list;
  list.reserve(sizes.size());
  for (const auto& [job, nodes] : sizes) list.push_back({job, nodes});
  return list;
}

}  // namespace weir::control
