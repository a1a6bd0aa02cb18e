// SPDX-License-Identifier: Apache-2.0
//
// Peers that violate the protocol. A valid client is served beside them all the time.
#include "weir/cluster/lock_service.h"

#include <filesystem>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "weir/cluster/lock.grpc.pb.h"
#include "weir/cluster/lock_admin.h"
#include "weir/cluster/lock_channel.h"
#include "weir/cluster/lock_client.h"

namespace weir::cluster {
namespace {

using namespace std::chrono_literals;
namespace wire = lock::v1;

constexpr Nanoseconds kStuck = 60s;

// A raw stream that can violate the protocol.
class RudePeer {
 public:
  explicit RudePeer(const lock::ConnectOptions& to)
      : stub_(wire::Locks::NewStub(*open_channel(to))) {
    context_.set_deadline(std::chrono::system_clock::now() + kStuck);
    stream_ = stub_->Attach(&context_);
  }

  wire::ClientBatch batch() {
    wire::ClientBatch made;
    made.set_number(++number_);
    return made;
  }
  wire::ClientBatch hello() {
    wire::ClientBatch made = batch();
    made.mutable_hello()->set_features(1);
    made.set_replayed(true);
    return made;
  }
  // The welcome that it gets if it claims to be this client.
  wire::Welcome claim(std::uint64_t client, const std::string& secret) {
    wire::ClientBatch made = hello();
    made.mutable_hello()->set_client(client);
    made.mutable_hello()->set_secret(secret);
    EXPECT_TRUE(stream_->Write(made));
    wire::ServerBatch answer;
    while (stream_->Read(&answer)) {
      if (answer.has_welcome()) return answer.welcome();
    }
    return {};
  }
  // Answers until they contain this many operations in total.
  std::vector<wire::ServerOp> ask(const wire::ClientBatch& batch, std::size_t answers) {
    EXPECT_TRUE(stream_->Write(batch));
    std::vector<wire::ServerOp> ops;
    wire::ServerBatch answer;
    while (ops.size() < answers && stream_->Read(&answer)) {
      ops.insert(ops.end(), answer.ops().begin(), answer.ops().end());
    }
    return ops;
  }
  // The status with which the server ends the stream.
  grpc::Status end(const wire::ClientBatch& batch) {
    stream_->Write(batch);
    return end();
  }
  // The same without another message.
  grpc::Status end() {
    wire::ServerBatch answer;
    while (stream_->Read(&answer)) last_ = answer;
    return stream_->Finish();
  }
  const wire::ServerBatch& last() const { return last_; }

 private:
  std::unique_ptr<wire::Locks::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<wire::ClientBatch, wire::ServerBatch>> stream_;
  std::uint64_t number_ = 0;
  wire::ServerBatch last_;
};

class RudePeers : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "lock_service." + std::to_string(getpid()) + "." +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
    service = serve_on(folder_ + "/s", folder_ + "/state");
    to.server = "unix:" + folder_ + "/s";
    decent = *lock::Client::create(to);
    ASSERT_TRUE(decent->take("decent", lock::Mode::kExclusive, kStuck));
  }
  void TearDown() override {
    EXPECT_TRUE(decent->take("decent too", lock::Mode::kExclusive, kStuck));
    EXPECT_EQ(decent->status().counters.lost, 0U);
    decent.reset();
    service.reset();
    std::filesystem::remove_all(folder_);
  }
  lock::LockServer::Counters counters() { return service->view().at(0).counters; }
  const std::string& folder() const { return folder_; }
  static std::unique_ptr<LockService> serve_on(const std::string& socket,
                                               const std::string& state) {
    LockServiceOptions options;
    options.lock.listen =
        serve::ListenAddress{.kind = serve::ListenAddress::Kind::kUnix, .path = socket};
    options.lock.state_file = state;
    options.hello_time = 200ms;
    options.pressure = host::MemoryPressure::Sources{};
    auto made = LockService::create(options);
    EXPECT_TRUE(made) << made.error().message();
    return made ? *std::move(made) : nullptr;
  }

