// SPDX-License-Identifier: Apache-2.0
//
// The record of a completed request: when it arrived, started and ended, what it was charged and
// what it moved. Created once for each request (Target::record_of). All accounts read the same
// record, so that they agree.
//
//        arrived ------- waited() ------- started ------- device_time() ------- ended
//              '------------------------- latency() --------------------------'
//
// The start of a deferred request is when it last got a slot.
#pragma once

#include "weir/base/operation_kind.h"
#include "weir/base/quantity.h"
#include "weir/base/time.h"

namespace weir {

struct RequestRecord {
  Nanoseconds waited() const { return started - arrived; }
  Nanoseconds device_time() const { return ended - started; }
  Nanoseconds latency() const { return ended - arrived; }
  // An operation that is charged but moves no data, such as a flush, counts as neither read nor
  // written.
  Bytes read() const { return operation == OperationKind::kRead ? moved : Bytes{0}; }
  Bytes written() const {
    const bool writes = operation == OperationKind::kWrite || operation == OperationKind::kZero;
    return writes ? moved : Bytes{0};
  }

  OperationKind operation = OperationKind::kRead;
  Bytes charged{};
  Bytes moved{};  // actually moved
  Instant arrived{};
  Instant started{};
  Instant ended{};
};

}  // namespace weir
