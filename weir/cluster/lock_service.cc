// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/lock_service.h"

#include <functional>
#include <utility>

#include "weir/cluster/etcd_options.h"
#include "weir/cluster/lock_election.h"
#include "weir/cluster/lock_gate.h"
#include "weir/cluster/lock_owner_grpc.h"
#include "weir/cluster/lock_state.h"
#include "weir/cluster/lock_transport_grpc.h"
#include "weir/host/clock.h"
#include "weir/serve/event_log.h"

namespace weir::cluster {

LockService::LockService(std::unique_ptr<Owner> owner, std::unique_ptr<Transport> transport)
    : owner_(std::move(owner)), transport_(std::move(transport)) {}

Result<std::unique_ptr<LockService>> LockService::create(const LockServiceOptions& given) {
  const bool is_alone = !given.cluster.is_on();
  LockServiceOptions options = given;
  if (!is_alone) {
    options.lock.server.lease = lock::client_lease(given.lock.server.lease);
    options.trace_file.clear();  // a trace has one Target, and each term its own
  }
  auto state = LockStateFile::begin(options.lock.state_file);
  if (!state) return tl::unexpected(state.error());
  const auto start =
      state->was_clean() ? lock::LockServer::Start::kFresh : lock::LockServer::Start::kRecovering;
  std::unique_ptr<serve::TraceFile> trace;
  if (!options.trace_file.empty()) {
    auto opened = serve::TraceFile::create(options.trace_file);
    if (!opened) return tl::unexpected(opened.error());
    trace = *std::move(opened);
  }
  // In a cluster, this only checks the options: the gate is made when the server becomes active.
  auto gate = LockGate::create(gate_options(options, state->key(), trace.get()),
                               state->incarnation(), start, host::boot_now());
  if (!gate) return tl::unexpected(gate.error());
  if (!is_alone) gate->reset();
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  const std::uint64_t incarnation = state->incarnation();
  const host::Key key = state->key();
  const auto own = state->was_clean() ? lock::OwnState::kClean : lock::OwnState::kUnknown;
  auto owner = std::make_unique<Owner>(options, *std::move(state), *std::move(wake_fd),
                                       std::move(trace), *std::move(gate));
  auto transport = std::make_unique<Transport>(*owner);
  if (auto opened = transport->open(options); !opened) return tl::unexpected(opened.error());
  owner->start();
  std::unique_ptr<LockService> made(new LockService(std::move(owner), std::move(transport)));
  if (is_alone) return made;
  if (auto joined = made->join(given, incarnation, key, own); !joined) {
    return tl::unexpected(joined.error());
  }
  return made;
}

Result<void> LockService::join(const LockServiceOptions& options, std::uint64_t incarnation,
                               const host::Key& key, lock::OwnState own) {
  // A quarter of the lease in etcd: an active server asks that often for its renewal.
  const auto etcd = etcd_options(options.cluster, lock::Candidate::kLength / 4);
  if (!etcd) return tl::unexpected(etcd.error());
  const auto pass_on = [owner = owner_.get()](auto act) {
    (void)owner->call([owner, act] { act(*owner); });
  };
  auto election = LockElection::create(
      {.name = options.cluster.name,
       .address = serve::print_listen(listening()),
       .prefix = options.cluster.prefix,
       .etcd = *etcd,
       .incarnation = incarnation,
       .key = key,
       .own = own,
       .lease = options.lock.server.lease},
      {.lead =
           [pass_on](const LockElection::Lead& lead) {
             pass_on([lead](Owner& owner) { owner.lead(lead); });
           },
       .proven =
           [pass_on](Instant until) { pass_on([until](Owner& owner) { owner.prove(until); }); },
       .deposed = [pass_on] { pass_on([](Owner& owner) { owner.step_down(); }); },
       .seen =
           [pass_on](const LockElection::Seen& seen) {
             pass_on([seen](Owner& owner) { owner.see(seen); });
           },
       .say = [](std::string_view line) { serve::EventLog::say(line); }});
  if (!election) return tl::unexpected(election.error());
  election_ = *std::move(election);
  election_->start();
  return {};
}

LockService::~LockService() { stop(); }

const serve::ListenAddress& LockService::listening() const { return transport_->listening(); }

void LockService::stop() {
  if (election_ != nullptr) {
    const auto left = owner_->ask([](Owner& owner) { return owner.resign(); });
    election_->stop(left && *left ? &**left : nullptr);
  }
  owner_->end_streams();
  transport_->shut_down();
  owner_->stop();
}

Result<std::function<void()>> LockService::read_certificates() {
  auto renewed = transport_->credentials().read_again();
  if (!renewed) return tl::unexpected(renewed.error());
  std::function<void()> of_etcd = [] {};
  if (election_ != nullptr) {
    auto read = election_->read_certificates();
    if (!read) return read;
    of_etcd = *std::move(read);
  }
  return std::function<void()>([this, renewed = *std::move(renewed), of_etcd] {
    (void)transport_->credentials().use(renewed);
    of_etcd();
  });
}

bool LockService::look(const Look& visit) {
  const auto done = owner_->ask([&visit](Owner& owner) {
    if (owner.is_standby()) return false;
    visit(owner.gate()->target(), owner.now());
    return true;
  });
  return done.value_or(false);
}

std::vector<lock::NamespaceView> LockService::view() {
  auto seen = owner_->ask([](Owner& owner) { return owner.look(); });
  if (!seen) return {};
  std::vector<lock::NamespaceView> views;
  views.push_back(*std::move(seen));
  return views;
}

Result<lock::LockList> LockService::list(std::string_view name, const lock::ListOptions& options) {
  if (name != kLockNamespace) return fail_errno(ENOENT, name);
  auto found = owner_->ask([options](Owner& owner) -> Result<lock::LockList> {
    if (owner.is_standby()) return tl::unexpected(owner.away());
    return owner.list(options);
  });
  if (!found) return fail_errno(EAGAIN, name, "the server is shutting down");
  return *std::move(found);
}

Result<void> LockService::set(std::string_view name, lock::Tunable tunable, std::int64_t value) {
  if (name != kLockNamespace) return fail_errno(ENOENT, name);
  const auto done = owner_->ask([=](Owner& owner) -> Result<void> {
    if (owner.is_standby()) return tl::unexpected(owner.away());
    return lock::turn(owner.gate()->server(), tunable, value);
  });
  if (!done) return fail_errno(EAGAIN, name, "the server is shutting down");
  return *done;
}

Result<std::size_t> LockService::revoke(std::string_view name, std::string_view resource,
                                        std::uint64_t client) {
  if (name != kLockNamespace) return fail_errno(ENOENT, name);
  const auto done = owner_->ask([=](Owner& owner) -> Result<std::size_t> {
    if (owner.is_standby()) return tl::unexpected(owner.away());
    return lock::revoke(owner.gate()->server(), resource, client);
  });
  if (!done) return fail_errno(EAGAIN, name, "the server is shutting down");
  return *done;
}

}  // namespace weir::cluster
