// SPDX-License-Identifier: Apache-2.0
#include "weir/control/cluster_json.h"

#include "weir/control/json_nlohmann.h"

namespace weir::control {
namespace {

Json slices_json(const std::vector<serve::SliceStatus>& slices) {
  Json all = Json::array();
  for (const serve::SliceStatus& one : slices) {
    all.push_back({{"of", one.of}, {"milli_per_s", one.milli}, {"leased", one.is_leased}});
  }
  return all;
}

Json courses_json(const std::vector<serve::CourseStatus>& courses) {
  Json all = Json::array();
  for (const serve::CourseStatus& one : courses) {
    all.push_back({{"service", one.service},
                   {"epoch", one.epoch},
                   {"rounds", one.rounds},
                   {"evictions", one.evictions},
                   {"members", one.members}});
  }
  return all;
}

}  // namespace

std::string cluster_json(const serve::ClusterStatus& status) {
  Json members = Json::array();
  for (const serve::MemberStatus& one : status.members) {
    members.push_back({{"name", one.name},
                       {"address", one.address},
                       {"registered", one.is_registered},
                       {"joined", one.is_joined},
                       {"away_ns", one.away ? Json(one.away->count()) : Json(nullptr)},
                       {"slices", slices_json(one.slices)}});
  }
  Json leader = nullptr;
  if (const auto& told = status.at_leader) {
    leader = {{"rounds", told->rounds},
              {"round_median_ns", told->round_median.count()},
              {"round_p99_ns", told->round_p99.count()},
              {"evictions", told->evictions},
              {"refused", told->refused},
              {"garbage", told->garbage},
              {"waits_for_reports", told->waits_for_reports},
              {"courses", courses_json(told->courses)}};
  }
  return text_of({{"name", status.name},
                  {"state", status.state},
                  {"why", status.why},
                  {"leader", status.leader},
                  {"term", status.term},
                  {"epoch", status.epoch},
                  {"epochs", status.epochs},
                  {"errors", status.errors},
                  {"counted", status.counted},
                  {"partition", status.partition},
                  {"slices", slices_json(status.slices)},
                  {"members", members},
                  {"at_leader", leader},
                  {"rule_errors", status.rule_errors}});
}

std::string cluster_rules_json(const std::vector<serve::ClusterRule>& rules) {
  Json all = Json::array();
  for (const serve::ClusterRule& one : rules) {
    all.push_back(
        {{"service", one.service}, {"rule", one.rule}, {"commands", print_all(one.changes)}});
  }
  return text_of(all);
}

}  // namespace weir::control
