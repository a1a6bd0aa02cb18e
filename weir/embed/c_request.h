// SPDX-License-Identifier: Apache-2.0
//
// A request of a C program: the scheduler's Request, the context of the caller, and the state that
// detects misuse, also by two threads at once.
//
//   outside --admit--> queued --next--> running --complete--> outside --free--> freed
//      '--set, admit: in change, while one thread holds it
//
// Only the gate that holds it changes it from queued on, under its lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "weir/embed/weir.h"
#include "weir/schedule/request.h"

struct weir_request : weir::Request {
  enum class State : std::uint8_t { kOutside, kInChange, kQueued, kRunning, kFreed };

  std::atomic<State> state = State::kOutside;
  std::atomic<weir_gate*> gate = nullptr;  // while it is queued or runs
  void* context = nullptr;
  bool has_job = false;  // otherwise its job is its client
};

namespace weir::embed {

// A longer request would be the work of hours, and its debt could exceed what a bucket counts.
inline constexpr std::uint64_t kRequestBytesMax = std::uint64_t{1} << 40;

// Takes the request for a change: 0, or why this is not possible.
int hold(weir_request* request, std::string_view call);
// Why a request in this state cannot be used for the call.
int refuse_state(weir_request::State state, std::string_view call);

}  // namespace weir::embed
