// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/etcd_client.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "weir/base/assert.h"
#include "weir/cluster/credentials.h"
#include "weir/cluster/etcd.grpc.pb.h"
#include "weir/cluster/printable_error.h"
#include "weir/host/clock.h"
#include "weir/host/mutex.h"

namespace weir::cluster {
namespace {

namespace pb = etcdserverpb;
using std::chrono::milliseconds;

constexpr auto kWatchPause = milliseconds{200};

// The first key after all keys with the prefix. REQUIRES: it does not end in 0xff.
std::string end_of(std::string prefix) {
  WEIR_ASSERT(!prefix.empty());
  ++prefix.back();
  return prefix;
}

bool is_elsewhere(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
}

Error error_of(const grpc::Status& status, const std::string& endpoint) {
  const std::string where = "etcd " + endpoint;
  const std::string what = printable_error(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return {std::errc::host_unreachable, where, what, "check that etcd runs and is reachable"};
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {std::errc::timed_out, where, "does not answer",
              "check that more than half of the etcd nodes run"};
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::INVALID_ARGUMENT:  // etcd's code for a wrong password
      return {std::errc::permission_denied, where, what,
              "check user and password_file in [cluster], and the role of the user in etcd"};
    case grpc::StatusCode::NOT_FOUND:
      return {std::errc::no_such_file_or_directory, where, what, {}};
    default:
      return {std::errc::io_error, where, what, {}};
  }
}

}  // namespace

class EtcdClient::Core {
 public:
  struct Endpoint {
    std::string name;
    std::shared_ptr<grpc::Channel> channel;
  };

  Core(const EtcdOptions& options, std::unique_ptr<Credentials> credentials)
      : options_(options), credentials_(std::move(credentials)) {
    open_channels();
  }

  Credentials& credentials() { return *credentials_; }
  // With the current certificates. Calls in progress keep their channel.
  void open_channels() {
    std::vector<Endpoint> endpoints;
    for (const std::string& name : options_.endpoints) {
      endpoints.push_back({name, grpc::CreateCustomChannel(name, credentials_->channel(),
                                                           peer_channel_arguments())});
    }
    const host::MutexLock lock(mutex_);
    endpoints_ = std::move(endpoints);
  }

  // The one that answered last.
  Endpoint endpoint() const {
    const host::MutexLock lock(mutex_);
    return endpoints_[at_];
  }
  std::string token() const {
    const host::MutexLock lock(mutex_);
    return token_;
  }

  // `call` makes one attempt at an endpoint with a context that has the deadline and token.
  template <class Call>
  Result<void> attempt(Call call) {
    grpc::Status status;
    const std::size_t count = options_.endpoints.size();
    for (std::size_t i = 0; i < count; ++i) {
      const Endpoint one = endpoint();
      status = attempt_at(one, call);
      if (status.ok()) return {};
      if (!is_elsewhere(status)) return tl::unexpected(error_of(status, one.name));
      if (i + 1 == count) return tl::unexpected(error_of(status, one.name));
      pass_over(one);
    }
    return {};
  }

 private:
  template <class Call>
  grpc::Status attempt_at(const Endpoint& one, Call& call) {
    if (!options_.user.empty() && token().empty()) {
      if (auto status = authenticate(one); !status.ok()) return status;
    }
    auto status = attempt_once(one, call);
    if (status.error_code() != grpc::StatusCode::UNAUTHENTICATED || options_.user.empty()) {
      return status;
    }
    if (auto renewed = authenticate(one); !renewed.ok()) return renewed;
    return attempt_once(one, call);
  }
  template <class Call>
  grpc::Status attempt_once(const Endpoint& one, Call& call) {
    grpc::ClientContext context;
    prepare(context);
    if (const std::string token = this->token(); !token.empty()) {
      context.AddMetadata("token", token);
    }
    return call(one.channel, context);
  }
  void prepare(grpc::ClientContext& context) const {
    context.set_deadline(std::chrono::system_clock::now() + options_.timeout);
  }
  grpc::Status authenticate(const Endpoint& one) {
    grpc::ClientContext context;
    prepare(context);
    pb::AuthenticateRequest request;
    request.set_name(options_.user);
    request.set_password(options_.password);
    pb::AuthenticateResponse response;
    auto status = pb::Auth::NewStub(one.channel)->Authenticate(&context, request, &response);
    const host::MutexLock lock(mutex_);
    token_ = status.ok() ? response.token() : "";
    return status;
  }
  void pass_over(const Endpoint& one) {
    const host::MutexLock lock(mutex_);
    if (endpoints_[at_].name == one.name) at_ = (at_ + 1) % endpoints_.size();
  }

