// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/cluster.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/cluster/cluster_member.h"
#include "weir/cluster/cluster_state.h"
#include "weir/cluster/epoch_transport.h"
#include "weir/cluster/etcd_options.h"
#include "weir/cluster/leader_choice.h"
#include "weir/cluster/local_epochs.h"
#include "weir/cluster/membership.h"
#include "weir/cluster/serve_node.h"
#include "weir/cluster/shared_rule.h"
#include "weir/coordinate/epoch_combine.h"
#include "weir/host/clock.h"
#include "weir/host/mutex.h"
#include "weir/serve/event_log.h"

namespace weir::cluster {
namespace {

using serve::ClusterStatus;

// Slices are leased for several rounds, so that a late round has no effect.
constexpr int kLeaseRounds = 4;
// Leaves time to ask another etcd node before the lease expires.
constexpr int kEtcdPart = 4;
constexpr Nanoseconds kEtcdTimeoutMax = std::chrono::seconds{1};

Result<std::uint64_t> random_number() {
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) {
    return fail_errno(errno, "random numbers");
  }
  return number;
}

// In gRPC's syntax: ":7420" means all addresses.
std::string bound(const std::string& listen) {
  return listen.starts_with(':') ? "[::]" + listen : listen;
}

// Servers known to etcd, including this one, whether it is registered yet or not.
MemberNames names_in(const MembershipView& view, const std::string& own) {
  MemberNames names = {own};
  for (const MembershipView::Member& one : view.known) names.insert(one.name);
  for (const MembershipView::Member& one : view.members) names.insert(one.name);
  return names;
}

class EtcdCluster final : public Cluster {
 public:
  EtcdCluster(std::unique_ptr<ClusterNode> node, const serve::ClusterOptions& options)
      : node_(std::move(node)), options_(options) {}

  Result<void> open();
  void start() override;
  void stop() override;
  std::uint16_t port() const override { return transport_->port(); }
  Result<std::function<void()>> read_certificates() override;

  void status(Answer<ClusterStatus> answer) override;
  void rules(Answer<std::vector<serve::ClusterRule>> answer) override;
  void change_rule(std::string service, RuleChange change, Answer<void> answer) override;
  void forget(std::string name, Answer<void> answer) override;

