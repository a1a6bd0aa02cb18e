// SPDX-License-Identifier: Apache-2.0
#include "weir/config/serve_config.h"

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config_for_tests.h"
#include "weir/host/files.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using std::chrono::milliseconds;
using std::chrono::minutes;

// A key for devices, which the export above is not.
constexpr const char* kEveryKeyOfDevices = R"([[export]]
name = "d"
store = "device:/dev/sdb"
force = true
)";

// A key for policies with tunables.
constexpr const char* kEveryKeyOfPolicies = R"([[service]]
name = "robin"
policy = "crrn"
tunables = ["quantum=8"]
)";

// The other keys of its table, separate so that the line numbers in messages above do not change.
constexpr const char* kEveryKeyOfSlurm = R"([jobs]
slurm = true
job_pattern = "%j.%u"
slurm_every = "1min"
squeue = "/opt/squeue"
)";

TEST(ServeConfig, AnEmptyFileGivesTheDefaults) { EXPECT_EQ(parsed(""), ServeOptions{}); }

TEST(ServeConfig, ReadsEveryKeyOfTheServer) {
  const ServeOptions options = parsed(kEveryKey);
  ASSERT_EQ(options.listen.size(), 3U);
  EXPECT_EQ(serve::print_listen(options.listen[0]), "127.0.0.1:10810");
  EXPECT_EQ(options.listen[1].host, "::1");
  EXPECT_EQ(options.listen[2].path, "/run/w.sock");
  EXPECT_EQ(options.user, "nobody");
  EXPECT_EQ(options.control_socket, "/run/c.sock");
  EXPECT_EQ(options.trace_file, "/tmp/t");
  EXPECT_EQ(options.io, host::IoChoice::kEpoll);
  EXPECT_EQ(options.threads, 4U);
  EXPECT_EQ(options.control,
            (serve::ControlFiles{"127.0.0.1:9810", "/etc/weir.token", "/var/lib/weir/journal"}));
  using StartWithout = serve::ClusterOptions::StartWithout;
  using Partition = serve::ClusterOptions::Partition;
  EXPECT_EQ(options.cluster, (serve::ClusterOptions{.name = "a",
                                                    .prefix = "/test/weir",
                                                    .etcd = {"10.0.0.1:2379", "etcd2:2379"},
                                                    .listen = ":7420",
                                                    .advertise = "storage1:7420",
                                                    .epoch = milliseconds{20},
                                                    .timeout = milliseconds{200},
                                                    .lease = std::chrono::seconds{3},
                                                    .user = "weir",
                                                    .password_file = "/etc/weir.password",
                                                    .tls_directory = "/etc/weir/tls",
                                                    .etcd_tls_directory = "/etc/weir/etcd",
                                                    .state_file = "/var/lib/weir/cluster",
                                                    .start_without = StartWithout::kRate,
                                                    .start_rate = 500,
                                                    .partition = Partition::kLast,
                                                    .socket = "/run/weir/epochs",
                                                    .insecure = true}));
  EXPECT_TRUE(options.lock.insecure);
  EXPECT_EQ(options.limits, (serve::ServeLimits{.connections = 10,
                                                .memory = Bytes{1 << 30},
                                                .connection_memory = Bytes{128 << 20},
                                                .connection_requests = 5,
                                                .handshake_timeout = milliseconds{500},
                                                .drain_timeout = minutes{2}}));
  EXPECT_EQ(options.tls, (serve::TlsOptions{serve::TlsOptions::Mode::kRequire, "/etc/pki", true}));
  EXPECT_EQ(options.claims, (serve::ClaimsOptions{false, nids("10.0.0.1@tcp 10.1.0.0/16@tcp")}));
  EXPECT_EQ(options.jobs_file, "/etc/jobs");
  EXPECT_EQ(options.jobs, (std::vector<serve::JobNodes>{{"ior.n1", 4}, {"backup", 2}}));
  EXPECT_EQ(options.unknown_jobs, serve::UnknownJobs::kClients);
}

