// SPDX-License-Identifier: Apache-2.0
#include "weir/sim/cluster.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "weir/base/assert.h"
#include "weir/base/rng.h"
#include "weir/coordinate/bytes.h"
#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/epoch_relay.h"
#include "weir/coordinate/epoch_tree.h"
#include "weir/coordinate/leader.h"
#include "weir/coordinate/member.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/participant.h"
#include "weir/coordinate/vectors.h"
#include "weir/sim/cluster_parts.h"
#include "weir/sim/epoch_checkers.h"

namespace weir::sim {
namespace {

using std::chrono::milliseconds;

constexpr const char* kClassName = "limit";
constexpr Nanoseconds kKeepAlive = milliseconds{50};
// A callback may be late by the messages that its server has to read first.
constexpr Nanoseconds kLateSlack = milliseconds{20};
// Larger clusters are checked only now and then.
constexpr std::size_t kAlwaysChecked = 64;
// A leader takes the stream of a member that is silent for so long for broken.
constexpr Nanoseconds kSilence = milliseconds{400};
constexpr Nanoseconds kJoining = std::chrono::seconds{1};

// Demand that changes at random, for clusters without a load.
class RandomLoad final : public ServerLoad {
 public:
  RandomLoad(Rng rng, std::int64_t limit) : rng_(rng), limit_(limit) {}
  std::int64_t demand(Instant now) override {
    if (now < change_at_) return demand_;
    change_at_ = now + milliseconds{50 + rng_.below(300)};
    const auto limit = static_cast<std::uint64_t>(limit_);
    constexpr std::uint64_t kKinds = 3;
    const std::uint64_t kind = rng_.below(kKinds);
    const std::uint64_t most = kind == 0 ? 1 : kind == 1 ? limit / 20 : 2 * limit;
    demand_ = static_cast<std::int64_t>(rng_.below(most));
    return demand_;
  }
  void set_slice(std::int64_t, Instant) override {}
  Instant run(Instant) override { return kNever; }

 private:
  Rng rng_;
  std::int64_t limit_;
  std::int64_t demand_ = 0;
  Instant change_at_ = Instant::min();
};

// A clock with its own speed and start.
class Clock {
 public:
  Clock(std::int64_t ppm, Nanoseconds offset) : ppm_(ppm), offset_(offset) {}
  Instant local(Instant real) const {
    const std::int64_t ns = ns_of(real);
    return instant_at(ns + ns / 1'000'000 * ppm_) + offset_;
  }
  // The first real time at which the clock shows `local`, or a little later.
  Instant real(Instant local) const {
    if (local == kNever) return kNever;
    const std::int64_t ns = ns_of(local - offset_);
    return instant_at(ns - ns / 1'000'000 * ppm_ * 999 / 1000 + (ppm_ < 0 ? 2000 : 0));
  }

 private:
  std::int64_t ppm_;
  Nanoseconds offset_;
};

struct LeaderRole {
  LeaderRole(const SliceLeader::Options& slice_options, std::int64_t limit,
             EpochLeader::Options options, Instant now, std::size_t fanout, std::size_t node)
      : slices(
            slice_options, [limit](std::string_view) { return limit; }, now),
        leader(with_payload(std::move(options), slices)),
        tree(fanout),
        own(node),
        term(slice_options.term) {}
  static EpochLeader::Options with_payload(EpochLeader::Options options,
                                           LeaderRoundPayload& payload) {
    options.payload = &payload;
    return options;
  }

  // A member's message comes from itself or a relay; the numbers of nodes are those of members.
  void receive(std::size_t member, std::size_t from, const EpochMessage& message, Instant now) {
    if (member == from && member != own) tree.add(member);
    const bool is_copy = leader.has_received(member, message);
    if (!tree.came(member, from, is_copy ? EpochTree::Copy::kAgain : EpochTree::Copy::kFirst)) {
      return;
    }
    heard[member] = now;
    const bool was_known = slices.knows(member);
    leader.receive(member, message, now);
    if (!was_known && slices.knows(member)) count_absent();
  }
  // False: the relay sent a message that no member may send.
  bool receive_all(const EpochBundle& bundle, std::size_t from, Instant now) {
    for (const CarriedMessage& one : bundle) {
      const auto message = decode(one.message);
      if (!message) return false;
      receive(one.member, from, *message, now);
    }
    return true;
  }
  void break_off(std::size_t member, Instant now) {
    tree.remove(member);
    heard.erase(member);
    leader.evict(member, now);
  }
  void drop_silent(Nanoseconds silence, Instant now) {
    std::vector<std::size_t> silent;
    for (const auto& [member, at] : heard) {
      if (member != own && now - at >= silence) silent.push_back(member);
    }
    for (const std::size_t member : silent) break_off(member, now);
  }
  void set_known(std::vector<bool> names, std::vector<bool> registered) {
    named = std::move(names);
    running = std::move(registered);
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (!named[i]) slices.forget(i);
    }
    count_absent();
  }
  void count_absent() {
    std::uint32_t absent = 0;
    std::uint32_t unheard = 0;
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (!named[i] || slices.knows(i)) continue;
      ++absent;
      if (running[i]) ++unheard;
    }
    slices.set_absent(absent, unheard);
  }

