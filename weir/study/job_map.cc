// SPDX-License-Identifier: Apache-2.0
#include "weir/study/job_map.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/base/job_id.h"
#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/classify/job_glob.h"

namespace weir::study {
namespace {

constexpr std::string_view kNameCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
constexpr std::string_view kOperation = "op";

std::string job_name(std::string_view text) {
  std::string name(text.substr(0, JobId::kSizeMax));
  for (char& c : name) {
    if (kNameCharacters.find(c) == std::string_view::npos) c = '_';
  }
  return name.empty() ? "unnamed" : name;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "/data/reader.0.1" is of fio's job "reader": its files are named JOB.NUMBER.FILE.
std::string_view fio_job(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const std::size_t last = name.rfind('.');
  if (last == std::string_view::npos || last == 0 || !is_number(name.substr(last + 1))) return name;
  const std::size_t before = name.rfind('.', last - 1);
  const bool has_both = before != std::string_view::npos && before > 0 &&
                        is_number(name.substr(before + 1, last - before - 1));
  return has_both ? name.substr(0, before) : name;
}

tl::unexpected<Error> refuse(std::string_view text, std::string_view what,
                             std::string_view hint = "expected JOB: FIELD=PATTERN ...") {
  return fail(std::errc::invalid_argument, "rule " + quote(text), what, hint);
}

Result<JobRule::Condition> parse_condition(std::string_view rule, std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals + 1 == word.size()) {
    return refuse(rule, quote(word) + " is not FIELD=PATTERN");
  }
  JobRule::Condition condition;
  condition.pattern = word.substr(equals + 1);
  const std::string_view name = word.substr(0, equals);
  if (name == kOperation) {
    if (condition.pattern == "read" || condition.pattern == "write") return condition;
    return refuse(rule, quote(word) + " is not valid", "expected op=read or op=write");
  }
  condition.field = field_by(name);
  if (condition.field) return condition;
  std::vector<std::string_view> known = {kOperation};
  for (std::size_t i = 0; i < kWorkloadFields; ++i) {
    known.push_back(field_name(static_cast<WorkloadField>(i)));
  }
  const auto meant = nearest(name, known);
  return refuse(rule, fmt::format("no field {}", quote(name)),
                meant ? fmt::format("did you mean {}?", *meant)
                      : fmt::format("expected one of: {}", fmt::join(known, ", ")));
}

}  // namespace

Result<JobRule> JobRule::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return refuse(text, "has no job");
  JobRule rule;
  const std::string_view job = text.substr(0, colon);
  if (job != "-") {
    if (job != job_name(job)) {
      return refuse(text, fmt::format("{} is not a valid name", quote(job)),
                    fmt::format("use 1 to {} letters, digits, _ - .", JobId::kSizeMax));
    }
    rule.job = job;
  }
  std::string_view rest = text.substr(colon + 1);
  for (;;) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (rest.empty()) break;
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    auto condition = parse_condition(text, word);
    if (!condition) return tl::unexpected(condition.error());
    rule.conditions.push_back(std::move(*condition));
  }
  if (rule.conditions.empty()) return refuse(text, "has no condition");
  return rule;
}

bool JobRule::matches(const WorkloadRequest& request) const {
  return std::all_of(conditions.begin(), conditions.end(), [&](const Condition& condition) {
    if (!condition.field) return request.is_read == (condition.pattern == "read");
    return job_glob_matches(condition.pattern, request.of(*condition.field));
  });
}

JobMap::JobMap(Options options, std::vector<sim::JobSpec> jobs)
    : options_(std::move(options)), jobs_(std::move(jobs)) {
  for (std::size_t i = 0; i < jobs_.size(); ++i) {
    by_name_.emplace(jobs_[i].name, static_cast<std::uint32_t>(i));
  }
}

JobMap::Found JobMap::find(const WorkloadRequest& request, WorkloadFormat format) {
  for (const JobRule& rule : options_.rules) {
    if (!rule.matches(request)) continue;
    if (rule.job.empty()) return {.skipped = Skipped::kLeftOut};
    return find_named(rule.job);
  }
  if (options_.by_rules_only) return {.skipped = Skipped::kNoRule};
  const WorkloadField by = options_.by.value_or(usual_field(format));
  const std::string_view text = request.of(by);
  return find_named(by == WorkloadField::kFile ? fio_job(text) : text);
}

JobMap::Found JobMap::find_named(std::string_view text) {
  if (const auto known = by_text_.find(text); known != by_text_.end()) {
    return {.job = known->second, .is_overflow = overflow_ == known->second};
  }
  const std::string name = job_name(text);
  auto known = by_name_.find(name);
  if (known == by_name_.end()) {
    if (overflow_) return {.job = *overflow_, .is_overflow = true};
    if (is_sealed_) return {.is_unknown = true};
    const bool is_last = jobs_.size() + 1 >= sim::kJobsMax;
    sim::JobSpec job;
    job.name = is_last ? std::string(kOthers) : name;
    job.group = job.name;
    known = by_name_.try_emplace(job.name, static_cast<std::uint32_t>(jobs_.size())).first;
    if (known->second == jobs_.size()) jobs_.push_back(std::move(job));
    if (is_last) {
      overflow_ = known->second;
      return {.job = *overflow_, .is_overflow = true};
    }
  }
  // To save the search for the next one; many texts may give the same name.
  if (!is_sealed_ && by_text_.size() < 4 * sim::kJobsMax) by_text_.emplace(text, known->second);
  return {.job = known->second};
}

}  // namespace weir::study
