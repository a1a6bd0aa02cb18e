// SPDX-License-Identifier: Apache-2.0
//
// The record of a request: when it arrived, started and ended, what it was charged and what it
// moved. The request keeps it (Request::starting, ending), and all accounts read the same record,
// so that they agree:
//
//        arrived ------- waited() ------- started ------- device_time() ------- ended
//              '------------------------- latency() --------------------------'
//
//   arrives   JobStats::Entry::arrive, WaitBreakdown::arrive
//   starts    JobStats::Entry::start, ClassTotals::start, WaitBreakdown::depart
//   ends      JobStats::Entry::finish, OpStats::record, CapacityEstimate::complete
//
// The start of a deferred request is when it last got a slot. A value.
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
  Bytes moved{};  // until it ends, what it is charged
  Instant arrived{};
  Instant started{};  // or the current time
  Instant ended{};    // or the current time
};

}  // namespace weir
