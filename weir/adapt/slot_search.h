// SPDX-License-Identifier: Apache-2.0
//
// Finds the number of slots that a device needs: the smallest one that reaches nearly the best rate
// of the last minute. More slots only make requests wait inside the device, where no rule applies.
//
//   search.saturated(true, now);            all slots are busy and requests wait
//   search.complete(latency, now);          a request left the device
//   gate.set_slots(search.slots());         whenever it has changed
//
// The rate with K slots is K / L, where L is the mean time in the device (Little's law): a few
// times L are enough to measure it, also on a device that completes requests in clumps. It is
// measured in batches; the variance of batches determines how many of them a comparison needs.
//
//   rate  |          o----o    points: K, and K changed by a quarter for a moment (a probe)
//         |        x           x: the smallest number that reaches 99 % of the best point
//         |     o              between points: the line from the origin while the device still
//         |  /                 follows it, otherwise the middle between that and the chord
//         +------------------- slots
//
// After a move it probes again at once; while nothing moves, probes take at most one percent of
// the time. When the latency with K slots changes by more than chance explains, the device has
// changed: all points are discarded. Nothing is measured without a backlog.
//
// A latency target bounds K from above, a capacity that is paced elsewhere (the root bucket) from
// below; the target wins. Integers only; time is an argument; one owner, no locks. Does not
// allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"

namespace weir {

struct SlotOptions {
  static constexpr std::uint32_t kMaxDefault = 4096;

  std::uint32_t start = 16;
  std::uint32_t min = 1;
  std::uint32_t max = kMaxDefault;
  // The mean time of a request in the device that K slots must not exceed, if it can be met with
  // one slot.
  std::optional<Nanoseconds> latency_target = std::nullopt;

  bool operator==(const SlotOptions&) const = default;
};

class SlotSearch {
 public:
  static constexpr Nanoseconds kRemembered = std::chrono::seconds{60};
  static constexpr Nanoseconds kProbeMax = std::chrono::seconds{1};
  static constexpr Nanoseconds kIntervalMin = std::chrono::seconds{1};
  static constexpr Nanoseconds kIntervalMax = std::chrono::seconds{30};
  static constexpr std::uint32_t kBatchMin = 64;  // requests of a batch; at least two for each slot
  static constexpr std::uint32_t kBatchesMax = 64;

  // REQUIRES: 1 <= min <= start <= max.
  explicit SlotSearch(const SlotOptions& options);

  // Whether every slot is busy and requests wait, from now on; repeated calls change nothing.
  void saturated(bool is_saturated, Instant now);
  // A request of this cost was in the device for this time, with slots() slots.
  void complete(Nanoseconds latency, Tokens cost, Instant now);
  // Tokens per second that the target is paced at; none: it is not.
  void set_capacity(std::optional<Rate> capacity) { capacity_ = capacity; }

  std::uint32_t slots() const { return slots_; }
  const SlotOptions& options() const { return options_; }
  // A number other than the chosen one is being tried.
  bool is_probing() const { return phase_ == Phase::kProbe; }
  // The last probes in both directions moved nothing.
  bool is_settled() const { return is_settled_; }
  // Mean time in the device with the chosen number of slots; none while unknown.
  std::optional<Nanoseconds> latency() const;
  // Increases with every change of slots().
  std::uint64_t changes() const { return changes_; }

 private:
  enum class Phase : std::uint8_t { kBase, kProbe };
  struct Batch {
    std::uint64_t sum_ns = 0;
    std::uint32_t count = 0;
  };
  // Mean of batches.
  struct Mean {
    std::uint64_t sum_ns = 0;
    std::uint32_t batches = 0;

    void add(std::uint64_t latency_ns) {
      sum_ns += latency_ns;
      ++batches;
    }
    std::uint64_t value() const { return batches == 0 ? 0 : sum_ns / batches; }
  };
  struct Point {
    std::uint32_t slots = 0;
    std::uint32_t weight = 0;  // batches
    std::uint64_t rate = 0;    // see rate_of()
    Instant at;
    bool is_doubted = false;  // the last result was another one
  };
  enum class Noted : std::uint8_t { kAsBefore, kDoubtful, kChanged };

  void close_batch(std::uint64_t latency_ns, Instant now);
  void note_base(std::uint64_t latency_ns, Instant now);
  bool is_far_off(std::uint64_t latency_ns);
  void note_spread(std::uint64_t latency_ns);
  std::uint32_t batches_needed() const;
  std::uint32_t batch_size() const;
  bool glances() const;
  Nanoseconds glance_length() const;
  void begin_probe(Instant now);
  void end_probe(Instant now);
  void move(std::uint32_t slots, Instant now);
  void start_over(Instant now);
  void set_slots(std::uint32_t slots, Instant now);
  void warm_up(std::uint64_t latency_ns, Instant now);
  Noted note_point(std::uint32_t slots, const Mean& mean, Instant now);
  std::uint32_t wanted(Instant now);
  std::uint32_t upper() const;
  std::uint32_t lower() const;
  void bound(std::uint64_t latency_ns, Instant now);

  SlotOptions options_;
  std::optional<Rate> capacity_;
  std::uint32_t slots_;
  std::uint32_t base_;  // the chosen number
  Phase phase_ = Phase::kBase;
  bool is_saturated_ = false;
  bool is_settled_ = false;
  bool goes_up_ = true;        // direction of the next probe
  std::uint32_t unmoved_ = 0;  // probes in a row without a move
  std::uint32_t far_off_ = 0;  // batches in a row unlike the mean
  bool is_doubted_ = false;    // the last comparison with the mean showed a change
  std::uint32_t bound_;        // by the latency target
  std::uint64_t changes_ = 0;
  Instant warm_until_;  // requests before it do not count
  Instant next_probe_;
  Instant probe_began_;
  Batch batch_;
  Mean base_mean_;  // with base_ slots
  Mean recent_;     // of these, not yet compared with the rest
  Mean probe_mean_;
  std::uint64_t typical_ns_ = 0;  // latency of the last batch; longer ones are clipped
  std::uint64_t free_ns_ = 0;     // mean latency while slots were free
  std::uint64_t cost_sum_ = 0;    // of requests, for the mean
  std::uint64_t cost_count_ = 0;
  std::uint64_t variance_ = 0;  // of batches, relative, in 2^-20
  std::uint32_t spread_count_ = 0;
  std::array<Point, 12> points_{};
};

}  // namespace weir
