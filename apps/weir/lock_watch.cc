// SPDX-License-Identifier: Apache-2.0
//
// weir lock watch: shows who holds a resource, and waits until it is free.
#include <cstdio>
#include <memory>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/weir/command.h"
#include "apps/weir/lock.h"
#include "weir/base/quote.h"
#include "weir/host/clock.h"
#include "weir/host/mutex.h"

namespace weir::app {
namespace {

using Kind = lock::LockClient::Event::Kind;

// For a server that cannot be reached, if there is no timeout.
constexpr Nanoseconds kReachPatience = std::chrono::seconds{10};

class Events : public lock::Listener {
 public:
  void lock_event(const lock::LockClient::Event& event) override {
    const host::MutexLock guard(mutex_);
    events_.push_back(event);
    came_.notify_all();
  }
  // None: not by then.
  std::optional<lock::LockClient::Event> next(Instant until) {
    const host::MutexLock guard(mutex_);
    while (events_.empty()) {
      const Nanoseconds left = until - host::now();
      if (left <= Nanoseconds{0}) return std::nullopt;
      came_.wait_for(guard, left);
    }
    const lock::LockClient::Event event = events_.front();
    events_.erase(events_.begin());
    return event;
  }

 private:
  host::Mutex mutex_;
  host::Condition came_;
  std::vector<lock::LockClient::Event> events_ ABSL_GUARDED_BY(mutex_);
};

void print(const lock::Holders& holders, bool json) {
  if (!json) fmt::print("{:<18}{:<17}{:>20}\n", "CLIENT", "MODE", "FENCE");
  for (const lock::Holders::Holder& holder : holders.first) {
    const std::string_view mode = lock::mode_name(holder.mode);
    if (json) {
      fmt::print(
          "{}\n",
          nlohmann::ordered_json{{"client", holder.client}, {"mode", mode}, {"fence", holder.fence}}
              .dump());
    } else {
      fmt::print("{:<18x}{:<17}{:>20}\n", holder.client, mode, holder.fence);
    }
  }
  if (!json && holders.count > holders.first.size()) {
    fmt::print("and {} more\n", holders.count - holders.first.size());
  }
  std::fflush(stdout);
}

}  // namespace

int watch_lock(const LockWatch& watch) {
  Events events;
  const auto client = value_or_fail(lock::Client::create(watch.connect), Exit::kUsage, "");
  const Instant begin = host::now();
  const auto ticket = client->watch(watch.resource, watch.mode, events);
  for (;;) {
    const bool is_connected = client->status().is_connected;
    const Nanoseconds most =
        watch.timeout.value_or(is_connected ? Nanoseconds::max() : kReachPatience);
    const Nanoseconds left = most - std::min(most, host::now() - begin);
    const auto event =
        events.next(host::now() + std::min<Nanoseconds>(left, std::chrono::seconds{1}));
    if (event && event->kind == Kind::kFree) return static_cast<int>(Exit::kOk);
    if (event && event->kind == Kind::kHolders) print(client->holders(ticket), watch.json);
    if (event && event->kind == Kind::kRefused) {
      throw Failure{Exit::kTempFail,
                    fmt::format("{}: the server refused the watch", quote(watch.resource))};
    }
    if (event || left > Nanoseconds{0}) continue;
    if (client->status().is_connected) return watch.conflict_status;
    throw Failure{Exit::kUnavailable,
                  fmt::format("{} does not answer; check that weir serve --lock runs there",
                              watch.connect.server)};
  }
}

}  // namespace weir::app
