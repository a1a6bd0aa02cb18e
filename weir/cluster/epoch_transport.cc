// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/epoch_transport.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/cluster/credentials.h"
#include "weir/cluster/epoch.grpc.pb.h"
#include "weir/cluster/epoch_greetings_grpc.h"
#include "weir/cluster/epoch_streams_grpc.h"
#include "weir/cluster/peer_words.h"
#include "weir/host/clock.h"

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// More than the largest message and what gRPC puts around it.
constexpr int kFrameMax = static_cast<int>(kEpochDataMax + kEpochRiderMax + 65'536);
constexpr Nanoseconds kRetryMin = milliseconds{50};
constexpr Nanoseconds kRetryMax = seconds{1};
constexpr int kTriesUntilTold = 8;
constexpr auto kDescribeTimeout = seconds{1};

EpochView view_of(const std::string& bytes) { return std::as_bytes(std::span(bytes)); }

Frame frame_of(const std::string& course, const EpochMessage& message) {
  const EpochBytes bytes = encode(message);
  Frame frame;
  frame.set_course(course);
  frame.set_message(bytes.data(), bytes.size());
  return frame;
}

// What a member is told, who tells its administrator.
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
bool is_refusal(grpc::StatusCode code) {
  return code == grpc::StatusCode::FAILED_PRECONDITION ||
         code == grpc::StatusCode::ALREADY_EXISTS || code == grpc::StatusCode::INVALID_ARGUMENT;
}

DescribeReply reply_of(const LeaderPart& part) {
  DescribeReply reply;
  reply.set_term(part.term);
  reply.set_epoch(part.epoch);
  reply.set_rounds(part.rounds);
  reply.set_evictions(part.evictions);
  reply.set_refused(part.refused);
  reply.set_garbage(part.garbage);
  reply.set_round_median_ns(part.round_median.count());
  reply.set_round_p99_ns(part.round_p99.count());
  for (const LeaderPart::Member& one : part.members) {
    DescribeReply::Member& member = *reply.add_members();
    member.set_name(one.name);
    member.set_is_joined(one.is_joined);
    for (const SliceLeader::InUse& used : one.slices) {
      DescribeReply::Slice& slice = *member.add_slices();
      slice.set_of(used.of);
      slice.set_milli(used.milli);
      slice.set_is_cut_off(!used.is_leased);
    }
  }
  for (const LeaderPart::Course& one : part.courses) {
    DescribeReply::Course& course = *reply.add_courses();
    course.set_name(one.name);
    course.set_epoch(one.epoch);
    course.set_rounds(one.rounds);
    course.set_evictions(one.evictions);
    course.set_members(one.members);
  }
  return reply;
}

LeaderPart part_of(const DescribeReply& reply) {
  LeaderPart part{.term = reply.term(),
                  .epoch = reply.epoch(),
                  .rounds = reply.rounds(),
                  .evictions = reply.evictions(),
                  .refused = reply.refused(),
                  .garbage = reply.garbage(),
                  .round_median = Nanoseconds{reply.round_median_ns()},
                  .round_p99 = Nanoseconds{reply.round_p99_ns()},
                  .members = {},
                  .courses = {}};
  part.members.reserve(static_cast<std::size_t>(reply.members_size()));
  for (const DescribeReply::Member& one : reply.members()) {
    LeaderPart::Member member{.name = one.name(), .is_joined = one.is_joined(), .slices = {}};
    for (const DescribeReply::Slice& slice : one.slices()) {
      member.slices.push_back({slice.of(), slice.milli(), !slice.is_cut_off()});
    }
    part.members.push_back(std::move(member));
  }
  part.courses.reserve(static_cast<std::size_t>(reply.courses_size()));
  for (const DescribeReply::Course& one : reply.courses()) {
    part.courses.push_back({one.name(), one.epoch(), one.rounds(), one.evictions(), one.members()});
  }
  return part;
}

}  // namespace

// Everything but put() happens in its thread.
class EpochTransport::Core {
 public:
  Core(const Options& options, Listener listener)
      : options_(options), listener_(std::move(listener)), connections_(options.name) {}