  SliceLeader slices;
  EpochLeader leader;
  EpochTree tree;
  std::map<std::size_t, Instant> heard;
  std::size_t own;
  std::uint32_t term;
  std::vector<bool> named;    // by node, from etcd
  std::vector<bool> running;  // of them, registered ones
};

class World;

// A server from start to crash.
class Server final : public EpochUse {
 public:
  Server(World& world, std::size_t node, std::uint32_t life);

  EpochBytes ready(Instant now) override;
  Nanoseconds start_epoch(std::int64_t epoch, EpochView reduced, Instant now) override;
  void alone(std::int64_t error, Instant now) override;
  void answered(Instant now);

  std::uint64_t id() const { return std::uint64_t{node} << 32 | life; }

  World& world;
  std::size_t node;
  std::uint32_t life;
  SliceMember slices;
  EpochMember member;
  EpochParticipant participant;
  EpochRelay relay;
  EpochWay way;
  std::optional<std::size_t> parent;  // its relay
  std::optional<LeaderRole> leading;
  std::size_t leader_node = 0;
  std::uint32_t leader_term = 0;
  Instant called_at{};
  Instant keep_alive_at = Instant::min();
  Instant last_epoch_at = Instant::min();
};

struct Node {
  Clock clock;
  std::unique_ptr<ServerLoad> load;
  std::unique_ptr<Server> server;  // none while it is down
  std::uint32_t life = 0;
  Instant stopped_until{};
  Instant slow_until{};
  Instant busy_until{};
  Instant armed = kNever;
  Instant load_at = kNever;  // by its own clock
  bool is_dead = false;      // permanently, or for long
  bool is_cut = false;       // on the far side of a partition
  std::uint32_t members_on_disk = 0;
};

struct Event {
  enum class Kind : std::uint8_t {
    kArrive,
    kWork,
    kWake,
    kEtcd,
    kEtcdReply,
    kFault,
    kHeal,
    kBoot,
    kForget,
    kLeaderDies,
    kLeaderStops
  };
  // What arrives: a message between a member and its leader; one for a relay to carry; several that
  // are carried up or down; or the relay of a member.
  enum class Frame : std::uint8_t { kMessage, kForRelay, kUp, kDown, kRoute };
  Instant at;
  std::uint64_t order = 0;
  Kind kind = Kind::kWake;
  Frame frame = Frame::kMessage;
  std::size_t node = 0;
  std::size_t from = 0;
  std::uint32_t life = 0;  // of its sender or receiver
  std::uint32_t term = 0;
  Instant sent{};  // by the clock of the server that asks etcd
  EpochBytes bytes = {};
  std::uint64_t order_of_cut = 0;  // which partition heals
  std::vector<bool> names = {};    // known to etcd, by node
  std::vector<bool> running = {};  // whose registration has not expired
};
bool is_later(const Event& a, const Event& b) {
  return a.at != b.at ? a.at > b.at : a.order > b.order;
}

class World {
 public:
  World(const ClusterOptions& options, const ClusterParts& parts);
  ClusterResult run();

  const ClusterOptions& options() const { return options_; }
  const ClusterParts& parts() const { return parts_; }
  EpochCheckers& checkers() { return checkers_; }
  ClusterResult& result() { return result_; }
  Node& node(std::size_t index) { return nodes_[index]; }
  Instant now() const { return now_; }
  // Whether the server was stopped at some time since then.
  bool stood_still(const Node& node, Instant since) const { return node.stopped_until >= since; }

 private:
  void push(Event event);
  void boot(std::size_t index);
  void handle(Event& event);
  void deliver(Event& event);
  void work(const Event& event);
  void wake(std::size_t index);
  void flush(std::size_t index);
  void flush_member(Server& server);
  void flush_relay(Server& server);
  void flush_leader(Server& server);
  void take_route(Server& server, const EpochBytes& bytes);
  void arm(std::size_t index);
  void send(std::size_t from, std::size_t to, std::uint32_t term, Event::Frame frame,
            const EpochBytes& bytes);
  void send_down(std::size_t from, std::size_t to, std::uint32_t term, EpochBundle bundle);
  Nanoseconds cost_of(Nanoseconds each, Event::Frame frame, const EpochBytes& bytes) const;
  bool is_connected(std::size_t a, std::size_t b) const {
    return nodes_[a].is_cut == nodes_[b].is_cut;
  }
  Nanoseconds delay();
  void ask_etcd(std::size_t index);
  void etcd(const Event& event);
  void etcd_reply(const Event& event);
  void start_leading(Server& server, std::uint32_t term, Instant now);
  void stop_leading(Server& server);
  void fault(const Event& event);
  void die(std::size_t index, Rng& rng);
  void leader_dies();
  void relays_fail(Rng& rng);
  void crash(std::size_t index, Instant again);
  void plan_faults();
  void check_slices();
  void check_recovery();
  std::uint64_t evictions() const;