  lock::ConnectOptions to;
  std::unique_ptr<LockService> service;
  std::unique_ptr<lock::Client> decent;

 private:
  std::string folder_;
};

// Another thread reads the scheduler while requests pass through it.
TEST_F(RudePeers, TheSchedulerIsLookedAtBesideThem) {
  EXPECT_EQ(service->service(), "locks");
  std::uint64_t finished = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(decent->take("look/" + std::to_string(i), lock::Mode::kExclusive, kStuck));
    ASSERT_TRUE(service->look([&](const Target& target, Instant now) {
      EXPECT_GT(now, Instant{});
      EXPECT_EQ(target.stats().size(), 1U);
      const std::uint64_t seen = target.stats().entry(0).finished.requests;
      EXPECT_GT(seen, finished);
      finished = seen;
    }));
  }
  EXPECT_GT(finished, 100U) << "and the one before";
  const auto ended = serve_on(folder() + "/t", folder() + "/state of another");
  ended->stop();
  EXPECT_FALSE(ended->look([](const Target&, Instant) { FAIL() << "nobody is there"; }));
}

TEST_F(RudePeers, GarbageEndsItsOwnStreamAlone) {
  RudePeer peer(to);
  wire::ClientBatch batch = peer.hello();
  batch.add_enqueues()->set_mode(static_cast<wire::Mode>(5));
  EXPECT_EQ(peer.end(batch).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RudePeers, WhoDoesNotSayHelloIsSentAway) {
  RudePeer peer(to);
  wire::ClientBatch batch = peer.batch();
  batch.add_enqueues()->set_name("x");
  EXPECT_TRUE(peer.end(batch).ok());
  ASSERT_EQ(peer.last().ops_size(), 1);
  EXPECT_EQ(peer.last().ops(0).kind(), wire::ServerOp::GO_AWAY);
  EXPECT_EQ(counters().broken_rules, 1U);
}

// Nothing else would end such a stream. A client that has sent its hello may be silent until its
// lease ends, as the valid client is here.
TEST_F(RudePeers, WhoSaysNothingIsSentAway) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(RudePeer(to).end().error_message(), "expected a hello");
}

TEST_F(RudePeers, NumbersThatDoNotCountUpAreSentAway) {
  RudePeer peer(to);
  peer.batch();
  EXPECT_TRUE(peer.end(peer.hello()).ok());
  EXPECT_EQ(counters().broken_rules, 1U);
}

