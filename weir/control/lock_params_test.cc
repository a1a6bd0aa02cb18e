// SPDX-License-Identifier: Apache-2.0
#include "weir/control/lock_params.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "weir/lock/view.h"

namespace weir::control {
namespace {

using namespace std::chrono_literals;

// A test has one thread, so calls are made directly.
class ServerConsole final : public lock::Console {
 public:
  explicit ServerConsole(lock::LockServer& server) : server_(server) {}

  std::vector<lock::NamespaceView> view() override {
    return {lock::look(server_, "filter-locks", now)};
  }
  Result<lock::LockList> list(std::string_view, const lock::ListOptions& options) override {
    return lock::list_locks(server_, options);
  }
  Result<void> set(std::string_view, lock::Tunable tunable, std::int64_t value) override {
    return lock::turn(server_, tunable, value);
  }
  Result<std::size_t> revoke(std::string_view, std::string_view resource,
                             std::uint64_t client) override {
    return lock::revoke(server_, resource, client);
  }

  Instant now{};

 private:
  lock::LockServer& server_;
};

class LockParams : public testing::Test {
 protected:
  std::string read(std::string_view pattern) {
    const auto outcomes = read_params(lock_params(console), pattern);
    EXPECT_EQ(outcomes.size(), 1U) << pattern;
    return outcomes.empty() ? "" : outcomes.front().value;
  }
  std::errc write(std::string_view pattern, std::string_view value) {
    const auto outcomes = write_params(lock_params(console), pattern, value);
    EXPECT_EQ(outcomes.size(), 1U) << pattern;
    return outcomes.empty() ? std::errc::no_such_file_or_directory : outcomes.front().error.code;
  }

