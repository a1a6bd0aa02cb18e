// SPDX-License-Identifier: Apache-2.0
//
// The messages of the lock service: batches of operations in both directions on one ordered stream,
// over any transport. Every message of the server carries the volume.
//
//   C: number 1    hello(client, secret, features)  replay(...)*  replayed      once, at the start
//   S: confirms 1  welcome(client, secret, lease, features, incarnation)
//                  { kept(cookie, handle) | lost }*
//   C: number 2    enqueue(cookie, name, mode)
//   S: confirms 2  granted(cookie, handle, fence) | queued(cookie, handle) | refused(cookie, why)
//   S:             ask(cookie)                                          another client waits
//   C: number 3    cancel(handle)                                       no answer
//                  convert(cookie, handle, mode)                       of a granted lock
//   S:             converted(cookie, mode, fence) | not_converted(cookie, why)
//                  watch(cookie, name, mode)                           delays nobody
//   S:             holders(cookie), and later free(cookie)             or free(cookie) at once,
//                                                                      or not_watched(cookie, why)
//   C: number 4                                                         empty: keep-alive, refresh
//   S: confirms 4                                                       an answer to each message
//   C: number 5    goodbye                                              returns all locks at once
//
// A cookie is the client's number for a lock, a handle the server's; messages to a side use its
// number. cancel() of a waiting lock withdraws it. convert() to the present mode of a lock
// withdraws a conversion that waits. The cookie of a watch is a number of its own. `confirms` is
// the number of the last message of the client that the server received: the lease is counted from
// when that message was sent.
//
// A client reconnects with the number and the secret of its welcome (secret.h). Without the right
// secret it is welcomed as a new client with another number.
//
// Nothing is validated here: LockServer and LockClient accept any values and answer, or report a
// protocol violation of the other side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weir/base/time.h"
#include "weir/lock/lock_table.h"
#include "weir/lock/secret.h"

namespace weir::lock {

// Bits of `features`, offered by the client and accepted in the welcome.
inline constexpr std::uint32_t kFeatureVolume = 1;
// Modes other than shared and exclusive, conversions and watches.
inline constexpr std::uint32_t kFeatureModes = 16;

struct ClientOp {
  enum class Kind : std::uint8_t {
    kHello,
    kReplay,
    kReplayed,
    kEnqueue,
    kCancel,
    kConvert,
    kWatch,
    kUnwatch,
    kGoodbye
  };
  Kind kind = Kind::kHello;
  Mode mode = Mode::kShared;
  LockTable::OrWait or_wait = LockTable::OrWait::kWait;
  std::uint32_t features = 0;  // hello
  std::uint64_t client = 0;    // hello: 0 asks for a number
  SessionSecret secret{};      // hello: the secret of its welcome
  std::uint64_t cookie = 0;
  std::uint64_t handle = 0;
  std::uint64_t fence = 0;        // replay
  std::uint64_t incarnation = 0;  // replay: of the server that issued the handle
  std::string name;
};

struct ClientMessage {
  std::uint64_t number = 0;  // counts up from 1 on each connection
  std::vector<ClientOp> ops = {};
  // State of the client's cache, for display: CLV of its oldest lock and F. 0: unknown.
  std::uint64_t volume = 0;
  std::uint32_t factor_percent = 0;
};

enum class Refusal : std::uint8_t {
  kWouldWait,  // answer to a try
  kBadName,    // empty, or longer than kNameMax
  kTooMany,    // the session has too many waiting enqueues
  kDeadlock,   // the conversion would wait for itself
  kUnknown,    // the lock to be converted is not held
  kWithdrawn,  // another conversion of the same lock followed
  // Not sent by servers:
  kUnsupported,  // the server is older than this request
  kInUse,        // other users of this client share the lock that is to be converted
};

// Longest cycle that is reported. A longer one is cut.
inline constexpr std::size_t kCycleMax = 64;
// Holders of a watched resource that are named. All are counted.
inline constexpr std::size_t kHoldersMax = 64;

// A conversion that was refused, and the conversions that wait for each other; its own is first.
struct Cycle {
  struct Step {
    std::uint64_t client = 0;
    Mode held = Mode::kNull;
    Mode wanted = Mode::kNull;

    bool operator==(const Step&) const = default;
  };
  std::uint64_t cookie = 0;
  std::vector<Step> steps;
};

// Who holds a watched resource.
struct Holders {
  struct Holder {
    std::uint64_t client = 0;
    Mode mode = Mode::kNull;
    std::uint64_t fence = 0;

    bool operator==(const Holder&) const = default;
  };
  std::uint64_t cookie = 0;  // of the watch
  std::uint64_t count = 0;
  std::vector<Holder> first;  // at most kHoldersMax
};

struct ServerOp {
  enum class Kind : std::uint8_t {
    kWelcome,
    kGranted,
    kQueued,
    kRefused,
    kAsk,
    kKept,
    kLost,
    kGoAway,
    kConverted,
    kNotConverted,
    kFree,
    kNotWatched
  };
  Kind kind = Kind::kWelcome;
  Refusal why = Refusal::kWouldWait;
  Mode mode = Mode::kNull;  // converted
  std::uint32_t features = 0;
  std::uint64_t client = 0;
  SessionSecret secret{};  // welcome
  std::uint64_t incarnation = 0;
  Nanoseconds lease{0};
  std::uint64_t cookie = 0;
  std::uint64_t handle = 0;
  std::uint64_t fence = 0;
};

struct ServerMessage {
  std::uint64_t confirms = 0;
  std::uint64_t volume = 0;  // 0: unknown, or the client did not ask for the feature
  std::int64_t limit = 0;
  bool is_recovering = false;  // clients drop nothing until this ends
  // Settings of the server's administrator for all caches; 0: none. Not sent to clients that did
  // not ask for the volume.
  std::uint32_t lru_size = 0;
  Nanoseconds lru_max_age{0};
  std::vector<ServerOp> ops;
  std::vector<Cycle> cycles = {};     // of conversions that `ops` refuses
  std::vector<Holders> holders = {};  // of resources that are watched from now on
};

}  // namespace weir::lock