  ClusterOptions options_;
  const ClusterParts& parts_;
  Findings findings_;
  EpochCheckers checkers_{findings_};
  ClusterResult result_;
  Rng rng_;
  std::vector<Node> nodes_;
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
  Instant now_ = instant_at(0);
  Instant slices_checked_ = instant_at(0);
  std::optional<std::size_t> leader_;
  std::uint32_t leader_life_ = 0;
  std::uint32_t term_ = 0;
  std::optional<std::uint64_t> early_evictions_;  // while the servers joined
  Instant lease_until_ = instant_at(0);
  std::vector<bool> known_;          // in etcd, by node
  std::vector<Instant> registered_;  // until when
};

EpochMember::Options member_options(const World& world, std::uint32_t life,
                                    MemberRoundPayload& payload) {
  return world.parts().member({.timeout = world.options().timeout,
                               .grace = world.options().grace,
                               .resend = milliseconds{20},
                               .back_off = EpochMember::Options::BackOff::kAlways,
                               .first_serial = (std::uint64_t{life} << 32) + 1,
                               .payload = &payload});
}

Server::Server(World& cluster, std::size_t index, std::uint32_t number)
    : world(cluster),
      node(index),
      life(number),
      slices(cluster.parts().holder(cluster.options().terms)),
      member(member_options(cluster, number, slices)),
      participant(member, *this, cluster.parts().participant({.retry = milliseconds{10}})),
      relay(index) {
  slices.open(kClassName, cluster.options().limit);
}

EpochBytes Server::ready(Instant now) {
  slices.set_demand(0, world.node(node).load->demand(now));
  called_at = now;
  return slices.demand();
}

void Server::answered(Instant now) {
  const Node& here = world.node(node);
  const ClusterOptions& options = world.options();
  if (world.stood_still(here, here.clock.real(called_at) - milliseconds{1})) return;
  world.checkers().answered(id(), now - called_at, options.timeout + options.grace + kLateSlack,
                            world.now());
}

Nanoseconds Server::start_epoch(std::int64_t epoch, EpochView reduced, Instant now) {
  answered(now);
  ++world.result().epochs;
  last_epoch_at = world.now();
  world.checkers().called_back(id(), epoch, reduced, world.now());
  return world.options().epoch;
}

void Server::alone(std::int64_t /*error*/, Instant now) {
  answered(now);
  ++world.result().errors;
}

World::World(const ClusterOptions& options, const ClusterParts& parts)
    : options_(options), parts_(parts), rng_(options.seed) {
  Rng clocks = rng_.split("clocks");
  const auto drift = static_cast<std::int64_t>(options.faults.drift_ppm);
  nodes_.reserve(options.servers);
  known_.resize(options.servers);
  registered_.resize(options.servers);
  for (std::size_t i = 0; i < options.servers; ++i) {
    const Nanoseconds offset{clocks.between(0, options.faults.clock_offset_max.count())};
    nodes_.push_back(
        {.clock = Clock(clocks.between(-drift, drift), offset), .load = {}, .server = {}});
    nodes_[i].load = options.load ? options.load(i)
                                  : std::make_unique<RandomLoad>(
                                        rng_.split("load").split(std::to_string(i)), options.limit);
    nodes_[i].members_on_disk = static_cast<std::uint32_t>(options.servers);
  }
}

void World::push(Event event) {
  event.order = order_++;
  heap_.push_back(std::move(event));
  std::push_heap(heap_.begin(), heap_.end(), is_later);
}

Nanoseconds World::delay() {
  Nanoseconds delay{rng_.between(options_.delay_min.count(), options_.delay_max.count())};
  if (rng_.chance(options_.faults.straggle_permille, 1000)) delay *= 20;
  return delay;
}

// ---- servers ----

void World::boot(std::size_t index) {
  Node& node = nodes_[index];
  node.server = std::make_unique<Server>(*this, index, ++node.life);
  node.server->slices.expect_members(node.members_on_disk);
  node.is_dead = false;
  node.stopped_until = now_;
  node.armed = kNever;
  node.busy_until = now_;
  wake(index);
}

