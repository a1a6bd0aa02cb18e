// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/plane.h"

namespace weir::serve {

Exchange& ExchangeSlab::take() {
  if (free_.empty()) {
    chunks_.push_back(std::make_unique<std::array<Exchange, kChunk>>());
    free_.reserve(chunks_.size() * kChunk);
    for (Exchange& exchange : *chunks_.back()) free_.push_back(&exchange);
  }
  Exchange& exchange = *free_.back();
  free_.pop_back();
  return exchange;
}

ServedExport* Plane::find_export(std::string_view name) const {
  for (const auto& one : exports) {
    if (one->options.name == name) return one.get();
  }
  return name.empty() && !exports.empty() ? exports.front().get() : nullptr;
}

Outgoing& Plane::next_outgoing() {
  if (outgoing_used == outgoing.size()) outgoing.push_back(std::make_unique<Outgoing>());
  return *outgoing[outgoing_used++];
}

}  // namespace weir::serve
