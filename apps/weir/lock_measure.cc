// SPDX-License-Identifier: Apache-2.0
//
// weir lock bench: clients acquire and release uncontended locks as fast as possible, and one
// client acquires a cached lock repeatedly.
#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "apps/weir/command.h"
#include "apps/weir/lock.h"
#include "weir/host/clock.h"

namespace weir::app {
namespace {

using lock::Client;
using Kind = lock::LockClient::Event::Kind;

// Names are reused, so that memory does not grow; each was released long before it is used again.
constexpr std::uint64_t kNames = 100'000;
constexpr std::uint64_t kRetakes = 1000;
constexpr std::size_t kRetakeRounds = 1000;
constexpr Nanoseconds kPatience = std::chrono::seconds{60};

// One client with `window` enqueues in progress.
class Load {
 public:
  Load(const lock::ConnectOptions& connect, std::uint32_t number, std::uint32_t window)
      : prefix_(fmt::format("bench/{}/", number)),
        client_(value_or_fail(Client::create(connect), Exit::kUsage, "bench")) {
    uses_.reserve(window);
    for (std::uint32_t i = 0; i < window; ++i) uses_.push_back(std::make_unique<Use>(*this));
  }
  ~Load() {
    is_over_ = true;
    client_->close();
  }

  void begin(std::uint64_t most) {
    most_ = most;
    is_over_ = false;
    for (const auto& use : uses_) {
      if (more()) use->begin();
    }
  }
  void end() { is_over_ = true; }
  std::uint64_t done() const { return done_; }
  bool is_idle() const { return busy_ == 0; }
  Client& client() { return *client_; }

 private:
  struct Use : lock::Listener {
    explicit Use(Load& of) : load(of) {}
    void begin() {
      for (;;) {
        const auto name = fmt::format("{}{}", load.prefix_, load.next_++ % load.names());
        const auto got =
            load.client_->acquire(name, lock::Mode::kExclusive, Client::OrWait::kWait, *this);
        if (!got.is_held) return;
        if (!load.count(got.ticket)) return;
      }
    }
    void lock_event(const lock::LockClient::Event& event) override {
      if (event.kind != Kind::kLost && load.count(event.ticket)) begin();
    }
    Load& load;
  };

  std::uint64_t names() const { return most_ == UINT64_MAX ? kNames : most_; }
  // Whether to start another one.
  bool more() {
    if (is_over_ || begun_ == most_) return false;
    ++begun_;
    ++busy_;
    return true;
  }
  bool count(Client::Ticket ticket) {
    client_->release(ticket);
    ++done_;
    --busy_;
    return more();
  }

  const std::string prefix_;
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<Use>> uses_;
  std::uint64_t most_ = UINT64_MAX;
  std::atomic<std::uint64_t> next_ = 0;
  std::atomic<std::uint64_t> begun_ = 0;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<std::uint64_t> busy_ = 0;
  std::atomic<bool> is_over_ = false;
};

void wait_connected(Client& client, const std::string& server) {
  const Instant until = host::now() + kPatience;
  while (!client.status().is_connected) {
    if (host::now() >= until) throw Failure{Exit::kUnavailable, server + " does not answer"};
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

double per_second(std::uint64_t count, Nanoseconds span) {
  return static_cast<double>(count) / std::chrono::duration<double>(span).count();
}

// The time to acquire and release a cached lock: the median of many short rounds, since other
// processes may use the CPU in some of them.
double retake_ns(const lock::ConnectOptions& connect) {
  const auto client = value_or_fail(Client::create(connect), Exit::kUsage, "bench");
  wait_connected(*client, connect.server);
  auto first = client->take("bench/cached", lock::Mode::kExclusive, kPatience);
  if (!first) throw Failure{Exit::kTempFail, first.error().message()};
  first->release();
  struct Deaf : lock::Listener {
    void lock_event(const lock::LockClient::Event&) override {}
  } deaf;
  std::vector<Nanoseconds> rounds(kRetakeRounds);
  for (Nanoseconds& round : rounds) {
    const Instant begin = host::now();
    for (std::uint64_t i = 0; i < kRetakes; ++i) {
      const auto got =
          client->acquire("bench/cached", lock::Mode::kExclusive, Client::OrWait::kWait, deaf);
      client->release(got.ticket);
    }
    round = host::now() - begin;
  }
  const auto middle = rounds.begin() + kRetakeRounds / 2;
  std::nth_element(rounds.begin(), middle, rounds.end());
  return std::chrono::duration<double, std::nano>(*middle).count() / kRetakes;
}

// Acquires locks and keeps them in the cache of one client.
double fill(Load& load, std::uint64_t count) {
  const Instant begin = host::now();
  load.begin(count);
  while (load.done() < count) {
    if (host::now() > begin + 10 * kPatience) {
      throw Failure{Exit::kTempFail, fmt::format("only {} locks were granted", load.done())};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  return per_second(count, host::now() - begin);
}

}  // namespace

int measure_locks(const LockMeasure& measure) {
  nlohmann::ordered_json figures;
  if (measure.fill > 0) {
    Load load(measure.connect, 0, measure.window);
    wait_connected(load.client(), measure.connect.server);
    figures["filled_per_second"] = fill(load, measure.fill);
    figures["held"] = load.client().status().held;
    fmt::print("{}\n", figures.dump());
    std::fflush(stdout);
    std::this_thread::sleep_for(measure.time);
    return static_cast<int>(Exit::kOk);
  }
  lock::ConnectOptions connect = measure.connect;
  connect.client.lru.fixed_size = 1;  // released locks are returned to the server
  std::vector<std::unique_ptr<Load>> loads;
  loads.reserve(measure.clients);
  for (std::uint32_t i = 0; i < measure.clients; ++i) {
    loads.push_back(std::make_unique<Load>(connect, i, measure.window));
    wait_connected(loads.back()->client(), connect.server);
  }
  const Instant begin = host::now();
  for (const auto& load : loads) load->begin(UINT64_MAX);
  std::this_thread::sleep_for(measure.time);
  std::uint64_t done = 0;
  std::uint64_t messages = 0;
  std::uint64_t cancels = 0;
  for (const auto& load : loads) {
    const Client::Status status = load->client().status();
    done += load->done();
    messages += status.counters.messages;
    cancels += status.counters.cancels;
  }
  const Nanoseconds span = host::now() - begin;
  for (const auto& load : loads) load->end();
  loads.clear();
  figures["clients"] = measure.clients;
  figures["pairs_per_second"] = per_second(std::min(done, cancels), span);
  figures["pairs_per_message"] =
      static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(messages, 1));
  figures["retake_ns"] = retake_ns(measure.connect);
  if (measure.json) {
    fmt::print("{}\n", figures.dump(2));
    return static_cast<int>(Exit::kOk);
  }
  fmt::print("{:.0f} enqueues with cancels per second, {} client{}, {:.1f} per message\n",
             figures["pairs_per_second"].get<double>(), measure.clients,
             measure.clients == 1 ? "" : "s", figures["pairs_per_message"].get<double>());
  fmt::print("{:.0f} ns to acquire and release a cached lock\n",
             figures["retake_ns"].get<double>());
  return static_cast<int>(Exit::kOk);
}

}  // namespace weir::app
