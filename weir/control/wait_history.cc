// SPDX-License-Identifier: Apache-2.0
#include "weir/control/wait_history.h"

#include <numeric>
#include <utility>

namespace weir::control {

std::uint64_t WaitSpan::wait_ns() const {
  return std::accumulate(delays.begin(), delays.end(), std::uint64_t{0});
}

void WaitHistory::add(Sample sample) {
  samples.push_back(std::move(sample));
  if (samples.size() > kSamplesMax) samples.pop_front();
}

WaitSpan WaitHistory::since(std::size_t service, const WaitView& now, const DeviceSums& device,
                            Instant at) const {
  WaitSpan span{.delays = now.delays,
                .requests = now.left + now.waiting,
                .arrived = now.left + now.waiting,
                .waiting = now.waiting,
                .from = now.begun,
                .device = device};
  // All of it is in the window, however young the oldest sample is.
  if (at - now.begun <= kWindow) return span;
  for (const Sample& sample : samples) {
    if (service >= sample.size() || at - sample[service].at > kWindow) continue;
    const OfService& then = sample[service];
    for (std::size_t i = 0; i < then.waits.size(); ++i) {
      const WaitView& before = then.waits[i];
      if (before.key != now.key || before.head != now.head || before.begun != now.begun) continue;
      for (std::size_t cause = 0; cause < kDelays; ++cause) {
        span.delays[cause] -= before.delays[cause];
      }
      span.requests -= before.left;
      span.arrived -= before.left + before.waiting;
      span.from = then.at;
      if (i < then.devices.size() && then.devices[i].requests <= device.requests) {
        span.device.requests -= then.devices[i].requests;
        span.device.ns -= then.devices[i].ns;
      }
      return span;
    }
    // It was not watched then, so all its delays are later.
    if (now.begun >= then.at) return span;
  }
  return span;
}

}  // namespace weir::control
