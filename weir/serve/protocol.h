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

struct ProtocolKind {
  // Creates the session of one client; the port outlives it.
  using Begin = std::function<std::unique_ptr<Session>(SessionPort& port)>;

  std::string name;  // letters and digits, at most 15 bytes
  std::string help;  // one line
  Begin begin;
};

enum class Standard : std::uint8_t { kNo, kYes };

// EEXIST: the name is taken. EINVAL: not a valid name, or no factory. Then nothing changes.
Result<void> add_protocol(ProtocolKind kind, Standard standard = Standard::kNo);

// In order of registration.
const std::vector<std::unique_ptr<const ProtocolKind>>& protocol_kinds();
// Empty: the standard one. ENOENT: the error lists the known names and suggests the nearest.
Result<const ProtocolKind*> find_protocol(std::string_view name);

}  // namespace weir::serve