TEST_F(RudePeers, AJobOfAnyLengthIsNoJob) {
  RudePeer peer(to);
  wire::ClientBatch batch = peer.hello();
  batch.mutable_hello()->set_job(std::string(1000, 'j'));
  EXPECT_EQ(peer.end(batch).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(RudePeers, AMessageWithoutMeasureIsNotTakenIn) {
  RudePeer peer(to);
  wire::ClientBatch batch = peer.hello();
  batch.add_enqueues()->set_name(std::string(std::size_t{8} << 20, 'x'));
  EXPECT_FALSE(peer.end(batch).ok());
}

TEST_F(RudePeers, ANameOf10KbIsRefusedAndTheStreamGoesOn) {
  RudePeer peer(to);
  wire::ClientBatch batch = peer.hello();
  batch.add_enqueues()->set_name(std::string(10'000, 'x'));
  batch.add_enqueues()->set_name("fine");
  const auto ops = peer.ask(batch, 2);
  ASSERT_EQ(ops.size(), 2U);
  EXPECT_EQ(ops[0].kind(), wire::ServerOp::REFUSED);
  EXPECT_EQ(ops[0].why(), wire::ServerOp::BAD_NAME);
  EXPECT_EQ(ops[1].kind(), wire::ServerOp::GRANTED);
  EXPECT_EQ(counters().bad_names, 1U);
}

TEST_F(RudePeers, CancellingTwiceOrWhatOthersHaveIsCounted) {
  RudePeer peer(to);
  wire::ClientBatch first = peer.hello();
  first.add_enqueues()->set_name("x");
  const auto ops = peer.ask(first, 1);
  ASSERT_EQ(ops.size(), 1U);
  wire::ClientBatch second = peer.batch();
  second.add_cancels(ops[0].handle());
  second.add_cancels(ops[0].handle());
  second.add_cancels(1);
  second.add_enqueues()->set_name("y");
  peer.ask(second, 1);
  EXPECT_EQ(counters().unknown_cancels, 2U);
  EXPECT_EQ(service->view().at(0).granted, 2);  // "decent" and "y"
}

TEST_F(RudePeers, AFloodIsRefusedPastItsBound) {
  RudePeer peer(to);
  std::size_t refused = 0;
  wire::ClientBatch batch = peer.hello();
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 4000; ++i) {
      wire::Enqueue& enqueue = *batch.add_enqueues();
      enqueue.set_name("decent");
      enqueue.set_mode(wire::EXCLUSIVE);
    }
    for (const wire::ServerOp& op : peer.ask(batch, 4000)) {
      if (op.kind() == wire::ServerOp::REFUSED) ++refused;
    }
    batch = peer.batch();
  }
  EXPECT_GT(refused, 5000U);
  EXPECT_GE(counters().too_many, refused);  // an answer may not have been read
}

// ---- access ----

TEST_F(RudePeers, ASessionIsNotTakenOverByItsNumber) {
  const std::uint64_t first = std::uint64_t{1} << 32 | 1;
  const auto views = service->view();
  ASSERT_EQ(views.at(0).top.at(0).client, first) << "the number can be guessed";
  for (const std::string& guess : {std::string(), std::string(16, '\0'), std::string(16, 'x')}) {
    const wire::Welcome welcome = RudePeer(to).claim(first, guess);
    EXPECT_NE(welcome.client(), 0U);
    EXPECT_NE(welcome.client(), first);
    EXPECT_EQ(welcome.secret().size(), 16U);
  }
  EXPECT_EQ(counters().wrong_secrets, 3U);
  // The owner still has its lock, and its stream is open: nothing was lost (TearDown).
  EXPECT_EQ(service->view().at(0).granted, 1);
}

TEST_F(RudePeers, SecretsOutliveTheServerAndAreNotThoseOfAnother) {
  const std::string socket = folder() + "/other";
  const std::string state = folder() + "/other.state";
  const auto address = [&] {
    lock::ConnectOptions other = to;
    other.server = "unix:" + socket;
    return other;
  }();
  auto other = serve_on(socket, state);
  const wire::Welcome welcome = RudePeer(address).claim(0, "");
  other.reset();
  other = serve_on(socket, state);
  EXPECT_EQ(RudePeer(address).claim(welcome.client(), welcome.secret()).client(), welcome.client());
  EXPECT_NE(RudePeer(address).claim(welcome.client(), std::string(16, 'x')).client(),
            welcome.client());
  other.reset();
  for (const char* const file : {"", ".copy"}) std::filesystem::remove(state + file);
  other = serve_on(socket, state);
  const wire::Welcome fresh = RudePeer(address).claim(0, "");
  ASSERT_EQ(fresh.client(), welcome.client()) << "the same number of another server";
  EXPECT_NE(fresh.secret(), welcome.secret());
}

TEST_F(RudePeers, ListsNamesOnAUnixSocketAlone) {
  const auto listed = ask_list(to, {});
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->locks.at(0).name, "decent");
  LockServiceOptions options;
  options.lock.listen =
      serve::ListenAddress{.kind = serve::ListenAddress::Kind::kTcp, .host = "127.0.0.1"};
  options.lock.state_file = folder() + "/tcp.state";
  const auto tcp = LockService::create(options);
  ASSERT_TRUE(tcp) << tcp.error().message();
  lock::ConnectOptions plain;
  plain.server = serve::print_listen((*tcp)->listening());
  const auto refused = ask_list(plain, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, std::errc::permission_denied);
  EXPECT_NE(refused.error().hint.find("--tls-certificates"), std::string::npos);
  EXPECT_TRUE(ask_stats(plain));
}

}  // namespace
}  // namespace weir::cluster
