// SPDX-License-Identifier: Apache-2.0
#include "weir/host/memory_pressure.h"

#include <cerrno>
#include <fstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

namespace weir::host {
namespace {

// The terminating zero is part of it.
constexpr char kTrigger[] = "some 200000 2000000";
constexpr const char* kMachine = "/proc/pressure/memory";

Fd open_trigger(const std::string& path) {
  if (path.empty()) return {};
  Fd file(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return {};
  const ssize_t written = ::write(file.get(), kTrigger, sizeof kTrigger);
  return written == static_cast<ssize_t>(sizeof kTrigger) ? std::move(file) : Fd();
}

}  // namespace

MemoryPressure::Sources MemoryPressure::of_this_process() {
  Sources sources{.trigger = kMachine, .events = {}};
  std::ifstream list("/proc/self/cgroup");
  for (std::string line; std::getline(list, line);) {
    if (!line.starts_with("0::/")) continue;
    const std::string folder = "/sys/fs/cgroup" + line.substr(3) + "/";
    if (access((folder + "memory.pressure").c_str(), R_OK | W_OK) == 0) {
      sources.trigger = folder + "memory.pressure";
    }
    if (access((folder + "memory.events").c_str(), R_OK) == 0) {
      sources.events = folder + "memory.events";
    }
  }
  return sources;
}

MemoryPressure::MemoryPressure(const Sources& sources)
    : trigger_(open_trigger(sources.trigger)), events_(sources.events) {
  watch_events();
}

MemoryPressure::MemoryPressure(Fd trigger, const std::string& events)
    : trigger_(std::move(trigger)), events_(events) {
  watch_events();
}

void MemoryPressure::watch_events() {
  if (events_.empty()) return;
  watch_ = Fd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!watch_.is_open()) return;
  if (inotify_add_watch(watch_.get(), events_.c_str(), IN_MODIFY) < 0) {
    watch_ = Fd();
    return;
  }
  counted_ = count_events();
}

std::uint64_t MemoryPressure::count_events() const {
  std::ifstream file(events_);
  std::uint64_t sum = 0;
  std::string key;
  for (std::uint64_t count = 0; file >> key >> count;) {
    if (key == "high" || key == "max") sum += count;
  }
  return sum;
}

std::array<pollfd, 2> MemoryPressure::waits() const {
  return {pollfd{trigger_.is_open() ? trigger_.get() : -1, POLLPRI, 0},
          pollfd{watch_.is_open() ? watch_.get() : -1, POLLIN, 0}};
}

bool MemoryPressure::take() {
  auto all = waits();
  if (poll(all.data(), all.size(), 0) <= 0) return false;
  return take(all[0].revents, all[1].revents);
}

bool MemoryPressure::take(short of_trigger, short of_events) {
  const bool stalled = take_trigger(of_trigger);
  const bool exceeded = take_events(of_events);
  return stalled || exceeded;
}

// The kernel clears the event when it is reported.
bool MemoryPressure::take_trigger(short happened) {
  if ((happened & (POLLERR | POLLNVAL)) != 0) {
    trigger_ = Fd();  // its cgroup is gone
    return false;
  }
  return (happened & POLLPRI) != 0;
}

bool MemoryPressure::take_events(short happened) {
  if ((happened & POLLIN) == 0) return false;
  alignas(inotify_event) std::array<char, 4096> told;
  while (read(watch_.get(), told.data(), told.size()) > 0) {
  }
  const std::uint64_t count = count_events();
  if (count <= counted_) return false;
  counted_ = count;
  return true;
}

}  // namespace weir::host