  Result<void> open();
  void end();
  std::uint16_t port() const { return static_cast<std::uint16_t>(port_); }
  std::size_t connected() const { return connected_; }

  // For every thread: runs it there. False: it has stopped, and will not.
  bool put(std::function<void()> letter);

  void follow(std::uint32_t term, const std::string& address);
  void send(std::uint32_t term, const std::string& course, const EpochMessage& message);
  void lead(std::uint32_t term, Before before, Instant until);
  void confirm(Instant until);
  void unseat();
  void set_limits(SliceLimits limits);
  void set_known(const MemberNames& names, const MemberNames& running);
  void seek(const std::vector<Peer>& registered);
  void describe(const std::function<void(Description)>& answer);
  void renew(const Credentials::Renewed& renewed);
  // For every thread.
  const Credentials& credentials() const { return *credentials_; }

 private:
  struct Question;
  struct Answer;

  void run();
  bool is_over() const;
  void take_letters();
  void work();
  Instant wakes_at() const;
  gpr_timespec deadline() const;

  void accept();
  void peer_frame(PeerStream& stream, const Frame& frame);
  void peer_ended(PeerStream& stream);
  void open_greetings();
  void greet(PeerStream& stream, const Hello& hello);
  void hand_out();

  void open_channel();
  void join();
  void link_frame(const Frame& frame);
  void link_ended(LinkStream& link, const grpc::Status& status);
  void say_once(const std::string& line);

  void count_connections(Instant now);

  void await_question();
  LinkState link_state() const;

  Options options_;
  Listener listener_;
  int port_ = 0;
  Epochs::AsyncService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<Credentials> credentials_;  // before the server, which asks it
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::function<void()>> letters_;
  bool is_closed_ = false;  // no more letters
  bool is_ending_ = false;

  PeerStream::Events peer_events_;
  std::list<std::unique_ptr<PeerStream>> peers_;
  std::map<MemberId, PeerStream*> streams_;  // of members, among peers_
  SliceLimits limits_;
  std::optional<MemberNames> names_;
  MemberNames running_;
  std::optional<EpochSeat> seat_;

  Connections connections_;
  std::optional<GreetingDoor> door_;
  std::optional<Greeter> greeter_;
  std::atomic<std::size_t> connected_ = 1;

  LinkStream::Events link_events_;
  std::uint32_t term_ = 0;  // of whom we follow
  std::string address_;
  std::unique_ptr<Epochs::Stub> stub_;
  LinkStream* link_ = nullptr;  // among links_
  std::list<std::unique_ptr<LinkStream>> links_;
  Instant join_at_ = kNever;
  Nanoseconds retry_ = kRetryMin;
  int tries_ = 0;
  Instant unheard_since_ = kNever;  // we have said something that was not answered
  std::string why_ = "no leader is known";
  bool is_refused_ = false;
  std::string link_leader_;
  std::string said_;

  std::list<std::unique_ptr<Question>> questions_;
  std::list<std::unique_ptr<Answer>> answers_;
};

// ---- its thread ----

Result<void> EpochTransport::Core::open() {
  quiet_grpc();
  auto credentials = Credentials::load(options_.tls_directory, Credentials::Use::kBoth);
  if (!credentials) return tl::unexpected(credentials.error());
  credentials_ = *std::move(credentials);
  peer_events_ = {
      .accepted = [this](PeerStream&) { accept(); },
      .frame = [this](PeerStream& stream, const Frame& frame) { peer_frame(stream, frame); },
      .ended = [this](PeerStream& stream) { peer_ended(stream); }};
  link_events_ = {
      .frame =
          [this](LinkStream& link, const Frame& frame) {
            if (&link == link_) link_frame(frame);
          },
      .ended = [this](LinkStream& link, const grpc::Status& status) { link_ended(link, status); }};
  grpc::ServerBuilder builder;
  // Two servers on one port would each get some of the members.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kFrameMax);
  builder.AddListeningPort(options_.listen, credentials_->server(), &port_);
  builder.RegisterService(&service_);
  queue_ = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    server_.reset();
    queue_->Shutdown();
    return fail(std::errc::address_in_use, "cluster: " + quote(options_.listen),
                "cannot be listened on", "choose another address or port for [cluster] listen");
  }
  accept();
  await_question();
  open_greetings();
  thread_ = std::thread([this] { run(); });
  return {};
}

