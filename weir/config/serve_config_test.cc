// SPDX-License-Identifier: Apache-2.0
#include "weir/config/serve_config.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/classify/share_level.h"
#include "weir/host/files.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

// Every key, with a value that is not its default.
constexpr const char* kEveryKey = R"([server]
listen = ["127.0.0.1:10810", "[::1]:10809", "unix:/run/w.sock"]
user = "nobody"
control_socket = "/run/c.sock"
trace = "/tmp/t"
connections = 10
memory = "1GiB"
connection_memory = "128MiB"
connection_requests = 5
handshake_timeout = "500ms"
drain_timeout = "2min"
io = "epoll"
threads = 4
[tls]
mode = "require"
directory = "/etc/pki"
verify_clients = true
[claims]
local = false
allow = ["10.0.0.1@tcp", "10.1.0.0/16@tcp"]
[jobs]
file = "/etc/jobs"
nodes = { "ior.n1" = 4, backup = 2 }
unknown = "clients"
[[nodemap]]
name = "visitors"
nids = "192.168.[0-3].*@tcp"
[[service]]
name = "fast"
policy = "tbf nid+nodemap"
rules = ["start a nodemap={visitors} rate=5", "change default rate=100"]
adaptive = "paper"
capacity = 4000
slots = 8
hp_slots = 2
period = "50ms"
cost = "affine:1:2"
classes = 100
[[export]]
name = "e"
store = "shaped:iops=2000:file:/srv/e.img"
size = "4GiB"
direct = true
read_only = true
description = "an export"
service = "fast"
block_min = 512
block_preferred = "64KiB"
block_max = "1MiB"
[control]
tcp = "127.0.0.1:9810"
token = "/etc/weir.token"
journal = "/var/lib/weir/journal"
[cluster]
name = "a"
etcd = ["10.0.0.1:2379", "etcd2:2379"]
listen = ":7420"
advertise = "storage1:7420"
prefix = "/test/weir"
epoch = "20ms"
timeout = "200ms"
lease = "3s"
user = "weir"
password_file = "/etc/weir.password"
tls_directory = "/etc/weir/tls"
etcd_tls_directory = "/etc/weir/etcd"
state = "/var/lib/weir/cluster"
start_without = "rate"
start_rate = 500
partition = "last"
insecure = true
socket = "/run/weir/epochs"
[lock]
listen = "10.0.0.1:5"
state = "/s"
limit = 500
preset = "dld"
lease = "10s"
grace = "20s"
policy = "tbf jobid"
rules = ["start a jobid={a} rate=5"]
insecure = true
[groups]
length = "20ms"
quiesce = true
quiet_max = "5ms"
[[group]]
name = "g"
nids = "10.0.0.[1-9]@tcp"
length = "1s"
)";

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

constexpr const char* kEveryKeyOfNfs = R"([[service]]
name = "home"
slots = "auto"
latency_target = "20ms"
[[nfs]]
name = "gateway"
listen = ["10.0.0.1", ":2050"]
server = "nfs.example.org:2049"
service = "home"
max_wait = "5s"
delay_v3 = true
delay_v40 = true
source = "reserved"
mount_port = "20048"
lock_port = "0:4045"
status_port = "4046"
portmap_port = "111"
rpc_tls = "pass"
send_proxy = true
accept_proxy = ["10.0.0.[7-9]@tcp", "10.0.1.1@tcp"]
export_handles = ["home=43000007", "/srv/a=b=0100"]
)";

constexpr const char* kEveryKeyOfShares = R"([jobs]
sshare = "/opt/sshare"
[[nodemap]]
name = "visitors"
nids = "10.0.0.9@tcp"
[[service]]
name = "home"
[[shares]]
service = "home"
tree = ["projid", "nodemap", "jobid"]
accounts = { "1002" = "physics", "1002/visitors" = "physics/alice" }
names = { "1001" = "bio", "1002" = "chem", "1001/visitors" = "guests" }
weights = { "bio" = 2, "bio/guests" = 3, '(none)' = 5 }
)";

std::vector<std::string> mistakes_of(const std::string& text) {
  const auto options = parse_serve_config(text, "f");
  std::vector<std::string> messages;
  if (options) return messages;
  for (const Error& error : options.error()) messages.push_back(error.message());
  return messages;
}

// The only message about the file above with a part replaced.
std::string refused(const std::string& part, const std::string& by) {
  std::string text = kEveryKey;
  EXPECT_NE(text.find(part), std::string::npos) << part;
  text.replace(text.find(part), part.size(), by);
  const std::vector<std::string> messages = mistakes_of(text);
  EXPECT_EQ(messages.size(), 1U) << part << " -> " << by;
  for (std::size_t i = 1; i < messages.size(); ++i) ADD_FAILURE() << messages[i];
  return messages.empty() ? "" : messages[0];
}

ServeOptions parsed(const std::string& text) {
  auto options = parse_serve_config(text, "f");
  EXPECT_TRUE(options) << options.error().front().message();
  return options ? *options : ServeOptions{};
}

