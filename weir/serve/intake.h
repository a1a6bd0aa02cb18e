// SPDX-License-Identifier: Apache-2.0
//
// Bounds the requests that a turn of the loop reads from each client. The request of a client that
// sends one at a time is read in the turn in which it arrives, whatever the others send. Of a
// client that sends hundreds at once the first kAtOnce are read; the rest waits in line with other
// such clients, which share kOfLine requests per turn. So a turn stays short, and a flood delays
// only itself.
//
//   intake.begin_turn();
//   for each client that has received bytes:
//     read up to intake.allowance() requests; intake.took(n); if more are left: intake.wait(client)
//   intake.begin_line();
//   while (Client* next = intake.next()) ...the same
//
// One owner, no locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace weir::serve {

template <class Client>
class Intake {
 public:
  static constexpr std::uint32_t kAtOnce = 64;  // per client
  static constexpr std::uint32_t kOfTurn =
      512;  // for clients that do not wait, in addition to one each
  static constexpr std::uint32_t kOfLine = 256;  // for those in line

  void begin_turn() { left_ = kOfTurn; }
  // The waiting clients have their turn now, each once.
  void begin_line() {
    left_ = kOfLine;
    turns_ = line_.size();
  }

  // At least 1.
  std::uint32_t allowance() const { return std::clamp(left_, std::uint32_t{1}, kAtOnce); }
  void took(std::uint32_t requests) { left_ -= std::min(left_, requests); }

  // REQUIRES: it is not waiting yet.
  void wait(Client& client) { line_.push_back(&client); }
  // Removes and returns the next waiting client; nullptr if this turn has no room left.
  Client* next() {
    if (turns_ == 0 || left_ == 0) return nullptr;
    --turns_;
    Client* const client = line_.front();
    line_.pop_front();
    return client;
  }
  // The client disconnected. REQUIRES: not between begin_line() and the nullptr of next().
  void forget(const Client& client) { std::erase(line_, &client); }

  bool has_line() const { return !line_.empty(); }

 private:
  std::uint32_t left_ = 0;
  std::size_t turns_ = 0;
  std::deque<Client*> line_;
};

}  // namespace weir::serve