void EpochTransport::Core::end() {
  if (!thread_.joinable()) return;
  put([this] {
    is_ending_ = true;
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
  });
  thread_.join();
}

bool EpochTransport::Core::put(std::function<void()> letter) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return false;
  letters_.push_back(std::move(letter));
  if (letters_.size() > 1) return true;
  // An alarm that is due at once is the way into a completion queue.
  auto alarm = std::make_shared<grpc::Alarm>();
  auto* const tag = new Tag;
  tag->done = [this, alarm, tag](bool) {
    const std::unique_ptr<Tag> owned(tag);
    take_letters();
  };
  alarm->Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), tag);
  return true;
}

void EpochTransport::Core::take_letters() {
  std::vector<std::function<void()>> letters;
  {
    const std::lock_guard lock(mutex_);
    letters.swap(letters_);
  }
  for (const auto& letter : letters) letter();
}

void EpochTransport::Core::run() {
  void* tag = nullptr;
  bool is_ok = false;
  while (!is_ending_) {
    const auto next = queue_->AsyncNext(&tag, &is_ok, deadline());
    if (next == grpc::CompletionQueue::GOT_EVENT) static_cast<Tag*>(tag)->done(is_ok);
    work();
  }
  unseat();
  greeter_->close();
  for (const auto& link : links_) link->close();
  server_->Shutdown(std::chrono::system_clock::now());
  // Streams end in several steps, and a queue that has been shut takes no more of them.
  while (!is_over() && queue_->Next(&tag, &is_ok)) static_cast<Tag*>(tag)->done(is_ok);
  queue_->Shutdown();
  while (queue_->Next(&tag, &is_ok)) static_cast<Tag*>(tag)->done(is_ok);
}

void EpochTransport::Core::work() {
  const Instant now = host::now();
  if (seat_) {
    seat_->tick(now);
    hand_out();
  }
  greeter_->tick(now);
  count_connections(now);
  if (now - EpochSeat::kSilence >= unheard_since_ && link_ != nullptr) {
    unheard_since_ = kNever;
    link_->close();
  }
  if (now >= join_at_) join();
  peers_.remove_if([](const auto& stream) { return stream->is_over(); });
  links_.remove_if([](const auto& link) { return link->is_over(); });
}

Instant EpochTransport::Core::wakes_at() const {
  Instant at = join_at_;
  if (unheard_since_ != kNever) at = std::min(at, unheard_since_ + EpochSeat::kSilence);
  at = std::min(at, greeter_->next_wake());
  return seat_ ? std::min(at, seat_->next_wake()) : at;
}

gpr_timespec EpochTransport::Core::deadline() const {
  const Instant at = wakes_at();
  if (at == kNever) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  const Nanoseconds left = std::max<Nanoseconds>(at - host::now(), Nanoseconds{0});
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(left.count(), GPR_TIMESPAN));
}

// ---- a leader's part ----

void EpochTransport::Core::accept() {
  if (is_ending_) return;
  peers_.push_back(std::make_unique<PeerStream>(service_, *queue_, peer_events_));
}

void EpochTransport::Core::lead(std::uint32_t term, Before before, Instant until) {
  unseat();
  seat_.emplace(EpochSeat::Options{.name = options_.name,
                                   .term = term,
                                   .is_first = before == Before::kNobody,
                                   .terms = options_.terms},
                limits_, host::now());
  if (names_) seat_->set_known(*names_, running_);
  seat_->confirm(until);
  connected_ = 1;  // until they have come
}

void EpochTransport::Core::confirm(Instant until) {
  if (seat_) seat_->confirm(until);
}

void EpochTransport::Core::unseat() {
  if (!seat_) return;
  seat_.reset();
  for (const auto& [id, stream] : std::exchange(streams_, {})) {
    stream->member = 0;
    stream->finish({grpc::StatusCode::UNAVAILABLE, "this server does not lead any more"});
  }
}

void EpochTransport::Core::set_limits(SliceLimits limits) {
  if (limits == limits_) return;
  limits_ = std::move(limits);
  if (seat_) seat_->reload();
}