NidList nids(std::string_view text) { return NidList::parse(text).value(); }

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

TEST(ServeConfig, AGatewayNeedsAServerAndAnAddress) {
  const ServeOptions options = parsed(kEveryKeyOfNfs);
  ASSERT_EQ(options.nfs.size(), 1U);
  EXPECT_EQ(options.nfs[0].listen[0].port, serve::NfsOptions::kPort);
  EXPECT_EQ(options.nfs[0].listen[1].port, 2050);
  EXPECT_EQ(options.nfs[0].source, serve::SourceMode::kReserved);
  EXPECT_TRUE(options.nfs[0].sends_proxy);
  EXPECT_TRUE(options.nfs[0].passes_tls);
  EXPECT_TRUE(options.nfs[0].delays_v3 && options.nfs[0].delays_v40);
  EXPECT_EQ(options.nfs[0].mount, (serve::RelayPorts{20048, 20048}));
  EXPECT_EQ(options.nfs[0].lock, (serve::RelayPorts{0, 4045}));
  ASSERT_EQ(options.nfs[0].export_handles.size(), 2U);
  EXPECT_EQ(options.nfs[0].export_handles[0].name, "home");
  EXPECT_EQ(options.nfs[0].export_handles[0].prefix,
            (std::vector{std::byte{0x43}, std::byte{0}, std::byte{0}, std::byte{7}}));
  EXPECT_EQ(options.nfs[0].export_handles[1].name, "/srv/a=b");
  for (const char* const wrong :
       {"mount_port = '0'", "mount_port = 'x'", "lock_port = '1:70000'", "status_port = '1:'",
        "rpc_tls = 'on'", "export_handles = ['home']", "export_handles = ['home=4']",
        "export_handles = ['=43']", "export_handles = ['home=4x']"}) {
    EXPECT_EQ(
        mistakes_of(std::string("[[nfs]]\nlisten = [':1']\nserver = 'a'\n") + wrong + "\n").size(),
        1U)
        << wrong;
  }
  EXPECT_TRUE(options.nfs[0].accepts_proxy.value().matches(parse_nid("10.0.1.1@tcp").value()));
  EXPECT_FALSE(options.nfs[0].accepts_proxy->matches(parse_nid("10.0.0.6@tcp").value()));
  EXPECT_EQ(mistakes_of("[[nfs]]\nlisten = [':1']\nserver = 'a'\nsource = 'low'\n"),
            (std::vector<std::string>{
                "f:4:10: nfs: source: 'low' is not a source; expected any, reserved or client"}));
  EXPECT_EQ(mistakes_of("[[nfs]]\n"),
            (std::vector<std::string>{"f:1:1: nfs: listen is missing; such as [':2049']",
                                      "f:1:1: nfs: server is missing; HOST[:PORT] of the NFS "
                                      "server"}));
  EXPECT_EQ(mistakes_of("[[nfs]]\nlisten = [':1']\nserver = 'a'\nmax_wait = '1h'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[nfs]]\nlisten = [':1']\nserver = 'a'\nservice = 'b'\n").size(), 1U);
}

TEST(ServeConfig, SlotsAreSearchedForIfAsked) {
  EXPECT_EQ(parsed("[[service]]\n").services[0].slots, std::nullopt);
  EXPECT_EQ(parsed("[[service]]\nslots = 'auto'\n").services[0].slots, serve::kSlotsAuto);
  EXPECT_EQ(parsed("[[service]]\nslots = 7\n").services[0].slots, 7U);
  EXPECT_EQ(
      parsed("[[service]]\nslots = 'auto'\nlatency_target = '5ms'\n").services[0].latency_target,
      milliseconds{5});
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 'many'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 4\nlatency_target = '5ms'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 'auto'\nlatency_target = '0s'\n").size(), 1U);
  EXPECT_EQ(mistakes_of("[[service]]\nslots = 'auto'\nlatency_target = '2min'\n").size(), 1U);
}

TEST(ServeConfig, TcpWithoutATokenIsRefused) {
  EXPECT_EQ(refused("token = \"/etc/weir.token\"", ""),
            "f:51:7: control: tcp needs a token; name a file that contains it");
}

TEST(ServeConfig, RatesOfRulesMayHavePrefixes) {
  const auto options =
      parse_serve_config("[[service]]\nrules = ['start a jobid={a} rate=10k']\n", "f");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->services[0].rules,
            std::vector<RuleChange>{parse_rule("start a jobid={a} rate=10000").value()});
}

TEST(ServeConfig, TlsOfControlNeedsTcp) {
  const std::string tcp = "[control]\ntcp = '0.0.0.0:9810'\ntoken = '/t'\ntls = '/etc/weir/tls'\n";
  EXPECT_TRUE(mistakes_of(tcp).empty());
  EXPECT_EQ(
      mistakes_of("[control]\ntls = '/etc/weir/tls'\n"),
      (std::vector<std::string>{"f:2:7: control: tls encrypts nothing; name an address with tcp"}));
}

