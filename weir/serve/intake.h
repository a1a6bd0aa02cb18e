// SPDX-License-Identifier: Apache-2.0
//
// How many requests a turn of the loop reads from each client. The request of a client that sends
// one at a time is read in the turn in which it arrives, whatever the others send. Of a client that
// sends hundreds at once the first kAtOnce are read; the rest waits in line with other such
// clients, which share kOfLine requests per turn. So a turn stays short, and a flood only delays
// itself.
//
//   intake.begin_turn();
//   for each client that has received bytes:
//     take up to intake.allowance() requests; intake.took(n); if more are left: intake.wait(client)
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
  static constexpr std::uint32_t kAtOnce = 64;   // of one client
  static constexpr std::uint32_t kOfTurn = 512;  // of clients that do not wait, beside one of each
  static constexpr std::uint32_t kOfLine = 256;  // of those that do

  void begin_turn() { left_ = kOfTurn; }
  // Those that wait now have their turn, each once.
  void begin_line() {
    left_ = kOfLine;
    turns_ = line_.size();
  }

  // At least 1.
  std::uint32_t allowance() const { return std::clamp(left_, std::uint32_t{1}, kAtOnce); }
  void took(std::uint32_t requests) { left_ -= std::min(left_, requests); }

  // REQUIRES: it does not wait yet.
  void wait(Client& client) { line_.push_back(&client); }
  // The next of those that wait, which then waits no more; nullptr when this turn has no room left.
  Client* next() {
    if (turns_ == 0 || left_ == 0) return nullptr;
    --turns_;
    Client* const client = line_.front();
    line_.pop_front();
    return client;
  }
  // It has gone. REQUIRES: not between begin_line() and the nullptr of next().
  void forget(const Client& client) { std::erase(line_, &client); }

  bool has_line() const { return !line_.empty(); }

 private:
  std::uint32_t left_ = 0;
  std::size_t turns_ = 0;
  std::deque<Client*> line_;
};

}  // namespace weir::serve