  lock::LockServer server{
      lock::ServerOptions{.pool = {.preset = lock::Preset::kLustre, .limit = 1000}},
      1,
      lock::LockServer::Start::kFresh,
      {}};
  ServerConsole console{server};
};

TEST_F(LockParams, HaveTheNamesAndFormatsOfLustre) {
  const std::string pool = "ldlm.namespaces.filter-locks.pool.";
  EXPECT_EQ(read(pool + "server_lock_volume"), "36000000\n");
  EXPECT_EQ(read(pool + "limit"), "1000\n");
  EXPECT_EQ(read(pool + "granted"), "0\n");
  EXPECT_EQ(read(pool + "grant_rate"), "0\n");
  EXPECT_EQ(read(pool + "cancel_rate"), "0\n");
  EXPECT_EQ(read(pool + "grant_speed"), "0\n");
  EXPECT_EQ(read(pool + "grant_plan"), "300\n");
  EXPECT_EQ(read(pool + "recalc_period"), "1\n");
  EXPECT_EQ(read(pool + "lock_volume_factor"), "0\n");
  EXPECT_EQ(read(pool + "state"),
            "LDLM pool state (filter-locks):\n  SLV: 36000000\n  CLV: 0\n  LVF: 0\n  GSP: 1%\n"
            "  GP:  300\n  GR:  0\n  CR:  0\n  GS:  0\n  G:   0\n  L:   1000\n");
  EXPECT_EQ(read("ldlm.namespaces.*.lru_size"), "0\n");
  EXPECT_EQ(read("ldlm.namespaces.*.lru_max_age"), "0\n");
  EXPECT_EQ(read("ldlm.namespaces.*.lock_count"), "0\n");
  EXPECT_EQ(read("ldlm.namespaces.*.resource_count"), "0\n");
  EXPECT_EQ(read("ldlm/server_pool/limit"), "1000\n");
  EXPECT_EQ(read("ldlm.server_pool.server_lock_volume"), "36000000\n");
}

// The state of the clients' caches is known from their messages.
TEST_F(LockParams, ShowTheVolumeAndTheFactorThatClientsSay) {
  const std::string pool = "ldlm.namespaces.filter-locks.pool.";
  const auto say = [&](lock::LockServer::Connection connection, std::uint64_t number,
                       std::uint64_t volume, std::uint32_t factor) {
    lock::ClientMessage message{.number = number, .volume = volume, .factor_percent = factor};
    if (number == 1) message.ops.resize(1);  // hello
    ASSERT_TRUE(server.receive(connection, message, {}));
  };
  server.connect(1, {});
  say(1, 1, 0, 100);
  EXPECT_EQ(read(pool + "lock_volume_factor"), "100\n");
  say(1, 2, 4711, 100);
  EXPECT_NE(read(pool + "state").find("  CLV: 4711\n  LVF: 100\n"), std::string::npos);
  server.connect(2, {});
  say(2, 1, 12, 150);
  EXPECT_EQ(read(pool + "lock_volume_factor"), "100-150\n");
  EXPECT_NE(read(pool + "state").find("  CLV: 4711\n  LVF: 100-150\n"), std::string::npos);
  say(1, 3, 0, 100);
  EXPECT_NE(read(pool + "state").find("  CLV: 12\n"), std::string::npos);
}

TEST_F(LockParams, AreListedWithTheirFolders) {
  const Params params = lock_params(console);
  const auto folder = [](const char* path) { return ParamName{path, true, false}; };
  EXPECT_EQ(params.list("ldlm"), std::vector<ParamName>{folder("ldlm")});
  EXPECT_EQ(params.list("ldlm.*"),
            (std::vector<ParamName>{folder("ldlm.namespaces"), folder("ldlm.server_pool")}));
  EXPECT_EQ(params.list("ldlm.namespaces.*.pool.*").size(), 10U);
  EXPECT_EQ(params.list("ldlm.server_pool.limit"),
            (std::vector<ParamName>{{"ldlm.server_pool.limit", false, true}}));
  EXPECT_EQ(params.list("ldlm.server_pool.granted"),
            (std::vector<ParamName>{{"ldlm.server_pool.granted", false, false}}));
  EXPECT_EQ(params.list("ldlm.server_pool", Depth::kBelow).size(), 11U) << "it, and all below";
}

TEST_F(LockParams, WriteThroughToTheServer) {
  EXPECT_EQ(write("ldlm.namespaces.*.pool.limit", "500"), std::errc{});
  EXPECT_EQ(server.pool().limit(), 500);
  EXPECT_EQ(write("ldlm.server_pool.limit", "700\n"), std::errc{});
  EXPECT_EQ(server.pool().limit(), 700);
  EXPECT_EQ(write("ldlm.namespaces.*.pool.recalc_period", "3"), std::errc{});
  EXPECT_EQ(server.pool().period(), 3s);
  EXPECT_EQ(write("ldlm.namespaces.*.pool.recalc_period", "500ms"), std::errc{});
  EXPECT_EQ(read("ldlm.namespaces.*.pool.recalc_period"), "500ms\n");
  EXPECT_EQ(write("ldlm.namespaces.*.lru_size", "40"), std::errc{});
  EXPECT_EQ(server.lru_size(), 40U);
  EXPECT_EQ(write("ldlm.namespaces.*.lru_max_age", "1500"), std::errc{});
  EXPECT_EQ(server.lru_max_age(), 1500ms);
  EXPECT_EQ(write("ldlm.namespaces.*.lru_max_age", "3s"), std::errc{});
  EXPECT_EQ(read("ldlm.namespaces.*.lru_max_age"), "3000\n");
}

TEST_F(LockParams, RefuseLikeLustre) {
  const std::string limit = "ldlm.namespaces.*.pool.limit";
  for (const char* const bad : {"", "abc", "-1", "10k", "1 2", "0", "0x10"}) {
    EXPECT_EQ(write(limit, bad), std::errc::invalid_argument) << bad;
  }
  EXPECT_EQ(write(limit, "99999999999999999999"), std::errc::result_out_of_range);
  EXPECT_EQ(write("ldlm.namespaces.*.lru_size", "clear"), std::errc::invalid_argument);
  EXPECT_EQ(write("ldlm.namespaces.*.lru_size", "4294967296"), std::errc::invalid_argument);
  EXPECT_EQ(write("ldlm.namespaces.*.lru_max_age", "s"), std::errc::invalid_argument);
  EXPECT_EQ(write("ldlm.namespaces.*.lru_max_age", "9223372036854775807"),
            std::errc::result_out_of_range);
  EXPECT_EQ(write("ldlm.namespaces.*.pool.recalc_period", "0"), std::errc::invalid_argument);
  for (const char* const shown : {"granted", "state", "server_lock_volume", "lock_volume_factor"}) {
    EXPECT_EQ(write(std::string("ldlm.namespaces.*.pool.") + shown, "1"),
              std::errc::permission_denied)
        << shown;
  }
  EXPECT_EQ(server.pool().limit(), 1000);
}

}  // namespace
}  // namespace weir::control