TEST(ServeConfig, AClusterNeedsItsEtcdAndAnAddressThatOthersReach) {
  EXPECT_EQ(refused("etcd = [\"10.0.0.1:2379\", \"etcd2:2379\"]", "etcd = \"http://e:2379\""),
            "f:56:8: cluster: etcd: 'http://e:2379' is not HOST:PORT; such as '10.0.0.1:2379', "
            "without http://");
  EXPECT_EQ(refused("advertise = \"storage1:7420\"", ""),
            "f:54:1: cluster: advertise is missing; other servers need an address to connect to "
            "when listen has none");
  EXPECT_EQ(refused("name = \"a\"\netcd", "etcd"), "f:54:1: cluster: name is missing");
  EXPECT_EQ(refused("timeout = \"200ms\"", "timeout = \"20ms\""),
            "f:61:11: cluster: timeout must be longer than epoch, which is 20ms");
  EXPECT_EQ(refused("password_file = \"/etc/weir.password\"", ""),
            "f:54:1: cluster: password_file is missing; name a file that contains the "
            "user's password");
}

TEST(ServeConfig, AClusterNeedsAStateFileAndSaysHowItStartsWithoutRules) {
  EXPECT_EQ(refused("state = \"/var/lib/weir/cluster\"", ""),
            "f:54:1: cluster: state is missing; name a file that the server can write, such as "
            "'/var/lib/weir/cluster'");
  EXPECT_EQ(refused("start_without = \"rate\"", "start_without = \"open\""),
            "f:68:17: cluster: start_without must be 'closed' or 'rate'");
  EXPECT_EQ(refused("start_rate = 500", ""),
            "f:54:1: cluster: start_rate is missing; operations per second, for start_without = "
            "'rate'");
  EXPECT_EQ(refused("start_without = \"rate\"", ""),
            "f:69:14: cluster: start_rate requires start_without = 'rate'");
  EXPECT_NE(refused("start_rate = 500", "start_rate = 0"), "");
  ServeOptions options = parsed(kEveryKey);
  options.trace_file.clear();
  options.cluster.start_rate = 0;
  EXPECT_FALSE(serve::check(options));
  options.cluster.start_without = serve::ClusterOptions::StartWithout::kClosed;
  EXPECT_TRUE(serve::check(options));
  options.cluster.state_file.clear();
  EXPECT_FALSE(serve::check(options));
}

TEST(ServeConfig, WhatAServerUsesThatIsCutOffIsAChoice) {
  EXPECT_EQ(refused("partition = \"last\"", "partition = \"first\""),
            "f:70:13: cluster: partition must be 'safe' or 'last'");
}

