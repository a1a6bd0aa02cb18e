// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_keys.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/number.h"
#include "weir/classify/rule.h"

namespace weir {
namespace {

using Done = Parsed<void>;
using Texts = std::vector<std::string>;

tl::unexpected<Mistake> refuse(std::string_view value, std::string_view what,
                               std::string_view hint) {
  return mistake(0, fmt::format("{} {}", quote(value), what), std::string(hint));
}

// ---- rate, rank, realtime ----

Done read_rate(std::string_view value, RuleKeys& keys) {
  const auto rate = read_count(value);
  if (!rate || *rate < 1 || *rate > kRateMax) {
    return refuse(
        value, "is not a valid rate",
        fmt::format("expected a whole number of operations per second from 1 to {}", kRateMax));
  }
  keys.rate = static_cast<std::uint32_t>(*rate);
  return {};
}
std::string print_rate(std::uint32_t rate) { return std::to_string(rate); }
std::string json_rate(const Rule& rule) {
  return fmt::format(R"("rate":{})", rule.limits().rate_in_force());
}

Done read_rank(std::string_view value, RuleKeys& keys) {
  if (value.size() > kRuleNameMax) {
    return refuse(value, "is longer than a rule name can be", "expected the name of a rule");
  }
  if (auto done = check_rule_name(value); !done) return done;
  keys.rank = value;
  return {};
}
std::string print_rank(const std::string& rank) { return rank; }

Done read_realtime(std::string_view value, RuleKeys& keys) {
  const auto number = read_count(value);
  if (!number) return refuse(value, "is not valid", "expected realtime=0 or realtime=1");
  keys.realtime = *number > 0;
  return {};
}
std::string print_realtime(bool realtime) { return realtime ? "1" : "0"; }
std::string json_realtime(const Rule& rule) {
  return fmt::format(R"("realtime":{})", rule.limits().realtime);
}

// ---- bps, burst ----

Done read_bps(std::string_view value, RuleKeys& keys) {
  const auto rate = parse_bandwidth(value);
  if (!rate) return mistake(0, rate.error().message(), "expected bps=10MiB/s");
  keys.bps = *rate;
  return {};
}
// Bytes are per second unless another time is given.
std::string print_bps(Rate bps) {
  std::string text = print_bandwidth(bps);
  if (text.ends_with("/s")) text.resize(text.size() - 2);
  return text;
}
std::string json_bps(const Rule& rule) {
  const auto& bps = rule.limits().bps;
  return bps ? fmt::format(R"("bps":"{}")", print_bandwidth(*bps)) : R"("bps":null)";
}

// A bare number is tokens, a number with a unit is bytes.
Done read_burst(std::string_view value, RuleKeys& keys) {
  if (const auto tokens = parse_count(value)) {
    if (*tokens < 1 || *tokens > kBurstTokensMax) {
      return refuse(value, "is not a valid burst",
                    fmt::format("expected 1 to {} tokens", kBurstTokensMax));
    }
    keys.burst_ops = Tokens{*tokens};
    return {};
  }
  const auto size = parse_size(value);
  if (!size || *size == Bytes{0}) {
    return refuse(value, "is not a valid burst",
                  "expected tokens such as burst=9, or bytes such as burst=1MiB");
  }
  keys.burst_bytes = *size;
  return {};
}
Texts print_bursts(const RuleKeys& keys) {
  Texts values;
  if (keys.burst_ops) values.push_back(std::to_string(keys.burst_ops->count()));
  if (keys.burst_bytes) values.push_back(print_size(*keys.burst_bytes));
  return values;
}
std::string json_burst(const Rule& rule) {
  const auto number = [](const auto& depth) {
    return depth ? std::to_string(depth->count()) : "null";
  };
  return fmt::format(R"("burst":{},"burst_bytes":{})", number(rule.limits().burst_ops),
                     number(rule.limits().burst_bytes));
}

// ---- by, layer ----

Done read_by(std::string_view value, RuleKeys& keys) {
  if (value == "rule") {
    keys.by = FieldSet{};
    return {};
  }
  auto fields = FieldSet::read(value);
  if (!fields) {
    fields.error().hint = "expected by=rule, or fields joined with '+' such as by=uid+nid";
    return tl::unexpected(std::move(fields.error()));
  }
  keys.by = *fields;
  return {};
}
std::string print_by(FieldSet by) {
  if (by.empty()) return "rule";
  return by == FieldSet::generic() ? "generic" : by.print_type();
}
std::string json_by(const Rule& rule) { return fmt::format(R"("by":"{}")", print_by(rule.by())); }

Done read_layer(std::string_view value, RuleKeys& keys) {
  if (value.size() != 1 || value[0] < '0' || value[0] >= '0' + static_cast<int>(kLayers)) {
    return refuse(value, "is not a valid layer", "expected layer=0, 1, 2 or 3");
  }
  keys.layer = static_cast<std::uint8_t>(value[0] - '0');
  return {};
}
std::string print_layer(std::uint8_t layer) { return std::to_string(layer); }
std::string json_layer(const Rule& rule) { return fmt::format(R"("layer":{})", rule.layer()); }

// ---- reserve, weight ----

// A bare number is operations, a number with a unit is bytes; 0: none.
Done read_reserve(std::string_view value, RuleKeys& keys) {
  if (const auto rate = read_count(value)) {
    if (*rate > kRateMax) {
      return refuse(value, "is not a valid reservation",
                    fmt::format("expected at most {} operations per second", kRateMax));
    }
    keys.reserve.emplace();
    if (*rate > 0) *keys.reserve = Reserve{Rate::per_second(*rate), false};
    return {};
  }
  const auto rate = parse_bandwidth(value);
  if (!rate) {
    return refuse(value, "is not a valid reservation",
                  "expected operations such as reserve=500, or bytes such as reserve=10MiB/s");
  }
  keys.reserve = Reserve{*rate, true};
  return {};
}
std::string print_reserve(const std::optional<Reserve>& reserve) {
  return reserve ? reserve->print() : "0";
}
std::string json_reserve(const Rule& rule) {
  const auto& reserve = rule.limits().reserve;
  if (!reserve) return R"("reserve":null)";
  return fmt::format(R"("reserve":"{}")", reserve->print());
}

Done read_weight(std::string_view value, RuleKeys& keys) {
  const auto weight = read_count(value);
  if (!weight || *weight < 1 || *weight > kWeightMax) {
    return refuse(value, "is not a valid weight",
                  fmt::format("expected a whole number from 1 to {}", kWeightMax));
  }
  keys.weight = static_cast<std::uint32_t>(*weight);
  return {};
}
std::string print_weight(std::uint32_t weight) { return std::to_string(weight); }
std::string json_weight(const Rule& rule) {
  const auto& weight = rule.limits().weight;
  return weight ? fmt::format(R"("weight":{})", *weight) : R"("weight":null)";
}

// ---- cost, scope ----

std::optional<Cost> read_affine(std::string_view value) {
  constexpr std::string_view kAffine = "affine:";
  if (!value.starts_with(kAffine)) return std::nullopt;
  const std::string_view numbers = value.substr(kAffine.size());
  const std::size_t colon = numbers.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto base = read_decimal(numbers.substr(0, colon));
  const auto per_kib = read_decimal(numbers.substr(colon + 1));
  if (!base || !per_kib || *base > UINT32_MAX || *per_kib > UINT32_MAX) return std::nullopt;
  if (*base == 0 && *per_kib == 0) return std::nullopt;
  return Cost::affine(static_cast<std::uint32_t>(*base), static_cast<std::uint32_t>(*per_kib));
}
Done read_cost(std::string_view value, RuleKeys& keys) {
  if (value == "op" || value == "bytes") {
    keys.cost = value == "op" ? Cost::op() : Cost::bytes();
    return {};
  }
  const auto cost = read_affine(value);
  if (!cost) {
    return refuse(value, "is not a valid cost",
                  "expected cost=op, cost=bytes or cost=affine:A:B, A and B whole numbers below "
                  "2^32 and not both 0");
  }
  keys.cost = cost;
  return {};
}
std::string print_cost(const Cost& cost) { return cost.print(); }
std::string json_cost(const Rule& rule) {
  return fmt::format(R"("cost":"{}")", rule.limits().cost.print());
}

Done read_scope(std::string_view value, RuleKeys& keys) {
  if (value != "local" && value != "cluster") {
    return refuse(value, "is not a valid scope", "expected scope=local or scope=cluster");
  }
  keys.scope = value == "local" ? Scope::kLocal : Scope::kCluster;
  return {};
}
std::string print_scope(Scope scope) { return scope == Scope::kLocal ? "local" : "cluster"; }
std::string json_scope(const Rule& rule) {
  return fmt::format(R"("scope":"{}")", print_scope(rule.limits().scope));
}

// ---- the table ----

template <auto... kMembers>
constexpr RuleKey::Members members() {
  return {
      .given = [](const RuleKeys& keys) { return ((keys.*kMembers).has_value() || ...); },
      .set =
          [](RuleKeys& keys, const RuleKeys& from) {
            ((from.*kMembers ? void(keys.*kMembers = from.*kMembers) : void()), ...);
          },
      .drop_same =
          [](RuleKeys& keys, const RuleKeys& other) {
            ((keys.*kMembers == other.*kMembers ? (keys.*kMembers).reset() : void()), ...);
          },
      .cover =
          [](const RuleKeys& keys, const RuleKeys& other) {
            return ((keys.*kMembers || !(other.*kMembers)) && ...);
          },
  };
}

// The members of a key that sets a single one.
template <auto kMember, auto kPrint>
Texts print_one(const RuleKeys& keys) {
  return keys.*kMember ? Texts{kPrint(*(keys.*kMember))} : Texts{};
}

template <auto kMember, auto kLimit>
void set_limit(const RuleKeys& keys, Limits& limits) {
  if (keys.*kMember) limits.*kLimit = *(keys.*kMember);
}
void set_bursts(const RuleKeys& keys, Limits& limits) {
  set_limit<&RuleKeys::burst_ops, &Limits::burst_ops>(keys, limits);
  set_limit<&RuleKeys::burst_bytes, &Limits::burst_bytes>(keys, limits);
}

constexpr RuleKey kRuleKeys[] = {
    {.name = "rate",
     .form = "rate=N",
     .example = "100",
     .doc = "Operations per second for each class, from 1 to 999999.",
     .of = RuleKey::Of::kLustre,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::rate>(),
     .read = read_rate,
     .print = print_one<&RuleKeys::rate, print_rate>,
     .json = json_rate,
     .limit = set_limit<&RuleKeys::rate, &Limits::rate>},
    {.name = "rank",
     .form = "rank=NAME",
     .example = "default",
     .doc = "Place the rule directly before the rule NAME.",
     .of = RuleKey::Of::kLustre,
     .use = RuleKey::Use::kPlace,
     .members = members<&RuleKeys::rank>(),
     .read = read_rank,
     .print = print_one<&RuleKeys::rank, print_rank>,
     .json = nullptr,
     .limit = nullptr},
    {.name = "realtime",
     .form = "realtime=0|1",
     .example = "1",
     .doc = "Dispatch requests of this rule before other classes, within its rate.",
     .of = RuleKey::Of::kLustre,
     .use = RuleKey::Use::kStart,
     .members = members<&RuleKeys::realtime>(),
     .read = read_realtime,
     .print = print_one<&RuleKeys::realtime, print_realtime>,
     .json = json_realtime,
     .limit = set_limit<&RuleKeys::realtime, &Limits::realtime>},
    {.name = "bps",
     .form = "bps=BANDWIDTH",
     .example = "10MiB",
     .doc = "Bytes per second for each class: 10MiB, 500MB/s, 10GiB/d.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::bps>(),
     .read = read_bps,
     .print = print_one<&RuleKeys::bps, print_bps>,
     .json = json_bps,
     .limit = set_limit<&RuleKeys::bps, &Limits::bps>},
    {.name = "burst",
     .form = "burst=N|SIZE",
     .example = "9",
     .doc = "Amount that can pass at once after a pause.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::burst_ops, &RuleKeys::burst_bytes>(),
     .read = read_burst,
     .print = print_bursts,
     .json = json_burst,
     .limit = set_bursts},
    {.name = "by",
     .form = "by=rule|FIELD[+FIELD]...",
     .example = "nid+uid",
     .doc = "How requests are divided into classes, each with its own limit.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::by>(),
     .read = read_by,
     .print = print_one<&RuleKeys::by, print_by>,
     .json = json_by,
     .limit = nullptr},
    {.name = "layer",
     .form = "layer=0..3",
     .example = "1",
     .doc = "Layer of the rule.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::layer>(),
     .read = read_layer,
     .print = print_one<&RuleKeys::layer, print_layer>,
     .json = json_layer,
     .limit = nullptr},
    {.name = "reserve",
     .form = "reserve=N|BANDWIDTH",
     .example = "500",
     .doc = "Operations or bytes per second that each class gets before other classes.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::reserve>(),
     .read = read_reserve,
     .print = print_one<&RuleKeys::reserve, print_reserve>,
     .json = json_reserve,
     .limit = set_limit<&RuleKeys::reserve, &Limits::reserve>},
    {.name = "weight",
     .form = "weight=N",
     .example = "3",
     .doc = "Weight of the shares of the rule's jobs, instead of their nodes.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::weight>(),
     .read = read_weight,
     .print = print_one<&RuleKeys::weight, print_weight>,
     .json = json_weight,
     .limit = set_limit<&RuleKeys::weight, &Limits::weight>},
    {.name = "cost",
     .form = "cost=op|bytes|affine:A:B",
     .example = "affine:1:2",
     .doc = "Number of tokens that a request takes from the bucket of rate.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::cost>(),
     .read = read_cost,
     .print = print_one<&RuleKeys::cost, print_cost>,
     .json = json_cost,
     .limit = set_limit<&RuleKeys::cost, &Limits::cost>},
    {.name = "scope",
     .form = "scope=local|cluster",
     .example = "cluster",
     .doc = "Whether the limit holds on this server or on the whole cluster.",
     .of = RuleKey::Of::kWeir,
     .use = RuleKey::Use::kAlways,
     .members = members<&RuleKeys::scope>(),
     .read = read_scope,
     .print = print_one<&RuleKeys::scope, print_scope>,
     .json = json_scope,
     .limit = set_limit<&RuleKeys::scope, &Limits::scope>},
};
static_assert(are_distinct(kRuleKeys), "a rule key is in the table twice");

bool is_name_byte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

std::string make_hint() {
  std::string text = "expected ";
  const std::size_t last = std::size(kRuleKeys) - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    if (i != 0) text += i == last ? " or " : ", ";
    text += fmt::format("{}=", kRuleKeys[i].name);
  }
  return text + ", separated by one space";
}

bool ignores(Verb verb, const RuleKey& key) {
  return key.use == RuleKey::Use::kStart && verb != Verb::kStart;
}

}  // namespace

