// SPDX-License-Identifier: Apache-2.0
#include "weir/control/params.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "weir/base/quote.h"
#include "weir/classify/command.h"
#include "weir/control/export_stats_text.h"
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
  const auto has_rules = [&] { return service.target.rules(Head::kRegular) != nullptr; };
  const bool had_rules = has_rules();
  const auto started = service.rules.start_policy(text, now);
  if (!started) return tl::unexpected(started.error());
  if (notes == nullptr) return {};
  const auto note = [&](const std::string& said) {
    notes->push_back(fmt::format("service {}: {}", quote(service.name), said));
  };
  if (const std::string rules = started->message(); !rules.empty()) note(rules);
  if (service.groups != nullptr && had_rules != has_rules()) {
    note(has_rules() ? "groups of clients take turns again"
                     : "groups of clients take no turns under this policy");
  }
  return {};
}

void add_service(Params& params, serve::Server& server, serve::Service& service, Notes* notes) {
  Target& target = service.target;
  const Instant now = server.now();
  const auto path = [&](std::string leaf) {
    return std::vector<std::string>{"ost", "OSS", service.name, std::move(leaf)};
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
  params.add({path("nrs_tbf_rule"), [&target] { return read_nrs_tbf_rule(target); }, nullptr});
  for (const TunableName& name : nrs_tunables()) {
    params.add(
        {path(name.leaf()), [&target, name] { return read_nrs_tunable(target, name); },
         [&target, name, now](std::string_view text) {
           return write_nrs_tunable(target, name, text, now);
         },
         [&target, name](std::string_view text) { return check_nrs_tunable(target, name, text); }});
  }
}

// A server is not a client: nothing here generates job ids.
void add_root(Params& params) {
  const auto add = [&](const char* name, std::string value) {
    params.add_read_only({name}, [value]() -> Result<std::string> { return value; });
  };
  add("version", fmt::format("{}_weir_" WEIR_VERSION "\n", kLustreVersion));
  add("jobid_var", "disable\n");
  add("jobid_name", "%e.%u\n");
}

void add_export(Params& params, serve::ServedExport& served, std::size_t number,
                const Moment& moment) {
  OpStats& stats = served.stats;
  const std::string name = served.options.name.empty() ? "default" : served.options.name;
  const std::size_t first = params.size();
  const auto path = [&](const char* leaf) {
    return std::vector<std::string>{"obdfilter", name, leaf};
  };
  params.add({path("job_stats"),
              [&stats, moment]() -> Result<std::string> { return print_job_stats(stats, moment); },
              [&stats](std::string_view text) { return write_job_stats(stats, text); }});
  params.add({path("job_cleanup_interval"),
              [&stats]() -> Result<std::string> { return print_cleanup_interval(stats); },
              [&stats](std::string_view text) { return write_cleanup_interval(stats, text); },
              check_cleanup_interval});
  params.add_read_only(path("stats"), [&stats, moment]() -> Result<std::string> {
    return print_export_stats(stats.total(), moment);
  });
  params.add_read_only(path("brw_stats"), [&stats, moment]() -> Result<std::string> {
    return print_brw_stats(stats.total(), moment);
  });
  params.add_aliases(first, 1, fmt::format("{}-OST{:04x}", name, number));
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

void Params::add_read_only(std::vector<std::string> path,
                           std::function<Result<std::string>()> value) {
  const auto refuse = [leaf = path.back()](std::string_view) -> Result<void> {
    return fail(std::errc::permission_denied, leaf, "is read-only");
  };
  add({.parts = std::move(path),
       .read = std::move(value),
       .write = refuse,
       .check = refuse,
       .is_writable = false});
}

void Params::add_aliases(std::size_t first, std::size_t part, const std::string& name) {
  const std::size_t end = all_.size();
  for (std::size_t i = first; i < end; ++i) {
    Param alias = all_[i];
    alias.parts[part] = name;
    alias.alias_of = i;
    all_.push_back(std::move(alias));
  }
}

std::size_t Params::match(const Param& param, const std::string& glob, Depth depth) const {
  const std::size_t all = param.parts.size();
  for (std::size_t count = depth == Depth::kExact ? all : 1; count <= all; ++count) {
    if (fits(glob, param.parts, count)) return count;
  }
  return 0;
}

std::vector<const Param*> Params::find(std::string_view pattern, Depth depth) const {
  const std::string glob = slashed_pattern(pattern);
  std::vector<const Param*> found;
  for (const Param& param : all_) {
    if (param.alias_of && match(all_[*param.alias_of], glob, depth) > 0) continue;
    if (match(param, glob, depth) > 0) found.push_back(&param);
  }
  return found;
}

std::vector<ParamName> Params::list(std::string_view pattern, Depth depth) const {
  const std::string glob = slashed_pattern(pattern);
  std::vector<ParamName> found;
  absl::flat_hash_set<std::string> seen;
  for (const Param& param : all_) {
    bool is_below = false;
    for (std::size_t count = 1; count <= param.parts.size(); ++count) {
      if (param.alias_of && fits(glob, all_[*param.alias_of].parts, count)) break;
      const bool matches = fits(glob, param.parts, count);
      if (!matches && !is_below) continue;
      is_below = depth == Depth::kBelow;
      const auto end = param.parts.begin() + static_cast<std::ptrdiff_t>(count);
      std::string path = fmt::format("{}", fmt::join(param.parts.begin(), end, "."));
      if (!seen.insert(path).second) continue;
      const bool is_folder = count < param.parts.size();
      found.push_back({std::move(path), is_folder, !is_folder && param.is_writable});
    }
  }
  return found;
}

Params server_params(serve::Server& server, const Moment& moment, Notes* notes) {
  Params params;
  add_root(params);
  for (const auto& service : server.services()) add_service(params, server, *service, notes);
  std::size_t number = 0;
  for (const auto& served : server.exports()) add_export(params, *served, number++, moment);
  return params;
}

std::optional<Error> failure_of(const std::vector<ParamOutcome>& outcomes) {
  for (const ParamOutcome& outcome : outcomes) {
    if (outcome.error.code != std::errc{}) return outcome.error;
  }
  return std::nullopt;
}

std::vector<ParamOutcome> read_params(const Params& params, std::string_view pattern, Depth depth) {
  std::vector<ParamOutcome> outcomes;
  for (const Param* const param : params.find(pattern, depth)) {
    ParamOutcome outcome{param->path(), param->slashed(), {}, {}};
    outcome.is_writable = param->is_writable;
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
