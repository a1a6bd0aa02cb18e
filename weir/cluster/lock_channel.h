// SPDX-License-Identifier: Apache-2.0
//
// The connection of a lock client to its server: a separate gRPC channel that reconnects soon after
// a failure. A lease lasts seconds, while gRPC by default waits for up to two minutes.
//
//   auto opener = LockChannel::load({.server = "10.0.0.1:10811"});
//   auto channel = (*opener)->open("10.0.0.1:10811");               connects with its first call
//
// With a directory of certificates it uses TLS, and both ends present a certificate
// (credentials.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weir/base/result.h"
#include "weir/cluster/lock_client.h"

namespace grpc {
class Channel;
}

namespace weir::cluster {

class Credentials;

// One owner.
class LockChannel {
 public:
  // The error names the certificate that cannot be read.
  static Result<std::unique_ptr<LockChannel>> load(const lock::ConnectOptions& options);
  ~LockChannel();
  LockChannel(const LockChannel&) = delete;
  LockChannel& operator=(const LockChannel&) = delete;

  enum class For : std::uint8_t { kStreams, kCalls };
  std::shared_ptr<grpc::Channel> open(const std::string& server, For what = For::kStreams) const;
  // Whether the certificates on disk have changed and are valid; open() then uses them. Invalid
  // ones are ignored.
  bool renew();

 private:
  explicit LockChannel(std::unique_ptr<Credentials> credentials);

  std::unique_ptr<Credentials> credentials_;
};

// A channel to the first server, for one or two calls. The error names the certificate that cannot
// be read.
Result<std::shared_ptr<grpc::Channel>> open_channel(const lock::ConnectOptions& options);

}  // namespace weir::cluster
