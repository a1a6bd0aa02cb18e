// SPDX-License-Identifier: Apache-2.0
//
// The gate of weir.h: a Target, its clock, its timer, and one lock.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weir/adapt/options.h"
#include "weir/base/job_id.h"
#include "weir/base/quote.h"
#include "weir/base/rate.h"
#include "weir/base/time.h"
#include "weir/base/units.h"
#include "weir/classify/limits.h"
#include "weir/classify/plain_rates.h"
#include "weir/classify/rule_spec.h"
#include "weir/embed/c_handle.h"
#include "weir/embed/c_request.h"
#include "weir/embed/gate_json.h"
#include "weir/embed/weir.h"
#include "weir/host/clock.h"
#include "weir/host/mutex.h"
#include "weir/host/timer_fd.h"
#include "weir/target/device_capacity.h"
#include "weir/target/nrs_text.h"
#include "weir/target/target.h"

// What a gate consists of until it is freed.
struct GateParts {
  GateParts(const weir::Target::Options& options, weir::Instant now, weir::host::TimerFd its_timer)
      : target(options, now), timer(std::move(its_timer)) {}

  weir::Target target;
  weir::host::TimerFd timer;
  weir::Instant armed_for = weir::kNever;
};

struct weir_gate {
  weir::host::Mutex mutex;
  std::unique_ptr<GateParts> parts ABSL_GUARDED_BY(mutex);  // none: freed
  uint64_t (*clock)(void* argument) = nullptr;
  void* clock_argument = nullptr;

  weir::Instant now() const;
};