void World::wake(std::size_t index) {
  Node& node = nodes_[index];
  if (node.server == nullptr) return;
  Server& server = *node.server;
  const Instant local = node.clock.local(now_);
  if (options_.fixed_slice == 0) {
    if (server.leader_term != 0 && !server.participant.is_calling() &&
        server.participant.epochs() + server.participant.errors() == 0) {
      server.participant.start(local);
    }
    server.participant.tick(local);
    server.member.tick(local);
    if (server.leading) server.leading->leader.tick(local);
    if (server.keep_alive_at <= local) ask_etcd(index);
  }
  flush(index);
  node.load->set_slice(
      options_.fixed_slice != 0 ? options_.fixed_slice : server.slices.slice(0, local), local);
  node.load_at = node.load->run(local);
  arm(index);
  check_slices();
}

void World::flush(std::size_t index) {
  Server& server = *nodes_[index].server;
  if (server.leader_term != 0) {
    flush_member(server);
    flush_relay(server);
  } else {
    (void)server.member.take_outgoing();
  }
  if (server.leading) flush_leader(server);
}

void World::flush_member(Server& server) {
  const Instant local = nodes_[server.node].clock.local(now_);
  for (const EpochMessage& message : server.member.take_outgoing()) {
    const bool has_relay = server.relay.has_children() || server.parent;
    const bool is_carried = server.way.of(message, has_relay) == EpochWay::Way::kRelay;
    const EpochBytes bytes = encode(message);
    if (is_carried && server.relay.has_children()) {
      const auto taken = server.relay.up(EpochRelay::kOwn, {server.node, {}, bytes}, local);
      WEIR_ASSERT(taken.has_value());
    } else if (is_carried && server.parent) {
      send(server.node, *server.parent, server.leader_term, Event::Frame::kForRelay, bytes);
    } else {
      send(server.node, server.leader_node, server.leader_term, Event::Frame::kMessage, bytes);
    }
  }
}

// To its own relay, if that works, or to the leader.
void World::flush_relay(Server& server) {
  const Instant local = nodes_[server.node].clock.local(now_);
  const bool has_relay = server.parent && server.way.last() == EpochWay::Way::kRelay;
  const std::size_t above = has_relay ? *server.parent : server.leader_node;
  for (const EpochBundle& part : split_bundle(server.relay.take_up(local))) {
    ++result_.bundles;
    send(server.node, above, server.leader_term, Event::Frame::kUp,
         pack_bundle(parts_.carry(server.node, part)));
  }
  for (EpochRelay::Down& down : server.relay.take_down()) {
    if (down.to != EpochRelay::kOwn) {
      send_down(server.node, down.to - 1, server.leader_term, std::move(down.bundle));
      continue;
    }
    for (const CarriedMessage& one : down.bundle) {
      const auto message = decode(one.message);
      WEIR_ASSERT(message.has_value());
      server.way.answered(*message, EpochWay::Way::kRelay);
      server.member.receive(*message, local);
    }
  }
}

void World::flush_leader(Server& server) {
  LeaderRole& role = *server.leading;
  std::map<std::size_t, EpochBundle> by_way;
  for (const auto& [to, message] : role.leader.take_outgoing()) {
    by_way[role.tree.way_to(to)].push_back({to, {}, encode(message)});
  }
  for (auto& [way, bundle] : by_way) send_down(server.node, way, role.term, std::move(bundle));
  for (const EpochTree::Route& route : role.tree.take_changes()) {
    ByteWriter out;
    out.put(static_cast<std::uint8_t>(route.parent.has_value()));
    out.put(static_cast<std::uint64_t>(route.parent.value_or(0)));
    send(server.node, route.member, role.term, Event::Frame::kRoute, out.take());
  }
  result_.round_max = std::max(result_.round_max, role.leader.counters().last_round);
}

// A bundle with one message for its receiver is that message.
void World::send_down(std::size_t from, std::size_t to, std::uint32_t term, EpochBundle bundle) {
  if (bundle.size() == 1 && bundle.front().member == to) {
    return send(from, to, term, Event::Frame::kMessage, bundle.front().message);
  }
  for (const EpochBundle& part : split_bundle(std::move(bundle))) {
    send(from, to, term, Event::Frame::kDown, pack_bundle(part));
  }
}

void World::take_route(Server& server, const EpochBytes& bytes) {
  ByteReader in(bytes);
  const bool has_parent = in.get<std::uint8_t>() != 0;
  const auto parent = static_cast<std::size_t>(in.get<std::uint64_t>());
  server.parent = has_parent ? std::optional<std::size_t>(parent) : std::nullopt;
  server.way.renew();
}

