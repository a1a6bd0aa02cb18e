// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/policy_kinds.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/schedule/crrn.h"
#include "weir/schedule/fifo.h"
#include "weir/schedule/tbf.h"

namespace weir {
namespace {

constexpr std::size_t kNameMax = 15;

template <class Made>
Result<PolicyKind::Pair> make_pair_of(std::string_view /*argument*/, const PolicySetup& /*setup*/) {
  PolicyKind::Pair made;
  for (auto& policy : made) policy = std::make_unique<Made>();
  return made;
}

// Both heads of tbf share one engine, so that a class has one bucket.
Result<PolicyKind::Pair> make_tbf(std::string_view argument, const PolicySetup& setup) {
  const auto type = argument.empty() ? FieldSet::generic() : FieldSet::parse_type(argument);
  if (!type) return tl::unexpected(type.error());
  const auto engine = std::make_shared<Tbf>(*type, setup.rules, setup.stamp, &setup.root);
  PolicyKind::Pair made;
  for (const Head head : kHeads) {
    made[static_cast<std::size_t>(head)] = std::make_unique<TbfPolicy>(engine, head);
  }
  return made;
}

std::vector<std::unique_ptr<const PolicyKind>> own_kinds() {
  std::vector<std::unique_ptr<const PolicyKind>> kinds;
  const auto add = [&](PolicyKind kind) {
    kinds.push_back(std::make_unique<const PolicyKind>(std::move(kind)));
  };
  add({.name = std::string(Fifo::kName),
       .help = "first in, first out",
       .make = make_pair_of<Fifo>});
  add({.name = std::string(Crrn::kName),
       .help = "round robin over clients",
       .tunables = {{.name = std::string(Crrn::kQuantum),
                     .least = 1,
                     .most = Crrn::kQuantumMax,
                     .help = "requests of a client in a row"}},
       .make = make_pair_of<Crrn>});
  add({.name = std::string(TbfPolicy::kName),
       .help = "token buckets: limits by rules, shares by jobs",
       .takes_argument = true,
       .has_rules = true,
       .make = make_tbf});
  return kinds;
}

std::vector<std::unique_ptr<const PolicyKind>>& kinds() {
  static std::vector<std::unique_ptr<const PolicyKind>> all = own_kinds();
  return all;
}

// "fifo, crrn and tbf"
std::string join(const std::vector<std::string_view>& names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? last : std::string_view(", ");
    text += names[i];
  }
  return text;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
         });
}

// The parameter nrs_<policy>_<tunable> belongs to one tunable.
bool is_taken(const std::string& parameter) {
  for (const auto& kind : kinds()) {
    for (const Tunable& one : kind->tunables) {
      if (kind->name + "_" + one.name == parameter) return true;
    }
  }
  return parameter == "tbf_rule";
}

Result<void> check_tunables(const PolicyKind& kind) {
  std::vector<std::string_view> names;
  for (const Tunable& one : kind.tunables) {
    const std::string where =
        fmt::format("tunable {} of policy {}", quote(one.name), quote(kind.name));
    if (!is_name(one.name)) {
      return fail(std::errc::invalid_argument, where, "is not a valid name",
                  fmt::format("use up to {} of a-z, 0-9 and _", kNameMax));
    }
    if (one.least > one.most) {
      return fail(std::errc::invalid_argument, where, "has no valid value",
                  "Tunable::least must not be above Tunable::most");
    }
    if (std::find(names.begin(), names.end(), one.name) != names.end() ||
        is_taken(kind.name + "_" + one.name)) {
      return fail(std::errc::file_exists, where, "is already registered", "use another name");
    }
    names.push_back(one.name);
  }
  return {};
}

}  // namespace

const std::vector<std::unique_ptr<const PolicyKind>>& policy_kinds() { return kinds(); }

const PolicyKind& fallback_policy() { return *kinds().front(); }

Result<void> add_policy(PolicyKind kind) {
  if (!is_name(kind.name)) {
    return fail(std::errc::invalid_argument, "policy " + quote(kind.name), "is not a valid name",
                fmt::format("use up to {} of a-z, 0-9 and _", kNameMax));
  }
  if (kind.make == nullptr) {
    return fail(std::errc::invalid_argument, "policy " + quote(kind.name), "has no factory",
                "set PolicyKind::make");
  }
  if (auto checked = check_tunables(kind); !checked) return checked;
  for (const auto& one : kinds()) {
    if (one->name == kind.name) {
      return fail(std::errc::file_exists, "policy " + quote(kind.name), "is already registered",
                  "use another name, or add it only once");
    }
  }
  kinds().push_back(std::make_unique<const PolicyKind>(std::move(kind)));
  return {};
}

Result<const PolicyKind*> find_policy(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& kind : kinds()) {
    if (kind->name == name) return kind.get();
    names.push_back(kind->name);
  }
  std::string hint = "there are " + join(names, " and ");
  if (const auto meant = nearest(name, names))
    hint = fmt::format("did you mean {}? {}", *meant, hint);
  return fail(std::errc::no_such_file_or_directory, quote(name), "no such policy", hint);
}

Result<const Tunable*> find_tunable(const PolicyKind& kind, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Tunable& one : kind.tunables) {
    if (one.name == name) return &one;
    names.push_back(one.name);
  }
  std::string hint = names.empty() ? "it has no tunables" : "it has " + join(names, " and ");
  if (const auto meant = nearest(name, names))
    hint = fmt::format("did you mean {}? {}", *meant, hint);
  return fail(std::errc::no_such_file_or_directory, quote(name),
              fmt::format("policy {} has no such tunable", quote(kind.name)), hint);
}

std::string policies_with_rules() {
  std::vector<std::string_view> names;
  for (const auto& kind : kinds()) {
    if (kind->has_rules) names.push_back(kind->name);
  }
  return join(names, " or ");
}

}  // namespace weir
