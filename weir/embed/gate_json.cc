// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/gate_json.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "weir/adapt/controller.h"
#include "weir/base/rate.h"
#include "weir/classify/attributes.h"
#include "weir/classify/nid.h"
#include "weir/classify/opcode.h"
#include "weir/classify/rule.h"
#include "weir/pace/token_bucket.h"
#include "weir/schedule/rule_view.h"

namespace weir::embed {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t per_second(Rate rate) { return tokens_in(rate, std::chrono::seconds{1}).count(); }

Json or_null(std::optional<Rate> rate) { return rate ? Json(per_second(*rate)) : Json(nullptr); }

Json id_json(std::uint32_t id) { return id == kUnknownId ? Json(nullptr) : Json(id); }

Json field_json(const Attributes& key, FieldSet fields, Field field) {
  switch (field) {
    case Field::kJobid:
      return key.job.text();
    case Field::kNid:
      return print_nid(key.nid);
    case Field::kOpcode:
      return key.opcode == kUnknownId ? Json(nullptr) : Json(opcode_name(key.opcode));
    case Field::kUid:
      return id_json(key.uid);
    case Field::kGid:
      return id_json(key.gid);
    case Field::kProjid:
      return id_json(key.projid);
    case Field::kNodemap:
      return id_json(key.nodemap);
    case Field::kExport:
      return key.export_name.text();
    case Field::kSubnet:
      return print_network(key.nid, fields.subnet_length());
  }
  return nullptr;
}

// {"jobid": "dd.500", "uid": 1000}; {} for the class of a whole rule, null for the class that
// keys beyond the maximum share.
Json key_json(const ClassView& view) {
  if (view.is_overflow) return nullptr;
  Json key = Json::object();
  for (unsigned i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    if (!view.rule.by().has(field)) continue;
    key[std::string(field_name(field))] = field_json(view.key, view.rule.by(), field);
  }
  return key;
}

Json class_json(const ClassView& view) {
  const auto rate = [](const std::optional<BucketShape>& shape) {
    return or_null(shape ? std::optional(shape->rate()) : std::nullopt);
  };
  return {{"rule", view.rule.name()},
          {"key", key_json(view)},
          {"rate", rate(view.ops)},
          {"bps", rate(view.bytes)},
          {"level", view.ops_level.count()},
          {"byte_level", view.bytes_level.count()},
          {"served", view.totals.served},
          {"bytes", view.totals.bytes},
          {"waited_ns", view.totals.waited_ns}};
}

Json rules_json(const RuleView& rules) {
  Json all = Json::array();
  for (const Rule* const rule : rules.rules(Head::kRegular).rules()) {
    all.push_back({{"rule", rule->name()},
                   {"conditions", rule->conds()},
                   {"limits", rule->limits().summary()},
                   {"layer", rule->layer()},
                   {"classes", rule->refs()}});
  }
  return all;
}

Json job_json(const Target& target, const JobStats::Entry& entry) {
  Json json{{"job", entry.job.text()},
            {"arrived", entry.arrived.requests},
            {"finished", entry.finished.requests},
            {"waiting", entry.waiting().requests},
            {"running", entry.running().requests},
            {"read_bytes", entry.read.count()},
            {"written_bytes", entry.written.count()},
            {"waited_ns", entry.wait_sum.count()},
            {"latency_ns", entry.latency_sum.count()}};
  const Controller* const controller = target.controller();
  if (controller == nullptr) return json;
  const auto share = controller->share_of(entry.job);
  const Ledger::Account* const account = controller->account_of(entry.job);
  json["nodes"] = controller->nodes_of(entry.job);
  json["share"] = or_null(share ? share->rate : std::nullopt);
  json["record"] = account == nullptr ? 0 : account->record;
  return json;
}

}  // namespace

std::string gate_json(const Target& target, Instant now) {
  const Policy& policy = target.policy(Head::kRegular);
  const Controller* const controller = target.controller();
  Json json{{"policy", policy.name()},
            {"queued", target.queued()},
            {"running", target.running()},
            {"slots", target.slots()},
            {"capacity", or_null(target.capacity())},
            {"capacity_unit", unit_of(target.cost())},
            {"shares", controller == nullptr ? "off" : controller->suspended().value_or("on")},
            {"rules", Json::array()},
            {"classes", Json::array()},
            {"jobs", Json::array()}};
  if (const RuleView* const rules = target.rules(Head::kRegular)) {
    json["rules"] = rules_json(*rules);
    Json& classes = json["classes"];
    for (std::optional<std::size_t> at = 0; at;) {
      at = rules->visit_classes(*at, rules->classes() + 1, now, [&](const ClassView& view) {
        classes.push_back(class_json(view));
      });
    }
  }
  for (std::size_t i = 0; i < target.stats().size(); ++i) {
    json["jobs"].push_back(job_json(target, target.stats().entry(i)));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weir::embed