// One wake-up in advance is enough; early ones do no harm.
void World::arm(std::size_t index) {
  Node& node = nodes_[index];
  const Server& server = *node.server;
  Instant local = node.load_at;
  if (options_.fixed_slice == 0) {
    local = std::min({local, server.participant.next_wake(), server.member.next_wake(),
                      server.keep_alive_at, server.relay.next_wake()});
  }
  if (server.leading) local = std::min(local, server.leading->leader.next_wake());
  if (server.slices.lease_end() > node.clock.local(now_)) {
    local = std::min(local, server.slices.lease_end());
  }
  if (local == kNever) return;
  const Instant at = std::max(node.clock.real(local), now_ + Nanoseconds{1000});
  if (at >= node.armed && node.armed > now_) return;
  node.armed = at;
  push({.at = at, .kind = Event::Kind::kWake, .node = index, .life = node.life});
}

Nanoseconds World::cost_of(Nanoseconds each, Event::Frame frame, const EpochBytes& bytes) const {
  const bool is_bundle = frame == Event::Frame::kUp || frame == Event::Frame::kDown;
  const std::int64_t count = is_bundle ? ByteReader(bytes).get<std::uint32_t>() : 0;
  return each + options_.cost.carried * count;
}

// A server sends one message after the other.
void World::send(std::size_t from, std::size_t to, std::uint32_t term, Event::Frame frame,
                 const EpochBytes& bytes) {
  ++result_.messages;
  Node& sender = nodes_[from];
  Instant leaves = now_;
  if (options_.cost.send > Nanoseconds{0}) {
    sender.busy_until =
        std::max(now_, sender.busy_until) + cost_of(options_.cost.send, frame, bytes);
    leaves = sender.busy_until;
  }
  // Streams do not lose messages: a relay that is told only once hears of it.
  const std::uint32_t loss = frame == Event::Frame::kRoute ? 0 : options_.faults.loss_permille;
  const std::uint64_t copies = rng_.chance(options_.faults.double_permille, 1000) ? 2 : 1;
  for (std::uint64_t i = 0; i < copies; ++i) {
    if (rng_.chance(loss, 1000) || !is_connected(from, to)) continue;
    Nanoseconds after = delay();
    if (sender.slow_until > now_) after += milliseconds{20 + rng_.below(100)};
    push({.at = leaves + after,
          .kind = Event::Kind::kArrive,
          .frame = frame,
          .node = to,
          .from = from,
          .term = term,
          .bytes = bytes});
  }
}

// A server reads one message after the other, and none while it is stopped.
void World::deliver(Event& event) {
  Node& node = nodes_[event.node];
  if (node.server == nullptr) return;
  const auto size = static_cast<std::int64_t>(event.bytes.size());
  const Instant begin = std::max({now_, node.busy_until, node.stopped_until});
  node.busy_until =
      begin + cost_of(options_.cost.receive, event.frame, event.bytes) + Nanoseconds{size};
  event.at = node.busy_until;
  event.kind = Event::Kind::kWork;
  event.life = node.life;
  push(std::move(event));
}

void World::work(const Event& event) {
  Server& server = *nodes_[event.node].server;
  const Instant local = nodes_[event.node].clock.local(now_);
  const bool is_of_its_leader = event.term == server.leader_term;
  switch (event.frame) {
    case Event::Frame::kMessage: {
      const auto message = decode(event.bytes);
      WEIR_ASSERT(message.has_value());
      if (std::holds_alternative<Start>(*message) || std::holds_alternative<Refuse>(*message)) {
        const bool is_direct = event.from == server.leader_node && server.parent;
        server.way.answered(*message, is_direct ? EpochWay::Way::kLeader : EpochWay::Way::kRelay);
        server.member.receive(*message, local);
      } else if (server.leading && server.leading->term == event.term) {
        server.leading->receive(event.from, event.from, *message, local);
      }
      return;
    }
    case Event::Frame::kForRelay:
      if (is_of_its_leader) {
        (void)server.relay.up(event.from + 1, {event.from, {}, event.bytes}, local);
      }
      return;
    case Event::Frame::kUp: {
      const auto bundle = read_bundle(event.bytes);
      if (server.leading && server.leading->term == event.term) {
        const bool is_valid = bundle && server.leading->receive_all(*bundle, event.from, local);
        if (!is_valid) server.leading->break_off(event.from, local);
      } else if (is_of_its_leader && bundle) {
        for (const CarriedMessage& one : *bundle) {
          (void)server.relay.up(event.from + 1, one, local);
        }
      }
      return;
    }
    case Event::Frame::kDown:
      if (const auto bundle = read_bundle(event.bytes); bundle && is_of_its_leader) {
        server.relay.down(*bundle);
      }
      return;
    case Event::Frame::kRoute:
      if (is_of_its_leader) take_route(server, event.bytes);
      return;
  }
}

