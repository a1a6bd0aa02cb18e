// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/sync_queue.h"

namespace weir::serve {

void SyncQueue::begin(StoreOperation& operation) {
  operation.ticket = ++tickets_;
  under_way_.push_back(operation);
}

void SyncQueue::end(StoreOperation& operation) { under_way_.erase(operation); }

bool SyncQueue::holds(StoreOperation& operation) {
  if (under_way_.empty()) return false;
  operation.ticket = tickets_;
  held_.push_back(operation);
  return true;
}

StoreOperation* SyncQueue::release() {
  if (held_.empty()) return nullptr;
  StoreOperation& first = held_.front();
  if (!under_way_.empty() && under_way_.front().ticket <= first.ticket) return nullptr;
  held_.erase(first);
  return &first;
}

}  // namespace weir::serve