namespace weir::embed {
namespace {

using State = weir_request::State;

constexpr std::uint32_t kSlotsDefault = 16;
constexpr std::uint32_t kSlotsMax = 65536;
// Far from where sums of times overflow.
constexpr std::uint64_t kClockMax = std::uint64_t{1} << 61;
// Of a capacity, per second: no device serves more tokens, and the root bucket can hold them.
constexpr std::uint64_t kCapacityMax = 1'000'000'000'000'000;

// "none": no capacity.
Result<std::optional<Capacity>> read_capacity(std::string_view text) {
  if (text == "none") return std::optional<Capacity>();
  if (text == "auto") return std::optional(Capacity{});
  const auto ops = parse_rate(text);
  const auto bytes = ops ? ops : parse_bandwidth(text);
  const std::uint64_t tokens = bytes ? tokens_in(*bytes, std::chrono::seconds{1}).count() : 0;
  if (tokens < 1 || tokens > kCapacityMax) {
    return fail(std::errc::invalid_argument, "capacity " + quote(text), "is not valid",
                "expected auto, none, operations such as 20k or bytes such as 500MiB/s: 1 to 1P "
                "per second");
  }
  return std::optional(ops ? Capacity::ops(*ops) : Capacity::bytes(*bytes));
}

// The options of the caller, who may have been compiled with a shorter or a longer struct.
Result<weir_gate_options> read_struct(const weir_gate_options* given) {
  weir_gate_options options{};
  if (given == nullptr) return options;
  const auto refuse_size = [&] {
    return fail(std::errc::invalid_argument, "weir_gate_options",
                "size " + std::to_string(given->size) + " is not valid",
                "set size to sizeof(weir_gate_options)");
  };
  constexpr std::size_t kLongest = 4096;
  if (given->size < sizeof options || given->size > kLongest) return refuse_size();
  const char* const bytes = reinterpret_cast<const char*>(given);
  if (std::any_of(bytes + sizeof options, bytes + given->size, [](char one) { return one != 0; })) {
    return fail(std::errc::argument_list_too_long, "weir_gate_options",
                "sets an option that this library does not have", "install a newer libweir");
  }
  std::memcpy(&options, given, sizeof options);
  return options;
}

Result<Target::Options> target_options(const weir_gate_options& given) {
  Target::Options options;
  options.gate.slots = given.slots == 0 ? kSlotsDefault : given.slots;
  options.gate.hp_slots = given.high_slots;
  if (options.gate.slots > kSlotsMax || options.gate.hp_slots >= options.gate.slots) {
    return fail(std::errc::invalid_argument, "weir_gate_options",
                "slots or high_slots are out of range",
                "expected at most 65536 slots, and fewer high_slots than slots");
  }
  const auto capacity = read_capacity(given.capacity == nullptr ? "auto" : given.capacity);
  if (!capacity) return tl::unexpected(capacity.error());
  if (given.limits_only != 0) {
    if (given.capacity != nullptr) {
      return fail(std::errc::invalid_argument, "weir_gate_options",
                  "has a capacity and limits_only", "only shares use a capacity");
    }
    return options;
  }
  options.controller = ControllerOptions{};
  if (!*capacity) return options;
  options.capacity = (*capacity)->rate;
  options.estimate_capacity = (*capacity)->kind == Capacity::Kind::kAuto;
  if ((*capacity)->kind == Capacity::Kind::kBytes) options.cost = Cost::bytes();
  return options;
}

Result<std::unique_ptr<weir_gate>> make_gate(const weir_gate_options* given) {
  const auto read = read_struct(given);
  if (!read) return tl::unexpected(read.error());
  const auto options = target_options(*read);
  if (!options) return tl::unexpected(options.error());
  auto timer = host::TimerFd::create();
  if (!timer) return tl::unexpected(timer.error());
  auto gate = std::make_unique<weir_gate>();
  gate->clock = read->clock;
  gate->clock_argument = read->clock_argument;
  const Instant now = gate->now();
  const host::MutexLock lock(gate->mutex);
  gate->parts = std::make_unique<GateParts>(*options, now, std::move(*timer));
  const std::string_view policy = read->policy == nullptr ? "tbf" : read->policy;
  const auto set = write_nrs_policies(gate->parts->target, policy, now);
  if (!set) return tl::unexpected(set.error());
  return gate;
}

// Calls body(parts, now) under the lock of a gate that is not freed. The clock is read before, so
// that no thread waits for it.
template <class Body>
int with_gate(weir_gate* gate, std::string_view call, Body body) {
  return call_c(call, [&]() -> int {
    if (gate == nullptr) return refuse_null(call, "gate");
    const Instant now = gate->now();
    const host::MutexLock lock(gate->mutex);
    if (gate->parts == nullptr) return refuse_freed(call, "gate");
    return body(*gate->parts, now);
  });
}

// The same with a request that this gate holds in the given state.
template <class Body>
int with_request(weir_gate* gate, weir_request* request, State state, std::string_view call,
                 Body body) {
  return with_gate(gate, call, [&](GateParts& parts, Instant now) -> int {
    if (request == nullptr) return refuse_null(call, "request");
    const State found = request->state.load(std::memory_order_acquire);
    if (found == State::kFreed) return refuse_freed(call, "request");
    if ((found == State::kQueued || found == State::kRunning) && request->gate.load() != gate) {
      return refuse(EINVAL, call, "the request belongs to another gate",
                    "pass the gate to which it was admitted");
    }
    if (found != state) {
      return refuse(EINVAL, call,
                    found == State::kQueued    ? "the request is still queued"
                    : found == State::kRunning ? "the request already runs"
                                               : "the request was not admitted",
                    state == State::kRunning ? "complete what weir_gate_next() returned"
                                             : "only queued requests can be changed");
    }
    return body(parts, now);
  });
}

void leave(weir_request& request) {
  request.gate.store(nullptr);
  request.state.store(State::kOutside, std::memory_order_release);
}

int complete(weir_gate* gate, weir_request* request, std::string_view call,
             const Outcome& outcome) {
  return with_request(gate, request, State::kRunning, call, [&](GateParts& parts, Instant now) {
    parts.target.complete(*request, now, outcome);
    leave(*request);
    return 0;
  });
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    lines.push_back(with_plain_rates(line.substr(first)));
  }
  return lines;
}

// Sets the timer of the gate for the next decision, unless the caller has its own clock.
void arm(GateParts& parts, Instant until, Instant now, bool has_clock) {
  if (has_clock) return;
  if (parts.armed_for <= now) {
    parts.timer.acknowledge();
    parts.armed_for = kNever;
  }
  if (until != parts.armed_for) parts.timer.arm(parts.armed_for = until);
}

}  // namespace
}  // namespace weir::embed

