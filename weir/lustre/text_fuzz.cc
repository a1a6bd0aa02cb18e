// SPDX-License-Identifier: Apache-2.0
//
// Whatever stands in a server's files, the parsers answer: values or an error, and what they read
// of ids survives being written into a map.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weir/base/assert.h"
#include "weir/lustre/names.h"
#include "weir/lustre/text.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir::lustre;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto stats = parse_job_stats(text)) {
    auto names = *Names::read("w", "");
    for (const JobCounters& job : stats->jobs) {
      WEIR_ASSERT(!job.job.empty());
      if (names.find(job.job) || !names.name_for(job.job, {}, {})) continue;
    }
    const auto again = Names::read("w", names.print());
    WEIR_ASSERT(again.has_value() && again->print() == names.print());
  }
  if (const auto rules = parse_rules(text)) {
    for (const auto& cpt : rules->regular) {
      for (const RuleLine& rule : cpt.rules) (void)job_of(rule.conds);
    }
  }
  (void)parse_policies(text);
  (void)parse_partitions(text);
  (void)parse_stats(text);
  (void)parse_stats(text, Counted::kOperations);
  return 0;
}
