// SPDX-License-Identifier: Apache-2.0
//
// Copies one file descriptor to another at the pace of a LimiterTimer: what `weir limit` does. The
// stream is cut into blocks; each block costs one operation, taken with its first bytes, so the
// number of operations depends on the length of the stream alone and not on how it arrives. Bytes
// are paid in pieces that the bucket can hold twice: a late wake-up then finds room for the tokens
// of the time it was late, and none are lost.
//
// Waits in epoll for the limiter's timer, and in read and write for the peers. While it waits for
// tokens it notices when the reader of its output has gone. Uses no other thread and no sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "weir/base/quantity.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/embed/limiter_timer.h"

namespace weir::embed {

struct CopyTotals {
  Bytes bytes;  // written to the output
  std::uint64_t ops = 0;
  Nanoseconds elapsed{};
};

struct CopyOptions {
  Bytes block;
  // Set from a signal handler (installed without SA_RESTART) to end the copy early.
  const std::atomic<bool>* stop = nullptr;
  // Called with the totals so far, about ten times a second; may be empty.
  std::function<void(const CopyTotals&)> progress;
};

// Runs to the end of `in`, or until stopped, which is no error. `totals` counts what was written,
// also when the copy fails; what was paid for and not written has been given back. The error says
// which side failed. REQUIRES: block > 0.
Result<void> paced_copy(int in, int out, LimiterTimer& limiter, const CopyOptions& options,
                        CopyTotals& totals);

}  // namespace weir::embed