void World::handle(Event& event) {
  Node& node = nodes_[event.node];
  const bool is_for_server = event.kind == Event::Kind::kWork || event.kind == Event::Kind::kWake ||
                             event.kind == Event::Kind::kEtcdReply;
  if (is_for_server) {
    if (node.server == nullptr || event.life != node.life) return;
    if (node.stopped_until > now_) {
      event.at = node.stopped_until;
      return push(std::move(event));
    }
  }
  switch (event.kind) {
    case Event::Kind::kArrive:
      return deliver(event);
    case Event::Kind::kWork:
      work(event);
      return wake(event.node);
    case Event::Kind::kWake:
      if (node.armed <= now_) node.armed = kNever;
      return wake(event.node);
    case Event::Kind::kEtcd:
      return etcd(event);
    case Event::Kind::kEtcdReply:
      etcd_reply(event);
      return wake(event.node);
    case Event::Kind::kFault:
      return fault(event);
    case Event::Kind::kHeal:
      if (event.order_of_cut != result_.partitions) return;
      for (Node& each : nodes_) each.is_cut = false;
      return;
    case Event::Kind::kLeaderDies:
      return leader_dies();
    case Event::Kind::kLeaderStops:
      if (!leader_) return;
      ++result_.stops;
      nodes_[*leader_].stopped_until = instant_at(0) + options_.leader_goes_on_at;
      return;
    case Event::Kind::kBoot:
      if (node.server == nullptr) boot(event.node);
      return;
    case Event::Kind::kForget:
      known_[event.node] = false;
      ++result_.forgotten;
      return;
  }
}

// ---- elections ----

void World::ask_etcd(std::size_t index) {
  Node& node = nodes_[index];
  const Instant local = node.clock.local(now_);
  node.server->keep_alive_at = local + kKeepAlive;
  if (node.is_cut) return;
  push({.at = now_ + delay(),
        .kind = Event::Kind::kEtcd,
        .node = index,
        .life = node.life,
        .sent = local});
}

// The first server that asks while there is no lease leads, in a new term.
void World::etcd(const Event& event) {
  const Nanoseconds since = now_ - instant_at(0);
  if (since >= options_.etcd_gone_from && since < options_.etcd_gone_until) return;
  if (!leader_ || now_ >= lease_until_) {
    leader_ = event.node;
    leader_life_ = event.life;
    ++term_;
    ++result_.leaders;
  }
  if (*leader_ == event.node && leader_life_ == event.life) {
    lease_until_ = now_ + options_.leader_lease;
  }
  if (event.life == nodes_[event.node].life) {
    known_[event.node] = true;
    registered_[event.node] = now_ + options_.leader_lease;
  }
  if (nodes_[event.node].is_cut) return;
  std::vector<bool> running(nodes_.size());
  for (std::size_t i = 0; i < running.size(); ++i) running[i] = now_ < registered_[i];
  push({.at = now_ + delay(),
        .kind = Event::Kind::kEtcdReply,
        .node = event.node,
        .from = *leader_,
        .life = event.life,
        .term = term_,
        .sent = event.sent,
        .names = known_,
        .running = std::move(running)});
}

void World::start_leading(Server& server, std::uint32_t term, Instant now) {
  EpochLeader::Options leader = parts_.leader({.term = term, .combine = add_vectors});
  leader.combine = checkers_.watched(leader.combine, [this] { return now_; });
  server.leading.emplace(
      parts_.slices({.terms = options_.terms, .term = term, .is_first = term == 1}), options_.limit,
      std::move(leader), now, options_.fanout, server.node);
}

void World::stop_leading(Server& server) {
  if (!server.leading) return;
  result_.evictions += server.leading->leader.counters().evictions;
  result_.rounds += server.leading->leader.counters().rounds;
  server.leading.reset();
}

// A server stores the number of members on disk: from a leader, or from etcd before that.
void World::etcd_reply(const Event& event) {
  Server& server = *nodes_[event.node].server;
  const auto names =
      static_cast<std::uint32_t>(std::count(event.names.begin(), event.names.end(), true));
  server.slices.expect_members(std::max(names, nodes_[event.node].members_on_disk));
  nodes_[event.node].members_on_disk = server.slices.members();
  if (event.term < server.leader_term) return;
  const Instant local = nodes_[event.node].clock.local(now_);
  const bool leads = event.from == event.node && leader_life_ == event.life && term_ == event.term;
  if (!leads || (server.leading && server.leading->term != event.term)) stop_leading(server);
  if (leads) {
    if (!server.leading) start_leading(server, event.term, local);
    const bool is_sure = options_.terms.partition == Partition::kLast;
    server.leading->leader.confirm(is_sure ? kNever : event.sent + options_.leader_lease * 2 / 3);
    server.leading->set_known(event.names, event.running);
    server.leading->drop_silent(std::max(kSilence, 4 * options_.epoch), local);
    parts_.confirmed(server.leading->slices, nodes_.size(),
                     [&](std::size_t node) { return is_connected(node, event.node); });
  }
  if (event.term == server.leader_term) return;
  server.leader_term = event.term;
  server.leader_node = event.from;
  server.parent.reset();
  server.relay = EpochRelay(server.node);
  server.member.lose_leader(local);
}