 private:
  Result<void> open_transport(std::uint64_t incarnation);
  Result<void> open_local();
  Result<void> open_membership(std::uint64_t incarnation);
  void heard(const MembershipView& said);
  void unheard(const Error& why);
  std::string history_error() const {
    const host::MutexLock lock(mutex_);
    return history_error_;
  }
  void keep(MembershipView& view);
  void note_errors(std::vector<std::string> errors);
  void follow(const MembershipView& view);
  void seek(const MembershipView& view);
  void note_link(const EpochTransport::LinkState& state);
  Membership::Connected connected();
  void deposed();
  void update_leading(const MembershipView& view);
  void see(const MembershipView& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void sync_rules(const MembershipView& view);
  Result<void> check(const std::string& service, const RuleChange& change);
  template <class T>
  bool refuses(const Answer<T>& answer) const;
  void add_members(ClusterStatus& status, const EpochTransport::Description& described) const;
  void add_known(ClusterStatus& status) const;
  void add_state(ClusterStatus& status, const EpochTransport::LinkState& link) const;
  std::string leaderless_why() const;
  SliceTerms terms() const {
    return {.partition = is_last() ? Partition::kLast : Partition::kSafe,
            .lease = std::max<Nanoseconds>(SliceTerms{}.lease, options_.timeout * kLeaseRounds)};
  }
  bool is_last() const { return options_.partition == serve::ClusterOptions::Partition::kLast; }
  static void say(std::string_view line) { serve::EventLog::say(line); }

  const std::unique_ptr<ClusterNode> node_;
  serve::ClusterOptions options_;
  std::unique_ptr<ClusterMember> member_;  // of the node's thread
  std::unique_ptr<EpochTransport> transport_;
  std::unique_ptr<LocalEpochs> local_;  // none: without a socket
  std::unique_ptr<Membership> membership_;
  std::atomic<bool> is_refused_ = false;  // by the leader
  std::atomic<bool> was_connected_ = false;
  std::atomic<Instant::rep> unjoined_since_ = host::now().time_since_epoch().count();

  // Of the membership's thread.
  Instant followed_at_{};
  bool seeks_ = false;
  std::uint32_t followed_ = 0;
  std::uint32_t led_term_ = 0;  // 0: it does not lead
  std::vector<std::string> said_errors_;
  std::optional<ClusterStateFile> state_;  // used by the opening thread before start()
  std::string state_error_;                // why it could not be written
  bool has_asked_ = false;                 // etcd was asked for rules at least once
  std::uint32_t members_told_ = 0;         // by a leader

  mutable host::Mutex mutex_;  // guards the status
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  MembershipView view_ ABSL_GUARDED_BY(mutex_);
  // When known servers were last registered.
  std::map<std::string, Instant> seen_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> rule_errors_ ABSL_GUARDED_BY(mutex_);
  // Why etcd's rules are not used; empty if they are.
  std::string history_error_ ABSL_GUARDED_BY(mutex_);
  // How clients are served without rules; empty: there are rules.
  std::string start_words_ ABSL_GUARDED_BY(mutex_);
};

Result<void> EtcdCluster::open() {
  const auto incarnation = random_number();
  if (!incarnation) return tl::unexpected(incarnation.error());
  auto state = ClusterStateFile::open(options_.state_file, options_.prefix);
  if (!state) return tl::unexpected(state.error());
  state_.emplace(std::move(*state));
  member_ = std::make_unique<ClusterMember>(
      ClusterMember::Options{
          .epoch = options_.epoch, .timeout = options_.timeout, .terms = terms()},
      *node_,
      [this](std::uint32_t term, const std::string& course, EpochMessage message) {
        transport_->send(term, course, std::move(message));
      },
      [this] { transport_->follow(0, {}); });
  if (auto opened = open_transport(*incarnation); !opened) return opened;
  if (auto opened = open_local(); !opened) return opened;
  node_->set_component(member_.get());
  node_->hold_entrance();
  return open_membership(*incarnation);
}

void EtcdCluster::start() {
  const ClusterState& known = state_->state();
  note_errors(member_->sync_rules(known.rules, known.members, node_->now()));
  {
    const host::MutexLock lock(mutex_);
    view_.rules = known.rules;
  }
  membership_->start();
}

Result<void> EtcdCluster::open_transport(std::uint64_t incarnation) {
  auto transport = EpochTransport::create(
      {.name = options_.name,
       .incarnation = incarnation,
       .listen = bound(options_.listen),
       .address = options_.advertise.empty() ? options_.listen : options_.advertise,
       .tls_directory = options_.tls_directory,
       .terms = terms()},
      {.received =
           [this](std::uint32_t term, std::string course, EpochMessage message) {
             if (is_local_course(course)) {
               if (local_ != nullptr) local_->receive(term, course, std::move(message));
               return;
             }
             // A message that does not fit into the mailbox is dropped, as on a lossy network.
             (void)node_->post([this, term, course = std::move(course),
                                message = std::move(message)](const Result<Instant>& now) {
               if (now) member_->receive(term, course, message, *now);
             });
           },
       .joined = [this](const EpochTransport::LinkState& state) { note_link(state); },
       .connected = [this] { membership_->look_again(); },
       .say = say});
  if (!transport) return tl::unexpected(transport.error());
  transport_ = std::move(*transport);
  return {};
}

Result<void> EtcdCluster::open_local() {
  if (options_.socket.empty()) return {};
  auto local = LocalEpochs::create(
      options_.socket, [this](std::uint32_t term, const std::string& course, EpochMessage message) {
        transport_->send(term, course, std::move(message));
      });
  if (!local) return tl::unexpected(local.error());
  local_ = std::move(*local);
  return {};
}

Result<void> EtcdCluster::open_membership(std::uint64_t incarnation) {
  const auto etcd =
      etcd_options(options_, std::min<Nanoseconds>(kEtcdTimeoutMax, options_.lease / kEtcdPart));
  if (!etcd) return tl::unexpected(etcd.error());
  auto membership = Membership::create(
      {.name = options_.name,
       .incarnation = incarnation,
       .address = transport_->address(),
       .prefix = options_.prefix,
       .lease = options_.lease,
       .etcd = *etcd,
       .history = state_->state().knows_rules() ? state_->state().history : 0},
      {.heard = [this](const MembershipView& view) { heard(view); },
       .confirmed = [this](Instant until) { transport_->confirm(until); },
       .deposed = [this] { deposed(); },
       .may_lead = [this] { return !is_refused_; },
       .connected = [this] { return connected(); },
       .is_led = [this] { return unjoined_since_ == kNever.time_since_epoch().count(); },
       .check = [this](const std::string& service,
                       const RuleChange& change) { return check(service, change); },
       .say = say,
       .unheard = [this](const Error& why) { unheard(why); }});
  if (!membership) return tl::unexpected(membership.error());
  membership_ = std::move(*membership);
  return {};
}

Result<std::function<void()>> EtcdCluster::read_certificates() {
  auto ours = transport_->read_certificates();
  if (!ours) return ours;
  auto of_etcd = membership_->read_certificates();
  if (!of_etcd) return of_etcd;
  return std::function<void()>([ours = *std::move(ours), of_etcd = *std::move(of_etcd)] {
    ours();
    of_etcd();
  });
}

// Membership first, because it controls the transport.
void EtcdCluster::stop() {
  {
    const host::MutexLock lock(mutex_);
    is_stopped_ = true;
  }
  membership_->stop();
  if (local_ != nullptr) local_->follow(0);
  transport_->stop();
}

// A call during shutdown is either processed or answered with an error.
template <class T>
bool EtcdCluster::refuses(const Answer<T>& answer) const {
  {
    const host::MutexLock lock(mutex_);
    if (!is_stopped_) return false;
  }
  answer(fail(std::errc::operation_canceled, "cluster", "this server is leaving it"));
  return true;
}

// ---- calls of membership, on its thread ----

// Uses the newer of the rules on disk and in etcd, and saves them before they take effect.
void EtcdCluster::keep(MembershipView& view) {
  ClusterState known = state_->state();
  std::string error = history_error();
  if (error.empty() && known.is_followed_by(view.history, view.revision)) {
    const bool is_same = known.knows_rules() && known.rules == view.rules;
    if (!is_same) known.revision = view.revision;
    known.history = view.history;
    known.rules = view.rules;
  } else {
    // This lasts until the restart, even if etcd's revision grows past ours: its data is
    // still incomplete.
    if (error.empty()) {
      error = fmt::format(
          "the rules in etcd are not used, because etcd has lost data: {} has rules "
          "of its revision {}, and etcd is at revision {}{}; if its data was "
          "replaced on purpose, remove the file and start this server again",
          state_->path(), known.revision, view.revision,
          view.history == known.history ? "" : " of another data set");
    }
    view.rules = known.rules;
  }
  // Servers that shut down normally have no name until they restart, so the number of names may be
  // too small.
  const auto names = static_cast<std::uint32_t>(names_in(view, options_.name).size());
  known.members = std::max(names, members_told_ != 0 ? members_told_ : known.members);
  const auto kept = state_->keep(std::move(known));
  state_error_ =
      kept ? ""
           : fmt::format("the rules of the cluster cannot be saved: {}", kept.error().message());
  const host::MutexLock lock(mutex_);
  history_error_ = std::move(error);
  start_words_.clear();
}

// The first time, decides how clients are served; later calls change nothing.
void EtcdCluster::unheard(const Error& why) {
  if (std::exchange(has_asked_, true)) return;
  const ClusterState& known = state_->state();
  std::optional<std::uint32_t> pace;
  if (known.knows_rules()) {
    say(fmt::format("cluster: etcd does not answer; using the {} rules in {} (etcd revision {})",
                    known.rules.size(), state_->path(), known.revision));
  } else {
    const bool is_open = options_.start_without == serve::ClusterOptions::StartWithout::kRate;
    if (is_open) pace = options_.start_rate;
    std::string words = is_open ? fmt::format("serving at most {} operations per second", *pace)
                                : "accepting no clients";
    words += " until etcd answers, because the rules of the cluster are not known";
    say(fmt::format("cluster: {} (start_without in [cluster]): {}", words, why.message()));
    const host::MutexLock lock(mutex_);
    start_words_ = std::move(words);
    if (!is_open) return;
  }
  (void)ask(*node_, [&](Instant /*now*/) -> Result<void> {
    node_->open_entrance(pace);
    return {};
  });
}

void EtcdCluster::heard(const MembershipView& said) {
  has_asked_ = true;
  MembershipView view = said;
  keep(view);
  update_leading(view);
  follow(view);
  seek(view);
  sync_rules(view);
  const host::MutexLock lock(mutex_);
  see(view);
  view_ = view;
}

void EtcdCluster::see(const MembershipView& view) {
  const Instant now = host::now();
  std::map<std::string, Instant> seen;
  for (const MembershipView::Member& one : view.known) {
    const auto before = seen_.find(one.name);
    if (before != seen_.end()) seen.insert(*before);
  }
  for (const MembershipView::Member& one : view.members) seen[one.name] = now;
  seen_ = std::move(seen);
}

// Slices without an end need no lease of their leader: a leader without etcd divides what is
// reported to it until a listing shows that it does not lead, and members that know of another
// leader no longer report to it.
void EtcdCluster::deposed() {
  if (is_last()) return;
  led_term_ = 0;
  transport_->stop_leading();
}

void EtcdCluster::update_leading(const MembershipView& view) {
  SliceLimits limits;
  for (const SharedRule& rule : view.rules) add_limits(rule, limits);
  transport_->set_limits(std::move(limits));
  MemberNames running;
  for (const MembershipView::Member& one : view.members) running.insert(one.name);
  transport_->set_known(names_in(view, options_.name), std::move(running));
  if (!view.leads) {
    if (std::exchange(led_term_, 0) != 0) transport_->stop_leading();
    return;
  }
  if (led_term_ == view.term) return;
  led_term_ = view.term;
  using Before = EpochTransport::Before;
  transport_->lead(view.term, view.is_first ? Before::kNobody : Before::kSomebody, view.until);
  say(fmt::format("cluster: {} leads in term {}", options_.name, view.term));
}

void EtcdCluster::follow(const MembershipView& view) {
  if (view.term == 0 || followed_ == view.term) return;  // the previous leader may still be active
  followed_ = view.term;
  followed_at_ = host::now();
  transport_->follow(view.term, view.leader_address);
  if (local_ != nullptr) local_->follow(view.term);
  (void)node_->order([this, term = view.term](const Result<Instant>& now) {
    if (now) member_->follow(term, *now);
  });
}

// Other servers that do not reach the leader greet this server too; together they may find a
// better one.
void EtcdCluster::seek(const MembershipView& view) {
  const Instant unjoined{Nanoseconds{unjoined_since_}};
  const bool has_patience =
      host::now() - std::max(unjoined, followed_at_) < patience(options_.lease);
  seeks_ = view.term == 0 || (!view.leads && unjoined != kNever && !has_patience);
  std::vector<Peer> registered;
  if (seeks_) {
    registered.reserve(view.members.size());
    for (const MembershipView::Member& one : view.members) {
      registered.push_back({one.name, one.incarnation, one.address});
    }
  }
  transport_->seek(std::move(registered));
}

// On the transport's thread.
void EtcdCluster::note_link(const EpochTransport::LinkState& state) {
  is_refused_ = state.is_refused;
  if (state.is_joined && state.leader != options_.name) was_connected_ = true;
  const bool was_joined = unjoined_since_ == kNever.time_since_epoch().count();
  if (state.is_joined == was_joined) return;
  unjoined_since_ = (state.is_joined ? kNever : host::now()).time_since_epoch().count();
}

Membership::Connected EtcdCluster::connected() {
  const std::size_t now = transport_->connected();
  if (now > 1) was_connected_ = true;
  return {.now = now, .was_connected = was_connected_, .seeks = seeks_};
}

void EtcdCluster::sync_rules(const MembershipView& view) {
  const std::uint32_t members = state_->state().members;
  auto errors = ask(*node_, [&](Instant now) -> Result<std::vector<std::string>> {
    auto unfit = member_->sync_rules(view.rules, members, now);
    members_told_ = member_->members_told();
    node_->open_entrance(std::nullopt);
    return unfit;
  });
  if (!errors) return;  // it stops
  note_errors(std::move(*errors));
}

void EtcdCluster::note_errors(std::vector<std::string> errors) {
  if (!state_error_.empty()) errors.push_back(state_error_);
  if (std::string error = history_error(); !error.empty()) errors.push_back(std::move(error));
  for (const std::string& error : errors) {
    const bool is_new =
        std::find(said_errors_.begin(), said_errors_.end(), error) == said_errors_.end();
    if (is_new) say("cluster: " + error);
  }
  said_errors_ = errors;
  const host::MutexLock lock(mutex_);
  rule_errors_ = std::move(errors);
}

Result<void> EtcdCluster::check(const std::string& service, const RuleChange& change) {
  return ask(*node_, [&](Instant /*now*/) -> Result<void> {
    for (const ClusterNode::Service& each : node_->services()) {
      if (each.name == service) return each.sink->check_rules({&change, 1});
    }
    return fail(std::errc::no_such_file_or_directory, "service " + quote(service),
                "does not exist on this server", "send the command to a server that has it");
  });
}

// ---- requests ----

// Adds the servers in etcd, and how long they have been away.
void EtcdCluster::add_known(ClusterStatus& status) const {
  const host::MutexLock lock(mutex_);
  std::map<std::string_view, serve::MemberStatus> members;
  const Instant now = host::now();
  for (const MembershipView::Member& one : view_.known) {
    serve::MemberStatus& member = members[one.name];
    member.address = one.address;
    if (const auto seen = seen_.find(one.name); seen != seen_.end()) {
      member.away = now - seen->second;
    }
  }
  for (const MembershipView::Member& one : view_.members) {
    serve::MemberStatus& member = members[one.name];
    member.address = one.address;
    member.is_registered = true;
    member.away.reset();
  }
  for (auto& [name, member] : members) {
    member.name = name;
    status.members.push_back(std::move(member));
  }
}

void EtcdCluster::add_members(ClusterStatus& status,
                              const EpochTransport::Description& described) const {
  add_known(status);
  if (!described.leader) return;
  for (const serve::MemberStatus& one : described.leader->members) {
    const auto found = std::find_if(status.members.begin(), status.members.end(),
                                    [&](const auto& each) { return each.name == one.name; });
    if (found == status.members.end() && !one.is_joined) continue;  // it left normally
    serve::MemberStatus& member =
        found == status.members.end() ? status.members.emplace_back() : *found;
    member.name = one.name;
    member.is_joined = one.is_joined;
    if (one.is_joined) member.away.reset();
    member.slices = one.slices;
  }
  status.at_leader = *described.leader;
}

void EtcdCluster::status(Answer<ClusterStatus> answer) {
  if (refuses(answer)) return;
  transport_->describe([this, answer](const EpochTransport::Description& described) {
    auto status = std::make_shared<ClusterStatus>();
    status->name = options_.name;
    status->partition = is_last() ? "last" : "safe";
    {
      const host::MutexLock lock(mutex_);
      status->leader = view_.term == 0 ? "" : view_.leader;
      status->rule_errors = rule_errors_;
    }
    add_members(*status, described);
    const auto ordered =
        node_->order([this, answer, status, link = described.link](const Result<Instant>& now) {
          if (!now) return answer(tl::unexpected(now.error()));
          member_->describe(*status, *now);
          add_state(*status, link);
          answer(std::move(*status));
        });
    if (!ordered) answer(tl::unexpected(ordered.error()));
  });
}

// A server is joined while it is in an epoch, whatever the state of etcd. Without etcd and without
// epochs it does not know the leader.
void EtcdCluster::add_state(ClusterStatus& status, const EpochTransport::LinkState& link) const {
  const std::string trouble = membership_->trouble();
  const bool is_in_epochs = status.epoch > 0;
  status.state = is_in_epochs ? "joined" : trouble.empty() ? "joining" : "alone";
  if (!is_in_epochs && !trouble.empty()) status.leader.clear();
  const bool waits = !is_in_epochs && link.is_joined;
  status.why = !trouble.empty()         ? trouble
               : is_in_epochs           ? ""
               : waits                  ? "the leader has not started an epoch with this server yet"
               : !status.leader.empty() ? link.why
                                        : leaderless_why();
  const host::MutexLock lock(mutex_);
  if (!start_words_.empty()) status.why = start_words_ + ": " + status.why;
}

std::string EtcdCluster::leaderless_why() const {
  const host::MutexLock lock(mutex_);
  return fmt::format("no leader; this server and those that reach it are {} of {} registered",
                     transport_->connected(), view_.members.size());
}

void EtcdCluster::rules(Answer<std::vector<serve::ClusterRule>> answer) {
  std::vector<serve::ClusterRule> rules;
  {
    const host::MutexLock lock(mutex_);
    rules.reserve(view_.rules.size());
    for (const SharedRule& rule : view_.rules) {
      rules.push_back({rule.service, rule.name, rule.changes});
    }
  }
  answer(std::move(rules));
}

void EtcdCluster::change_rule(std::string service, RuleChange change, Answer<void> answer) {
  if (refuses(answer)) return;
  const auto shared = shared_change(std::move(change));
  if (!shared) return answer(tl::unexpected(shared.error()));
  if (const std::string error = history_error(); !error.empty()) {
    return answer(fail(std::errc::device_or_resource_busy, "rule " + quote(shared->name), error));
  }
  membership_->change_rule(service, *shared, answer);
}

// A server whose registration has expired may still take part in epochs.
void EtcdCluster::forget(std::string name, Answer<void> answer) {
  if (refuses(answer)) return;
  transport_->describe([this, name, answer](const EpochTransport::Description& described) {
    if (described.leader) {
      for (const serve::MemberStatus& one : described.leader->members) {
        if (one.name != name || !one.is_joined) continue;
        return answer(fail(std::errc::device_or_resource_busy, "member " + quote(name),
                           "takes part in the epochs", "stop it first"));
      }
    }
    membership_->forget(name, answer);
  });
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::create(serve::Server& server,
                                                 const serve::ClusterOptions& options) {
  return create(std::make_unique<ServeNode>(server), options);
}

Result<std::unique_ptr<Cluster>> Cluster::create(std::unique_ptr<ClusterNode> node,
                                                 const serve::ClusterOptions& options) {
  WEIR_ASSERT(options.is_on());
  auto cluster = std::make_unique<EtcdCluster>(std::move(node), options);
  if (auto opened = cluster->open(); !opened) return tl::unexpected(opened.error());
  return cluster;
}

}  // namespace weir::cluster
