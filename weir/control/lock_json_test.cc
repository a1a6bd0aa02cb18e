// SPDX-License-Identifier: Apache-2.0
#include "weir/control/lock_json.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weir/control/api.h"
#include "weir/control/change_request.h"
#include "weir/control/snapshot_json.h"

namespace weir::control {
namespace {

using Json = nlohmann::json;

Snapshot with_locks() {
  Snapshot shot;
  lock::NamespaceView& view = shot.locks.emplace_back();
  view.name = "locks";
  view.limit = 1000;
  view.granted = 904;
  view.top = {{.client = 1, .locks = 600}, {.client = 2, .locks = 300}};
  view.others = {.clients = 1, .locks = 4, .waiting = 2};
  return shot;
}

HttpRequest request_of(const char* method, std::string path, std::string body = {}) {
  HttpRequest request;
  request.method = method;
  request.path = std::move(path);
  request.body = std::move(body);
  return request;
}

TEST(LockJson, ShowsANamespaceWithItsClients) {
  const Snapshot shot = with_locks();
  const Json all = Json::parse(namespaces_json(shot.locks));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0]["namespace"], "locks");
  EXPECT_EQ(all[0]["preset"], "weir");
  EXPECT_EQ(all[0]["granted"], 904);
  EXPECT_EQ(all[0]["clients"], 3);
  EXPECT_EQ(all[0]["top"][0]["locks"], 600);
  EXPECT_EQ(all[0]["others"]["waiting"], 2);
  const HttpResponse one = answer_from(shot, request_of("GET", "/v1/locks/locks"), "", "g-1");
  EXPECT_EQ(Json::parse(one.body), all[0]);
  EXPECT_EQ(one.etag, "g-1");
  EXPECT_EQ(answer_from(shot, request_of("GET", "/v1/locks/none"), "", "").status, 404U);
  const std::string event = live_event(shot, "g-1");
  EXPECT_EQ(Json::parse(event.substr(6))["locks"], all);
}

TEST(LockJson, NamesOfLocksCannotBreakAnything) {
  const std::string text = lock_list_json({{.name = std::string("a\"\n\0<\xff", 6)}}, true);
  const Json list = Json::parse(text);
  EXPECT_EQ(list["locks"][0]["name"], "a\\x22\\x0A\\x00\\x3C\\xFF");
  EXPECT_EQ(list["locks"][0]["state"], "granted");
  EXPECT_EQ(list["whole"], true);
}

TEST(LockJson, AChangeIsOneOfParameters) {
  const auto change = read_change(
      request_of("PUT", "/v1/locks/locks", R"({"limit":50,"recalc_period":"2s","lru_size":7})"));
  ASSERT_TRUE(change);
  ASSERT_EQ(change->changes.size(), 3U);
  EXPECT_EQ(change->changes[0].target, "ldlm.namespaces.locks.pool.limit");
  EXPECT_EQ(change->changes[0].value, "50");
  EXPECT_EQ(change->changes[1].target, "ldlm.namespaces.locks.pool.recalc_period");
  EXPECT_EQ(change->changes[2].target, "ldlm.namespaces.locks.lru_size");
  for (const char* const body : {"{}", "[]", R"({"limit":-1})", R"({"limit":"5"})",
                                 R"({"granted":5})", R"({"lru_max_age":5})"}) {
    EXPECT_EQ(read_change(request_of("PUT", "/v1/locks/locks", body)).error().code,
              std::errc::invalid_argument)
        << body;
  }
  EXPECT_EQ(read_change(request_of("POST", "/v1/locks/locks", "{}")).error().code,
            std::errc::not_supported);
  EXPECT_EQ(read_change(request_of("PUT", "/v1/locks/locks/list", "{}")).error().code,
            std::errc::not_supported);
}

}  // namespace
}  // namespace weir::control
