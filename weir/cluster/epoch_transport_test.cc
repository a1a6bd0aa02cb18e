// SPDX-License-Identifier: Apache-2.0
//
// Streams over loopback, with valid peers and with peers that violate the protocol.
#include "weir/cluster/epoch_transport.h"

#include <future>
#include <mutex>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/coordinate/member.h"
#include "weir/host/clock.h"

namespace weir::cluster {
namespace {

using std::chrono::seconds;
constexpr auto kStuck = seconds{60};

// A transport whose own member takes part in its epochs.
class Node {
 public:
  explicit Node(const std::string& name, std::uint64_t incarnation = 1,
                Nanoseconds hello_time = seconds{10}) {
    auto made = EpochTransport::create(
        {.name = name,
         .incarnation = incarnation,
         .listen = "127.0.0.1:0",
         .tls_directory = {},
         .hello_time = hello_time},
        {.received =
             [this](std::uint32_t term, const std::string& course, EpochMessage message) {
               const std::lock_guard lock(mutex_);
               received_.push_back(std::move(message));
               terms_.push_back(term);
               courses_.push_back(course);
               changed_.notify_all();
             },
         .joined =
             [this](const EpochTransport::LinkState& state) {
               const std::lock_guard lock(mutex_);
               state_ = state;
               changed_.notify_all();
             },
         .connected =
             [this] {
               const std::lock_guard lock(mutex_);
               connected_calls_ += 1;
               changed_.notify_all();
             },
         .say =
             [this](std::string_view line) {
               const std::lock_guard lock(mutex_);
               said_ += line;
               said_ += '\n';
               changed_.notify_all();
             }});
    EXPECT_TRUE(made) << made.error().message();
    transport_ = std::move(*made);
  }
  std::string address() const { return fmt::format("127.0.0.1:{}", transport_->port()); }
  EpochTransport& transport() { return *transport_; }

