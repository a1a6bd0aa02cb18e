// SPDX-License-Identifier: Apache-2.0
//
// The configuration file of a server: TOML in, ServeOptions out. weir.conf(5) describes every key,
// docs/weir.conf.example lists them all with their defaults, and a test compares the three.
//
//   [server]       addresses, limits, timeouts, the user to switch to
//   [control]      the API
//   [cluster]      membership in a cluster
//   [tls]          encryption
//   [lock]         the lock service
//   [claims]       which clients may name their job and user
//   [jobs]         the number of nodes of jobs
//   [[nodemap]]    sets of clients by address, for rules
//   [groups]       turns of groups of clients
//   [[group]]      clients that are preferred together
//   [[service]]    a policy, its rules, the controller and the capacity
//   [[shares]]     the tree of shares of a service: projects, users, jobs
//   [[export]]     a name, a store, and the service that schedules its requests
//
// All errors of a file are reported, each with its line and column; an unknown key is reported with
// the nearest known one. Policies, rules, addresses and stores are parsed by the parsers of the
// running server, so accepted values work there. Conditions on the file and the command line
// together, such as at least one export, are checked by serve::check().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "weir/base/quantity.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/coordinate/group_epochs.h"
#include "weir/serve/options.h"

namespace weir::config {

// Bounds of values, in addition to those of their parsers.
struct ServeConfigBounds : serve::ServeBounds {
  static constexpr std::size_t kListenMax = 64;
  static constexpr std::size_t kExportsMax = 4096;
  static constexpr std::size_t kServicesMax = 256;
  static constexpr std::size_t kGatewaysMax = 64;
  static constexpr std::size_t kNodemapsMax = 4096;
  static constexpr std::size_t kClientGroupsMax = kGroupsMax;
  static constexpr std::size_t kNameMax = 255;        // bytes of an export's name
  static constexpr std::size_t kPathMax = 4095;       // bytes
  static constexpr std::size_t kSocketPathMax = 107;  // bytes, the room in sockaddr_un
  static constexpr std::uint64_t kNodesMax = 1'000'000;
  static constexpr std::size_t kWeightsMax = 100'000;  // of nodes of a tree of shares
  static constexpr Bytes kMemoryMin{256 << 10};
  static constexpr Bytes kMemoryMax{std::uint64_t{1} << 50};
  static constexpr Nanoseconds kLeaseMin = std::chrono::seconds{1};
  static constexpr Nanoseconds kLeaseMax = std::chrono::hours{1};
  static constexpr std::size_t kEtcdMax = 16;  // endpoints
  static constexpr Nanoseconds kEpochMin = std::chrono::milliseconds{1};
  static constexpr Nanoseconds kEpochMax = std::chrono::seconds{1};
  static constexpr Nanoseconds kEpochTimeoutMax = std::chrono::seconds{10};
  // The minimum in etcd; it is also how long a lost leader goes unnoticed.
  static constexpr Nanoseconds kLeaderLeaseMin = std::chrono::seconds{2};
  static constexpr Nanoseconds kLeaderLeaseMax = std::chrono::minutes{1};
};

// All keys, in the order of the manual.
struct ServeConfigKey {
  std::string_view table;
  std::string_view name;

  bool operator==(const ServeConfigKey&) const = default;
};
std::vector<ServeConfigKey> serve_config_keys();

// `file` is the name used in messages. On failure all errors, in the order of the file.
tl::expected<serve::ServeOptions, std::vector<Error>> parse_serve_config(std::string_view text,
                                                                         const std::string& file);

// The same from a file. The error message has a line for each error; its code is EINVAL, or the
// errno of reading.
Result<serve::ServeOptions> load_serve_config(const std::string& path);

}  // namespace weir::config
