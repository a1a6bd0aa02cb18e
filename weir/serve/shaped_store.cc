// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/shaped_store.h"

namespace weir::serve {

bool ShapedStore::start(StoreOperation& operation, Instant now) {
  const bool moves =
      operation.command == StoreCommand::kRead || operation.command == StoreCommand::kWrite;
  const Instant due = shaper_.done_at(Bytes{moves ? operation.length : 0U}, now);
  if (due <= now) return behind_->start(operation, now);
  waiting_.push(operation, due);
  return false;
}

void ShapedStore::wake(Instant now) {
  if (behind_->wakes_at() <= now) behind_->wake(now);
  while (!waiting_.empty() && waiting_.top_key() <= now) {
    StoreOperation& operation = waiting_.pop();
    if (behind_->start(operation, now)) operation.finished(operation);
  }
}

Result<void> ShapedStore::reshape(const Shape& shape, Instant now) {
  shaper_.reshape(shape, now);
  return {};
}

}  // namespace weir::serve