void EpochTransport::Core::set_known(const MemberNames& names, const MemberNames& running) {
  names_ = names;
  running_ = running;
  if (seat_) seat_->set_known(names, running);
}

// ---- a candidate's part ----

void EpochTransport::Core::open_greetings() {
  door_.emplace(service_, *queue_, [this](const Greeting& greeting) {
    connections_.greeted(greeting.name(), greeting.incarnation(), host::now());
  });
  door_->open();
  Greeting own;
  own.set_name(options_.name);
  own.set_incarnation(options_.incarnation);
  greeter_.emplace(std::move(own), *credentials_, *queue_);
}

void EpochTransport::Core::seek(const std::vector<Peer>& registered) {
  if (is_ending_) return;
  std::vector<Peer> others;
  std::copy_if(registered.begin(), registered.end(), std::back_inserter(others),
               [&](const Peer& peer) { return peer.name != options_.name; });
  connections_.set_peers(others);
  greeter_->set_peers(others, host::now());
}

void EpochTransport::Core::count_connections(Instant now) {
  const std::size_t count = seat_                   ? seat_->connected(now)
                            : greeter_->has_peers() ? connections_.count(now)
                                                    : 1;
  const std::size_t before = connected_.exchange(count);
  if (!seat_ && count > before) listener_.connected();
}

void EpochTransport::Core::greet(PeerStream& stream, const Hello& hello) {
  if (!seat_) {
    return stream.finish({grpc::StatusCode::UNAVAILABLE, options_.name + " does not lead"});
  }
  const auto welcome = seat_->greet({.protocol = hello.protocol(),
                                     .name = hello.name(),
                                     .incarnation = hello.incarnation(),
                                     .term = hello.term()},
                                    host::now());
  if (!welcome) return stream.finish(status_of(welcome.error()));
  if (welcome->replaced != 0) {
    PeerStream& old = *streams_.extract(welcome->replaced).mapped();
    old.member = 0;
    old.finish({grpc::StatusCode::ABORTED, "the member has come again"});
  }
  stream.member = welcome->id;
  streams_[stream.member] = &stream;
  Frame answer;
  answer.mutable_hello()->set_protocol(kEpochProtocol);
  answer.mutable_hello()->set_name(options_.name);
  answer.mutable_hello()->set_term(seat_->term());
  stream.send(std::move(answer));
}

void EpochTransport::Core::peer_frame(PeerStream& stream, const Frame& frame) {
  if (stream.member == 0) {
    if (frame.has_hello()) return greet(stream, frame.hello());
    return stream.finish({grpc::StatusCode::INVALID_ARGUMENT, "expected a hello first"});
  }
  const auto received =
      seat_->receive(stream.member, frame.course(), view_of(frame.message()), host::now());
  if (received) return;
  listener_.say(fmt::format("cluster: member {} sent what is no message and is evicted: {}",
                            quote(seat_->name_of(stream.member)), received.error().message()));
  peer_ended(stream);
  stream.finish({grpc::StatusCode::INVALID_ARGUMENT, received.error().message()});
}

void EpochTransport::Core::peer_ended(PeerStream& stream) {
  const MemberId id = std::exchange(stream.member, 0);
  if (id == 0 || !seat_) return;
  streams_.erase(id);
  seat_->ended(id, host::now());
}

void EpochTransport::Core::hand_out() {
  for (const auto& [to, course, message] : seat_->take_outgoing()) {
    const auto found = streams_.find(to);
    if (found != streams_.end()) found->second->send(frame_of(course, message));
  }
}

// ---- a member's part ----

void EpochTransport::Core::follow(std::uint32_t term, const std::string& address) {
  if (term == term_ && address == address_) return;
  if (link_ != nullptr) link_->close();
  link_ = nullptr;
  unheard_since_ = kNever;
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
  why_ = "the leader was not reached yet";
  listener_.joined(link_state());
  if (address != address_ || stub_ == nullptr) {
    address_ = address;
    open_channel();
  }
  join_at_ = host::now();
}

// The way to the leader, with the certificates of now. A stream that stands keeps its own.
void EpochTransport::Core::open_channel() {
  stub_ = Epochs::NewStub(
      grpc::CreateCustomChannel(address_, credentials_->channel(), peer_channel_arguments()));
}

