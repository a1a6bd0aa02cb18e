// SPDX-License-Identifier: Apache-2.0
//
// Why the requests of a class wait: the body of GET /v1/explain.
//
// A Target keeps sums of delays by cause. WaitHistory keeps samples of them, so that the delays of
// the last minute are a difference of two sums; a queue that is younger is counted from its
// beginning.
//
// Values; not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/time.h"
#include "weir/control/snapshot.h"

namespace weir::control {

// Samples of earlier waits, to compute those of the last minute.
struct WaitHistory {
  struct OfService {
    Instant at{};  // of the clock of its Target
    std::vector<WaitView> waits = {};
  };
  using Sample = std::vector<OfService>;
  static constexpr std::size_t kSamplesMax = 13;
  static constexpr Nanoseconds kWindow = std::chrono::seconds{60};

  void add(Sample sample);
  // The delays of this queue since up to a minute ago, and the time since when.
  DelaySums since(std::size_t service, const WaitView& now, Instant at, Instant& from) const;

  std::deque<Sample> samples;
};

// Where the sought object (ClassQuery) was found.
struct Explained {
  std::size_t service = 0;
  const ClassSnapshot* found = nullptr;
};
// A job may have had classes under several rules: the one under `rule` is preferred.
std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view name, std::string_view rule = {});
// `reason` is the result of RuleList::explain.
std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason);

}  // namespace weir::control
