// SPDX-License-Identifier: Apache-2.0
//
// Certificates and authorities for all gRPC connections of this module. Without a directory
// connections are plain; with one they are TLS, and both ends show a certificate of the same
// authority:
//
//   ca-cert.pem                          the authority
//   server-cert.pem, server-key.pem      shown to incoming connections
//   client-cert.pem, client-key.pem      for outgoing ones; if missing, the server's
//
// The names are the same as in [tls] of weir.conf. A channel to a server that asks for no
// certificate (such as etcd) needs only the authority. The error names the file. A certificate that
// has expired is found by the peer when it connects.
//
//   auto credentials = Credentials::load(directory, Credentials::Use::kBoth);
//   builder.AddListeningPort(address, (*credentials)->server(), &port);
//   ...
//   auto renewed = (*credentials)->read_again();    they were renewed: read and checked, no more
//   if (renewed) (*credentials)->use(*renewed);     connections from now on, either way
//
// Open connections keep their certificates. A channel keeps its certificates too, also for its next
// connection: create a new channel to use new ones.
//
// gRPC's own types are only named here, so no user of this header needs its headers. Thread-safe.
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
class ServerCredentials;
}  // namespace grpc

namespace weir::cluster {

// The files of a directory, as they were at one moment.
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

  // What for: to go somewhere, with a certificate of our own or with one if there is one; for those
  // who come, who need a certificate of the authority; or for both.
  enum class Use : std::uint8_t { kGo, kGoIfThere, kListen, kBoth };

  // An empty directory: plain.
  static Result<Ptr> load(const std::string& directory, Use use);

  // For going somewhere, with the certificates of this moment.
  std::shared_ptr<grpc::ChannelCredentials> channel() const;
  // For those who come, each with the certificates of its moment. For one server, which lives
  // shorter than this.
  std::shared_ptr<grpc::ServerCredentials> server();

  // The files as they are now, which a plain one has none of. A certificate that has changed has to
  // be valid now, too.
  Result<Renewed> read_again() const;
  // Whether that changes anything.
  bool use(Renewed renewed);

  // Those in use; none if plain.
  Renewed current() const;
  // The same for the server; none if they are those that it was given last.
  Renewed take_new();

 private:
  Credentials(std::string directory, Use use, Renewed certificates);

  const std::string directory_;
  const Use use_;
  mutable host::Mutex mutex_;
  Renewed certificates_ ABSL_GUARDED_BY(mutex_);
  Renewed given_ ABSL_GUARDED_BY(mutex_);  // to the server
};

// What all our channels have in common: no proxy, and a peer that comes back is found within a
// second.
grpc::ChannelArguments channel_arguments();
// The same for channels to servers of the cluster and to etcd, which also give up a connection when
// nobody has acknowledged what was sent for 2 s. TCP itself waits for a quarter of an hour, and
// after a cut for as long again as it lasted before it tries once more.
grpc::ChannelArguments peer_channel_arguments();

// gRPC writes lines of its own to standard error; what matters we say ourselves. Once a process,
// before the first channel; more calls do nothing.
void quiet_grpc();

}  // namespace weir::cluster
