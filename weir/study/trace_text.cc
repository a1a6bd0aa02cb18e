// SPDX-License-Identifier: Apache-2.0
#include "weir/study/trace_text.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::study {
namespace {

constexpr std::string_view kHeading = "time_s,job,op,bytes";
constexpr std::size_t kFields = 4;

std::optional<std::array<std::string_view, kFields>> split(std::string_view line) {
  std::array<std::string_view, kFields> fields;
  for (std::size_t i = 0; i < kFields; ++i) {
    const std::size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i == kFields - 1)) return std::nullopt;
    fields[i] = line.substr(0, comma);
    line.remove_prefix(i == kFields - 1 ? line.size() : comma + 1);
  }
  return fields;
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

class TraceReader {
 public:
  explicit TraceReader(sim::Scenario& scenario) : scenario_(scenario) {
    for (std::size_t i = 0; i < scenario.jobs.size(); ++i) {
      jobs_[scenario.jobs[i].name] = static_cast<std::uint32_t>(i);
    }
  }

  // The error in the line; empty if there is none.
  std::string add(std::string_view line) {
    const auto fields = split(line);
    if (!fields) return "expected four fields, " + std::string(kHeading);
    const auto& [time, job, op, bytes] = *fields;
    const auto at = parse_duration(std::string(time) + "s");
    if (!at) return quote(time) + " is not a time in seconds";
    if (*at < last_) return quote(time) + " is earlier than the previous line";
    if (op != "read" && op != "write") return quote(op) + " is neither read nor write";
    const auto size = whole_number(bytes);
    if (!size || *size == 0) return quote(bytes) + " is not a size in bytes";
    last_ = *at;
    scenario_.trace.push_back({*at, job_of(job), op == "read", Bytes{*size}});
    return {};
  }

 private:
  std::uint32_t job_of(std::string_view name) {
    const auto [known, is_new] =
        jobs_.try_emplace(std::string(name), static_cast<std::uint32_t>(scenario_.jobs.size()));
    if (is_new) {
      sim::JobSpec job;
      job.name = name;
      scenario_.jobs.push_back(std::move(job));
    }
    return known->second;
  }

  sim::Scenario& scenario_;
  std::map<std::string, std::uint32_t, std::less<>> jobs_;
  Nanoseconds last_{0};
};

}  // namespace

Result<void> add_trace(std::string_view text, const std::string& where, sim::Scenario& scenario) {
  TraceReader reader(scenario);
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    if (line.empty() || line.front() == '#' || line == kHeading) continue;
    if (const std::string wrong = reader.add(line); !wrong.empty()) {
      return fail(std::errc::invalid_argument, fmt::format("{}:{}", where, number), wrong);
    }
  }
  if (scenario.trace.empty()) {
    return fail(std::errc::invalid_argument, where, "contains no request",
                "expected lines of " + std::string(kHeading));
  }
  return {};
}

}  // namespace weir::study
