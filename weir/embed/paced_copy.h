// SPDX-License-Identifier: Apache-2.0
//
// Copies one file descriptor to another at the pace of a LimiterTimer, as in `weir limit`. The
// stream is divided into blocks; each block costs one operation, taken with its first bytes, so the
// number of operations depends only on the length of the stream and not on how it arrives. Bytes
// are paid in pieces of at most half the bucket: after a late wake-up there is room for the tokens
// of the delay, and none are lost.
//
// Waits in epoll for the limiter's timer, and in read and write for the peers. While it waits for
// tokens it notices when the reader of its output closes. Uses no other thread and no sleep.
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

// Runs to the end of `in`, or until stopped, which is not an error. `totals` counts the written
// bytes, also when the copy fails; tokens of bytes that were not written are given back. The error
// names the side that failed. REQUIRES: block > 0.
Result<void> paced_copy(int in, int out, LimiterTimer& limiter, const CopyOptions& options,
                        CopyTotals& totals);

}  // namespace weir::embed
