// SPDX-License-Identifier: Apache-2.0
//
// The actions of `weir lock`, each in its own file:
//
//   run      lock_run.cc       a command under a lock, like flock(1) but across machines
//   watch    lock_watch.cc     waits until a resource is free
//   bench    lock_measure.cc   the speed of a server, measured from this machine
//   list, stats   lock.cc      the locks and statistics of a server
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/time.h"
#include "weir/cluster/lock_client.h"

namespace weir::app {

struct LockRun {
  lock::ConnectOptions connect;
  std::string resource;
  std::vector<std::string> command;
  lock::Mode mode = lock::Mode::kExclusive;
  bool only_try = false;
  std::optional<Nanoseconds> timeout;
  Nanoseconds kill_after = std::chrono::seconds{2};
  int conflict_status = 1;
};
int run_locked(const LockRun& run);

struct LockWatch {
  lock::ConnectOptions connect;
  std::string resource;
  lock::Mode mode = lock::Mode::kExclusive;
  std::optional<Nanoseconds> timeout;
  int conflict_status = 1;
  bool json = false;
};
int watch_lock(const LockWatch& watch);

struct LockMeasure {
  lock::ConnectOptions connect;
  std::uint32_t clients = 1;
  std::uint32_t window = 256;  // locks that each client waits for at a time
  std::uint64_t fill = 0;      // locks to acquire first and keep
  Nanoseconds time = std::chrono::seconds{5};
  bool json = false;
};
int measure_locks(const LockMeasure& measure);

}  // namespace weir::app