void EpochTransport::Core::renew(const Credentials::Renewed& renewed) {
  if (!credentials_->use(renewed)) return;
  greeter_->renew();
  if (stub_ != nullptr && !address_.empty()) open_channel();
}

void EpochTransport::Core::join() {
  join_at_ = kNever;
  if (is_ending_ || term_ == 0) return;
  ++tries_;
  Hello hello;
  hello.set_protocol(kEpochProtocol);
  hello.set_name(options_.name);
  hello.set_incarnation(options_.incarnation);
  hello.set_term(term_);
  links_.push_back(std::make_unique<LinkStream>(*stub_, *queue_, hello, link_events_));
  link_ = links_.back().get();
}

void EpochTransport::Core::link_frame(const Frame& frame) {
  unheard_since_ = kNever;
  if (!link_->is_joined) {
    if (!frame.has_hello()) return link_->close();
    link_->is_joined = true;
    link_leader_ = frame.hello().name();
    is_refused_ = false;
    tries_ = 0;
    retry_ = kRetryMin;
    why_.clear();
    said_.clear();
    return listener_.joined(link_state());
  }
  auto message = decode(view_of(frame.message()));
  if (!message) {
    say_once(
        fmt::format("cluster: the leader sent what is no message: {}", message.error().message()));
    return link_->close();
  }
  listener_.received(term_, frame.course(), std::move(*message));
}

void EpochTransport::Core::link_ended(LinkStream& link, const grpc::Status& status) {
  if (&link != link_) return;
  link_ = nullptr;
  unheard_since_ = kNever;
  is_refused_ = is_refusal(status.error_code());
  const std::string reason = peer_words(status.error_message());
  why_ = is_refused_ ? reason : fmt::format("the leader at {}: {}", address_, reason);
  if (is_refused_ || tries_ == kTriesUntilTold) say_once("cluster: not joined: " + why_);
  retry_ = is_refused_ ? kRetryMax : std::min(retry_ * 2, kRetryMax);
  join_at_ = host::now() + retry_;
  listener_.joined(link_state());
}

void EpochTransport::Core::say_once(const std::string& line) {
  if (line == said_) return;
  said_ = line;
  listener_.say(line);
}

void EpochTransport::Core::send(std::uint32_t term, const std::string& course,
                                const EpochMessage& message) {
  if (term != term_ || link_ == nullptr || !link_->is_joined) return;
  link_->send(frame_of(course, message));
  if (std::holds_alternative<Ready>(message) && unheard_since_ == kNever) {
    unheard_since_ = host::now();
  }
}

// ---- what there is to tell ----

// Somebody asks us.
struct EpochTransport::Core::Question {
  grpc::ServerContext context;
  DescribeRequest request;
  grpc::ServerAsyncResponseWriter<DescribeReply> writer{&context};
  Tag came;
  Tag answered;
  bool is_over = false;
};
// We ask the leader.
struct EpochTransport::Core::Answer {
  grpc::ClientContext context;
  DescribeReply reply;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<DescribeReply>> reader;
  Tag came;
};

void EpochTransport::Core::await_question() {
  if (is_ending_) return;
  questions_.remove_if([](const auto& one) { return one->is_over; });
  auto& question = *questions_.emplace_back(std::make_unique<Question>());
  question.answered.done = [&question](bool) { question.is_over = true; };
  question.came.done = [this, &question](bool is_ok) {
    if (!is_ok) {
      question.is_over = true;
      return;
    }
    await_question();
    if (seat_) {
      question.writer.Finish(reply_of(seat_->describe(host::now())), grpc::Status::OK,
                             &question.answered);
    } else {
      question.writer.FinishWithError({grpc::StatusCode::UNAVAILABLE, "this server does not lead"},
                                      &question.answered);
    }
  };
  service_.RequestDescribe(&question.context, &question.request, &question.writer, queue_.get(),
                           queue_.get(), &question.came);
}