  const EtcdOptions options_;
  const std::unique_ptr<Credentials> credentials_;
  mutable host::Mutex mutex_;
  std::vector<Endpoint> endpoints_ ABSL_GUARDED_BY(mutex_);
  std::size_t at_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string token_ ABSL_GUARDED_BY(mutex_);
};

EtcdClient::EtcdClient(std::shared_ptr<Core> core) : core_(std::move(core)) {}
EtcdClient::~EtcdClient() = default;

Result<std::unique_ptr<EtcdClient>> EtcdClient::create(const EtcdOptions& options) {
  WEIR_ASSERT(!options.endpoints.empty());
  quiet_grpc();
  auto credentials = Credentials::load(options.tls_directory, Credentials::Use::kGoIfThere);
  if (!credentials) return tl::unexpected(credentials.error());
  return std::unique_ptr<EtcdClient>(
      new EtcdClient(std::make_shared<Core>(options, *std::move(credentials))));
}

Result<std::function<void()>> EtcdClient::read_certificates() {
  auto renewed = core_->credentials().read_again();
  if (!renewed) return tl::unexpected(renewed.error());
  return std::function<void()>([core = core_, renewed = *std::move(renewed)] {
    if (core->credentials().use(renewed)) core->open_channels();
  });
}

Result<std::vector<EtcdClient::Entry>> EtcdClient::list(const std::string& prefix) {
  auto listing = look(prefix);
  if (!listing) return tl::unexpected(listing.error());
  return std::move(listing->entries);
}

Result<EtcdClient::Listing> EtcdClient::look(const std::string& prefix) {
  pb::RangeRequest request;
  request.set_key(prefix);
  request.set_range_end(end_of(prefix));
  pb::RangeResponse response;
  auto done = core_->attempt([&](const auto& channel, grpc::ClientContext& context) {
    return pb::KV::NewStub(channel)->Range(&context, request, &response);
  });
  if (!done) return tl::unexpected(done.error());
  Listing listing{.revision = response.header().revision(), .entries = {}};
  listing.entries.reserve(static_cast<std::size_t>(response.kvs_size()));
  for (const pb::KeyValue& one : response.kvs()) {
    listing.entries.push_back(
        {one.key(), one.value(), one.create_revision(), one.mod_revision(), one.lease()});
  }
  return listing;
}

Result<EtcdClient::Lease> EtcdClient::grant(Nanoseconds length) {
  pb::LeaseGrantRequest request;
  request.set_ttl(std::chrono::ceil<std::chrono::seconds>(length).count());
  pb::LeaseGrantResponse response;
  auto done = core_->attempt([&](const auto& channel, grpc::ClientContext& context) {
    return pb::Lease::NewStub(channel)->LeaseGrant(&context, request, &response);
  });
  if (!done) return tl::unexpected(done.error());
  return Lease{response.id(), std::chrono::seconds{response.ttl()}};
}

// etcd offers this only as a stream; one request and one answer are enough.
Result<Nanoseconds> EtcdClient::keep_alive(std::int64_t lease) {
  pb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  pb::LeaseKeepAliveResponse response;
  auto done = core_->attempt([&](const auto& channel, grpc::ClientContext& context) {
    auto stream = pb::Lease::NewStub(channel)->LeaseKeepAlive(&context);
    const bool is_answered = stream->Write(request) && stream->Read(&response);
    stream->WritesDone();
    if (is_answered) context.TryCancel();
    auto status = stream->Finish();
    return is_answered ? grpc::Status::OK : status;
  });
  if (!done) return tl::unexpected(done.error());
  if (response.ttl() <= 0) {
    return fail(std::errc::no_such_file_or_directory, "lease in etcd", "has expired");
  }
  return Nanoseconds{std::chrono::seconds{response.ttl()}};
}

Result<void> EtcdClient::revoke(std::int64_t lease) {
  pb::LeaseRevokeRequest request;
  request.set_id(lease);
  pb::LeaseRevokeResponse response;
  return core_->attempt([&](const auto& channel, grpc::ClientContext& context) {
    return pb::Lease::NewStub(channel)->LeaseRevoke(&context, request, &response);
  });
}

Result<bool> EtcdClient::commit(const std::vector<Condition>& conditions,
                                const std::vector<Write>& writes) {
  pb::TxnRequest request;
  for (const Condition& one : conditions) {
    pb::Compare& compare = *request.add_compare();
    compare.set_target(pb::Compare::MOD);
    compare.set_key(one.key);
    compare.set_mod_revision(one.modified);
  }
  for (const Write& one : writes) {
    pb::RequestOp& write = *request.add_success();
    if (one.value) {
      write.mutable_request_put()->set_key(one.key);
      write.mutable_request_put()->set_value(*one.value);
      write.mutable_request_put()->set_lease(one.lease);
    } else {
      write.mutable_request_delete_range()->set_key(one.key);
    }
  }
  pb::TxnResponse response;
  auto done = core_->attempt([&](const auto& channel, grpc::ClientContext& context) {
    return pb::KV::NewStub(channel)->Txn(&context, request, &response);
  });
  if (!done) return tl::unexpected(done.error());
  return response.succeeded();
}

// ---- the watch ----

struct EtcdWatch::Running {
  std::shared_ptr<EtcdClient::Core> core;
  std::string prefix;
  std::function<void()> changed;
  host::Mutex mutex;
  host::Condition ending;
  bool is_ending ABSL_GUARDED_BY(mutex) = false;
  // Of the stream being read.
  grpc::ClientContext* context ABSL_GUARDED_BY(mutex) = nullptr;
  std::thread thread;