TEST(ServeConfig, ReadsEveryKeyOfServicesAndExports) {
  ServeOptions options = parsed(kEveryKey);
  ASSERT_EQ(options.nodemaps.size(), 1U);
  EXPECT_EQ(options.nodemaps[0], (serve::NodemapOptions{"visitors", nids("192.168.[0-3].*@tcp")}));
  const serve::Capacity capacity{serve::Capacity::Kind::kOps, Rate::per_second(4000)};
  ASSERT_EQ(options.services.size(), 1U);
  EXPECT_EQ(
      options.services[0],
      (serve::ServiceOptions{.name = "fast",
                             .policy = "tbf nid+nodemap",
                             .rules = {parse_rule("start a nodemap={visitors} rate=5").value(),
                                       parse_rule("change default rate=100").value()},
                             .adaptive = serve::Adaptive::kPaper,
                             .capacity = capacity,
                             .slots = 8,
                             .hp_slots = 2,
                             .period = milliseconds{50},
                             .cost = Cost::affine(1, 2),
                             .classes = 100}));
  serve::StoreOptions store;
  store.path = "/srv/e.img";
  store.size = Bytes{std::uint64_t{4} << 30};
  store.direct = true;
  store.shape.emplace().iops = Rate::per_second(2000);
  ASSERT_EQ(options.exports.size(), 1U);
  EXPECT_EQ(options.exports[0], (serve::ExportOptions{.name = "e",
                                                      .store = store,
                                                      .read_only = true,
                                                      .description = "an export",
                                                      .service = "fast",
                                                      .blocks = {512, 65536, 1 << 20}}));
  EXPECT_TRUE(serve::check(options));
}

// A key that is not read, or has no effect, would leave the options unchanged.
constexpr const char* kEveryKeyOfControl =
    "[control]\ntcp = '0.0.0.0:9810'\ntoken = '/t'\ntls = '/etc/weir/tls'\n";

TEST(ServeConfig, EveryKeyHasAnEffect) {
  std::set<std::string> tried;
  for (const std::string text :
       {kEveryKey, kEveryKeyOfDevices, kEveryKeyOfPolicies, kEveryKeyOfSlurm, kEveryKeyOfNfs,
        kEveryKeyOfShares, kEveryKeyOfControl}) {
    const ServeOptions whole = parsed(text);
    std::string table;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin) + 1;
      const std::string line = text.substr(begin, end - begin);
      if (line.starts_with('[')) {
        table = line.substr(line.find_first_not_of('['));
        table.erase(table.find(']'));
      } else {
        tried.insert(table + "." + line.substr(0, line.find(' ')));
        const auto without = parse_serve_config(text.substr(0, begin) + text.substr(end), "f");
        EXPECT_TRUE(!without || *without != whole) << line;
      }
      begin = end;
    }
  }
  std::set<std::string> keys;
  for (const ServeConfigKey& key : serve_config_keys()) {
    keys.insert(std::string(key.table) + "." + std::string(key.name));
  }
  EXPECT_EQ(tried, keys);
}

TEST(ServeConfig, NamesAnUnknownKeyAndTheNearestOne) {
  EXPECT_EQ(refused("capacity = ", "capcity = "),
            "f:33:1: service 'fast': unknown key 'capcity'; did you mean capacity?");
  EXPECT_EQ(refused("[claims]", "[claim]"),
            "f:18:2: file: unknown key 'claim'; did you mean claims?");
  EXPECT_EQ(refused("verify_clients", "zz"),
            "f:17:1: tls: unknown key 'zz'; the keys are mode, directory, verify_clients");
  EXPECT_EQ(refused("[tls]", "[[tls]]"), "f:14:1: tls must be a table");
  EXPECT_EQ(
      mistakes_of("service = 5\n"),
      (std::vector<std::string>{"f:1:11: file: service must be a table, or an array of tables"}));
}

