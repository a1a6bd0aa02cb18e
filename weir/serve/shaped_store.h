// SPDX-License-Identifier: Apache-2.0
//
// A store that is slowed down: to simulate a disk of 2,000 operations per second on a machine whose
// disks do a hundred thousand. An operation waits until the simulated device would have completed
// it (shaper.h), then the store below performs it. The speed may change while operations wait.
//
// The owner calls wake() at wakes_at(), for this store and for the one below.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "weir/base/heap.h"
#include "weir/host/mutex.h"
#include "weir/serve/shaper.h"
#include "weir/serve/store.h"

namespace weir::serve {

class ShapedStore : public Store {
 public:
  ShapedStore(std::unique_ptr<Store> behind, const Shape& shape)
      : behind_(std::move(behind)), shared_(std::make_shared<Shared>(shape)) {}

  std::unique_ptr<Store> share(host::IoLoop& io) override;
  void set_listener(StoreListener& listener) override { behind_->set_listener(listener); }
  std::uint64_t size() const override { return behind_->size(); }
  std::uint8_t features() const override { return behind_->features(); }
  std::uint32_t block_min() const override { return behind_->block_min(); }
  bool copies_reads() const override { return behind_->copies_reads(); }
  // It is slow on purpose: a time without completions does not mean that it hangs.
  bool can_hang() const override { return false; }
  int sendable(std::uint64_t offset, std::uint32_t length) const override {
    return behind_->sendable(offset, length);
  }
  bool start(StoreOperation& operation, Instant now) override;
  void extents(std::uint64_t offset, std::uint64_t length,
               const ExtentVisitor& visit) const override {
    behind_->extents(offset, length, visit);
  }
  Instant wakes_at() const override {
    return std::min(waiting_.empty() ? kNever : waiting_.top_key(), behind_->wakes_at());
  }
  void wake(Instant now) override;
  Result<void> reshape(const Shape& shape, Instant now) override;

 private:
  // The simulated device, which all loops have in common.
  struct Shared {
    explicit Shared(const Shape& shape) : shaper(shape) {}

    host::Mutex mutex;
    Shaper shaper ABSL_GUARDED_BY(mutex);
  };

  ShapedStore(std::unique_ptr<Store> behind, std::shared_ptr<Shared> shared)
      : behind_(std::move(behind)), shared_(std::move(shared)) {}
  Instant done_at(Bytes bytes, Instant now);

  std::unique_ptr<Store> behind_;
  std::shared_ptr<Shared> shared_;
  Heap<StoreOperation, Instant, &StoreOperation::due> waiting_;
};

}  // namespace weir::serve
