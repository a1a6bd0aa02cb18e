// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_transport.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/cluster/credentials.h"
#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/cluster/epoch_greetings_grpc.h"
#include "weir/cluster/epoch_streams_grpc.h"
#include "weir/cluster/epoch_wire.h"
#include "weir/cluster/printable_error.h"
#include "weir/cluster/relay_role_grpc.h"
#include "weir/host/clock.h"
#include "weir/host/entry_lock.h"

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The largest message plus gRPC's overhead.
constexpr int kFrameMax = static_cast<int>(kEpochDataMax + kRoundPayloadMax + 65'536);
constexpr Nanoseconds kRetryMin = milliseconds{50};
constexpr Nanoseconds kRetryMax = seconds{1};
constexpr int kTriesUntilTold = 8;
constexpr auto kDescribeTimeout = seconds{1};
// Bound for letters that other servers can cause without limit: greetings and queries.
constexpr std::size_t kLettersMax = 4096;

// Streams of members, and streams without a hello.
constexpr std::size_t kPeersMax = kEpochMembersMax + 1024;

// Replaces port 0 by the port that the kernel chose.
std::string with_port(const std::string& address, int port) {
  if (!address.ends_with(":0")) return address;
  return fmt::format("{}:{}", address.substr(0, address.rfind(':')), port);
}

// The status sent to a member, which reports it to its administrator.
grpc::Status status_of(const Error& error) {
  switch (error.code) {
    case std::errc::protocol_not_supported:
      return {grpc::StatusCode::FAILED_PRECONDITION, error.message()};
    case std::errc::file_exists:
      return {grpc::StatusCode::ALREADY_EXISTS, error.message()};
    case std::errc::invalid_argument:
      return {grpc::StatusCode::INVALID_ARGUMENT, error.message()};
    default:
      return {grpc::StatusCode::UNAVAILABLE, error.message()};
  }
}
grpc::Status stopping() { return {grpc::StatusCode::UNAVAILABLE, "this server is shutting down"}; }
bool is_refusal(grpc::StatusCode code) {
  return code == grpc::StatusCode::FAILED_PRECONDITION ||
         code == grpc::StatusCode::ALREADY_EXISTS || code == grpc::StatusCode::INVALID_ARGUMENT;
}

// ---- the service ----

// Everything except these calls runs in its thread, or in a thread of gRPC while it waits.
class Transport final : public EpochTransport, private Epochs::CallbackService {
 public:
  Transport(const Options& options, Listener listener, host::Fd wake_fd)
      : options_(options),
        listener_(std::move(listener)),
        letters_(std::move(wake_fd), kLettersMax),
        connections_(options.name),
        relay_(letters_, {.received = [this](const std::string& course,
                                             EpochMessage message) { heard(course, message); },
                          .upwards =
                              [this](Frame frame) {
                                if (link_ != nullptr && link_->is_joined) link_->send(frame);
                              },
                          .stub = [this](const std::string& address) { return stub_of(address); },
                          .say = [this](const std::string& line) { listener_.say(line); }}) {}
  ~Transport() override { stop(); }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  Result<void> open();

  // ---- for every thread ----
  void stop() override;
  std::uint16_t port() const override { return static_cast<std::uint16_t>(port_); }
  std::string address() const override {
    return with_port(options_.address.empty() ? options_.listen : options_.address, port_);
  }
  std::size_t connected() const override { return connected_; }
  Result<std::function<void()>> read_certificates() override;
  void follow(std::uint32_t term, const std::string& address) override {
    put([this, term, address] { start_following(term, address); });
  }
  void send(std::uint32_t term, const std::string& course, EpochMessage message) override {
    put([this, term, course, message = std::move(message)] { pass_on(term, course, message); });
  }
  void lead(std::uint32_t term, Before before, Instant until) override {
    put([this, term, before, until] { start_leading(term, before, until); });
  }
  void confirm(Instant until) override {
    put([this, until] {
      if (leader_) leader_->confirm(until);
    });
  }
  void stop_leading() override {
    put([this] { end_leading(); });
  }
  void set_limits(SliceLimits limits) override {
    put([this, limits = std::move(limits)] {
      if (limits == limits_) return;
      limits_ = limits;
      if (leader_) leader_->reload();
    });
  }
  void set_known(MemberNames names, MemberNames running) override {
    put([this, names = std::move(names), running = std::move(running)] {
      names_ = names;
      running_ = running;
      if (leader_) leader_->set_known(names, running);
    });
  }
  void seek(std::vector<Peer> registered) override {
    put([this, registered = std::move(registered)] { greet_others(registered); });
  }
  void describe(const std::function<void(Description)>& answer) override;

 private:
  struct Asked;

  // ---- in gRPC's threads ----
  grpc::ServerBidiReactor<Frame, Frame>* Join(grpc::CallbackServerContext* context) override {
    return new PeerStream(*context, letters_, peer_events_);
  }
  grpc::ServerUnaryReactor* Greet(grpc::CallbackServerContext* context, const Greeting* greeting,
                                  Greeted* greeted) override;
  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const DescribeRequest* request, DescribeReply* reply) override;

  // Runs it in the thread. False: the thread has stopped.
  bool put(std::function<void()> letter) { return letters_.put_always(std::move(letter)); }

  // ---- in its thread ----
  void run();
  bool read_at_once(PeerStream& stream);
  bool read_at_once(LinkStream& link, const Frame& frame);
  void wake_earlier() ABSL_EXCLUSIVE_LOCKS_REQUIRED(turn_);
  void begin_end();
  bool is_over() const;
  void work();
  Instant wakes_at() const;

  void peer_came(PeerStream& stream);
  void end_silent(Instant now);
  void peer_frame(PeerStream& stream, const Frame& frame);
  void peer_ended(PeerStream& stream);
  void greet(PeerStream& stream, const Hello& hello);
  void hand_out();
  void start_leading(std::uint32_t term, Before before, Instant until);
  void end_leading();

  void greet_others(const std::vector<Peer>& registered);
  void count_connections(Instant now);

  void start_following(std::uint32_t term, const std::string& address);
  void pass_on(std::uint32_t term, const std::string& course, const EpochMessage& message);
  void heard(const std::string& course, EpochMessage message);
  std::unique_ptr<Epochs::Stub> stub_of(const std::string& address);
  Hello hello() const;
  void open_channel();
  void renew(const Credentials::Renewed& renewed);
  void join();
  void link_frame(const Frame& frame);
  void link_ended(LinkStream& link, const grpc::Status& status);
  void say_once(const std::string& line);

  void answer(const std::function<void(Description)>& answer);
  LinkState link_state() const;

  const Options options_;
  const Listener listener_;
  int port_ = 0;
  Letters letters_;
  PeerStream::Events peer_events_;
  LinkStream::Events link_events_;
  std::unique_ptr<Credentials> credentials_;  // declared before the server, which uses it
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
  std::atomic<std::size_t> connected_ = 1;

  // Whoever holds it works on the members below: the thread, or a thread of gRPC that has read a
  // frame of a stream that is among them. Only the thread may free channels.
  host::EntryLock turn_;
  Instant wakes_by_ ABSL_GUARDED_BY(turn_) = kNever;  // the thread, if nothing happens
  bool is_ending_ = false;
  bool is_leaving_ = false;  // no stream is accepted any more

  std::list<std::unique_ptr<PeerStream>> peers_;
  std::map<MemberId, PeerStream*> streams_;  // of members, among peers_
  Instant hello_by_ = kNever;                // the earliest deadline of peers_ that are not members
  SliceLimits limits_;
  std::optional<MemberNames> names_;
  MemberNames running_;
  std::optional<ClusterLeader> leader_;

  Connections connections_;
  std::optional<Greeter> greeter_;
  RelayRole relay_;

  std::uint32_t term_ = 0;  // of the leader that this server follows
  std::string address_;
  std::unique_ptr<Epochs::Stub> stub_;
  LinkStream* link_ = nullptr;  // among links_
  std::list<std::unique_ptr<LinkStream>> links_;
  Instant join_at_ = kNever;
  Nanoseconds retry_ = kRetryMin;
  int tries_ = 0;
  Instant unheard_until_ = kNever;  // a message is unanswered; then the stream is given up
  std::string why_ = "no leader is known";
  bool is_refused_ = false;
  std::string link_leader_;
  std::string said_;

  std::list<std::unique_ptr<Asked>> asked_;
};

