// SPDX-License-Identifier: Apache-2.0
//
// The registry of protocols, by name: `--listen NAME+ADDRESS`. A program adds them before it
// creates the first server:
//
//   serve::add_protocol(nbd::protocol(), serve::Standard::kYes);      used for a plain ADDRESS
//   serve::add_protocol({.name = "toy", .help = "...", .begin = ...});
//
// Not thread-safe: add first, then run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/serve/session.h"

namespace weir::serve {

// A count of a protocol's own, for metrics.
struct ProtocolCount {
  std::string_view name;  // "weir_nfs_calls_total"
  std::string_view help;
  std::string gateway;
  std::uint64_t value = 0;
  bool is_time = false;  // in nanoseconds; shown in seconds

  bool operator==(const ProtocolCount&) const = default;
};

struct ProtocolKind {
  // Creates the session of one client; the port outlives it.
  using Begin = std::function<std::unique_ptr<Session>(SessionPort& port)>;

  std::string name;  // letters and digits, at most 15 bytes
  std::string help;  // one line
  Begin begin;
  // It forwards requests to another server: its sessions see the exports without a store.
  bool is_gateway = false;
  // The same names in the same order each time; thread-safe. May be empty.
  std::function<std::vector<ProtocolCount>()> counts = {};
};

enum class Standard : std::uint8_t { kNo, kYes };

// EEXIST: the name is taken. EINVAL: not a valid name, or no factory. Then nothing changes.
Result<void> add_protocol(ProtocolKind kind, Standard standard = Standard::kNo);

// In order of registration.
const std::vector<std::unique_ptr<const ProtocolKind>>& protocol_kinds();
// Empty: the standard one. ENOENT: the error lists the known names and suggests the nearest.
Result<const ProtocolKind*> find_protocol(std::string_view name);

}  // namespace weir::serve
