// SPDX-License-Identifier: Apache-2.0
//
// What a connection provides to its session: exports, the identity of the client, extents, waits.
#include <algorithm>

#include "weir/base/assert.h"
#include "weir/serve/connection.h"
#include "weir/serve/dispatcher.h"

namespace weir::serve {

std::size_t Connection::export_count() const {
  return static_cast<std::size_t>(
      std::count_if(context_.server.exports.begin(), context_.server.exports.end(),
                    [this](const auto& served) { return is_visible(*served); }));
}

const ExportFacts& Connection::export_at(std::size_t index) const {
  for (const auto& served : context_.server.exports) {
    if (is_visible(*served) && index-- == 0) return served->facts;
  }
  WEIR_ASSERT(false, index);
  return context_.server.exports.front()->facts;
}

const ExportFacts* Connection::find_export(std::string_view name) const {
  for (const auto& served : context_.server.exports) {
    const bool is_named = name.empty() || served->options.name == name;
    if (is_named && is_visible(*served)) return &served->facts;
  }
  return nullptr;
}

// Gateways forward, others serve stores.
bool Connection::is_visible(const ServedExport& served) const {
  return served.options.store.is_remote() == protocol_.is_gateway;
}

void Connection::open(const ExportFacts& facts, OpenedExport& opened) {
  ServedExport* const served = context_.server.find_export(facts.name);
  WEIR_ASSERT(served != nullptr && &served->facts == &facts);
  opened.facts = &facts;
  opened.served = served;
  opened.sync_mark = served->sync_errors.begin();
}

Result<Attributes> Connection::identify(const Claims& claims) {
  auto attributes =
      attributes_of(identity_, claims, context_.options.claims, context_.options.nodemaps);
  if (!attributes) {
    ++context_.counters.claims_refused;
    context_.log.note(EventLog::Kind::kClaim, attributes.error().message(), context_.now);
    return attributes;
  }
  context_.server.clients.note(*attributes);
  return attributes;
}

Nanoseconds Connection::expected_wait(const IoRequest& request) const {
  const ServedExport& served = *request.opened->served;
  return context_.server.dispatcher_of(served).with(context_, [&](Instant now) {
    return served.service->target.expected_wait(request, Head::kRegular, now);
  });
}

void Connection::extents(const OpenedExport& opened, std::uint64_t offset, std::uint64_t length,
                         const Store::ExtentVisitor& visit) const {
  context_.local(*opened.served).store->extents(offset, length, visit);
}

}  // namespace weir::serve
