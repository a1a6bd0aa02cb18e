// SPDX-License-Identifier: Apache-2.0
//
// The load of weir bench: requests of one size on several connections to an NBD server, and how
// long each took.
//
//   Address address = value_or_fail(parse_uri("nbd://host/scratch"), ...);
//   Load load(plan);
//   check(load.connect(address), ...);
//   load.run(stop, [](const LoadResult&) { ... });     calls it about every tenth of a second
//
// Without a rate, each connection always has `depth` requests in progress. With a rate, requests
// become due at fixed times, wait if all connections are full, and their latency counts from the
// time they were due: a server that stalls cannot hide it by delaying the load.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/histogram.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/rng.h"
#include "weir/base/time.h"
#include "weir/nbd/codec/client.h"

namespace weir::nbd {

struct Address {
  std::string host, port;   // of a TCP address
  std::string socket_path;  // of a Unix socket
  std::string export_name;

  std::string text() const { return socket_path.empty() ? host + ":" + port : socket_path; }
};
// nbd://HOST[:PORT][/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH, with %XX for other characters.
Result<Address> parse_uri(std::string_view text);

struct LoadPlan {
  std::uint32_t connections = 1;
  std::uint32_t depth = 16;
  std::uint32_t size = 4096;
  std::uint32_t read_percent = 100;
  std::optional<Rate> rate;  // of all connections together
  Nanoseconds time = std::chrono::seconds{10};
};

struct LoadResult {
  struct Kind {
    Histogram latency;  // in nanoseconds, of requests without an error
    std::uint64_t errors = 0;
  };
  Kind reads, writes;
  Nanoseconds elapsed{0};
  std::uint64_t unanswered = 0;  // when the load ended
};

class Load {
 public:
  explicit Load(const LoadPlan& plan);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  Result<void> connect(const Address& address);
  // Until the planned time has passed, or `stop` is set. REQUIRES: connect() succeeded.
  Result<LoadResult> run(const std::atomic<bool>& stop,
                         const std::function<void(const LoadResult&)>& progress);

 private:
  class Connection;

  Result<void> check_export(const Session& session) const;
  void issue(Instant now);
  void issue_on(Connection& connection, Instant due);
  Connection* with_room();
  std::uint64_t in_progress() const;
  Result<void> turn(Instant until);
  Result<void> wait(Instant until);

  const LoadPlan plan_;
  Rng rng_;
  std::vector<std::byte> payload_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::size_t next_ = 0;      // connection to use next
  std::uint64_t blocks_ = 0;  // of the export, of the size of a request
  std::uint64_t issued_ = 0;
  Instant start_{};
  Instant due_ = kNever;  // the next request
  LoadResult result_;
};

}  // namespace weir::nbd
