// SPDX-License-Identifier: Apache-2.0
#include "weir/control/params.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "weir/base/quote.h"
#include "weir/classify/command.h"
#include "weir/target/nrs_text.h"

namespace weir::control {
namespace {

// The examples of the original design write rules to nrs_policies; no Lustre release accepts that.
Result<void> check_policies(std::string_view text) {
  if (!outline_of(text).has_verb) return {};
  return fail(std::errc::no_such_file_or_directory, quote(text), "is a rule, not a policy",
              "write rules to nrs_tbf_rule");
}

Result<void> write_policies(serve::Service& service, std::string_view text, Instant now,
                            Notes* notes) {
  if (auto checked = check_policies(text); !checked) return checked;
  const auto started = service.rules.start_policy(text, now);
  if (!started) return tl::unexpected(started.error());
  std::string note = started->message();
  if (notes != nullptr && !note.empty()) {
    notes->push_back(fmt::format("service {}: {}", quote(service.name), note));
  }
  return {};
}

void add_service(Params& params, serve::Server& server, serve::Service& service,
                 serve::KeptRules::Keeping keeping, Notes* notes) {
  Target& target = service.target;
  const Instant now = server.now();
  const auto path = [&](const char* leaf) {
    return std::vector<std::string>{"ost", "OSS", service.name, leaf};
  };
  params.add({path("nrs_policies"),
              [&target]() -> Result<std::string> { return read_nrs_policies(target); },
              [&service, now, notes](std::string_view text) {
                return write_policies(service, text, now, notes);
              },
              [](std::string_view text) -> Result<void> {
                if (auto checked = check_policies(text); !checked) return checked;
                Target trial({}, Instant{});
                return write_nrs_policies(trial, text, Instant{});
              }});
  params.add({path("nrs_tbf_rule"), [&target] { return read_nrs_tbf_rule(target); },
              [&service, now, keeping](std::string_view text) {
                return service.rules.apply(text, keeping, now);
              }});
  params.add(
      {path("nrs_crrn_quantum"), [&target] { return read_nrs_crrn_quantum(target); },
       [&target, now](std::string_view text) { return write_nrs_crrn_quantum(target, text, now); },
       [&target](std::string_view text) { return check_nrs_crrn_quantum(target, text); }});
}

void add_export(Params& params, serve::ServedExport& served, const Moment& moment) {
  OpStats& stats = served.stats;
  const auto path = [&](const char* leaf) {
    return std::vector<std::string>{
        "obdfilter", served.options.name.empty() ? "default" : served.options.name, leaf};
  };
  params.add({path("job_stats"),
              [&stats, moment]() -> Result<std::string> { return print_job_stats(stats, moment); },
              [&stats](std::string_view text) { return write_job_stats(stats, text); }});
  params.add({path("job_cleanup_interval"),
              [&stats]() -> Result<std::string> { return print_cleanup_interval(stats); },
              [&stats](std::string_view text) { return write_cleanup_interval(stats, text); },
              check_cleanup_interval});
}

// Whether the glob matches the first `count` parts; a part may contain dots.
bool fits(const std::string& glob, const std::vector<std::string>& parts, std::size_t count) {
  const auto end = parts.begin() + static_cast<std::ptrdiff_t>(count);
  const std::string slashed = fmt::format("{}", fmt::join(parts.begin(), end, "/"));
  if (fnmatch(glob.c_str(), slashed.c_str(), FNM_PATHNAME) == 0) return true;
  std::string dots = slashed;
  std::replace(dots.begin(), dots.end(), '/', '.');
  std::string plain = glob;
  std::replace(plain.begin(), plain.end(), '/', '.');
  return plain == dots;
}

std::string slashed_pattern(std::string_view pattern) {
  std::string glob(pattern);
  std::replace(glob.begin(), glob.end(), '.', '/');
  return glob;
}

}  // namespace

std::string dotted(std::string_view pattern) {
  std::string text(pattern);
  std::replace(text.begin(), text.end(), '/', '.');
  return text;
}

std::string Param::path() const { return fmt::format("{}", fmt::join(parts, ".")); }
std::string Param::slashed() const { return fmt::format("{}", fmt::join(parts, "/")); }

std::vector<const Param*> Params::find(std::string_view pattern) const {
  const std::string glob = slashed_pattern(pattern);
  std::vector<const Param*> found;
  for (const Param& param : all_) {
    if (fits(glob, param.parts, param.parts.size())) found.push_back(&param);
  }
  return found;
}

std::vector<std::string> Params::list(std::string_view pattern) const {
  const std::string glob = slashed_pattern(pattern);
  std::vector<std::string> found;
  for (const Param& param : all_) {
    for (std::size_t count = 1; count <= param.parts.size(); ++count) {
      if (!fits(glob, param.parts, count)) continue;
      const auto end = param.parts.begin() + static_cast<std::ptrdiff_t>(count);
      std::string path = fmt::format("{}", fmt::join(param.parts.begin(), end, "."));
      if (std::find(found.begin(), found.end(), path) == found.end()) {
        found.push_back(std::move(path));
      }
    }
  }
  return found;
}

Params server_params(serve::Server& server, const Moment& moment, serve::KeptRules::Keeping keeping,
                     Notes* notes) {
  Params params;
  for (const auto& service : server.services()) {
    add_service(params, server, *service, keeping, notes);
  }
  for (const auto& served : server.exports()) add_export(params, *served, moment);
  return params;
}

std::optional<Error> failure_of(const std::vector<ParamOutcome>& outcomes) {
  for (const ParamOutcome& outcome : outcomes) {
    if (outcome.error.code != std::errc{}) return outcome.error;
  }
  return std::nullopt;
}

std::vector<ParamOutcome> read_params(const Params& params, std::string_view pattern) {
  std::vector<ParamOutcome> outcomes;
  for (const Param* const param : params.find(pattern)) {
    ParamOutcome outcome{param->path(), param->slashed(), {}, {}};
    auto value = param->read();
    if (value) {
      outcome.value = std::move(*value);
    } else {
      outcome.error = value.error();
    }
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

std::vector<ParamOutcome> write_params(const Params& params, std::string_view pattern,
                                       std::string_view value) {
  std::vector<ParamOutcome> outcomes;
  for (const Param* const param : params.find(pattern)) {
    ParamOutcome outcome{param->path(), param->slashed(), std::string(value), {}};
    if (auto written = param->write(value); !written) outcome.error = written.error();
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

}  // namespace weir::control