// ---- faults ----

void World::plan_faults() {
  Rng rng = rng_.split("faults");
  const Instant end = instant_at(0) + options_.length - options_.calm;
  const ClusterFaults& faults = options_.faults;
  const auto plan = [&](Nanoseconds every, std::uint32_t kind) {
    if (every == Nanoseconds{0}) return;
    Instant at = instant_at(0);
    for (;;) {
      at += Nanoseconds{rng.between(every.count() / 4, every.count() * 7 / 4)};
      if (at >= end) return;
      push({.at = at,
            .kind = Event::Kind::kFault,
            .node = rng.below(options_.servers),
            .from = rng.next(),
            .term = kind});
    }
  };
  plan(faults.crash_every, 0);
  plan(faults.partition_every, 1);
  plan(faults.stop_every, 2);
  plan(faults.slow_every, 3);
  plan(faults.death_every, 4);
  plan(faults.relays_every, 5);
  if (options_.leader_dies_at > Nanoseconds{0}) {
    push({.at = instant_at(0) + options_.leader_dies_at, .kind = Event::Kind::kLeaderDies});
  }
  if (options_.leader_stops_at > Nanoseconds{0}) {
    push({.at = instant_at(0) + options_.leader_stops_at, .kind = Event::Kind::kLeaderStops});
  }
}

void World::leader_dies() {
  if (!leader_ || nodes_[*leader_].server == nullptr) return;
  Node& node = nodes_[*leader_];
  if (node.load->is_busy(node.clock.local(now_))) {
    return push({.at = now_ + milliseconds{10}, .kind = Event::Kind::kLeaderDies});
  }
  crash(*leader_, std::max(now_ + milliseconds{1}, instant_at(0) + options_.leader_back_at));
  if (options_.leader_died) options_.leader_died(*leader_);
}

void World::crash(std::size_t index, Instant again) {
  ++result_.crashes;
  stop_leading(*nodes_[index].server);
  nodes_[index].server.reset();
  push({.at = again, .kind = Event::Kind::kBoot, .node = index});
}

// All relays of the tree crash, or only they are cut off.
void World::relays_fail(Rng& rng) {
  const Instant end = instant_at(0) + options_.length - options_.calm;
  std::vector<bool> is_relay(nodes_.size());
  for (const Node& node : nodes_) {
    if (node.server != nullptr && node.server->parent) is_relay[*node.server->parent] = true;
  }
  if (rng.chance(1, 2)) {
    ++result_.partitions;
    for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i].is_cut = is_relay[i];
    return push({.at = std::min(end, now_ + milliseconds{50 + rng.below(1000)}),
                 .kind = Event::Kind::kHeal,
                 .order_of_cut = result_.partitions});
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!is_relay[i] || nodes_[i].server == nullptr) continue;
    crash(i, std::min(end, now_ + milliseconds{20 + rng.below(500)}));
  }
}

void World::fault(const Event& event) {
  Node& node = nodes_[event.node];
  Rng rng(event.from);
  const Instant end = instant_at(0) + options_.length - options_.calm;
  const auto until = [&](std::uint64_t lo_ms, std::uint64_t hi_ms) {
    return std::min(end, now_ + milliseconds{lo_ms + rng.below(hi_ms - lo_ms)});
  };
  if (event.term == 0 && node.server != nullptr) {
    crash(event.node, until(20, 1000));
  } else if (event.term == 1) {
    ++result_.partitions;
    for (Node& each : nodes_) each.is_cut = rng.chance(1, 3);
    push({.at = until(50, 1500), .kind = Event::Kind::kHeal, .order_of_cut = result_.partitions});
  } else if (event.term == 2) {
    ++result_.stops;
    node.stopped_until = until(10, 600);
  } else if (event.term == 3) {
    node.slow_until = until(50, 500);
  } else if (event.term == 4 && node.server != nullptr) {
    die(event.node, rng);
  } else if (event.term == 5) {
    relays_fail(rng);
  }
}

// Its last request has reached etcd when its registration, as long as the leader's lease, has
// expired; from then on it may be forgotten.
void World::die(std::size_t index, Rng& rng) {
  const auto dead =
      std::count_if(nodes_.begin(), nodes_.end(), [](const Node& each) { return each.is_dead; });
  if (static_cast<std::size_t>(dead) + 2 >= nodes_.size()) return;
  Node& node = nodes_[index];
  stop_leading(*node.server);
  node.server.reset();
  node.is_dead = true;
  const Instant end = instant_at(0) + options_.length - options_.calm;
  const Instant forgotten = now_ + options_.leader_lease + milliseconds{100 + rng.below(300)};
  push({.at = forgotten, .kind = Event::Kind::kForget, .node = index});
  const Instant again = forgotten + milliseconds{1 + rng.below(500)};
  if (rng.chance(1, 3) && again < end) {
    push({.at = again, .kind = Event::Kind::kBoot, .node = index});
  }
}

