// SPDX-License-Identifier: Apache-2.0
//
// The store of an export that has none, because a gateway forwards its requests to another server:
// its sessions perform all requests themselves (is_own). It is empty, so no other request passes
// the check of its range (session_check.h).
//
// Stateless; one for each such export and loop.
#pragma once

#include <memory>

#include "weir/base/assert.h"
#include "weir/serve/store.h"

namespace weir::serve {

class NoStore final : public Store {
 public:
  std::unique_ptr<Store> share(host::IoLoop& /*io*/) override {
    return std::make_unique<NoStore>();
  }
  std::uint64_t size() const override { return 0; }
  std::uint8_t features() const override { return 0; }
  bool copies_reads() const override { return false; }
  bool can_hang() const override { return false; }
  bool start(StoreOperation& operation, Instant /*now*/) override {
    WEIR_ASSERT(false, operation.length);
    return true;
  }
  void extents(std::uint64_t /*offset*/, std::uint64_t /*length*/,
               const ExtentVisitor& /*visit*/) const override {}
};

}  // namespace weir::serve