TEST(ServeConfig, RulesOfTheClusterAreNotOfAFile) {
  ServeOptions options = parsed(kEveryKey);
  EXPECT_TRUE(serve::check(options));
  options.services[0].rules = {parse_rule("start b nid={*@tcp} rate=5 scope=cluster").value()};
  EXPECT_FALSE(serve::check(options));
  options.cluster = {};
  EXPECT_TRUE(serve::check(options));
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

TEST(ServeConfig, RefusesAddressesThatAreNone) {
  EXPECT_EQ(refused("\"[::1]:10809\"", "\"myhost:10809\""),
            "f:2:30: server: listen: 'myhost:10809' contains no valid IPv4 address; expected "
            "ADDRESS:PORT such as 127.0.0.1:10809, [::1]:10809 or :10809, or unix:PATH");
  EXPECT_EQ(refused("\"[::1]:10809\"", "\"127.0.0.1:10810\""),
            "f:2:30: server: listen contains '127.0.0.1:10810' twice");
  EXPECT_EQ(refused("\"[::1]:10809\"", "5"), "f:2:30: server: listen must contain quoted strings");
  std::string many = "':1'";
  for (int port = 2; port <= 65; ++port) many += ", ':" + std::to_string(port) + "'";
  EXPECT_EQ(refused("\"[::1]:10809\"", many),
            "f:2:10: server: listen contains more than 64 addresses");
  EXPECT_EQ(refused("\"10.1.0.0/16@tcp\"", "\"10.1.0.0/33@tcp\"").substr(0, 42),
            "f:20:26: claims: allow '10.1.0.0/33@tcp': ");
  EXPECT_EQ(refused("\"192.168.[0-3].*@tcp\"", "\"somewhere\"").substr(0, 49),
            "f:27:8: nodemap 'visitors': nids 'somewhere': col");
}

TEST(ServeConfig, RefusesJobsThatAreNone) {
  EXPECT_EQ(refused("backup = 2", "backup = 0"),
            "f:23:25: jobs: nodes of 'backup' must be a whole number from 1 to 1000000");
  EXPECT_EQ(refused("\"ior.n1\" = 4", "ior.n1 = 4"),
            "f:23:11: jobs: nodes of 'ior' must not be a table; quote a job id that contains dots: "
            "'ior.n1' "
            "= 4");
  EXPECT_EQ(refused("backup = 2", std::string(32, 'x') + " = 2"),
            "f:23:25: jobs: nodes of 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' have no valid job id; a "
            "job id has 1 "
            "to 31 bytes");
  EXPECT_EQ(refused("nodes = { \"ior.n1\" = 4, backup = 2 }", "nodes = 4"),
            "f:23:9: jobs: nodes must be a table such as { 'ior.n1' = 4 }");
  EXPECT_EQ(refused("\"clients\"", "\"two\""),
            "f:24:11: jobs: unknown cannot be 'two'; expected one of 'one', 'clients'");
}

TEST(ServeConfig, SizesOfJobsFromSlurm) {
  EXPECT_EQ(parsed("").slurm, serve::SlurmOptions{});
  EXPECT_EQ(parsed("[jobs]\nslurm = true\njob_pattern = '%j.%u'\nslurm_every = '1min'\n"
                   "squeue = '/opt/squeue'\n")
                .slurm,
            (serve::SlurmOptions{.is_on = true,
                                 .pattern = "%j.%u",
                                 .squeue = "/opt/squeue",
                                 .every = std::chrono::minutes{1}}));
  EXPECT_EQ(mistakes_of("[jobs]\njob_pattern = '%e.%H'\n"),
            (std::vector<std::string>{"f:2:15: jobs: job_pattern has a code that has no meaning "
                                      "in Slurm; use %j and %u only"}));
  EXPECT_EQ(mistakes_of("[jobs]\nsqueue = ''\nslurm_every = '1ms'\n").size(), 2U);
}

TEST(ServeConfig, ReadsGroupsOfClients) {
  const ServeOptions options = parsed(
      "[groups]\nlength = '20ms'\nquiesce = true\nquiet_max = '5ms'\n"
      "[[group]]\nname = 'a'\nnids = ['10.0.0.[1-9]@tcp', '10.1.0.0/16@tcp']\nlength = '1s'\n"
      "[[group]]\nname = 'b'\nnids = '*@o2ib'\n");
  EXPECT_EQ(options.groups,
            (serve::GroupsOptions{.length = milliseconds{20},
                                  .quiesce = true,
                                  .quiet_max = milliseconds{5},
                                  .groups = {{"a", nids("10.0.0.[1-9]@tcp 10.1.0.0/16@tcp"),
                                              "10.0.0.[1-9]@tcp 10.1.0.0/16@tcp ", seconds{1}},
                                             {"b", nids("*@o2ib"), "*@o2ib ", std::nullopt}}}));
}

TEST(ServeConfig, RefusesGroupsThatAreNone) {
  EXPECT_EQ(mistakes_of("[[group]]\n"),
            (std::vector<std::string>{"f:1:1: group: name is missing",
                                      "f:1:1: group: nids is missing; such as "
                                      "['10.0.0.[1-9]@tcp']"}));
  EXPECT_EQ(mistakes_of("[[group]]\nname = 'a'\nnids = '*@tcp'\n"
                        "[[group]]\nname = 'a'\nnids = '*@lo'\n"),
            (std::vector<std::string>{"f:5:8: group 'a': name is used twice"}));
  EXPECT_EQ(mistakes_of("[[group]]\nname = 'others'\nnids = '*@tcp'\n"),
            (std::vector<std::string>{
                "f:2:8: group 'others': name is reserved for clients without a group"}));
  EXPECT_EQ(mistakes_of("[groups]\nlength = '1us'\n").size(), 1U);
  std::string many;
  for (std::size_t i = 0; i <= kGroupsMax; ++i) {
    many += "[[group]]\nname = 'g" + std::to_string(i);
    many += "'\nnids = '*@tcp'\n";
  }
  EXPECT_EQ(mistakes_of(many),
            (std::vector<std::string>{"f:385:1: group 'g128': the maximum is 128"}));
}

TEST(ServeConfig, RefusesNodemapsThatAreNone) {
  EXPECT_EQ(mistakes_of("[[nodemap]]\n"),
            (std::vector<std::string>{"f:1:1: nodemap: name is missing",
                                      "f:1:1: nodemap: nids is missing; such as "
                                      "['10.0.0.[1-9]@tcp']"}));
  EXPECT_EQ(
      mistakes_of("[[nodemap]]\nname = 'default'\nnids = '*@tcp'\n"),
      (std::vector<std::string>{"f:2:8: nodemap 'default': name is reserved for the nodemap of "
                                "all other clients; use another name"}));
  EXPECT_EQ(
      mistakes_of("[[nodemap]]\nname = 'a b'\nnids = '*@tcp'\n"),
      (std::vector<std::string>{"f:2:8: nodemap 'a b': name is not a valid name; expected 1 to 31 "
                                "letters, digits, _ and -"}));
  EXPECT_EQ(mistakes_of("[[nodemap]]\nname = 5\nnids = '*@tcp'\n"),
            (std::vector<std::string>{"f:2:8: nodemap: name must be a quoted string"}));
  EXPECT_EQ(mistakes_of("[[nodemap]]\nname = 'a'\nnids = '*@tcp'\n"
                        "[[nodemap]]\nname = 'a'\nnids = '*@lo'\n"),
            (std::vector<std::string>{"f:5:8: nodemap 'a': name is used twice"}));
}

TEST(ServeConfig, PointsAtARuleAndRepeatsItsParser) {
  EXPECT_EQ(refused("\"start a nodemap={visitors} rate=5\"",
                    "\n  'start b nid={*@tcp}',\n  'start a jobid={x} rate=5'"),
            "f:33:3: service 'fast': rule 2: column 9: 'jobid={x}' names a field that is not part "
            "of this policy's type; expected one of nid+nodemap");
  EXPECT_EQ(refused("{visitors}", "{visitor}"),
            "f:31:10: service 'fast': rule 1: column 18: 'visitor' is not a known nodemap; define "
            "the nodemap "
            "before its rules");
  EXPECT_EQ(refused("\"start a nodemap={visitors} rate=5\"",
                    "'start a nid={*@tcp}', 'start a nid={*@lo}'"),
            "f:31:33: service 'fast': rule 2: rule 'a' already exists; change or stop it, or "
            "use another name");
  EXPECT_EQ(refused("change default", "change a"),
            "f:31:47: service 'fast': rule 2: not allowed in a configuration; use start commands, "
            "and change for 'default'");
  EXPECT_EQ(refused("rules = [", "rules = [5, "),
            "f:31:10: service 'fast': rules must contain quoted strings");
}

TEST(ServeConfig, RefusesPoliciesThatAreNone) {
  EXPECT_EQ(mistakes_of("[[service]]\npolicy = 'tbf jobidd'\n").size(), 1U);
  EXPECT_TRUE(mistakes_of("[[service]]\npolicy = 'tbf jobidd'\n")[0].starts_with(
      "f:2:10: service: policy: "));
  EXPECT_TRUE(
      mistakes_of("[[service]]\npolicy = 'lifo'\n")[0].starts_with("f:2:10: service: policy: "));
  EXPECT_TRUE(mistakes_of("[[service]]\npolicy = 'crrn'\ntunables = ['quantum=8']\n").empty());
  EXPECT_TRUE(
      mistakes_of("[[service]]\npolicy = 'crrn'\ntunables = ['quantum=0']\n")[0].starts_with(
          "f:3:13: service: tunables: "));
  EXPECT_EQ(mistakes_of("[[service]]\npolicy = 'fifo'\nrules = ['start a jobid={a}']\n"),
            (std::vector<std::string>{"f:3:9: service: rules have no effect under 'fifo'; "
                                      "rules require the policy tbf"}));
  EXPECT_EQ(mistakes_of("[[service]]\npolicy = 'tbf reg jobid'\nrules = ['start a jobid={a}']\n"),
            (std::vector<std::string>{"f:3:10: service: rule 1: tbf does not run for "
                                      "high-priority requests; write reg or hp before the "
                                      "command"}));
  EXPECT_TRUE(mistakes_of("[[service]]\npolicy = 'tbf reg jobid'\n"
                          "rules = ['reg start a jobid={a}']\n")
                  .empty());
}

TEST(ServeConfig, RefusesServicesThatDoNotGoTogether) {
  EXPECT_EQ(refused("slots = 8\nhp_slots = 2", "slots = 2\nhp_slots = 2"),
            "f:35:12: service 'fast': hp_slots must be less than slots, which is 2");
  EXPECT_EQ(refused("slots = 8", "slots = 0\n#").substr(0, 70),
            "f:34:9: service 'fast': slots must be a whole number from 1 to 4096");
  EXPECT_EQ(refused("\"50ms\"", "\"1min\""),
            "f:36:10: service 'fast': period must be from 1ms to 10s");
  EXPECT_EQ(refused("\"paper\"", "\"off\""),
            "f:36:10: service 'fast': period has no effect with adaptive = 'off'");
  EXPECT_EQ(refused("\"paper\"", "\"offf\""),
            "f:32:12: service 'fast': adaptive cannot be 'offf'; did you mean 'off'?");
  EXPECT_EQ(refused("capacity = 4000", "capacity = 'much'"),
            "f:33:12: service 'fast': capacity: 'much' is not a valid capacity; expected auto, "
            "operations per "
            "second such as 4000, or bytes per second such as 100MB/s");
  EXPECT_EQ(
      refused("capacity = 4000", "capacity = '100MB/s'"),
      "f:37:8: service 'fast': cost must be 'bytes', since the capacity is in bytes per second");
  EXPECT_EQ(refused("\"affine:1:2\"", "\"bytes\""),
            "f:37:8: service 'fast': cost cannot be 'bytes', since the capacity is in operations "
            "per second; give the capacity a unit, such as '100MB/s'");
  EXPECT_EQ(mistakes_of("[[service]]\n[[service]]\nname = 'ost_io'\n"),
            (std::vector<std::string>{"f:3:8: service 'ost_io': name is used twice"}));
}

TEST(ServeConfig, RefusesExportsThatDoNotGoTogether) {
  EXPECT_EQ(mistakes_of("[[export]]\n"),
            (std::vector<std::string>{
                "f:1:1: export: name is missing; '' serves clients that name no export",
                "f:1:1: export: store is missing; such as 'file:/srv/scratch.img' or "
                "'memory:1GiB'"}));
  EXPECT_EQ(refused("service = \"fast\"", "service = \"fats\""),
            "f:46:11: export 'e': service 'fats' does not exist; did you mean fast?");
  EXPECT_EQ(
      refused("service = \"fast\"", "service = \"nothing\""),
      "f:46:11: export 'e': service 'nothing' does not exist; add a [[service]] of that name");
  EXPECT_EQ(refused("block_min = 512", "block_min = 513"),
            "f:47:13: export 'e': block_min conflicts with the other block sizes; "
            "block_min is a power of 2 up to 64KiB, block_preferred a power of 2 of at least "
            "512B and block_min, block_max a multiple of block_min from block_preferred to 64MiB");
  EXPECT_EQ(refused("block_max = \"1MiB\"", "block_max = \"65MiB\""),
            "f:49:13: export 'e': block_max must be from 1B to 64MiB");
  EXPECT_EQ(refused("connection_memory = \"128MiB\"", "connection_memory = \"512KiB\""),
            "f:49:13: export 'e': block_max is 1MiB, which exceeds the server's connection_memory "
            "of 512KiB; "
            "lower block_max or raise connection_memory");
  EXPECT_EQ(refused("e.img\"", "e.img,size=1GiB\""),
            "f:42:8: export 'e': size is already given in store; remove one of them");
  EXPECT_EQ(refused("file:/srv/e.img", "device:/dev/sda"),
            "f:42:8: export 'e': size cannot be set for a device; remove it");
  EXPECT_EQ(
      refused("description = \"an export\"", "description = \"" + std::string(256, 'x') + '"'),
      "f:45:15: export 'e': description is 256 bytes long; the maximum is 255");
  EXPECT_EQ(mistakes_of("[[export]]\nname = ''\nstore = 'memory:1MiB'\nsize = '1MiB'\n"
                        "direct = true\n[[export]]\nname = ''\nstore = 'memory:1MiB'\n"),
            (std::vector<std::string>{"f:4:8: export '': size is already given in store; remove it",
                                      "f:5:10: export '': direct has no effect for memory",
                                      "f:7:8: export '': name is used twice"}));
}

TEST(ServeConfig, AnyCutOfASoundFileIsReadOrRefused) {
  const std::string sound = kEveryKey;
  for (std::size_t size = 0; size < sound.size(); size += 3) {
    for (const std::string& message : mistakes_of(sound.substr(0, size))) {
      EXPECT_TRUE(message.starts_with("f:")) << message;
    }
  }
}

// ---- locks ----

TEST(ServeConfigLock, IsReadAndOffWithoutAnAddress) {
  const serve::LockOptions lock = parsed(kEveryKey).lock;
  ASSERT_TRUE(lock.listen);
  EXPECT_EQ(serve::print_listen(*lock.listen), "10.0.0.1:5");
  EXPECT_EQ(lock.state_file, "/s");
  EXPECT_EQ(lock.server.pool.limit, 500);
  EXPECT_EQ(lock.server.pool.preset, lock::Preset::kDld);
  EXPECT_EQ(lock.server.lease, std::chrono::seconds{10});
  EXPECT_EQ(lock.server.grace, std::chrono::seconds{20});
  EXPECT_FALSE(parsed("[lock]\nstate = '/s'\n").lock.listen);
  EXPECT_EQ(parsed("[lock]\nlease = '4s'\n").lock.server.grace, std::chrono::seconds{6});
  EXPECT_EQ(parsed("[lock]\nlisten = '10.0.0.1'\n").lock.listen->port, 10811);
}

TEST(ServeConfigLock, WhatWouldNotBeSafeIsRefused) {
  EXPECT_NE(refused("limit = 500", "limit = 0").find("limit"), std::string::npos);
  EXPECT_NE(refused("start a jobid={a} rate=5", "start a jobid={a} rate=none").find("rule 1: col"),
            std::string::npos);
  EXPECT_NE(refused("grace = \"20s\"", "grace = \"11s\"").find("quarter"), std::string::npos);
  EXPECT_NE(refused("preset = \"dld\"", "preset = \"none\"").find("preset"), std::string::npos);
  EXPECT_NE(refused("listen = \"10.0.0.1:5\"", "listen = \"nowhere:x\"").find("lock"),
            std::string::npos);
  ServeOptions options = parsed(kEveryKey);
  EXPECT_TRUE(serve::check(options));
  options.lock.rules = {parse_rule("start a uid={5} rate=5").value()};
  EXPECT_FALSE(serve::check(options));
  options = parsed(kEveryKey);
  options.trace_file.clear();
  options.lock.state_file.clear();
  EXPECT_FALSE(serve::check(options));
}

// ---- the file, the manual and the example agree ----

std::string document(const std::string& name) {
  const auto text = host::read_file(WEIR_DOCS "/" + name);
  EXPECT_TRUE(text) << text.error().message();
  return text ? *text : "";
}

// "table.key" of each line "key = ..." below a "[table]", including commented ones.
std::set<std::string> keys_of_example(const std::string& text) {
  std::set<std::string> keys;
  std::string table;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with('#')) line.erase(0, 1);
    if (line.starts_with('[')) {
      table = line.substr(line.find_first_not_of('['));
      table.erase(table.find(']'));
    } else if (!line.empty() && line[0] != ' ' && line.find(" = ") != std::string::npos) {
      keys.insert(table + "." + line.substr(0, line.find(' ')));
    }
  }
  return keys;
}

