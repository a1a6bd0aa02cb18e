// SPDX-License-Identifier: Apache-2.0
//
// Why the requests of a class wait: the body of GET /v1/explain. First the answer, as a sentence
// with the command that would change it; then the figures that it is based on.
//
// A Target keeps sums of delays by cause. WaitHistory keeps samples of them, so that the delays of
// the last minute are a difference of two sums; a queue that is younger is counted from its
// beginning.
//
// Values; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/control/snapshot.h"

namespace weir::control {

// What happened to requests since a time up to a minute ago.
struct WaitSpan {
  DelaySums delays{};
  std::uint64_t requests = 0;  // that left their queue, and those that wait now
  std::uint64_t arrived = 0;
  std::uint64_t waiting = 0;  // now
  Instant from = kNever;      // kNever: no queue is measured
  DeviceSums device{};        // of the job; nothing if the class has none

  std::uint64_t wait_ns() const;  // the sum
  std::uint64_t wait_each() const { return requests == 0 ? 0 : wait_ns() / requests; }
  std::uint64_t device_each() const {
    return device.requests == 0 ? 0 : device.ns / device.requests;
  }
};

// Samples of earlier waits, to compute those of the last minute.
struct WaitHistory {
  struct OfService {
    Instant at{};  // of the clock of its Target
    std::vector<WaitView> waits = {};
    std::vector<DeviceSums> devices = {};  // of the job of each
  };
  using Sample = std::vector<OfService>;
  static constexpr std::size_t kSamplesMax = 13;
  static constexpr Nanoseconds kWindow = std::chrono::seconds{60};

  void add(Sample sample);
  // Of this queue since up to a minute ago. `device` is that of its job now.
  WaitSpan since(std::size_t service, const WaitView& now, const DeviceSums& device,
                 Instant at) const;

  std::deque<Sample> samples;
};

// Where the sought object (ClassQuery) was found.
struct Explained {
  std::size_t service = 0;
  // None: only the key of its requests is known, and the rule determines the class.
  const ClassSnapshot* found = nullptr;
  Attributes key = {};
  std::optional<JobId> job = {};  // if a job was asked for
  std::string asked_for = {};  // what the job was chosen for, as the start of a sentence; or none
};
// `service` may be empty: all are searched. A job may have had classes under several rules: the one
// under `rule` is preferred. A rule with several classes is explained by the one that has waited
// longest.
std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view name, std::string_view rule = {});
// The reason why nothing was found: ENODEV under a policy without rules, otherwise ENOENT.
Error not_explained(const Snapshot& shot, std::string_view service, std::string_view name);

// The answer, and the command that would change it; none if no command would help.
struct Verdict {
  // "limit", "share", "root", "slot", "order", "device", "volume" (of locks), "none" or "unknown"
  std::string cause;
  std::string text;
  std::string cure;
  std::string limited_by = {};  // the class whose bucket is empty, if the cause is a limit
};
// `locks`: the namespaces of the lock service, if that is the service.
Verdict verdict_of(const ServiceSnapshot& service, const Explained& explained, const WaitSpan& span,
                   std::span<const lock::NamespaceView> locks = {});
// What the job is entitled to, has now, owes and is owed; sentences.
std::vector<std::string> standing_of(const ServiceSnapshot& service, const JobSnapshot& job,
                                     const Verdict& verdict);

// `reason` is the result of RuleList::explain; empty: the conditions of its rule are shown. The
// locks of `shot` are used, so they are empty for other services than that of the locks.
std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason);

}  // namespace weir::control
