// SPDX-License-Identifier: Apache-2.0
//
// A server with several loops and one Target: clients on all loops, commands meanwhile, clients
// that disconnect in the middle, and loops that are delayed inside and outside the lock.
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/stress/running_server.h"
#include "weir/classify/opcode.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"
#include "weir/serve/session.h"
#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kBytes = 512;
constexpr milliseconds kDelay{50};

// One byte is a request: 'r' reads, 'w' writes the kBytes that follow, 's' also delays the loop.
// The reply is the same byte, with the data of a read.
class ByteSession final : public Session {
 public:
  explicit ByteSession(SessionPort& port) : port_(port) {
    identity_ = *port.identify({});
    port_.open(port_.export_at(0), opened_);
  }

  Event next(Input& in, IoRequest& request) override {
    if (in.empty()) return Event::kNeedBytes;
    request.tag = static_cast<std::uint64_t>(in.front());
    in = in.subspan(1);
    if (request.tag == 's') std::this_thread::sleep_for(kDelay);
    const bool writes = request.tag == 'w';
    request.opened = &opened_;
    request.attributes = identity_;
    request.attributes.opcode = opcode_number(writes ? "ost_write" : "ost_read").value();
    request.operation = writes ? OperationKind::kWrite : OperationKind::kRead;
    request.command = writes ? StoreCommand::kWrite : StoreCommand::kRead;
    request.offset = region_ + kBytes * (++count_ % 16);
    request.length = kBytes;
    request.bytes = Bytes{kBytes};
    return Event::kRequest;
  }
  void reply(IoRequest& request, const IoResult& /*result*/) override {
    request.head[0] = static_cast<std::byte>(request.tag);
    request.head_size = 1;
  }
  void perform(IoRequest& /*request*/, std::span<std::byte> /*room*/) override {}
  std::string_view problem() const override { return ""; }

 private:
  SessionPort& port_;
  OpenedExport opened_;
  Attributes identity_;
  std::uint64_t count_ = 0;
  // Each session has its own range: two loops that write the same bytes at once would be a race,
  // which NBD allows.
  static inline std::atomic<std::uint64_t> sessions = 0;
  const std::uint64_t region_ = sessions++ % 64 * 16 * kBytes;
};

Running::Change with_loops(std::uint32_t loops, std::vector<RuleChange> rules = {}) {
  return [=](ServeOptions& options, const std::string& folder) {
    (void)add_protocol({.name = "byte", .help = "", .begin = [](SessionPort& port) {
                          return std::make_unique<ByteSession>(port);
                        }});
    options.listen = {*parse_entrance("byte+unix:" + folder + "/s")};
    options.exports = {*parse_export("a=memory:1MiB")};
    options.services.resize(1);
    options.services[0].rules = rules;
    options.threads = loops;
  };
}

class Client {
 public:
  explicit Client(const Running& running) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (running.folder() + "/s").c_str());
    const int failed =
        connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    EXPECT_EQ(failed, 0);
  }

  void send(char letter, std::size_t count = 1) {
    const std::size_t size = letter == 'w' ? 1 + kBytes : 1;
    const std::string one = letter + std::string(size - 1, 'x');
    std::string all;
    for (std::size_t i = 0; i < count; ++i) all += one;
    EXPECT_EQ(::send(socket_.get(), all.data(), all.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(all.size()));
  }
  // The letter of the next reply; 0: the server has closed the connection.
  char receive() {
    char letter = 0;
    if (::recv(socket_.get(), &letter, 1, MSG_WAITALL) != 1) return 0;
    std::array<char, kBytes> data;
    if (letter != 'w' && ::recv(socket_.get(), data.data(), kBytes, MSG_WAITALL) != kBytes)
      return 0;
    return letter;
  }
  // Sends `count` requests, `depth` at a time; returns the number of replies.
  std::size_t serve(std::size_t count, std::size_t depth) {
    std::size_t answered = 0;
    for (std::size_t sent = 0; sent < count; sent += depth) {
      send(sent / depth % 2 == 0 ? 'r' : 'w', depth);
      for (std::size_t i = 0; i < depth; ++i) answered += receive() != 0 ? 1 : 0;
    }
    return answered;
  }

 private:
  host::Fd socket_;
};

struct State {
  std::vector<Server::LoopStatus> loops;
  std::size_t queued = 0;
  std::size_t running = 0;
  std::uint64_t memory = 0;
  std::uint32_t connections = 0;
};

State state_of(Running& running) {
  return running.server()
      .ask([](Server& it) -> Result<State> {
        const Target& target = it.find_service("ost_io")->target;
        return State{it.loops(), target.queued(), target.running(), it.memory_used().count(),
                     it.connection_count()};
      })
      .value();
}

