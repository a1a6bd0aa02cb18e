// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/loop_context.h"

namespace weir::serve {

PendingRequest& PendingRequestPool::spare() {
  if (free_.empty()) free_.push_back(std::make_unique<PendingRequest>());
  return *free_.back();
}

PendingRequest& PendingRequestPool::take() {
  PendingRequest& request = spare();
  (void)free_.back().release();
  free_.pop_back();
  return request;
}

void PendingRequestPool::give_back(PendingRequest& request) {
  std::unique_ptr<PendingRequest> own(&request);
  if (free_.size() < kKept) free_.push_back(std::move(own));
}

ServedExport* LoopContext::find_export(std::string_view name) const {
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
