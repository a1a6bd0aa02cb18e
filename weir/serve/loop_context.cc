// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/loop_context.h"

#include "weir/serve/dispatcher.h"

namespace weir::serve {

PendingRequestPool::~PendingRequestPool() {
  while (free_ != nullptr) drop(take());
}

void PendingRequestPool::add() { give_back(*new PendingRequest); }

void PendingRequestPool::drop(PendingRequest& request) { delete &request; }

ServerContext::ServerContext(const ServeOptions& serve_options)
    : options(serve_options),
      pool(options.limits.memory, options.limits.connection_memory),
      connection_requests(options.limits.connection_requests),
      handshake_timeout_ns(options.limits.handshake_timeout.count()) {}

ServerContext::~ServerContext() = default;

void ServerContext::set_limits(const ServeLimits& limits) {
  pool.set_limits(limits.memory, limits.connection_memory);
  connection_requests = limits.connection_requests;
  handshake_timeout_ns = limits.handshake_timeout.count();
}

host::TlsKeys::Ptr ServerContext::tls_keys() const {
  const host::MutexLock lock(mutex_);
  return tls_keys_;
}

void ServerContext::set_tls_keys(host::TlsKeys::Ptr keys) {
  const host::MutexLock lock(mutex_);
  tls_keys_ = std::move(keys);
}

void ServerContext::ring(std::uint64_t which) const {
  for (LoopContext* const loop : loops) {
    if ((which & loop->bit()) != 0) loop->bell.ring();
  }
}

Dispatcher& ServerContext::dispatcher_of(const ServedExport& served) const {
  return *dispatchers[served.service->dispatcher];
}

ServedExport* ServerContext::find_export(std::string_view name) const {
  for (const auto& one : exports) {
    if (one->options.name == name) return one.get();
  }
  return name.empty() && !exports.empty() ? exports.front().get() : nullptr;
}

Outgoing& LoopContext::next_outgoing() {
  if (outgoing_used == outgoing.size()) outgoing.push_back(std::make_unique<Outgoing>());
  return *outgoing[outgoing_used++];
}

}  // namespace weir::serve
