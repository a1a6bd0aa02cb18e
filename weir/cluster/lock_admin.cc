// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_admin.h"

#include <chrono>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "weir/cluster/lock.grpc.pb.h"
#include "weir/cluster/lock_channel.h"
#include "weir/cluster/lock_wire.h"

namespace weir::cluster {
namespace {

namespace wire = lock::v1;

constexpr std::chrono::seconds kPatience{10};

tl::unexpected<Error> failed(const std::string& server, const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    return fail(std::errc::permission_denied, server, status.error_message(),
                "use --tls-certificates, or run on the server: curl --unix-socket "
                "/run/weir.sock http://weir/v1/locks/locks/list");
  }
  const bool is_late = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return fail(is_late ? std::errc::timed_out : std::errc::connection_refused, server,
              status.error_message(), "check that weir serve --lock runs at this address");
}

// Asks one server after the other, until one answers: of several servers one is active.
template <class Call>
Result<void> ask(const lock::ConnectOptions& options, Call call) {
  if (auto checked = lock::check(options); !checked) return checked;
  const auto opener = LockChannel::load(options);
  if (!opener) return tl::unexpected(opener.error());
  Result<void> done;
  for (const std::string& server : lock::servers_of(options)) {
    const auto stub = wire::Locks::NewStub((*opener)->open(server, LockChannel::For::kCalls));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    const grpc::Status status = call(*stub, context);
    if (status.ok()) return {};
    done = failed(server, status);
  }
  return done;
}

}  // namespace

Result<lock::LockList> ask_list(const lock::ConnectOptions& options,
                                const lock::ListOptions& wanted) {
  wire::ListRequest request;
  request.set_filter(wanted.filter);
  request.set_most(static_cast<std::uint32_t>(wanted.max));
  request.set_from(wanted.from);
  wire::ListReply reply;
  const auto done = ask(options, [&](wire::Locks::Stub& stub, grpc::ClientContext& context) {
    return stub.List(&context, request, &reply);
  });
  if (!done) return tl::unexpected(done.error());
  return from_wire(reply);
}

Result<lock::LockStats> ask_stats(const lock::ConnectOptions& options) {
  wire::StatsReply reply;
  bool has_standby = false;
  const auto done = ask(options, [&](wire::Locks::Stub& stub, grpc::ClientContext& context) {
    wire::StatsReply answer;
    grpc::Status status = stub.Stats(&context, wire::StatsRequest{}, &answer);
    if (!status.ok()) return status;
    reply = std::move(answer);
    has_standby = reply.role() == wire::STANDBY;
    if (!has_standby) return status;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "is a standby");  // another may be active
  });
  if (!done && !has_standby) return tl::unexpected(done.error());
  return from_wire(reply);
}

}  // namespace weir::cluster
