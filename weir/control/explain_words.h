// SPDX-License-Identifier: Apache-2.0
//
// What an explanation says below its verdict (explain.h): the class and its limits, how long its
// requests waited and for what, and whose records are the largest. The server writes these texts
// once, so that weir explain, the page and the API use the same words and numbers.
//
//   class     dd/dd.0 of service ost_io, policy tbf jobid
//   rule      dd: 'jobid={dd.*}' matches
//   limit     100 operations/s; 0 of 3 operations in the bucket
//   last 28.7 s: 36,000 requests waited 25.0 ms on average, because:
//
// Functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weir/control/explain.h"
#include "weir/control/snapshot.h"

namespace weir::control {

// A limit or a rate, in operations or bytes; and one in the unit of the service's capacity.
std::string limit_words(std::uint64_t limit, bool is_bytes);
std::string tokens_rate(std::uint64_t rate, const ServiceSnapshot& service);

struct Fact {
  std::string name;
  std::string text;
};
// What facts_of() cannot read from the class.
struct FactSources {
  std::string reason;      // why its rule matches
  std::string policy;      // with its argument
  std::string limited_by;  // as in Verdict
  std::uint64_t waiting = 0;
  bool is_measured = true;
};
std::vector<Fact> facts_of(const ServiceSnapshot& service, const ClassSnapshot& found,
                           const FactSources& sources);

// "last 28.7 s: 36,000 requests waited 25.0 ms on average, because:"
std::string waited_words(const ServiceSnapshot& service, const WaitSpan& span);

// One cause of delay: of a request on average, and of all in the window.
struct CauseTime {
  std::string_view cause;  // as delay_name(), "device", or "all": both together
  std::string_view text;
  std::uint64_t each = 0;
  std::uint64_t total = 0;
};
// Nothing if there were no requests; device and all only if the device has completed some.
std::vector<CauseTime> cause_times(const WaitSpan& span);

enum class RecordSign : std::uint8_t { kOwes, kIsOwed };
inline constexpr std::size_t kRecordsShown = 10;
// Of the jobs that owe, or that are owed, those with the largest records, largest first.
std::vector<const JobSnapshot*> largest_records(const ServiceSnapshot& service, RecordSign sign);
// "owing most: scan.3 (1,200 tokens), ..."; nothing for an empty list.
std::vector<std::string> record_words(const std::vector<const JobSnapshot*>& debtors,
                                      const std::vector<const JobSnapshot*>& lenders);

}  // namespace weir::control