weir::Instant weir_gate::now() const {
  if (clock == nullptr) return weir::host::now();
  const std::uint64_t time = std::min(clock(clock_argument), weir::embed::kClockMax);
  return weir::Instant(weir::Nanoseconds{static_cast<std::int64_t>(time)});
}

namespace weir::embed {
extern "C" {

int weir_gate_new(weir_gate** gate, const weir_gate_options* options) {
  return call_c(__func__, [&]() -> int {
    if (gate == nullptr) return refuse_null("weir_gate_new", "gate");
    *gate = nullptr;
    auto made = make_gate(options);
    if (!made) return refuse(made.error());
    *gate = made->release();
    return 0;
  });
}

int weir_gate_free(weir_gate* gate) {
  if (gate == nullptr) return 0;
  std::unique_ptr<GateParts> freed;  // destroyed without the lock
  const int refused =
      with_gate(gate, __func__, [&](GateParts& parts, Instant) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        const std::size_t queued = parts.target.queued();
        const std::size_t running = parts.target.running();
        if (queued + running > 0) {
          return refuse(EBUSY, "weir_gate_free",
                        std::to_string(queued) + " requests are queued and " +
                            std::to_string(running) + " run",
                        "withdraw or complete them first");
        }
        freed = std::move(gate->parts);
        return 0;
      });
  if (refused != 0) return refused;
  return call_c(__func__, [&]() -> int {
    Quarantine<weir_gate>::get().add(gate);
    return 0;
  });
}

int weir_gate_admit(weir_gate* gate, weir_request* request, int priority) {
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    constexpr std::string_view kCall = "weir_gate_admit";
    if (priority != WEIR_REGULAR && priority != WEIR_HIGH) {
      return refuse(EINVAL, "priority " + std::to_string(priority), "is not valid",
                    "expected WEIR_REGULAR or WEIR_HIGH");
    }
    if (parts.target.is_shut_down()) {
      return refuse(ESHUTDOWN, kCall, "the gate is shut down", "refuse new requests");
    }
    if (const int refused = hold(request, kCall)) return refused;
    request->gate.store(gate);
    request->state.store(State::kQueued, std::memory_order_release);
    parts.target.admit(*request, priority == WEIR_HIGH ? Head::kHigh : Head::kRegular, now);
    return 0;
  });
}

int weir_gate_next(weir_gate* gate, weir_request** request, uint64_t* wait_ns) {
  if (request != nullptr) *request = nullptr;
  if (wait_ns != nullptr) *wait_ns = WEIR_NEVER;
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    if (request == nullptr) return refuse_null("weir_gate_next", "request");
    const Decision decision = parts.target.next(now);
    if (decision.kind() == Decision::Kind::kRun) {
      *request = static_cast<weir_request*>(&decision.request());
      (*request)->state.store(State::kRunning, std::memory_order_release);
      return 0;
    }
    arm(parts, decision.until(), now, gate->clock != nullptr);
    if (wait_ns != nullptr && decision.until() != kNever) {
      *wait_ns = static_cast<std::uint64_t>(
          std::max(Nanoseconds{0}, Nanoseconds{decision.until() - now}).count());
    }
    return 0;
  });
}

int weir_gate_complete(weir_gate* gate, weir_request* request) {
  return complete(gate, request, __func__, {});
}

int weir_gate_complete_as(weir_gate* gate, weir_request* request, int outcome, uint64_t bytes) {
  return call_c(__func__, [&]() -> int {
    if (outcome < WEIR_DONE || outcome > WEIR_NOT_STARTED || bytes > kRequestBytesMax) {
      return refuse(EINVAL, "weir_gate_complete_as", "the outcome or the bytes are not valid",
                    "expected WEIR_DONE, WEIR_FAILED or WEIR_NOT_STARTED, and at most 1 TiB");
    }
    return complete(gate, request, "weir_gate_complete_as",
                    outcome == WEIR_DONE     ? Outcome::done(Bytes{bytes})
                    : outcome == WEIR_FAILED ? Outcome::failed()
                                             : Outcome::not_started());
  });
}