std::span<const RuleKey> rule_keys() { return kRuleKeys; }

const RuleKey* find_rule_key(std::string_view name) {
  const auto found = std::find_if(std::begin(kRuleKeys), std::end(kRuleKeys),
                                  [&](const RuleKey& key) { return key.name == name; });
  return found == std::end(kRuleKeys) ? nullptr : found;
}

const std::string& rule_key_hint() {
  static const std::string hint = make_hint();
  return hint;
}

std::string rule_key_hint(std::string_view unknown) {
  std::vector<std::string_view> names;
  for (const RuleKey& key : kRuleKeys) names.push_back(key.name);
  const auto meant = nearest(unknown, names);
  if (!meant || *meant == unknown) return rule_key_hint();
  return fmt::format("did you mean {}=? {}", *meant, rule_key_hint());
}

std::string print_keys(const RuleKeys& keys) {
  std::string text;
  for (const RuleKey& key : kRuleKeys) {
    for (const std::string& value : key.print(keys)) {
      text += fmt::format(" {}={}", key.name, value);
    }
  }
  return text;
}

void merge_keys(RuleKeys& keys, const RuleKeys& change, Verb verb) {
  for (const RuleKey& key : kRuleKeys) {
    if (!ignores(verb, key) && key.use != RuleKey::Use::kPlace) key.members.set(keys, change);
  }
}

