// SPDX-License-Identifier: Apache-2.0
//
// Certificates, authorities and bounds of all gRPC connections of this module. Without a directory
// connections are plain text; with one they use TLS, and both ends present a certificate of the
// same authority:
//
//   ca-cert.pem                          the authority
//   server-cert.pem, server-key.pem      for incoming connections
//   client-cert.pem, client-key.pem      for outgoing ones; if missing, the server's
//
// The names are the same as in [tls] of weir.conf. A channel to a server that asks for no
// certificate (such as etcd) needs only the authority. The error names the file. A certificate that
// has expired is found by the peer when it connects.
//
//   auto credentials = Credentials::load(directory, Credentials::Use::kBoth);
//   builder.AddListeningPort(address, (*credentials)->server(), &port);
//   ...
//   auto renewed = (*credentials)->read_again();    reads and checks renewed files
//   if (renewed) (*credentials)->use(*renewed);     new connections use them, in and out
//
// Open connections keep their certificates. A channel keeps its certificates too, also for its next
// connection: create a new channel to use new ones.
//
// gRPC types are only declared here, so users of this header do not need its headers. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "weir/base/result.h"
#include "weir/host/mutex.h"
#include "weir/host/tls.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerBuilder;
class ServerCredentials;
}  // namespace grpc

namespace weir::cluster {

// The files of a directory, read at one moment.
struct Certificates {
  struct Pair {
    host::PemFile certificate;
    host::PemFile key;

    bool operator==(const Pair&) const = default;
  };
  host::PemFile authority;
  std::optional<Pair> server;
  std::optional<Pair> client;

  bool operator==(const Certificates&) const = default;
};

class Credentials {
 public:
  using Ptr = std::unique_ptr<Credentials>;
  using Renewed = std::shared_ptr<const Certificates>;

  // Purpose: outgoing connections, with our certificate (kGo) or with one if it exists
  // (kGoIfThere); incoming connections, for which clients need a certificate of the authority;
  // or both.
  enum class Use : std::uint8_t { kGo, kGoIfThere, kListen, kBoth };

  // An empty directory: plain text.
  static Result<Ptr> load(const std::string& directory, Use use);

  // For outgoing connections, with the current certificates.
  std::shared_ptr<grpc::ChannelCredentials> channel() const;
  // For incoming connections, each with the certificates of its time. For one server, which must be
  // destroyed before this.
  std::shared_ptr<grpc::ServerCredentials> server();

  // Reads the current files; without a directory there are none. A changed certificate must also be
  // valid now.
  Result<Renewed> read_again() const;
  // Returns whether this changes anything.
  bool use(Renewed renewed);

  // The certificates in use; none without TLS.
  Renewed current() const;
  // The same for the server; none if it already has them.
  Renewed take_new();

 private:
  Credentials(std::string directory, Use use, Renewed certificates);

  const std::string directory_;
  const Use use_;
  mutable host::Mutex mutex_;
  Renewed certificates_ ABSL_GUARDED_BY(mutex_);
  Renewed given_ ABSL_GUARDED_BY(mutex_);  // last given to the server
};

// Arguments of all our channels: no proxy, and reconnection within a second.
grpc::ChannelArguments channel_arguments();
// The same for channels to servers of the cluster and to etcd, which also close a connection if
// sent data is not acknowledged for 2 s. TCP itself waits for a quarter of an hour, and after a cut
// it retries only after as long as the cut has lasted.
grpc::ChannelArguments peer_channel_arguments();

// Bounds of the connections to a server: 100 calls at a time, 10 s for the handshake, a minute
// without a call. A connection that exceeds the last two is closed.
void bound_connections(grpc::ServerBuilder& builder);

// Stops gRPC from writing its own messages to standard error. Call it before the first channel;
// further calls do nothing.
void quiet_grpc();

}  // namespace weir::cluster
