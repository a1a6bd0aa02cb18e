// SPDX-License-Identifier: Apache-2.0
//
// The part of etcd's API that membership needs: leases, a listing of all keys below a prefix, and
// transactions that write if nothing has changed.
//
//   auto etcd = EtcdClient::create({.endpoints = {"10.0.0.1:2379", "10.0.0.2:2379"}});
//   auto lease = etcd->grant(std::chrono::seconds{5});
//   etcd->commit({EtcdClient::absent("/weir/leader")}, {{"/weir/leader", "a", lease->id}});
//
// Calls block, at most `timeout` for each endpoint: endpoints that do not answer are skipped, and
// the next call starts with the one that did. A transaction without an answer may still have been
// applied, so the caller must read again. Keys and values are bytes.
//
// With a user, the token from etcd is renewed when it expires. An EtcdWatch has its own thread and
// reports that something below the prefix has changed, or may have changed; a listing shows what.
//
// Thread-safe. gRPC and its types stay inside.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"

namespace weir::cluster {

struct EtcdOptions {
  std::vector<std::string> endpoints;  // HOST:PORT, one or more
  std::string user;                    // empty: none
  std::string password;
  std::string tls_directory;  // see credentials.h; empty: plain text
  Nanoseconds timeout = std::chrono::seconds{1};
};

class EtcdClient {
 public:
  struct Entry {
    std::string key;
    std::string value;
    std::int64_t created = 0;  // revisions of the whole etcd, which only increase
    std::int64_t modified = 0;
    std::int64_t lease = 0;
  };
  // All entries at one moment.
  struct Listing {
    std::int64_t revision = 0;  // of the whole etcd, when it answered
    std::vector<Entry> entries;
  };
  struct Lease {
    std::int64_t id = 0;
    Nanoseconds length{0};  // may be longer than requested
  };
  // The key is unchanged since this revision; 0: the key does not exist.
  struct Condition {
    std::string key;
    std::int64_t modified = 0;
  };
  static Condition absent(std::string key) { return {std::move(key), 0}; }
  struct Write {
    std::string key;
    std::optional<std::string> value;  // none: the key is deleted
    std::int64_t lease = 0;            // the lease it ends with; 0: none
  };

  // Reads the certificates; does not connect yet.
  static Result<std::unique_ptr<EtcdClient>> create(const EtcdOptions& options);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Reads and checks the certificates on disk. Calling the result makes new connections use them.
  // Calls in progress are not affected.
  Result<std::function<void()>> read_certificates();

  // Errors of all of these: EHOSTUNREACH or ETIMEDOUT, no endpoint answered; EACCES, wrong
  // credentials; EIO, anything else.
  Result<Listing> look(const std::string& prefix);
  Result<std::vector<Entry>> list(const std::string& prefix);
  // REQUIRES: at least a second.
  Result<Lease> grant(Nanoseconds length);
  // The remaining time of the lease, from the call on. ENOENT: it has expired.
  Result<Nanoseconds> keep_alive(std::int64_t lease);
  Result<void> revoke(std::int64_t lease);
  // All writes or none; false if a condition does not hold.
  Result<bool> commit(const std::vector<Condition>& conditions, const std::vector<Write>& writes);

 private:
  friend class EtcdWatch;
  class Core;
  explicit EtcdClient(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

class EtcdWatch {
 public:
  // `changed` is called on the watch's thread, at least once.
  EtcdWatch(const EtcdClient& client, const std::string& prefix, std::function<void()> changed);
  ~EtcdWatch();
  EtcdWatch(const EtcdWatch&) = delete;
  EtcdWatch& operator=(const EtcdWatch&) = delete;

 private:
  struct Running;
  std::unique_ptr<Running> running_;
};

}  // namespace weir::cluster