// "table.key" of each "=item B<key> = ..." below a "=head1 [table]".
std::set<std::string> keys_of_manual(const std::string& text) {
  std::set<std::string> keys;
  std::string table;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("=head1")) {
      const std::size_t name = line.find_first_not_of('[', 7);
      table = line[7] == '[' ? line.substr(name, line.find(']') - name) : "";
    } else if (line.starts_with("=item B<") && !table.empty()) {
      keys.insert(table + "." + line.substr(8, line.find('>') - 8));
    }
  }
  return keys;
}

std::set<std::string> keys_of_program() {
  std::set<std::string> keys;
  for (const ServeConfigKey& key : serve_config_keys()) {
    keys.insert(std::string(key.table) + "." + std::string(key.name));
  }
  return keys;
}

TEST(ServeConfigDocuments, TheManualAndTheExampleHaveEveryKeyAndNoOther) {
  EXPECT_EQ(keys_of_manual(document("man/weir.conf.5.pod")), keys_of_program());
  EXPECT_EQ(keys_of_example(document("weir.conf.example")), keys_of_program());
}

TEST(ServeConfigDocuments, TheComparisonFindsAKeyThatIsMissing) {
  std::string manual = document("man/weir.conf.5.pod");
  manual.replace(manual.find("=item B<drain_timeout>"), 8, "=item X<");
  EXPECT_NE(keys_of_manual(manual), keys_of_program());
  std::string example = document("weir.conf.example");
  example.replace(example.find("#store ="), 8, "# store =");
  EXPECT_NE(keys_of_example(example), keys_of_program());
}

