// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/names.h"

#include <algorithm>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/rule_spec.h"
#include "weir/lustre/text.h"

namespace weir::lustre {
namespace {

constexpr std::string_view kHead = "weir lustre names 1\n";
constexpr std::uint64_t kNumberMax = 99'999;

std::string escape(std::string_view id) {
  std::string text = "\"";
  for (const char c : id) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte >= 0x7f || c == '"' || c == '\\') {
      text += fmt::format("\\x{:02X}", byte);
    } else {
      text += c;
    }
  }
  return text + '"';
}

}  // namespace

bool is_expressible(const JobId& job) {
  const std::string_view id = job.text();
  return !id.empty() && std::none_of(id.begin(), id.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte <= ' ' || byte == 0x7f ||
           std::string_view(",&{}*\"").find(c) != std::string_view::npos;
  });
}

std::string conds_of(const JobId& job) { return conds_for_job(job.text()); }

std::optional<JobId> job_of(std::string_view conds) {
  const auto text = job_in_conds(conds);
  if (!text) return std::nullopt;
  const JobId job(*text);
  if (job.text().size() != text->size() || !is_expressible(job)) return std::nullopt;
  return job;
}

Result<Names> Names::read(std::string_view prefix, std::string_view text) {
  const bool plain = std::all_of(prefix.begin(), prefix.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  });
  if (prefix.empty() || prefix.size() + kDigits > kNameMax || !plain) {
    return fail(std::errc::invalid_argument, "prefix " + quote(prefix), "cannot start a rule name",
                fmt::format("use 1 to {} letters, digits and _", kNameMax - kDigits));
  }
  Names names(prefix);
  if (text.empty()) return names;
  if (!text.starts_with(kHead)) {
    return fail(std::errc::invalid_argument, "map of names", "is not a name map",
                "name another file with --map");
  }
  text.remove_prefix(kHead.size());
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t tab = line.find('\t');
    const auto id = tab == std::string_view::npos ? Result<std::string>(std::string())
                                                  : parse_job_id(line.substr(tab + 1));
    if (!id || id->empty() || names.jobs_.size() >= kMax) {
      return fail(std::errc::invalid_argument, "map of names", quote(line) + " is not a valid line",
                  "name another file with --map");
    }
    const std::string name(line.substr(0, tab));
    names.jobs_[name] = JobId(*id);
    names.names_[JobId(*id)] = name;
    names.used_[name] = 0;
  }
  return names;
}

std::string Names::print() const {
  std::string text(kHead);
  for (const auto& [name, job] : jobs_) text += fmt::format("{}\t{}\n", name, escape(job.text()));
  return text;
}

std::optional<JobId> Names::owner(std::string_view name, std::string_view conds) const {
  const auto found = jobs_.find(std::string(name));
  if (found == jobs_.end() || job_of(conds) != found->second) return std::nullopt;
  return found->second;
}

std::optional<std::string> Names::find(const JobId& job) const {
  const auto found = names_.find(job);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> Names::name_for(const JobId& job, const std::set<std::string>& taken,
                                           const std::set<std::string>& in_use) {
  ++calls_;
  if (const auto found = names_.find(job); found != names_.end()) {
    const std::string name = found->second;
    if (!taken.contains(name)) {
      used_[name] = calls_;
      return name;
    }
    jobs_.erase(name);  // now used by someone else
    used_.erase(name);
    names_.erase(found);
    changed_ = true;
  }
  if (jobs_.size() >= kMax) {
    auto oldest = used_.end();
    for (auto each = used_.begin(); each != used_.end(); ++each) {
      if (in_use.contains(each->first)) continue;
      if (oldest == used_.end() || each->second < oldest->second) oldest = each;
    }
    if (oldest == used_.end()) return std::nullopt;
    names_.erase(jobs_[oldest->first]);
    jobs_.erase(oldest->first);
    used_.erase(oldest);
    changed_ = true;
  }
  for (std::uint64_t tries = 0; tries < kNumberMax; ++tries) {
    const std::string name = fmt::format("{}{:05}", prefix_, next_);
    next_ = next_ % kNumberMax + 1;
    if (jobs_.contains(name) || taken.contains(name)) continue;
    jobs_[name] = job;
    names_[job] = name;
    used_[name] = calls_;
    changed_ = true;
    return name;
  }
  return std::nullopt;
}

}  // namespace weir::lustre
