// SPDX-License-Identifier: Apache-2.0
//
// What became of a request: when it arrived, started and ended, what it was charged for and what it
// moved. Made once for each request that ends (Target::record_of); every account reads the same
// record, so that they agree.
//
//        arrived ------- waited() ------- started ------- device_time() ------- ended
//              '------------------------- latency() --------------------------'
//
// A request that was deferred has started when it got its slot for the last time.
#pragma once

#include "weir/base/operation_kind.h"
#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir {

struct RequestRecord {
  Nanoseconds waited() const { return started - arrived; }
  Nanoseconds device_time() const { return ended - started; }
  Nanoseconds latency() const { return ended - arrived; }
  // What is charged and moves no data, such as a flush, is neither read nor written.
  Bytes read() const { return operation == OperationKind::kRead ? moved : Bytes{0}; }
  Bytes written() const {
    const bool writes = operation == OperationKind::kWrite || operation == OperationKind::kZero;
    return writes ? moved : Bytes{0};
  }

  OperationKind operation = OperationKind::kRead;
  Bytes charged{};
  Bytes moved{};  // in the end
  Instant arrived{};
  Instant started{};
  Instant ended{};
};

}  // namespace weir