TEST(ServeConfig, TellsAllMistakesAtOnceInTheOrderOfTheFile) {
  const std::vector<std::string> expected = {
      "f:2:15: server: connections must be a whole number from 1 to 1000000",
      "f:3:1: server: unknown key 'memroy'; did you mean memory?",
      "f:5:8: tls: mode cannot be 'requires'; did you mean 'require'?",
      std::string(
          "f:7:8: export 'a/b': name is not a valid name; a name cannot contain , / or =, ") +
          "which separate claims",
      std::string("f:8:9: export 'a/b': store: 'tape:/dev/st0' is not a store; expected ") +
          "file:PATH[,size=SIZE][,direct], device:PATH[,direct][,force], memory:SIZE or "
          "shaped:KEY=VALUE,...:STORE",
  };
  EXPECT_EQ(mistakes_of("[server]\nconnections = 0\nmemroy = 1\n[tls]\nmode = 'requires'\n"
                        "[[export]]\nname = 'a/b'\nstore = 'tape:/dev/st0'\n"),
            expected);
}

TEST(ServeConfig, SaysWhatAKeyMustBe) {
  EXPECT_EQ(refused("connections = 10", "connections = 1000001"),
            "f:6:15: server: connections must be a whole number from 1 to 1000000");
  EXPECT_EQ(refused("\"1GiB\"", "\"1KiB\"\n#"),
            "f:7:10: server: memory must be from 256KiB to 1PiB");
  EXPECT_EQ(refused("\"128MiB\"", "\"2GiB\""),
            "f:8:21: server: connection_memory exceeds memory, which is 1GiB");
  EXPECT_EQ(refused("connection_requests = 5", "connection_requests = 65537"),
            "f:9:23: server: connection_requests must be a whole number from 1 to 65536");
  EXPECT_EQ(refused("\"500ms\"", "\"1ms\""),
            "f:10:21: server: handshake_timeout must be from 100ms to 1h");
  EXPECT_EQ(refused("\"2min\"", "\"2d\""), "f:11:17: server: drain_timeout must be from 0ns to 1d");
  EXPECT_EQ(refused("\"epoll\"", "\"kqueue\""),
            "f:12:6: server: io cannot be 'kqueue'; expected one of 'auto', 'uring', 'epoll'");
  EXPECT_EQ(refused("\"nobody\"", "5"), "f:3:8: server: user must be a quoted string");
  EXPECT_EQ(refused("\"/run/c.sock\"", "\"/" + std::string(107, 'x') + "\""),
            "f:4:18: server: control_socket is 108 bytes long; the maximum is 107");
  EXPECT_EQ(refused("\"/tmp/t\"", R"("a\u0000b")"), "f:5:9: server: trace contains a NUL byte");
  EXPECT_EQ(refused("verify_clients = true", "verify_clients = 'yes'"),
            "f:17:18: tls: verify_clients must be true or false");
  EXPECT_EQ(
      refused("directory = \"/etc/pki\"\n", ""),
      "f:14:1: tls: directory is missing; name the directory of ca-cert.pem and the other files");
}

TEST(ServeConfig, AnyCutOfASoundFileIsReadOrRefused) {
  const std::string sound = kEveryKey;
  for (std::size_t size = 0; size < sound.size(); size += 3) {
    for (const std::string& message : mistakes_of(sound.substr(0, size))) {
      EXPECT_TRUE(message.starts_with("f:")) << message;
    }
  }
}

// ---- from a file ----

class ServeConfigFile : public ::testing::Test {
 protected:
  // Tests may run at the same time.
  void SetUp() override {
    path_ = ::testing::TempDir() + "serve_config_test." +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string path_;
};

TEST_F(ServeConfigFile, IsRead) {
  ASSERT_TRUE(host::write_file(path_, kEveryKey));
  const auto options = load_serve_config(path_);
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(*options, parsed(kEveryKey));
}

TEST_F(ServeConfigFile, TellsAllMistakesALineEach) {
  ASSERT_TRUE(host::write_file(path_, "[server]\nconnections = 0\nuser = 5\n"));
  const auto options = load_serve_config(path_);
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code, std::errc::invalid_argument);
  EXPECT_EQ(options.error().message(),
            path_ + ":2:15: server: connections must be a whole number from 1 to 1000000\n" +
                path_ + ":3:8: server: user must be a quoted string");
}

TEST_F(ServeConfigFile, ThatIsNotThereIsTold) {
  const auto options = load_serve_config(path_ + ".none");
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code, std::errc::no_such_file_or_directory);
}

}  // namespace
}  // namespace weir::config
