// SPDX-License-Identifier: Apache-2.0
//
// Observes a server and records it, within a budget of bytes a day. It reads the files that the
// driver reads, and writes none.
//
//   Recorder recorder(tree, {.head = head, .bytes_per_day = 100'000'000}, now);
//   every recorder.period():   recorder.round(now)       three times between: recorder.glance(now)
//   from time to time:         append recorder.writer().take(...) to the file
//
// A server with many active jobs needs more bytes a round. When the recording has used more than
// its budget so far, the period is lengthened until it is within the budget again; the time between
// two rounds is in the recording, and what-if says what it was.
//
// tbf need not run: without it there are no rules, and all else is the same.
// No clock; one owner.
#pragma once

#include <cstdint>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lustre/observer.h"
#include "weir/lustre/recording.h"
#include "weir/lustre/server.h"
#include "weir/lustre/tree.h"

namespace weir::lustre {

class Recorder {
 public:
  static constexpr std::uint64_t kBytesPerDay = 100'000'000;
  static constexpr Nanoseconds kPeriodMax = std::chrono::minutes{1};

  struct Options {
    RecordingHead head;
    std::uint64_t bytes_per_day = kBytesPerDay;
    const Service* service = &kOstService;
    Costing costing;
  };

  // REQUIRES: tree outlives it.
  Recorder(Tree& tree, const Options& options, Instant now);

  // On failure nothing is recorded; the next round is longer.
  Result<void> round(Instant now);
  void glance(Instant now);

  Nanoseconds period() const { return period_; }
  bool is_thinning() const { return is_thinning_; }
  RecordingWriter& writer() { return writer_; }
  // Of the last round.
  const RuleRound& last_round() const { return round_; }

 private:
  void keep_budget(Instant now);

  Tree& tree_;
  Options options_;
  RecordingWriter writer_;
  Observer observer_;
  Instant start_;
  RuleRound round_;
  Nanoseconds period_;
  bool is_thinning_ = false;
};

}  // namespace weir::lustre