int weir_gate_withdraw(weir_gate* gate, weir_request* request) {
  return with_request(gate, request, State::kQueued, __func__, [&](GateParts& parts, Instant now) {
    parts.target.withdraw(*request, now);
    leave(*request);
    return 0;
  });
}

int weir_gate_promote(weir_gate* gate, weir_request* request) {
  return with_request(gate, request, State::kQueued, __func__, [&](GateParts& parts, Instant now) {
    parts.target.promote(*request, now);
    return 0;
  });
}

int weir_gate_shutdown(weir_gate* gate) {
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) {
    if (!parts.target.is_shut_down()) parts.target.shutdown(now);
    return 0;
  });
}

int weir_gate_fd(weir_gate* gate) {
  int fd = -1;
  const int refused = with_gate(gate, __func__, [&](GateParts& parts, Instant) -> int {
    if (gate->clock != nullptr) {
      return refuse(ENOTSUP, "weir_gate_fd", "the gate has its own clock", "use wait_ns");
    }
    fd = parts.timer.fd();
    return 0;
  });
  return refused == 0 ? fd : -1;
}

int weir_gate_rules(weir_gate* gate, const char* commands) {
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    if (commands == nullptr) return refuse_null("weir_gate_rules", "commands");
    std::vector<RuleChange> changes;
    for (const std::string& line : lines_of(commands)) {
      auto change = parts.target.read_rule(line);
      if (!change) return refuse(name_rule(change.error(), line));
      changes.push_back(std::move(*change));
    }
    return answer(parts.target.apply_rules(changes, now));
  });
}

int weir_gate_set_policy(weir_gate* gate, const char* policy) {
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    if (policy == nullptr) return refuse_null("weir_gate_set_policy", "policy");
    return answer(write_nrs_policies(parts.target, policy, now));
  });
}

int weir_gate_set_capacity(weir_gate* gate, const char* capacity) {
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    if (capacity == nullptr) return refuse_null("weir_gate_set_capacity", "capacity");
    if (parts.target.controller() == nullptr) {
      return refuse(ENODEV, "weir_gate_set_capacity", "the gate has no shares",
                    "create it without limits_only");
    }
    const auto read = read_capacity(capacity);
    if (!read) return refuse(read.error());
    if (*read) return answer(parts.target.set_capacity(**read, now));
    parts.target.replay_capacity(std::nullopt, CapacitySource::kGiven, now);
    return 0;
  });
}

int weir_gate_set_nodes(weir_gate* gate, const char* job, uint64_t nodes) {
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    if (job == nullptr) return refuse_null("weir_gate_set_nodes", "job");
    if (std::strlen(job) > JobId::kSizeMax) {
      return refuse(EINVAL, "job " + quote(job), "is too long", "at most 31 bytes");
    }
    if (parts.target.controller() == nullptr) {
      return refuse(ENODEV, "weir_gate_set_nodes", "the gate has no shares",
                    "create it without limits_only");
    }
    return answer(parts.target.set_nodes(JobId(job), nodes, now));
  });
}

int weir_gate_snapshot(weir_gate* gate, char** json) {
  if (json != nullptr) *json = nullptr;
  return with_gate(gate, __func__, [&](GateParts& parts, Instant now) -> int {
    if (json == nullptr) return refuse_null("weir_gate_snapshot", "json");
    const std::string text = gate_json(parts.target, now);
    *json = static_cast<char*>(std::malloc(text.size() + 1));
    if (*json == nullptr) return refuse_for_memory();
    std::memcpy(*json, text.c_str(), text.size() + 1);
    return 0;
  });
}

}  // extern "C"
}  // namespace weir::embed
