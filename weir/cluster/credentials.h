// SPDX-License-Identifier: Apache-2.0
//
// What a server shows to its peers and whom it believes, for everything in this module that speaks
// gRPC. Without a directory connections are plain; with one they are TLS, and both ends show a
// certificate of the same authority:
//
//   ca-cert.pem                          the authority
//   server-cert.pem, server-key.pem      shown to those who come
//   client-cert.pem, client-key.pem      shown where we go; if missing, the server's are
//
// These are the names that [tls] of weir.conf has too. A channel to somebody who asks for no
// certificate (an etcd, say) needs the authority alone. Files are read once; the error names the
// file. A certificate that has expired is found by the peer when it connects.
//
// gRPC's own types are only named here, so no user of this header needs its headers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weir/base/result.h"

namespace grpc {
class ChannelArguments;
class ChannelCredentials;
class ServerCredentials;
}  // namespace grpc

namespace weir::cluster {

// Whether we have to have a certificate of our own for those we go to.
enum class OwnCertificate : std::uint8_t { kNeeded, kIfThere };

// For going somewhere. An empty directory: plain.
Result<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials(
    const std::string& directory, OwnCertificate own = OwnCertificate::kNeeded);
// For those who come, who need a certificate of the authority. An empty directory: plain.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const std::string& directory);

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