template <class Stream>
void remove(std::list<std::unique_ptr<Stream>>& streams, const Stream& stream) {
  streams.remove_if([&](const auto& one) { return one.get() == &stream; });
}

// ---- its thread ----

Result<void> Transport::open() {
  quiet_grpc();
  auto credentials = Credentials::load(options_.tls_directory, Credentials::Use::kBoth);
  if (!credentials) return tl::unexpected(credentials.error());
  credentials_ = *std::move(credentials);
  peer_events_ = {
      .at_once = [this](PeerStream& stream) { return read_at_once(stream); },
      .came = [this](PeerStream& stream) { peer_came(stream); },
      .frame = [this](PeerStream& stream, const Frame& frame) { peer_frame(stream, frame); },
      .ended = [this](PeerStream& stream) { peer_ended(stream); },
      .over = [this](PeerStream& stream) { remove(peers_, stream); }};
  link_events_ = {
      .at_once = [this](LinkStream& link, const Frame& frame) { return read_at_once(link, frame); },
      .frame =
          [this](LinkStream& link, const Frame& frame) {
            if (&link == link_) link_frame(frame);
          },
      .ended =
          [this](LinkStream& link, const grpc::Status& status) {
            link_ended(link, status);
            remove(links_, link);
          }};
  Greeting own;
  own.set_name(options_.name);
  own.set_incarnation(options_.incarnation);
  greeter_.emplace(std::move(own), *credentials_, letters_);
  grpc::ServerBuilder builder;
  // Two servers on one port would divide the members between them.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  bound_connections(builder);
  builder.SetMaxReceiveMessageSize(kFrameMax);
  builder.AddListeningPort(options_.listen, credentials_->server(), &port_);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    server_.reset();
    return fail(std::errc::address_in_use, "cluster: " + quote(options_.listen),
                "cannot listen on this address", "set another address or port in [cluster] listen");
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

// The thread reads letters until gRPC has ended all its operations.
void Transport::stop() {
  if (!thread_.joinable()) return;
  (void)put([this] { begin_end(); });
  server_->Shutdown(std::chrono::system_clock::now());
  (void)put([this] { is_leaving_ = true; });
  thread_.join();
}

void Transport::begin_end() {
  is_ending_ = true;
  join_at_ = kNever;
  end_leading();
  greeter_->close();
  relay_.close();
  for (const auto& link : links_) link->close();
  for (const auto& stream : peers_) stream->finish(stopping());
}

void Transport::run() {
  Instant at = host::now();
  for (bool is_done = false; !is_done;) {
    letters_.wait(at);
    turn_.lock();
    for (const std::function<void()>& letter : letters_.take()) letter();
    if (!is_ending_) work();
    at = wakes_by_ = is_ending_ ? kNever : wakes_at();
    is_done = is_leaving_ && is_over();
    turn_.unlock();
  }
  for (const std::function<void()>& letter : letters_.close()) letter();
}

bool Transport::is_over() const {
  return asked_.empty() && greeter_->is_over() && relay_.is_over() && peers_.empty() &&
         links_.empty();
}

void Transport::work() {
  const Instant now = host::now();
  if (leader_) {
    leader_->tick(now);
    hand_out();
  }
  end_silent(now);
  relay_.tick(now);
  greeter_->tick(now);
  count_connections(now);
  if (now >= unheard_until_ && link_ != nullptr) {
    unheard_until_ = kNever;
    link_->close();
  }
  if (now >= join_at_) join();
}

Instant Transport::wakes_at() const {
  Instant at = std::min({join_at_, hello_by_, relay_.next_wake()});
  at = std::min({at, unheard_until_, greeter_->next_wake()});
  return leader_ ? std::min(at, leader_->next_wake()) : at;
}

// ---- in gRPC's threads ----

// A frame of a member, as a letter otherwise: then nobody waits for the thread, and its members'
// answers are sent from here.
bool Transport::read_at_once(PeerStream& stream) {
  if (!turn_.try_lock()) return false;
  const bool is_known = !is_ending_ && (stream.member != 0 || stream.child != 0);
  if (is_known) {
    stream.read_done(true);
    if (leader_) hand_out();
    relay_.tick(host::now());
    wake_earlier();
  }
  turn_.unlock();
  return is_known;
}

// Only answers: whatever else a leader sends may open or close streams.
bool Transport::read_at_once(LinkStream& link, const Frame& frame) {
  if (!turn_.try_lock()) return false;
  const bool is_answer = !is_ending_ && &link == link_ && link.is_joined &&
                         (frame.has_message() || frame.has_bundle());
  if (is_answer) link.read_done(true);
  turn_.unlock();
  return is_answer;
}

// The thread sleeps until wakes_by_.
void Transport::wake_earlier() {
  if (wakes_at() >= wakes_by_) return;
  wakes_by_ = wakes_at();
  (void)put([] {});
}

// ---- a leader's part ----

void Transport::peer_came(PeerStream& stream) {
  peers_.emplace_back(&stream);
  if (is_ending_) return stream.finish(stopping());
  if (peers_.size() > kPeersMax) {
    return stream.finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many streams are open"});
  }
  stream.hello_by = host::now() + options_.hello_time;
  hello_by_ = std::min(hello_by_, stream.hello_by);
}

void Transport::end_silent(Instant now) {
  if (now < hello_by_) return;
  hello_by_ = kNever;
  for (const auto& stream : peers_) {
    if (stream->member != 0 || stream->child != 0) continue;
    if (stream->hello_by <= now) {
      stream->finish({grpc::StatusCode::DEADLINE_EXCEEDED, "expected a hello"});
    } else {
      hello_by_ = std::min(hello_by_, stream->hello_by);
    }
  }
}

void Transport::start_leading(std::uint32_t term, Before before, Instant until) {
  end_leading();
  leader_.emplace(ClusterLeader::Options{.name = options_.name,
                                         .term = term,
                                         .is_first = before == Before::kNobody,
                                         .terms = options_.terms,
                                         .fanout = options_.fanout},
                  limits_, host::now());
  if (names_) leader_->set_known(*names_, running_);
  leader_->confirm(until);
  connected_ = 1;  // until members have joined
}

void Transport::end_leading() {
  if (!leader_) return;
  leader_.reset();
  for (const auto& [id, stream] : std::exchange(streams_, {})) {
    stream->member = 0;
    stream->finish({grpc::StatusCode::UNAVAILABLE, "this server is no longer the leader"});
  }
}

// ---- a candidate's part ----

// Answered at once with an empty reply. If peers greet faster than they are counted, they are
// counted a little later.
grpc::ServerUnaryReactor* Transport::Greet(grpc::CallbackServerContext* context,
                                           const Greeting* greeting, Greeted*) {
  (void)letters_.put([this, name = greeting->name(), incarnation = greeting->incarnation()] {
    connections_.greeted(name, incarnation, host::now());
  });
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void Transport::greet_others(const std::vector<Peer>& registered) {
  if (is_ending_) return;
  std::vector<Peer> others;
  std::copy_if(registered.begin(), registered.end(), std::back_inserter(others),
               [&](const Peer& peer) { return peer.name != options_.name; });
  connections_.set_peers(others);
  greeter_->set_peers(others, host::now());
}

void Transport::count_connections(Instant now) {
  const std::size_t count = leader_                 ? leader_->connected(now)
                            : greeter_->has_peers() ? connections_.count(now)
                                                    : 1;
  const std::size_t before = connected_.exchange(count);
  if (!leader_ && count > before) listener_.connected();
}

void Transport::greet(PeerStream& stream, const Hello& hello) {
  if (hello.member() != 0) return relay_.accept(stream, hello);
  if (!leader_) {
    return stream.finish({grpc::StatusCode::UNAVAILABLE, options_.name + " is not the leader"});
  }
  const auto welcome = leader_->greet(
      {.protocol = hello.protocol(),
       .name = hello.name(),
       .incarnation = hello.incarnation(),
       .term = hello.term(),
       .partition = hello.partition() == Hello::LAST ? Partition::kLast : Partition::kSafe,
       .address = hello.address()},
      host::now());
  if (!welcome) return stream.finish(status_of(welcome.error()));
  if (welcome->replaced != 0) {
    PeerStream& old = *streams_.extract(welcome->replaced).mapped();
    old.member = 0;
    old.finish({grpc::StatusCode::ABORTED, "the member has connected again"});
  }
  stream.member = welcome->id;
  streams_[stream.member] = &stream;
  Frame answer;
  answer.mutable_hello()->set_protocol(kEpochProtocol);
  answer.mutable_hello()->set_name(options_.name);
  answer.mutable_hello()->set_term(leader_->term());
  answer.mutable_hello()->set_member(stream.member);
  stream.send(std::move(answer));
}

void Transport::peer_frame(PeerStream& stream, const Frame& frame) {
  const Instant now = host::now();
  if (stream.child != 0) return relay_.child_frame(stream, frame, now);
  if (stream.member == 0) {
    if (frame.has_hello()) return greet(stream, frame.hello());
    return stream.finish({grpc::StatusCode::INVALID_ARGUMENT, "expected a hello first"});
  }
  const auto received =
      frame.has_bundle()
          ? leader_->receive_bundle(stream.member, view_of(frame.bundle()), now)
          : leader_->receive(stream.member, frame.course(), view_of(frame.message()), now);
  if (received) return;
  listener_.say(fmt::format("cluster: member {} sent a malformed message and is evicted: {}",
                            quote(leader_->name_of(stream.member)), received.error().message()));
  peer_ended(stream);
  stream.finish({grpc::StatusCode::INVALID_ARGUMENT, received.error().message()});
}

void Transport::peer_ended(PeerStream& stream) {
  if (stream.child != 0) return relay_.child_ended(stream);
  const MemberId id = std::exchange(stream.member, 0);
  if (id == 0 || !leader_) return;
  streams_.erase(id);
  leader_->ended(id, host::now());
}

// Answers for the members below a relay are one bundle for the relay.
void Transport::hand_out() {
  std::map<MemberId, EpochBundle> by_way;
  for (const auto& [to, course, message] : leader_->take_outgoing()) {
    by_way[leader_->way_to(to)].push_back({to, course, encode(message)});
  }
  for (auto& [way, bundle] : by_way) {
    const auto found = streams_.find(way);
    if (found == streams_.end()) continue;
    for (Frame& frame : frames_of(std::move(bundle), way)) found->second->send(std::move(frame));
  }
  for (const ClusterLeader::Route& route : leader_->take_routes()) {
    const auto found = streams_.find(route.to);
    if (found == streams_.end()) continue;
    Frame frame;
    frame.mutable_route()->set_address(route.address);
    found->second->send(std::move(frame));
  }
}

// ---- a member's part ----

void Transport::start_following(std::uint32_t term, const std::string& address) {
  if (term == term_ && address == address_) return;
  if (link_ != nullptr) link_->close();
  link_ = nullptr;
  relay_.left();
  unheard_until_ = kNever;
  term_ = term;
  is_refused_ = false;
  tries_ = 0;
  retry_ = kRetryMin;
  if (term == 0) {
    why_ = "no leader is known";
    join_at_ = kNever;
    address_.clear();
    return;
  }
  why_ = "the leader has not been reached yet";
  listener_.joined(link_state());
  if (address != address_ || stub_ == nullptr) {
    address_ = address;
    open_channel();
  }
  join_at_ = host::now();
}

// With the current certificates. An open stream keeps its own.
std::unique_ptr<Epochs::Stub> Transport::stub_of(const std::string& address) {
  return Epochs::NewStub(
      grpc::CreateCustomChannel(address, credentials_->channel(), peer_channel_arguments()));
}

void Transport::open_channel() { stub_ = stub_of(address_); }

void Transport::renew(const Credentials::Renewed& renewed) {
  if (!credentials_->use(renewed)) return;
  greeter_->renew();
  if (stub_ != nullptr && !address_.empty()) open_channel();
}

void Transport::join() {
  join_at_ = kNever;
  if (is_ending_ || term_ == 0) return;
  ++tries_;
  links_.push_back(std::make_unique<LinkStream>(*stub_, letters_, hello(), link_events_));
  link_ = links_.back().get();
}

Hello Transport::hello() const {
  Hello hello;
  hello.set_protocol(kEpochProtocol);
  hello.set_name(options_.name);
  hello.set_incarnation(options_.incarnation);
  hello.set_term(term_);
  hello.set_partition(options_.terms.partition == Partition::kLast ? Hello::LAST : Hello::SAFE);
  hello.set_address(address());
  return hello;
}

void Transport::link_frame(const Frame& frame) {
  unheard_until_ = kNever;
  if (!link_->is_joined) {
    if (!frame.has_hello()) return link_->close();
    link_->is_joined = true;
    link_leader_ = frame.hello().name();
    is_refused_ = false;
    tries_ = 0;
    retry_ = kRetryMin;
    why_.clear();
    said_.clear();
    if (frame.hello().member() != 0) relay_.joined(hello(), frame.hello().member());
    return listener_.joined(link_state());
  }
  if (frame.has_route()) return relay_.route(frame.route().address(), host::now());
  if (frame.has_bundle()) {
    if (relay_.down(view_of(frame.bundle()))) return;
    say_once("cluster: the leader sent a malformed bundle");
    return link_->close();
  }
  auto message = decode(view_of(frame.message()));
  if (!message) {
    say_once(
        fmt::format("cluster: the leader sent a malformed message: {}", message.error().message()));
    return link_->close();
  }
  relay_.answered(frame.course(), *message, EpochWay::Way::kLeader);
  heard(frame.course(), std::move(*message));
}

// From the leader, or from it by a relay.
void Transport::heard(const std::string& course, EpochMessage message) {
  unheard_until_ = kNever;
  listener_.received(term_, course, std::move(message));
}

void Transport::link_ended(LinkStream& link, const grpc::Status& status) {
  if (&link != link_) return;
  link_ = nullptr;
  relay_.left();
  unheard_until_ = kNever;
  is_refused_ = is_refusal(status.error_code());
  const std::string reason = printable_error(status.error_message());
  why_ = is_refused_ ? reason : fmt::format("the leader at {}: {}", address_, reason);
  if (is_refused_ || tries_ == kTriesUntilTold) say_once("cluster: not joined: " + why_);
  retry_ = is_refused_ ? kRetryMax : std::min(retry_ * 2, kRetryMax);
  join_at_ = host::now() + retry_;
  listener_.joined(link_state());
}

void Transport::say_once(const std::string& line) {
  if (line == said_) return;
  said_ = line;
  listener_.say(line);
}

void Transport::pass_on(std::uint32_t term, const std::string& course,
                        const EpochMessage& message) {
  if (term != term_ || link_ == nullptr || !link_->is_joined) return;
  if (!relay_.send(course, message, host::now())) {
    link_->send(frame_of_bytes(course, encode(message)));
  }
  if (const auto* const ready = std::get_if<Ready>(&message)) {
    const Nanoseconds patience = ready->timeout + ClusterLeader::kSilence;
    unheard_until_ = std::min(unheard_until_, host::now() + patience);
  }
}

// ---- status ----

// Another server asks this one.
grpc::ServerUnaryReactor* Transport::Describe(grpc::CallbackServerContext* context,
                                              const DescribeRequest*, DescribeReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const host::Put asked = letters_.put([this, reactor, reply] {
    if (!leader_) {
      return reactor->Finish({grpc::StatusCode::UNAVAILABLE, "this server is not the leader"});
    }
    to_wire(leader_->describe(host::now()), *reply);
    reactor->Finish(grpc::Status::OK);
  });
  if (asked != host::Put::kDone) {
    reactor->Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many requests to this server"});
  }
  return reactor;
}

// This server asks the leader.
struct Transport::Asked {
  grpc::ClientContext context;
  DescribeRequest request;
  DescribeReply reply;
};

EpochTransport::LinkState Transport::link_state() const {
  const bool is_joined = link_ != nullptr && link_->is_joined;
  return {is_joined, is_refused_, why_, is_joined ? link_leader_ : ""};
}

void Transport::describe(const std::function<void(Description)>& answer) {
  if (put([this, answer] { this->answer(answer); })) return;
  answer({{}, fail(std::errc::operation_canceled, "cluster", "this server is leaving it")});
}

void Transport::answer(const std::function<void(Description)>& answer) {
  if (leader_) return answer({link_state(), leader_->describe(host::now())});
  if (is_ending_ || term_ == 0) {
    return answer({link_state(), fail(std::errc::host_unreachable, "leader", "is not known")});
  }
  Asked& asked = *asked_.emplace_back(std::make_unique<Asked>());
  asked.context.set_deadline(std::chrono::system_clock::now() + kDescribeTimeout);
  const auto came = [this, &asked, answer](const grpc::Status& status) {
    if (status.ok()) {
      answer({link_state(), from_wire(asked.reply)});
    } else {
      answer({link_state(), fail(std::errc::host_unreachable, "leader",
                                 printable_error(status.error_message()))});
    }
    remove(asked_, asked);
  };
  stub_->async()->Describe(&asked.context, &asked.request, &asked.reply,
                           [this, came](const grpc::Status& status) {
                             tell(letters_, [came, status] { came(status); });
                           });
}

Result<std::function<void()>> Transport::read_certificates() {
  auto renewed = credentials_->read_again();
  if (!renewed) return tl::unexpected(renewed.error());
  return std::function<void()>(
      [this, renewed = *std::move(renewed)] { (void)put([this, renewed] { renew(renewed); }); });
}

}  // namespace

Result<std::unique_ptr<EpochTransport>> EpochTransport::create(const Options& options,
                                                               Listener listener) {
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  auto transport = std::make_unique<Transport>(options, std::move(listener), *std::move(wake_fd));
  if (auto opened = transport->open(); !opened) return tl::unexpected(opened.error());
  return transport;
}

}  // namespace weir::cluster