// All that was begun has ended.
bool EpochTransport::Core::is_over() const {
  const auto has_ended = [](const auto& one) { return one->is_over(); };
  return answers_.empty() && door_->is_over() && greeter_->is_over() &&
         std::all_of(peers_.begin(), peers_.end(), has_ended) &&
         std::all_of(links_.begin(), links_.end(), has_ended) &&
         std::all_of(questions_.begin(), questions_.end(),
                     [](const auto& one) { return one->is_over; });
}

EpochTransport::LinkState EpochTransport::Core::link_state() const {
  const bool is_joined = link_ != nullptr && link_->is_joined;
  return {is_joined, is_refused_, why_, is_joined ? link_leader_ : ""};
}

void EpochTransport::Core::describe(const std::function<void(Description)>& answer) {
  if (seat_) return answer({link_state(), seat_->describe(host::now())});
  if (is_ending_ || term_ == 0) {
    return answer({link_state(), fail(std::errc::host_unreachable, "leader", "none is known")});
  }
  auto& asked = *answers_.emplace_back(std::make_unique<Answer>());
  asked.context.set_deadline(std::chrono::system_clock::now() + kDescribeTimeout);
  asked.came.done = [this, &asked, answer](bool) {
    if (asked.status.ok()) {
      answer({link_state(), part_of(asked.reply)});
    } else {
      answer({link_state(), fail(std::errc::host_unreachable, "leader",
                                 peer_words(asked.status.error_message()))});
    }
    answers_.remove_if([&](const auto& one) { return one.get() == &asked; });
  };
  asked.reader = stub_->PrepareAsyncDescribe(&asked.context, {}, queue_.get());
  asked.reader->StartCall();
  asked.reader->Finish(&asked.reply, &asked.status, &asked.came);
}

// ---- for every thread ----

EpochTransport::EpochTransport(std::unique_ptr<Core> core) : core_(std::move(core)) {}
EpochTransport::~EpochTransport() { core_->end(); }
void EpochTransport::stop() { core_->end(); }

Result<std::unique_ptr<EpochTransport>> EpochTransport::create(const Options& options,
                                                               Listener listener) {
  auto core = std::make_unique<Core>(options, std::move(listener));
  if (auto opened = core->open(); !opened) return tl::unexpected(opened.error());
  return std::unique_ptr<EpochTransport>(new EpochTransport(std::move(core)));
}

std::uint16_t EpochTransport::port() const { return core_->port(); }
std::size_t EpochTransport::connected() const { return core_->connected(); }

Result<std::function<void()>> EpochTransport::read_certificates() {
  auto renewed = core_->credentials().read_again();
  if (!renewed) return tl::unexpected(renewed.error());
  return std::function<void()>([core = core_.get(), renewed = *std::move(renewed)] {
    core->put([core, renewed] { core->renew(renewed); });
  });
}
void EpochTransport::follow(std::uint32_t term, const std::string& address) {
  core_->put([core = core_.get(), term, address] { core->follow(term, address); });
}
void EpochTransport::send(std::uint32_t term, const std::string& course, EpochMessage message) {
  core_->put([core = core_.get(), term, course, message = std::move(message)] {
    core->send(term, course, message);
  });
}
void EpochTransport::lead(std::uint32_t term, Before before, Instant until) {
  core_->put([core = core_.get(), term, before, until] { core->lead(term, before, until); });
}
void EpochTransport::confirm(Instant until) {
  core_->put([core = core_.get(), until] { core->confirm(until); });
}
void EpochTransport::unseat() {
  core_->put([core = core_.get()] { core->unseat(); });
}
void EpochTransport::set_limits(SliceLimits limits) {
  core_->put([core = core_.get(), limits = std::move(limits)] { core->set_limits(limits); });
}
void EpochTransport::set_known(MemberNames names, MemberNames running) {
  core_->put([core = core_.get(), names = std::move(names), running = std::move(running)] {
    core->set_known(names, running);
  });
}
void EpochTransport::seek(std::vector<Peer> registered) {
  core_->put([core = core_.get(), registered = std::move(registered)] { core->seek(registered); });
}
void EpochTransport::describe(const std::function<void(Description)>& answer) {
  if (core_->put([core = core_.get(), answer] { core->describe(answer); })) return;
  answer({{}, fail(std::errc::operation_canceled, "cluster", "is being left")});
}

}  // namespace weir::cluster
