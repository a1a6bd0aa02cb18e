// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_transport_grpc.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "weir/cluster/lock_wire.h"

namespace weir::cluster {
namespace {

using grpc::CallbackServerContext;
using grpc::StatusCode;

// A peer that does not answer for this time is considered disconnected, whatever TCP reports.
constexpr int kPingEveryMs = 20'000;
constexpr std::chrono::seconds kStopPatience{2};

// Lock names reveal what other clients do. The certificate was checked in the handshake.
bool may_list(const grpc::ServerContextBase& context) {
  return context.auth_context()->IsPeerAuthenticated() || context.peer().starts_with("unix:");
}

}  // namespace

template <class Function>
grpc::ServerUnaryReactor* LockService::Transport::answer(CallbackServerContext* context,
                                                         Function function) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const bool is_asked =
      owner_.call([this, reactor, function] { reactor->Finish(function(owner_)); });
  if (!is_asked) reactor->Finish(stopping());
  return reactor;
}

grpc::ServerBidiReactor<lock::v1::ClientBatch, lock::v1::ServerBatch>*
LockService::Transport::Attach(CallbackServerContext* context) {
  auto* const stream = new LockStream(owner_.letters(), context->peer(), principal_of(*context));
  stream->read();
  return stream;
}

grpc::ServerUnaryReactor* LockService::Transport::List(CallbackServerContext* context,
                                                       const lock::v1::ListRequest* request,
                                                       lock::v1::ListReply* reply) {
  if (!may_list(*context)) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish({StatusCode::PERMISSION_DENIED,
                     "lists locks for clients with a certificate or on a Unix socket only"});
    return reactor;
  }
  lock::ListOptions options{.filter = request->filter(), .from = request->from()};
  if (request->most() > 0) options.max = std::min<std::size_t>(request->most(), options.max);
  return answer(context, [reply, options](Owner& owner) {
    if (owner.is_standby()) return grpc::Status(StatusCode::UNAVAILABLE, owner.away().what);
    cluster::to_wire(owner.list(options), *reply);
    return grpc::Status::OK;
  });
}

grpc::ServerUnaryReactor* LockService::Transport::Stats(CallbackServerContext* context,
                                                        const lock::v1::StatsRequest* /*request*/,
                                                        lock::v1::StatsReply* reply) {
  return answer(context, [reply](Owner& owner) {
    cluster::to_wire(owner.stats(), *reply);
    return grpc::Status::OK;
  });
}

void LockService::Transport::shut_down() {
  server_->Shutdown(std::chrono::system_clock::now() + kStopPatience);
}

Result<void> LockService::Transport::open(const LockServiceOptions& options) {
  listening_ = *options.lock.listen;
  serve::ListenAddress address = listening_;
  const bool is_tcp = address.kind == serve::ListenAddress::Kind::kTcp;
  if (is_tcp && address.host.empty()) address.host = "::";
  quiet_grpc();
  const bool is_plain = options.tls.mode == serve::TlsOptions::Mode::kOff;
  auto credentials =
      Credentials::load(is_plain ? "" : options.tls.directory, Credentials::Use::kListen);
  if (!credentials) return tl::unexpected(credentials.error());
  credentials_ = *std::move(credentials);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(serve::print_listen(address), credentials_->server(), &port);
  // Two servers on one port would divide the clients between them.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingEveryMs);
  bound_connections(builder);
  builder.SetMaxReceiveMessageSize(kBatchBytesMax);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) {
    return fail(std::errc::address_in_use, "lock service " + serve::print_listen(listening_),
                "cannot listen on this address", "check that it is free and that you may use it");
  }
  if (is_tcp) listening_.port = static_cast<std::uint16_t>(port);
  return {};
}

}  // namespace weir::cluster