TEST(ServeConfigDocuments, TheExampleGivesTheDefaults) {
  ServeOptions options = parsed(document("weir.conf.example"));
  EXPECT_EQ(options.services, std::vector<serve::ServiceOptions>{{}});
  options.services.clear();
  EXPECT_EQ(options, ServeOptions{});
}

TEST(ServeConfigDocuments, TheExampleWithAllItsExamplesCanBeServed) {
  std::string text = document("weir.conf.example");
  for (std::size_t at = text.find("\n#"); at != std::string::npos; at = text.find("\n#", at + 1)) {
    if (at + 2 < text.size() && text[at + 2] != ' ' && text[at + 2] != '\n') text.erase(at + 1, 1);
  }
  const ServeOptions options = parsed(text);
  EXPECT_TRUE(serve::check(options));
  ASSERT_EQ(options.exports.size(), 1U);
  EXPECT_EQ(options.exports[0].blocks, BlockSizes{});
  EXPECT_EQ(options.exports[0].service, serve::kDefaultService);
  EXPECT_EQ(options.services[0].rules.size(), 2U);
  EXPECT_EQ(options.jobs.size(), 2U);
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

TEST(ServeConfig, ReadsTheTreeOfSharesOfAService) {
  const ServeOptions options = parsed(kEveryKeyOfShares);
  ASSERT_EQ(options.services.size(), 1U);
  const serve::SharesOptions& shares = options.services[0].shares;
  EXPECT_EQ(shares.levels, (std::vector<FieldSet>{{Field::kProjid}, {Field::kNodemap}}));
  EXPECT_EQ(shares.weights,
            (std::map<std::string, std::uint64_t>{{"(none)", 5}, {"1001", 2}, {"1001/1", 3}}));
  EXPECT_EQ(shares.accounts,
            (std::map<std::string, std::string>{{"1002", "physics"}, {"1002/1", "physics/alice"}}));
  EXPECT_EQ(shares.names, (std::map<std::string, std::string>{
                              {"1001", "bio"}, {"1001/1", "guests"}, {"1002", "chem"}}));
  EXPECT_EQ(options.slurm.sshare, "/opt/sshare");
  const ServeOptions plain = parsed("[shares]\ntree = ['uid', 'jobid']\n");
  ASSERT_EQ(plain.services.size(), 1U) << "the default service";
  EXPECT_EQ(plain.services[0].shares.levels, (std::vector<FieldSet>{{Field::kUid}}));
  const ServeOptions rules =
      parsed("[shares]\ntree = ['rule', 'jobid']\nweights = { 'gold' = 2 }\n");
  EXPECT_EQ(rules.services[0].shares.levels, std::vector<FieldSet>{kRuleLevel});
  EXPECT_EQ(rules.services[0].shares.weights, (std::map<std::string, std::uint64_t>{{"gold", 2}}));
  EXPECT_TRUE(parsed("[shares]\ntree = ['jobid']\n").services[0].shares.levels.empty())
      << "one level is no tree";
}

TEST(ServeConfig, RefusesTreesOfSharesThatCannotBe) {
  const auto refused_tree = [](const std::string& rest) {
    const auto messages = mistakes_of("[shares]\n" + rest);
    EXPECT_EQ(messages.size(), 1U) << rest;
    return messages.empty() ? "" : messages.front();
  };
  EXPECT_EQ(refused_tree("tree = ['prjid', 'jobid']\n"),
            "f:2:8: shares: tree: tree 'prjid,jobid': 'prjid' is not a level; did you mean "
            "projid?");
  EXPECT_EQ(refused_tree("tree = ['uid', 'uid', 'jobid']\n"),
            "f:2:8: shares: tree: tree 'uid,uid,jobid': 'uid' is given twice; give each level "
            "once");
  EXPECT_EQ(refused_tree("tree = ['uid']\n"),
            "f:2:8: shares: tree: tree 'uid': does not end with the jobs; write jobid as the last "
            "level");
  EXPECT_EQ(refused_tree("tree = ['rule', 'jobid']\nweights = { 'no rule' = 2 }\n"),
            "f:3:13: shares: the weight of 'no rule' cannot be set: 'no rule' is not a name of a "
            "rule");
  EXPECT_EQ(refused_tree("weights = { '1' = 2 }\n"),
            "f:1:1: shares: tree is missing; such as ['projid', 'uid', 'jobid']");
  EXPECT_EQ(refused_tree("service = 'other'\ntree = ['uid', 'jobid']\n"),
            "f:2:11: shares: service 'other' does not exist; add a [[service]] of that name");
  const auto refused_weight = [&](const std::string& weights) {
    return refused_tree("tree = ['projid', 'uid', 'jobid']\nweights = " + weights + "\n");
  };
  EXPECT_EQ(refused_weight("{ '1' = 0 }"),
            "f:3:13: shares: the weight of '1' must be a whole number from 1 to 1000000000");
  EXPECT_EQ(refused_weight("{ '1' = 1000000000000 }"),
            "f:3:13: shares: the weight of '1' must be a whole number from 1 to 1000000000");
  EXPECT_EQ(refused_weight("{ '1/2/ior' = 2 }"),
            "f:3:13: shares: the weight of '1/2/ior' has a path of 3 values; the tree has 2 levels "
            "above the jobs; the weight of a job is weight= of its rule, or its nodes");
  EXPECT_EQ(refused_weight("{ 'bio' = 2 }"),
            "f:3:13: shares: the weight of 'bio' cannot be set: 'bio' is not a projid; write its "
            "number, or (none)");
  EXPECT_EQ(refused_weight("{ '1' = 2, '01' = 3 }"),
            "f:3:22: shares: the weight of '01' is given twice; give each node once");
  EXPECT_EQ(refused_weight("3"),
            "f:3:11: shares: weights must be a table such as { '1001' = 2, '1001/5' = 3 }");
  EXPECT_EQ(refused_tree("tree = ['uid', 'jobid']\naccounts = { '7' = 'a/b/c' }\n"),
            "f:3:14: shares: the account of '7' is not valid; expected ACCOUNT, or ACCOUNT/USER");
  const auto refused_name = [&](const std::string& names) {
    return refused_tree("tree = ['projid', 'jobid']\nnames = " + names + "\n");
  };
  for (const char* name : {"''", "'a/b'", "'7'", "7", "'a name that is longer than 31 bytes'"}) {
    EXPECT_EQ(refused_name("{ '1' = " + std::string(name) + " }"),
              "f:3:11: shares: the name of '1' is not valid; expected 1 to 31 bytes without /, and "
              "not a number");
  }
  EXPECT_EQ(refused_name("{ '1' = 'bio', '2' = 'bio' }"),
            "f:3:24: shares: the name of '2' is given twice; give each node below the same parent "
            "a name of its own");
  EXPECT_EQ(refused_name("{ '1' = 'bio', 'bio' = 'x' }"),
            "f:3:24: shares: the name of 'bio' is given twice; give each node below the same "
            "parent a name of its own");
  EXPECT_EQ(mistakes_of("[[shares]]\ntree = ['uid', 'jobid']\n[[shares]]\ntree = ['gid', "
                        "'jobid']\n")
                .front(),
            "f:3:1: shares: service 'ost_io' has a tree of shares already");
  EXPECT_EQ(mistakes_of("[[service]]\nname = 'ost_io'\nadaptive = 'off'\n[shares]\ntree = ['uid', "
                        "'jobid']\n")
                .front(),
            "f:5:8: shares: tree has no effect with adaptive = \"off\"; set adaptive = \"on\" for "
            "the service, or remove the tree");
}

}  // namespace
}  // namespace weir::config
