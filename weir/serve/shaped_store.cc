// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/shaped_store.h"

namespace weir::serve {

std::unique_ptr<Store> ShapedStore::share(host::IoLoop& io) {
  return std::unique_ptr<Store>(new ShapedStore(behind_->share(io), shared_));
}

Instant ShapedStore::done_at(Bytes bytes, Instant now) {
  const host::MutexLock lock(shared_->mutex);
  return shared_->shaper.done_at(bytes, now);
}

bool ShapedStore::start(StoreOperation& operation, Instant now) {
  const bool moves =
      operation.command == StoreCommand::kRead || operation.command == StoreCommand::kWrite;
  const Instant due = done_at(Bytes{moves ? operation.length : 0U}, now);
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
  const host::MutexLock lock(shared_->mutex);
  shared_->shaper.reshape(shape, now);
  return {};
}

}  // namespace weir::serve