bool covers(const RuleKeys& keys, const RuleKeys& other) {
  return std::all_of(std::begin(kRuleKeys), std::end(kRuleKeys),
                     [&](const RuleKey& key) { return key.members.cover(keys, other); });
}

bool can_change(const RuleKeys& keys) {
  return std::any_of(std::begin(kRuleKeys), std::end(kRuleKeys), [&](const RuleKey& key) {
    return !ignores(Verb::kChange, key) && key.members.given(keys);
  });
}

bool are_of_lustre(const RuleKeys& keys) {
  return std::none_of(std::begin(kRuleKeys), std::end(kRuleKeys), [&](const RuleKey& key) {
    return key.of != RuleKey::Of::kLustre && key.members.given(keys);
  });
}

Limits with_keys(Limits limits, const RuleKeys& keys, Verb verb) {
  for (const RuleKey& key : kRuleKeys) {
    if (key.limit != nullptr && !ignores(verb, key)) key.limit(keys, limits);
  }
  return limits;
}

Parsed<void> check_keys(const RuleKeys& keys) {
  RuleKeys again;
  for (const RuleKey& key : kRuleKeys) {
    for (const std::string& value : key.print(keys)) {
      if (auto done = key.read(value, again); !done) return done;
    }
  }
  return {};
}

std::string json_keys(const Rule& rule) {
  std::string text;
  for (const RuleKey& key : kRuleKeys) {
    if (key.json == nullptr) continue;
    if (!text.empty()) text += ',';
    text += key.json(rule);
  }
  return text;
}

Parsed<void> check_rule_name(std::string_view name) {
  constexpr const char* kHint = "expected 1 to 15 letters, digits and underscores";
  if (name.empty()) return mistake(0, "an empty name", kHint);
  const auto bad = std::find_if_not(name.begin(), name.end(), is_name_byte);
  if (bad == name.end()) return {};
  const auto byte = static_cast<std::size_t>(bad - name.begin());
  return mistake(byte, fmt::format("{} in the name {}", quote(name.substr(byte, 1)), quote(name)),
                 kHint);
}

}  // namespace weir
