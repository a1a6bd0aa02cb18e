// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain_words.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/control/words.h"

namespace weir::control {
namespace {

std::string limits_of(const ClassSnapshot& one) {
  std::string text;
  if (one.rate > 0) {
    text = fmt::format("{}; {} of {} in the bucket", limit_words(one.rate, false),
                       count_words(one.level), counted(one.depth, "operation"));
  }
  if (one.bps > 0) {
    text += fmt::format("{}{}; {} of {} in the bucket", text.empty() ? "" : "; and ",
                        limit_words(one.bps, true), size_words(one.byte_level),
                        size_words(one.byte_depth));
  }
  if (!text.empty()) return text;
  return fmt::format("rule {} sets none; other layers, the share and the capacity may",
                     quote(one.rule));
}

}  // namespace

std::string limit_words(std::uint64_t limit, bool is_bytes) {
  return is_bytes ? bandwidth_words(limit) : rate_words(limit, "operations");
}

std::string tokens_rate(std::uint64_t rate, const ServiceSnapshot& service) {
  return service.capacity_unit == "bytes" ? bandwidth_words(rate)
                                          : rate_words(rate, service.capacity_unit);
}

std::vector<Fact> facts_of(const ServiceSnapshot& service, const ClassSnapshot& found,
                           const FactSources& sources) {
  std::vector<Fact> all;
  all.push_back({"class", fmt::format("{} of service {}, policy {}", found.name(), service.name,
                                      sources.policy)});
  all.push_back({"rule", fmt::format("{}: {}", found.rule, sources.reason)});
  all.push_back({"limit", limits_of(found)});
  if (!sources.limited_by.empty() && sources.limited_by != found.name()) {
    all.push_back({"held by", "the bucket of " + sources.limited_by});
  }
  if (found.reserve > 0) {
    all.push_back({"reserved", limit_words(three_digits(found.reserve), found.reserves_bytes) +
                                   ", which go before requests of others"});
  }
  if (service.capacity) {
    all.push_back({"capacity", fmt::format("{} of service {}",
                                           tokens_rate(*service.capacity, service), service.name)});
  }
  all.push_back(
      {"served",
       fmt::format("{}, {}; {} waiting now", counted(three_digits(found.totals.served), "request"),
                   size_words(found.totals.bytes), count_words(three_digits(sources.waiting)))});
  if (!sources.is_measured) {
    all.push_back({"delays", "not measured: too many queues are busy"});
  }
  return all;
}

std::string waited_words(const ServiceSnapshot& service, const WaitSpan& span) {
  const auto window = static_cast<std::uint64_t>((service.now - span.from).count());
  const std::string last = fmt::format("last {}: ", time_words(window));
  if (span.requests == 0) return last + "no requests";
  const std::string requests = counted(three_digits(span.requests), "request");
  if (span.wait_ns() == 0) return last + requests + " did not wait";
  return fmt::format("{}{} waited {} on average, because:", last, requests,
                     time_words(span.wait_each()));
}

std::vector<CauseTime> cause_times(const WaitSpan& span) {
  static constexpr std::array<std::string_view, kDelays> kTexts = {
      "the limit of its rule", "its share of the capacity", "the rate of the whole target",
      "a free slot of the device", "requests of others, which go first"};
  std::vector<CauseTime> all;
  if (span.requests == 0) return all;
  for (std::size_t i = 0; i < kDelays; ++i) {
    const std::uint64_t total = span.delays[i];
    all.push_back({delay_name(static_cast<Delay>(i)), kTexts[i], total / span.requests, total});
  }
  if (span.device.requests == 0) return all;
  all.push_back({"device", "the device, after the wait", span.device_each(), span.device.ns});
  all.push_back({"all", "in all, as the client sees it", span.wait_each() + span.device_each(),
                 span.wait_ns() + span.device.ns});
  return all;
}

std::vector<const JobSnapshot*> largest_records(const ServiceSnapshot& service, RecordSign sign) {
  std::vector<const JobSnapshot*> all;
  for (const JobSnapshot& job : service.jobs) {
    if (sign == RecordSign::kOwes ? job.record < 0 : job.record > 0) all.push_back(&job);
  }
  std::sort(all.begin(), all.end(), [](const JobSnapshot* a, const JobSnapshot* b) {
    const auto [of_a, of_b] = std::pair(std::abs(a->record), std::abs(b->record));
    return of_a != of_b ? of_a > of_b : a->job < b->job;
  });
  if (all.size() > kRecordsShown) all.resize(kRecordsShown);
  return all;
}

std::vector<std::string> record_words(const std::vector<const JobSnapshot*>& debtors,
                                      const std::vector<const JobSnapshot*>& lenders) {
  std::vector<std::string> all;
  const auto add = [&](std::string_view what, const std::vector<const JobSnapshot*>& jobs) {
    std::string line;
    for (const JobSnapshot* const job : jobs) {
      const auto tokens = static_cast<std::uint64_t>(std::abs(job->record));
      line += fmt::format("{}{} ({})", line.empty() ? "" : ", ", printable_id(job->job.text()),
                          counted(three_digits(tokens), "token"));
    }
    if (!line.empty()) all.push_back(fmt::format("{}: {}", what, line));
  };
  add("the largest debts", debtors);
  add("the largest credits", lenders);
  return all;
}

}  // namespace weir::control
