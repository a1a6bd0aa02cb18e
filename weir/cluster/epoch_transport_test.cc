// SPDX-License-Identifier: Apache-2.0
//
// Streams over loopback, with valid peers and with peers that violate the protocol.
#include "weir/cluster/epoch_transport.h"

#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

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
                Nanoseconds hello_time = seconds{10}, std::size_t fanout = EpochTree::kFanout) {
    auto made = EpochTransport::create(
        {.name = name,
         .incarnation = incarnation,
         .listen = "127.0.0.1:0",
         .tls_directory = {},
         .hello_time = hello_time,
         .fanout = fanout},
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
  void expect_a_round(Node& node, std::uint64_t serial, const std::string& course = "",
                      Nanoseconds timeout = std::chrono::milliseconds{100}) {
    std::size_t before = 0;
    {
      const std::lock_guard lock(node.mutex_);
      before = node.received_.size();
    }
    Ready ready{
        .epoch = kFirstEpoch, .serial = serial, .timeout = timeout, .data = {}, .claim = {}};
    if (course.empty()) ready.claim = SliceMember(SliceTerms{}).claim(host::now());
    node.transport().send(kTerm, course, std::move(ready));
    // A Start that was not confirmed may come again meanwhile.
    const auto is_answer = [&](const Node& it, std::size_t i) {
      const auto* const start = std::get_if<Start>(&it.received_[i]);
      return start != nullptr && start->serial == serial && it.courses_[i] == course &&
             it.terms_[i] == kTerm;
    };
    EXPECT_TRUE(node.wait([&](const Node& it) {
      for (std::size_t i = before; i < it.received_.size(); ++i) {
        if (is_answer(it, i)) return true;
      }
      return false;
    }));
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

// ---- a tree ----

// Calls for the next epoch whenever it is called back, on a thread of its own, as servers do.
class Caller {
 public:
  Caller(Node& node, std::uint32_t term) : node_(node), term_(term), thread_([this] { run(); }) {}
  ~Caller() {
    {
      const std::lock_guard lock(node_.mutex_);
      is_ending_ = true;
      node_.changed_.notify_all();
    }
    thread_.join();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Waits until it has been in this many more epochs.
  bool wait_epochs(std::uint64_t count) {
    std::optional<std::uint64_t> until;
    return node_.wait([&](const Node&) {
      if (!until) until = epochs_ + count;
      return epochs_ >= *until;
    });
  }

 private:
  void run() {
    call(kFirstEpoch);
    while (true) {
      for (EpochMessage& message : member_.take_outgoing()) {
        node_.transport().send(term_, {}, std::move(message));
      }
      for (const EpochMessage& message : next_messages()) member_.receive(message, host::now());
      member_.tick(host::now());
      const std::lock_guard lock(node_.mutex_);
      if (is_ending_) return;
    }
  }
  // Those that have come until the member wakes.
  std::vector<EpochMessage> next_messages() {
    std::unique_lock lock(node_.mutex_);
    node_.changed_.wait_for(lock, std::min<Nanoseconds>(member_.next_wake() - host::now(), kStuck),
                            [&] { return is_ending_ || !node_.received_.empty(); });
    node_.terms_.clear();
    node_.courses_.clear();
    return std::exchange(node_.received_, {});
  }
  void call(std::int64_t current) {
    member_.next_epoch(
        current, {}, [this](std::int64_t epoch, EpochView, Instant) { called_back(epoch); },
        host::now());
  }
  void called_back(std::int64_t epoch) {
    if (!is_epoch_error(epoch)) {
      const std::lock_guard lock(node_.mutex_);
      ++epochs_;
      node_.changed_.notify_all();
    }
    call(std::max(epoch, kFirstEpoch));
  }

  Node& node_;
  const std::uint32_t term_;
  SliceMember slices_{SliceTerms{}};
  EpochMember member_{{.timeout = seconds{1}, .payload = &slices_}};
  std::uint64_t epochs_ = 0;  // guarded by the mutex of the node, as is_ending_
  bool is_ending_ = false;
  std::thread thread_;
};

// The leader a serves two directly: b and c. The relay of d is b, and of e it is c.
struct EpochTransportTreeTest : ::testing::Test {
  EpochTransportTreeTest() {
    for (const char* const name : {"a", "b", "c", "d", "e"}) add(name);
    nodes["a"]->transport().lead(kTerm, EpochTransport::Before::kNobody, kNever);
    follow(kTerm, "a");
  }
  void add(const std::string& name) {
    nodes[name] = std::make_unique<Node>(name, 1, seconds{10}, 2);
  }
  // Joins this leader, and calls for epochs.
  void join(const std::string& name, std::uint32_t term, const std::string& leader) {
    Node& node = *nodes[name];
    node.transport().follow(term, nodes[leader]->address());
    EXPECT_TRUE(node.wait([&](const Node& it) { return it.state_.leader == leader; })) << name;
    callers[name] = std::make_unique<Caller>(node, term);
  }
  void follow(std::uint32_t term, const std::string& leader) {
    callers.clear();
    for (const auto& [name, node] : nodes) join(name, term, leader);
  }
  void die(const std::string& name) {
    callers.erase(name);
    nodes.erase(name);
  }
  void rounds_of_all(std::uint64_t count) {
    for (const auto& [name, caller] : callers) EXPECT_TRUE(caller->wait_epochs(count)) << name;
  }
  serve::LeaderStatus at_leader(const std::string& leader) {
    std::promise<EpochTransport::Description> described;
    nodes[leader]->transport().describe(
        [&](EpochTransport::Description it) { described.set_value(std::move(it)); });
    return described.get_future().get().leader.value_or(serve::LeaderStatus{});
  }
  // Epochs go on until relays have carried messages; how long their streams take is unknown.
  void rounds_by_relays(const std::string& leader = "a") {
    const std::uint64_t before = at_leader(leader).bundles;
    for (int i = 0; i < 10'000 && at_leader(leader).bundles == before; ++i) rounds_of_all(1);
    EXPECT_GT(at_leader(leader).bundles, before);
  }

  static constexpr std::uint32_t kTerm = 5;
  std::map<std::string, std::unique_ptr<Node>> nodes;
  std::map<std::string, std::unique_ptr<Caller>> callers;
};

TEST_F(EpochTransportTreeTest, RelaysCarryTheMessagesOfTheMembersBelowThem) {
  rounds_by_relays();
  const serve::LeaderStatus before = at_leader("a");
  rounds_of_all(100);
  const serve::LeaderStatus after = at_leader("a");
  EXPECT_GE(after.bundles - before.bundles, (after.rounds - before.rounds) / 2);
}

TEST_F(EpochTransportTreeTest, RoundsGoOnWhenRelaysDieTogether) {
  rounds_by_relays();
  die("b");
  die("c");
  rounds_of_all(10);
}

// By the member that came last, f, and then by e.
TEST_F(EpochTransportTreeTest, ARelayThatDiesIsReplaced) {
  add("f");
  join("f", kTerm, "a");
  rounds_by_relays();
  die("b");
  rounds_by_relays();
  die("c");
  rounds_by_relays();
}

TEST_F(EpochTransportTreeTest, AnotherLeaderMakesAnotherTree) {
  rounds_by_relays();
  nodes["a"]->transport().stop_leading();
  nodes["e"]->transport().lead(kTerm + 1, EpochTransport::Before::kNobody, kNever);
  follow(kTerm + 1, "e");
  rounds_by_relays("e");
}

TEST_F(EpochTransportTreeTest, WhoIsNoMemberIsNotCarried) {
  const std::string relay = nodes["b"]->address();
  const auto status_for = [&](const std::vector<Frame>& frames) {
    return EpochTransportTest::status_of(*nodes["b"], frames);
  };
  Frame hello = EpochTransportTest::hello("x");
  hello.mutable_hello()->set_member(99);
  hello.mutable_hello()->set_term(kTerm + 1);
  EXPECT_EQ(status_for({hello}).error_code(), grpc::StatusCode::UNAVAILABLE) << "another leader";
  hello.mutable_hello()->set_term(kTerm);
  EXPECT_EQ(status_for({hello, EpochTransportTest::bytes("garbage")}).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  Frame bundle;
  bundle.set_bundle("garbage");
  EXPECT_EQ(status_for({hello, bundle}).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  rounds_of_all(1);
}

// The round waits for a, which does not signal again, for longer than a peer may be silent.
TEST_F(EpochTransportTest, AStreamIsKeptWhileTheRoundWaitsForAnotherMember) {
  Node member("b");
  for (Node* const node : {&leader, &member}) {
    node->transport().follow(kTerm, leader.address());
    ASSERT_TRUE(node->wait_joined());
    expect_a_round(*node, 1, "", ClusterLeader::kSilence + std::chrono::milliseconds{200});
  }
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