Result<void> write_rule(Running& running, const std::string& text) {
  return running.server().ask([&](Server& it) {
    return write_nrs_tbf_rule(it.find_service("ost_io")->target, text, it.now());
  });
}

TEST(ManyLoopsStress, EveryRequestIsAnsweredOnceAndConnectionsAreSpreadEvenly) {
  constexpr std::size_t kClients = 8;
  constexpr std::size_t kEach = 4000;
  Running running(with_loops(4, {parse_rule("start r jobid={*} rate=999999").value()}));
  std::vector<std::unique_ptr<Client>> clients;
  for (std::size_t i = 0; i < kClients; ++i) clients.push_back(std::make_unique<Client>(running));
  for (const auto& client : clients) EXPECT_EQ(client->serve(1, 1), 1U);
  const State before = state_of(running);
  ASSERT_EQ(before.loops.size(), 4U);
  for (const Server::LoopStatus& loop : before.loops) EXPECT_EQ(loop.connections, 2U);

  std::atomic<std::size_t> answered = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] { answered += clients[i]->serve(kEach, std::size_t{1} << i % 5); });
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(write_rule(running, "change r rate=" + std::to_string(900'000 + i)));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered, kClients * kEach);
  const State after = state_of(running);
  std::uint64_t requests = 0;
  for (const Server::LoopStatus& loop : after.loops) requests += loop.requests;
  EXPECT_EQ(requests, kClients * (kEach + 1));
  EXPECT_EQ(after.queued + after.running, 0U);
}

// Granted <= depth + rate x time over the whole run, which is longer than the time of the clients.
TEST(ManyLoopsStress, ALimitHoldsWhileLoopsAreDelayed) {
  constexpr std::size_t kRate = 2000;
  constexpr std::size_t kDepth = 20;  // 10 ms of it
  constexpr std::size_t kClients = 4;
  const Instant began = host::now();
  Running running(with_loops(2, {parse_rule("start r jobid={*} rate=2000").value()}));
  std::atomic<bool> is_over = false;
  std::atomic<std::size_t> answered = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kClients; ++i) {
    threads.emplace_back([&, i] {
      Client client(running);
      for (std::size_t round = 0; !is_over; ++round) {
        // Delays its loop outside the lock.
        const bool delays = i == 0 && round % 20 == 0;
        client.send(delays ? 's' : 'r', delays ? 1 : 16);
        for (std::size_t one = 0; one < (delays ? 1 : 16); ++one) {
          EXPECT_NE(client.receive(), 0);
          ++answered;
        }
      }
    });
  }
  for (int i = 0; i < 10; ++i) {
    // Delays the first loop inside the lock.
    EXPECT_TRUE(running.server().ask([](Server&) -> Result<void> {
      std::this_thread::sleep_for(kDelay);
      return {};
    }));
    std::this_thread::sleep_for(kDelay);
  }
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  const auto ran = std::chrono::duration_cast<milliseconds>(host::now() - began);
  EXPECT_LE(answered, kDepth + kRate * static_cast<std::size_t>(ran.count() + 1) / 1000);
  EXPECT_GT(answered, 100U);
}

TEST(ManyLoopsStress, ClientsThatLeaveHalfWayLeaveNothingBehind) {
  Running running(with_loops(4, {parse_rule("start r jobid={*} rate=20000").value()}));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (std::size_t round = 0; round < 25; ++round) {
        Client client(running);
        client.send(i % 2 == 0 ? 'r' : 'w', 64);
        for (std::size_t one = 0; one < round; ++one) EXPECT_NE(client.receive(), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  State left = state_of(running);
  const Instant patience = host::now() + std::chrono::seconds{30};
  while (left.connections > 0 && host::now() < patience) left = state_of(running);
  EXPECT_EQ(left.connections, 0U);
  EXPECT_EQ(left.queued + left.running, 0U);
  EXPECT_EQ(left.memory, 0U);
}

TEST(ManyLoopsStress, TheEndAnswersWhatAllLoopsHaveAccepted) {
  constexpr std::size_t kClients = 8;
  Running running(with_loops(4, {parse_rule("start r jobid={*} rate=10").value()}));
  std::vector<std::unique_ptr<Client>> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(running));
    clients.back()->send('r', 32);
  }
  const Instant patience = host::now() + std::chrono::seconds{30};
  const auto read = [&] {
    std::uint64_t sum = 0;
    for (const Server::LoopStatus& loop : state_of(running).loops) sum += loop.requests;
    return sum;
  };
  while (read() < 32 * kClients && host::now() < patience) std::this_thread::yield();
  EXPECT_TRUE(running.stop());
  for (const auto& client : clients) {
    for (int i = 0; i < 32; ++i) EXPECT_EQ(client->receive(), 'r');
    EXPECT_EQ(client->receive(), 0);
  }
}

}  // namespace
}  // namespace weir::serve
