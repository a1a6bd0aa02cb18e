// SPDX-License-Identifier: Apache-2.0
//
// The one thread that owns the locks of a LockService. It gets letters from streams and from other
// threads, and does all else itself: it accepts clients, passes their messages to the LockGate,
// collects answers while a stream is being written, and follows the election in a cluster.
//
//   owner.call(function)      runs it on the thread
//   owner.ask(function)       the same, and waits for its result
//
// Exposes gRPC types, so it is private to this module and not installed.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "weir/base/ring.h"
#include "weir/base/time.h"
#include "weir/cluster/lock_election.h"
#include "weir/cluster/lock_gate.h"
#include "weir/cluster/lock_service.h"
#include "weir/cluster/lock_state.h"
#include "weir/cluster/lock_stream_grpc.h"
#include "weir/host/memory_pressure.h"

namespace weir::cluster {

// Options of the gate of locks; `key` makes the secrets of sessions.
LockGateOptions gate_options(const LockServiceOptions& options, const host::Key& key,
                             serve::TraceFile* trace);

class LockService::Owner {
 public:
  Owner(const LockServiceOptions& options, LockStateFile state, host::Fd wake_fd,
        std::unique_ptr<serve::TraceFile> trace, std::unique_ptr<LockGate> gate)
      : options_(options),
        state_(std::move(state)),
        letters_(std::move(wake_fd)),
        trace_(std::move(trace)),
        gate_(std::move(gate)),
        role_(gate_ != nullptr ? lock::Role::kAlone : lock::Role::kStandby),
        pressure_(options.pressure.value_or(host::MemoryPressure::of_this_process())) {}

  LockLetters& letters() { return letters_; }
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  // Ends all streams, including new ones.
  void end_streams() { (void)letters_.put_always({LockLetter::Kind::kStop}); }
  // REQUIRES: all streams have ended.
  void stop() {
    if (!thread_.joinable()) return;
    (void)letters_.put_always({LockLetter::Kind::kExit});
    thread_.join();
  }

  // Runs on the owner's thread. False: the thread has ended, and the function is not called.
  bool call(std::function<void()> function) {
    LockLetter letter;
    letter.call = std::move(function);
    return letters_.put_always(std::move(letter));
  }
  // Returns the result of the function, which takes the owner.
  template <class Function>
  std::optional<std::invoke_result_t<Function, Owner&>> ask(Function function) {
    using Answer = std::invoke_result_t<Function, Owner&>;
    const auto promise = std::make_shared<std::promise<std::optional<Answer>>>();
    auto answer = promise->get_future();
    if (!call([this, promise, function] { promise->set_value(function(*this)); })) {
      return std::nullopt;
    }
    return answer.get();
  }

  // ---- in its thread ----
  // nullptr: this server is not active.
  LockGate* gate() { return gate_.get(); }
  Instant now() const { return now_; }
  bool is_standby() const { return gate_ == nullptr; }
  // Why it has no locks to show.
  Error away() const;

  // ---- in a cluster ----
  void lead(const LockElection::Lead& lead);
  void prove(Instant until) { proven_until_ = until; }
  void step_down();
  void see(const LockElection::Seen& seen);
  // Acts no more. None: it was not active.
  std::optional<lock::Handover> resign();
  lock::NamespaceView look() const;
  lock::LockList list(const lock::ListOptions& options) const;
  lock::LockStats stats() const;

 private:
  void run();
  void wait();
  void handle(LockLetter& letter);
  void receive(LockStream& stream, LockLetter& letter);
  bool admit(LockStream& stream, const std::string& job);
  void flush(LockStream& stream);
  void finish(LockStream& stream, const grpc::Status& status);
  void flush_dirty();
  void open(LockStream& stream);
  void end_silent();
  Nanoseconds hello_time() const { return options_.hello_time; }
  void relieve();
  void leave_in_order();
  void end_streams_with(const grpc::Status& status);
  grpc::Status elsewhere() const;
  // Whether no other server can be active.
  bool is_proven() const { return now_ < proven_until_; }
  absl::flat_hash_map<std::uint64_t, const LockStream*> streams_by_client() const;

  LockServiceOptions options_;
  LockStateFile state_;
  LockLetters letters_;
  std::unique_ptr<serve::TraceFile> trace_;  // nullptr: nothing is recorded
  std::unique_ptr<LockGate> gate_;           // nullptr: another server is active, or none
  lock::Role role_;
  Instant proven_until_ = kNever;
  std::vector<LockLetter> held_back_;  // messages that wait until the term is proven
  LockElection::Seen seen_;
  bool has_resigned_ = false;
  host::MemoryPressure pressure_;
  absl::flat_hash_map<LockStream*, std::unique_ptr<LockStream>> streams_;
  Ring<LockStream, &LockStream::newcomer> newcomers_;  // the oldest first
  absl::flat_hash_map<LockGate::Connection, LockStream*> by_number_;
  LockGate::Connection numbers_ = 0;
  Instant now_{};
  bool is_stopping_ = false;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace weir::cluster