// ---- what must hold ----

void World::check_slices() {
  if (options_.fixed_slice != 0) return;
  if (nodes_.size() > kAlwaysChecked && now_ - slices_checked_ < milliseconds{1}) return;
  slices_checked_ = now_;
  std::int64_t leased = 0;
  std::int64_t cut_off = 0;
  for (const Node& node : nodes_) {
    if (node.server == nullptr || node.stopped_until > now_) continue;
    const Instant local = node.clock.local(now_);
    const std::int64_t slice = node.server->slices.slice(0, local);
    (node.server->slices.is_leased(0, local) ? leased : cut_off) += slice;
  }
  checkers_.slices(leased, cut_off, options_.limit, nodes_.size(), now_, options_.terms.partition);
}

void World::check_recovery() {
  for (const Node& node : nodes_) {
    if (node.is_dead) continue;
    const bool is_well =
        node.server != nullptr && now_ - std::max(node.server->last_epoch_at, instant_at(0)) <
                                      std::max<Nanoseconds>(milliseconds{400}, 4 * options_.epoch);
    checkers_.recovered(static_cast<std::uint64_t>(&node - nodes_.data()), is_well, now_);
  }
}

// Of all leaders so far.
std::uint64_t World::evictions() const {
  std::uint64_t all = result_.evictions;
  for (const Node& node : nodes_) {
    if (node.server == nullptr || !node.server->leading) continue;
    all += node.server->leading->leader.counters().evictions;
  }
  return all;
}

ClusterResult World::run() {
  const Instant end = instant_at(0) + options_.length;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Nanoseconds after{static_cast<std::int64_t>(rng_.below(5'000'000))};
    push({.at = now_ + after, .kind = Event::Kind::kBoot, .node = i});
  }
  plan_faults();
  while (!heap_.empty() && heap_.front().at <= end) {
    std::pop_heap(heap_.begin(), heap_.end(), is_later);
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = std::max(now_, event.at);
    if (!early_evictions_ && now_ - instant_at(0) >= kJoining) early_evictions_ = evictions();
    handle(event);
  }
  result_.late_evictions = evictions() - early_evictions_.value_or(0);
  now_ = end;
  if (options_.fixed_slice == 0) check_recovery();
  for (Node& node : nodes_) {
    if (node.server == nullptr) continue;
    ++result_.alive;
    if (node.server->leading && node.server->leading->term == term_) {
      result_.counted = node.server->leading->slices.members();
    }
    stop_leading(*node.server);
  }
  if (options_.at_end) options_.at_end();
  result_.findings = findings_.count();
  result_.first_findings = findings_.kept();
  return result_;
}

}  // namespace

ClusterResult run_cluster(const ClusterOptions& options, const ClusterParts& parts) {
  return World(options, parts).run();
}

ClusterResult run_cluster(const ClusterOptions& options) { return run_cluster(options, {}); }

ClusterOptions rough_cluster(std::uint64_t seed, Partition partition) {
  Rng rng = Rng(seed).split("rough");
  ClusterOptions options;
  options.seed = seed;
  options.terms.partition = partition;
  options.servers = 3 + rng.below(10);
  if (rng.chance(1, 500)) options.servers = 100 + rng.below(200);
  options.delay_max = std::chrono::microseconds{100 + rng.below(3000)};
  ClusterFaults& faults = options.faults;
  faults.loss_permille = static_cast<std::uint32_t>(rng.below(4) == 0 ? rng.below(60) : 0);
  faults.double_permille = static_cast<std::uint32_t>(rng.below(30));
  faults.straggle_permille = static_cast<std::uint32_t>(rng.below(30));
  const auto sometimes = [&](std::uint64_t lo_ms, std::uint64_t hi_ms) {
    const Nanoseconds every = milliseconds{lo_ms + rng.below(hi_ms - lo_ms)};
    return rng.chance(1, 2) ? every : Nanoseconds{0};
  };
  faults.crash_every = sometimes(100, 1000);
  faults.partition_every = sometimes(200, 1500);
  faults.stop_every = sometimes(100, 1000);
  faults.slow_every = sometimes(100, 1000);
  faults.drift_ppm = static_cast<std::uint32_t>(rng.below(500));
  faults.clock_offset_max = std::chrono::hours{rng.below(48)};
  faults.death_every = sometimes(200, 1500);
  // Trees of small servers are as deep as those of thousands.
  const bool is_large = options.servers >= 100;
  if (rng.chance(2, 3)) options.fanout = is_large ? 8 + rng.below(25) : 2 + rng.below(3);
  faults.relays_every = sometimes(300, 1500);
  return options;
}

}  // namespace weir::sim
