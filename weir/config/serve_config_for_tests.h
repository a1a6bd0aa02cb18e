// SPDX-License-Identifier: Apache-2.0
//
// For tests of the configuration file: a text with every key of most tables, one for the keys of
// [[nfs]] and one for those of [[shares]]; and what is done with a text: read it, list what is
// wrong with it, or tell what becomes wrong when one part of the first text is replaced.
//
//   EXPECT_EQ(refused("slots = 8", "slots = 0"), "f:37:9: service 'fast': slots must be ...");
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "weir/config/serve_config.h"

namespace weir::config {

// Every key, with a value that is not its default.
inline constexpr const char* kEveryKey = R"([server]
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

inline constexpr const char* kEveryKeyOfNfs = R"([[service]]
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

inline constexpr const char* kEveryKeyOfShares = R"([jobs]
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

inline std::vector<std::string> mistakes_of(const std::string& text) {
  const auto options = parse_serve_config(text, "f");
  std::vector<std::string> messages;
  if (options) return messages;
  for (const Error& error : options.error()) messages.push_back(error.message());
  return messages;
}

// The only message about the file above with a part replaced.
inline std::string refused(const std::string& part, const std::string& by) {
  std::string text = kEveryKey;
  EXPECT_NE(text.find(part), std::string::npos) << part;
  text.replace(text.find(part), part.size(), by);
  const std::vector<std::string> messages = mistakes_of(text);
  EXPECT_EQ(messages.size(), 1U) << part << " -> " << by;
  for (std::size_t i = 1; i < messages.size(); ++i) ADD_FAILURE() << messages[i];
  return messages.empty() ? "" : messages[0];
}

inline serve::ServeOptions parsed(const std::string& text) {
  auto options = parse_serve_config(text, "f");
  EXPECT_TRUE(options) << options.error().front().message();
  return options ? *options : serve::ServeOptions{};
}

inline NidList nids(std::string_view text) { return NidList::parse(text).value(); }

}  // namespace weir::config
