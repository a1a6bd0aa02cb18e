// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_admin.h"

#include <chrono>

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

template <class Call>
Result<void> ask(const lock::ConnectOptions& options, Call call) {
  if (auto checked = lock::check(options); !checked) return checked;
  const auto channel = open_channel(options);
  if (!channel) return tl::unexpected(channel.error());
  const auto stub = wire::Locks::NewStub(*channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  const grpc::Status status = call(*stub, context);
  if (!status.ok()) return failed(options.server, status);
  return {};
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
  const auto done = ask(options, [&](wire::Locks::Stub& stub, grpc::ClientContext& context) {
    return stub.Stats(&context, wire::StatsRequest{}, &reply);
  });
  if (!done) return tl::unexpected(done.error());
  return from_wire(reply);
}

}  // namespace weir::cluster