  void run() {
    for (;;) {
      grpc::ClientContext own;
      {
        const host::MutexLock lock(mutex);
        if (is_ending) return;
        context = &own;
      }
      read(own);
      changed();  // a change may have been missed
      const host::MutexLock lock(mutex);
      context = nullptr;
      const Instant until = host::now() + kWatchPause;
      for (Instant now = host::now(); !is_ending && now < until; now = host::now()) {
        ending.wait_for(lock, until - now);
      }
    }
  }
  void read(grpc::ClientContext& own) {
    const EtcdClient::Core::Endpoint endpoint = core->endpoint();
    if (const std::string token = core->token(); !token.empty()) own.AddMetadata("token", token);
    auto stream = pb::Watch::NewStub(endpoint.channel)->Watch(&own);
    pb::WatchRequest request;
    request.mutable_create_request()->set_key(prefix);
    request.mutable_create_request()->set_range_end(end_of(prefix));
    pb::WatchResponse response;
    if (stream->Write(request)) {
      while (stream->Read(&response) && !response.canceled()) changed();
    }
    own.TryCancel();
    (void)stream->Finish();
  }
};

EtcdWatch::EtcdWatch(const EtcdClient& client, const std::string& prefix,
                     std::function<void()> changed)
    : running_(std::make_unique<Running>()) {
  running_->core = client.core_;
  running_->prefix = prefix;
  running_->changed = std::move(changed);
  running_->thread = std::thread([this] { running_->run(); });
}

EtcdWatch::~EtcdWatch() {
  {
    const host::MutexLock lock(running_->mutex);
    running_->is_ending = true;
    if (running_->context != nullptr) running_->context->TryCancel();
  }
  running_->ending.notify_all();
  running_->thread.join();
}

}  // namespace weir::cluster