  template <class Condition>
  bool wait(Condition condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kStuck, [&] { return condition(*this); });
  }
  bool wait_joined() {
    return wait([](const Node& it) { return it.state_.is_joined; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<EpochMessage> received_;
  std::vector<std::uint32_t> terms_;
  std::vector<std::string> courses_;
  EpochTransport::LinkState state_;
  std::string said_;
  int connected_calls_ = 0;

 private:
  std::unique_ptr<EpochTransport> transport_;
};

struct EpochTransportTest : ::testing::Test {
  EpochTransportTest() { leader.transport().lead(kTerm, EpochTransport::Before::kNobody, kNever); }
  // The final status that the leader returns to a peer that sends these frames.
  grpc::Status status_for(const std::vector<Frame>& frames) { return status_of(leader, frames); }
  static grpc::Status status_of(const Node& node, const std::vector<Frame>& frames) {
    auto stub =
        Epochs::NewStub(grpc::CreateChannel(node.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kStuck);
    auto stream = stub->Join(&context);
    for (const Frame& frame : frames) {
      if (!stream->Write(frame)) break;
    }
    Frame answer;
    while (stream->Read(&answer)) {
    }
    return stream->Finish();
  }
  static Frame hello(const std::string& name, std::uint32_t protocol = kEpochProtocol) {
    Frame frame;
    frame.mutable_hello()->set_protocol(protocol);
    frame.mutable_hello()->set_name(name);
    frame.mutable_hello()->set_incarnation(99);
    frame.mutable_hello()->set_term(kTerm);
    return frame;
  }
  static Frame bytes(const std::string& text) {
    Frame frame;
    frame.set_message(text);
    return frame;
  }
  // A whole round of one member, to show that the transport still works.
  void expect_a_round(Node& node, std::uint64_t serial, const std::string& course = "") {
    std::size_t before = 0;
    {
      const std::lock_guard lock(node.mutex_);
      before = node.received_.size();
    }
    Ready ready{.epoch = kFirstEpoch,
                .serial = serial,
                .timeout = std::chrono::milliseconds{100},
                .data = {},
                .claim = {}};
    if (course.empty()) ready.claim = SliceMember(SliceTerms{}).claim(host::now());
    node.transport().send(kTerm, course, std::move(ready));
    EXPECT_TRUE(node.wait([&](const Node& it) { return it.received_.size() > before; }));
    const std::lock_guard lock(node.mutex_);
    const auto* const start = std::get_if<Start>(&node.received_.back());
    ASSERT_NE(start, nullptr);
    EXPECT_EQ(start->serial, serial);
    EXPECT_EQ(node.terms_.back(), kTerm);
    EXPECT_EQ(node.courses_.back(), course);
  }

  static constexpr std::uint32_t kTerm = 5;
  Node leader{"a"};
};

TEST_F(EpochTransportTest, AMemberJoinsAndIsInTheRounds) {
  leader.transport().follow(kTerm, leader.address());
  ASSERT_TRUE(leader.wait_joined());
  expect_a_round(leader, 1);
  std::promise<EpochTransport::Description> described;
  leader.transport().describe(
      [&](EpochTransport::Description it) { described.set_value(std::move(it)); });
  const auto description = described.get_future().get();
  ASSERT_TRUE(description.leader);
  EXPECT_EQ(description.leader->rounds, 1U);
  EXPECT_EQ(description.leader->members.at(0).name, "a");
}

TEST_F(EpochTransportTest, AMemberElsewhereAsksTheLeaderWhatItKnows) {
  Node member("b");
  member.transport().follow(kTerm, leader.address());
  ASSERT_TRUE(member.wait_joined());
  expect_a_round(member, 1);
  expect_a_round(member, 1, "ost_io");
  std::promise<EpochTransport::Description> described;
  member.transport().describe(
      [&](EpochTransport::Description it) { described.set_value(std::move(it)); });
  const auto description = described.get_future().get();
  ASSERT_TRUE(description.leader);
  EXPECT_EQ(description.leader->term, kTerm);
  EXPECT_TRUE(description.link.is_joined);
  ASSERT_EQ(description.leader->courses.size(), 1U);
  EXPECT_EQ(description.leader->courses[0].service, "ost_io");
  EXPECT_EQ(description.leader->courses[0].rounds, 1U);
}

TEST_F(EpochTransportTest, PeersThatBreakTheProtocolAreSentAwayAndTheOthersGoOn) {
  leader.transport().follow(kTerm, leader.address());
  ASSERT_TRUE(leader.wait_joined());
  EXPECT_EQ(status_for({hello("b", 9)}).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status_for({bytes("no hello")}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status_for({hello("b"), bytes("garbage")}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(leader.wait([](const Node& it) { return it.said_.find("'b'") != it.said_.npos; }));
  EXPECT_EQ(status_for({hello("c"), bytes(std::string(2 << 20, 'x'))}).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  expect_a_round(leader, 1);
}

// Nothing else would end such a stream.
TEST_F(EpochTransportTest, APeerThatSaysNothingIsSentAwayAndAMemberIsNot) {
  Node other("d", 1, std::chrono::milliseconds{200});
  other.transport().lead(kTerm, EpochTransport::Before::kNobody, kNever);
  other.transport().follow(kTerm, other.address());
  ASSERT_TRUE(other.wait_joined());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(status_of(other, {}).error_message(), "expected a hello");
  expect_a_round(other, 1);
}

TEST_F(EpochTransportTest, ASecondServerOfTheSameNameIsRefusedAndSaysWhy) {
  leader.transport().follow(kTerm, leader.address());
  ASSERT_TRUE(leader.wait_joined());
  Node twin("a", 2);
  twin.transport().follow(kTerm, leader.address());
  EXPECT_TRUE(twin.wait([](const Node& it) { return it.state_.is_refused; }));
  EXPECT_TRUE(twin.wait([](const Node& it) {
    return it.said_.find("is already the name of another running server") != it.said_.npos;
  }));
  expect_a_round(leader, 1);
}

TEST_F(EpochTransportTest, WhoDoesNotLeadSendsMembersAway) {
  Node member("b");
  member.transport().follow(kTerm, leader.address());
  ASSERT_TRUE(member.wait_joined());
  leader.transport().stop_leading();
  EXPECT_TRUE(member.wait([](const Node& it) { return !it.state_.is_joined; }));
  EXPECT_FALSE(member.state_.is_refused);
  leader.transport().lead(kTerm + 1, EpochTransport::Before::kSomebody, kNever);
  member.transport().follow(kTerm + 1, leader.address());
  EXPECT_TRUE(member.wait_joined());
}

TEST(EpochTransport, ServersThatSeekCountThoseThatReachThem) {
  Node a("a", 1), b("b", 2), c("c", 3);
  const std::vector<Peer> all = {{"a", 1, a.address()}, {"b", 2, b.address()}, {"c", 3, "[::1]:1"}};
  const auto count = [](Node& node, std::size_t connected) {
    return node.wait([&](Node& it) { return it.transport().connected() == connected; });
  };
  b.transport().seek(all);
  a.transport().seek(all);
  EXPECT_TRUE(count(a, 2));
  EXPECT_TRUE(count(b, 2));
  c.transport().seek(all);
  EXPECT_TRUE(count(a, 3)) << "what matters is who reaches this server";
  EXPECT_TRUE(count(b, 3));
  EXPECT_EQ(c.transport().connected(), 1U) << "the others do not reach it";
  a.transport().seek({});
  for (int i = 0; i < 2; ++i) {  // when the second is answered, everything before the first is done
    std::promise<void> described;
    a.transport().describe([&](const EpochTransport::Description&) { described.set_value(); });
    described.get_future().get();
  }
  EXPECT_EQ(a.transport().connected(), 1U) << "it does not seek any more";
}

TEST(EpochTransport, MayEndInTheMiddleOfAGreeting) {
  for (int i = 0; i < 100; ++i) {
    Node b("b", 2);
    Node a("a", 1);
    const std::vector<Peer> all = {{"a", 1, a.address()}, {"b", 2, b.address()}};
    b.transport().seek(all);
    a.transport().seek(all);
    ASSERT_TRUE(b.wait([](Node& it) { return it.transport().connected() == 2; }));
  }
}

TEST(EpochTransport, AnAddressThatIsTakenIsToldAtOnce) {
  Node first("a");
  const auto second = EpochTransport::create(
      {.name = "b", .incarnation = 1, .listen = first.address(), .tls_directory = {}}, {});
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message().find(first.address()), std::string::npos);
}

}  // namespace
}  // namespace weir::cluster
