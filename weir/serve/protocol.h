// SPDX-License-Identifier: Apache-2.0
//
// The protocols that listeners can speak, by name: `--listen NAME+ADDRESS`. A program adds them
// before it makes the first server:
//
//   serve::add_protocol(nbd::protocol(), serve::Standard::kYes);      what an ADDRESS alone means
//   serve::add_protocol({.name = "toy", .help = "...", .begin = ...});
//
// Not for several threads: add first, then run.
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
  // For one client; the port outlives the session.
  using Begin = std::function<std::unique_ptr<Session>(SessionPort& port)>;

  std::string name;  // letters and digits, at most 15 bytes
  std::string help;  // one line
  Begin begin;
};

enum class Standard : std::uint8_t { kNo, kYes };

// EEXIST: there is one of this name. EINVAL: no name that an address could have, or nothing to
// begin it with. Then nothing has changed.
Result<void> add_protocol(ProtocolKind kind, Standard standard = Standard::kNo);

// In the order they were added.
const std::vector<std::unique_ptr<const ProtocolKind>>& protocol_kinds();
// No name: the standard one. ENOENT: the error names those that there are, and the nearest.
Result<const ProtocolKind*> find_protocol(std::string_view name);

}  // namespace weir::serve
