// SPDX-License-Identifier: Apache-2.0
#include "weir/control/lock_json.h"

#include <utility>

#include "weir/control/job_stats_text.h"
#include "weir/control/json_nlohmann.h"

namespace weir::control {
namespace {

Json client_json(const lock::ClientView& client) {
  return {{"client", client.client},
          {"peer", client.peer},
          {"locks", client.locks},
          {"waiting", client.waiting},
          {"silent_ns", client.silent.count()},
          {"connected", client.is_connected},
          {"knows_volume", client.knows_volume},
          {"volume", client.volume},
          {"factor_percent", client.factor_percent}};
}

Json pool_json(const lock::NamespaceView& view) {
  return {{"namespace", view.name},
          {"role", lock::role_name(view.role)},
          {"active", view.active},
          {"preset", lock::preset_name(view.preset)},
          {"recovering", view.is_recovering},
          {"server_lock_volume", view.server_lock_volume},
          {"client_lock_volume", view.client_lock_volume},
          {"limit", view.limit},
          {"granted", view.granted},
          {"grant_rate", view.grant_rate},
          {"cancel_rate", view.cancel_rate},
          {"grant_speed", view.grant_speed},
          {"grant_plan", view.grant_plan},
          {"recalc_period_ns", view.recalc_period.count()},
          {"lru_size", view.lru_size},
          {"lru_max_age_ns", view.lru_max_age.count()}};
}

Json view_json(const lock::NamespaceView& view) {
  Json json = pool_json(view);
  const lock::LockServer::Counters& counters = view.counters;
  json.update({{"resources", view.resources},
               {"waiting", view.waiting},
               {"parked", view.parked},
               {"converting", view.converting},
               {"watches", view.watches},
               {"clients", view.clients()},
               {"counters",
                {{"grants", view.grants},
                 {"cancels", view.cancels},
                 {"conversions", counters.conversions},
                 {"deadlocks", counters.deadlocks},
                 {"evictions", counters.evictions},
                 {"revoked", counters.revoked},
                 {"unknown_cancels", counters.unknown_cancels},
                 {"bad_names", counters.bad_names},
                 {"too_many", counters.too_many},
                 {"broken_rules", counters.broken_rules},
                 {"lost_replays", counters.lost_replays},
                 {"wrong_secrets", counters.wrong_secrets}}}});
  Json top = Json::array();
  for (const lock::ClientView& client : view.top) top.push_back(client_json(client));
  json["top"] = std::move(top);
  json["others"] = {{"clients", view.others.clients},
                    {"locks", view.others.locks},
                    {"waiting", view.others.waiting}};
  return json;
}

Json lock_json(const lock::LockView& lock) {
  return {{"name", printable_id(lock.name)},
          {"mode", lock::mode_name(lock.mode)},
          {"state", lock::state_name(lock.state)},
          {"client", lock.client},
          {"peer", lock.peer},
          {"fence", lock.fence},
          {"asked", lock.is_asked},
          {"wanted", lock::mode_name(lock.wanted)}};
}

}  // namespace

std::string namespaces_json(const std::vector<lock::NamespaceView>& views) {
  Json all = Json::array();
  for (const lock::NamespaceView& view : views) all.push_back(view_json(view));
  return text_of(all);
}

std::string namespace_json(const lock::NamespaceView& view) { return text_of(view_json(view)); }

std::string lock_list_json(const std::vector<lock::LockView>& locks, bool is_whole) {
  Json all = Json::array();
  for (const lock::LockView& lock : locks) all.push_back(lock_json(lock));
  return text_of({{"locks", std::move(all)}, {"whole", is_whole}});
}

}  // namespace weir::control
