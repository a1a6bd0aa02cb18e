// SPDX-License-Identifier: Apache-2.0
//
// The lock service in virtual time: the server and clients of weir/lock with a network of fixed
// delay between them, and applications that use locks. The code under test is that of the real
// service; only the network, the applications and the faults are simulated.
//
//   application: uses a lock (its own, or a common one), holds it for a while, releases it
//        |  acquire / release
//   LockClient  --- messages, each delayed by `delay` ---  LockServer      crash, restart, grace
//
// A use of a client's own locks picks one of its working set, all equally likely; with a working
// set of 0 each use is of a new lock, as in a scan. Uses of a client are random (exponential gaps)
// with the rate of its appetite. Common locks are shared by all clients and taken exclusively; only
// on them conflicts are possible.
//
// The checker uses the reports of holders: from when one starts to use a common lock until it
// releases the lock or is notified that it lost it. Two holders of one lock at a time are a
// finding, and so is a fence below one that storage has seen. The same scenario, contender and seed
// give the same outcome.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/lock/volume.h"

namespace weir::sim {

enum class Appetite : std::uint8_t { kEqual, kZipf, kGlutton, kPareto };

std::string_view appetite_name(Appetite appetite);
std::optional<Appetite> appetite_by(std::string_view name);

// What controls the caches: a preset, or a fixed size of each; or a volume that never changes,
// which shows that the figures depend on it.
struct LockContender {
  lock::Preset preset = lock::Preset::kWeir;
  std::size_t fixed_size = 0;
  bool is_frozen = false;

  std::string name() const;
};
// "weir", "dld", "lustre", "frozen" or "lru-N".
std::optional<LockContender> lock_contender_by(std::string_view name);

inline constexpr std::uint32_t kLockClientsMax = 100'000;

struct LockScenario {
  std::string name;
  std::string title;
  std::vector<Appetite> appetites{Appetite::kEqual};
  std::vector<LockContender> contenders{{}, {lock::Preset::kDld}, {lock::Preset::kLustre}};
  std::uint32_t clients = 1000;
  std::int64_t limit = 100'000;
  std::uint64_t rate = 5000;      // uses per second, of all clients together
  std::uint64_t working_set = 0;  // locks of a client; 0: each use is of a new lock
  Nanoseconds length = std::chrono::seconds{180};
  Nanoseconds settled = std::chrono::seconds{60};       // figures are of the time after this
  Nanoseconds until = std::chrono::nanoseconds::max();  // no uses after this
  Nanoseconds delay = std::chrono::microseconds{500};
  Nanoseconds lease = std::chrono::seconds{30};
  Nanoseconds grace = std::chrono::seconds{45};
  std::uint32_t hoarders = 0;  // clients that never drop a lock because of the volume
  std::uint32_t common_locks = 0;
  std::uint64_t common_rate = 0;  // uses of common locks per second, of all clients
  Nanoseconds hold = std::chrono::milliseconds{50};  // of a common lock
  std::vector<Nanoseconds> crashes{};                // of the server
  Nanoseconds down = std::chrono::seconds{2};        // time until it restarts
  Nanoseconds reconnect =
      std::chrono::seconds{20};         // clients reconnect within this time, at random
  std::uint32_t vanish = 0;             // clients that disconnect for ever...
  Nanoseconds vanish_at{0};             // ...at this time
  std::vector<Nanoseconds> drop_all{};  // all clients drop their caches
};

Result<void> check(const LockScenario& scenario);

// One second of the run.
struct LockSample {
  std::int64_t granted = 0;
  std::uint64_t volume = 0;
  std::int64_t grants = 0;  // a second
  std::int64_t cancels = 0;
};

struct LockOutcome {
  LockContender contender;
  Appetite appetite = Appetite::kEqual;
  std::int64_t limit = 0;
  std::vector<LockSample> samples;  // of each second, the first at 1 s
  std::int64_t granted_most = 0;    // maximum of the whole run
  // After `settled`:
  std::int64_t settled_least = 0;
  std::int64_t settled_most = 0;
  double settled_mean = 0;
  double proportion_error = 0;       // of locks held, relative to sqrt(rate): the worst client
  double proportion_error_mean = 0;  // the mean of all
  // Of the whole run:
  std::uint64_t uses = 0;
  std::uint64_t hits = 0;
  std::uint64_t messages = 0;  // from clients
  std::uint64_t enqueues = 0;
  std::uint64_t cancels = 0;
  std::uint64_t cancels_for_volume = 0;
  std::uint64_t lost = 0;  // locks lost because a lease expired or a replay failed
  std::uint64_t evictions = 0;
  std::uint64_t common_uses = 0;
  std::vector<double> held;  // of each client, its mean after `settled`
  std::vector<double> rates;
  std::uint64_t findings = 0;
  std::vector<std::string> first_findings;
};

LockOutcome run_locks(const LockScenario& scenario, Appetite appetite,
                      const LockContender& contender, std::uint64_t seed);

}  // namespace weir::sim
