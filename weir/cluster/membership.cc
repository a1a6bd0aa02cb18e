// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/membership.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <deque>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/cluster/cluster_leader.h"
#include "weir/cluster/leader_choice.h"
#include "weir/coordinate/epoch.h"
#include "weir/host/clock.h"
#include "weir/host/mailbox.h"
#include "weir/host/mutex.h"

namespace weir::cluster {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kRetry = milliseconds{300};
constexpr std::string_view kMembers = "members/";
constexpr std::string_view kKnown = "known/";
constexpr std::string_view kLeader = "leader";
constexpr std::string_view kChallenges = "challenges/";
constexpr std::string_view kTerm = "term";
constexpr std::string_view kHistory = "history";
constexpr std::string_view kRules = "rules/";
constexpr std::size_t kNamesTold = 20;
constexpr int kGoodbyes = 3;  // attempts, if etcd was available

std::optional<std::uint32_t> read_term(std::string_view text) {
  std::uint32_t term = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), term);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return term >= 1 && term <= kTermMax ? std::optional(term) : std::nullopt;
}

// "NAME@INCARNATION"
std::string name_in(std::string_view key) {
  return std::string(key.substr(0, std::min(key.rfind('@'), key.size())));
}

// 0: not valid.
std::uint64_t incarnation_in(std::string_view key) {
  std::uint64_t number = 0;
  const std::string_view digits = key.substr(std::min(key.rfind('@') + 1, key.size()));
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return error == std::errc{} && end == digits.data() + digits.size() ? number : 0;
}

// Counts members by name: a restarted server may be registered twice for a while.
std::size_t count_names(const std::vector<MembershipView::Member>& members) {
  std::set<std::string_view> names;
  for (const MembershipView::Member& one : members) names.insert(one.name);
  return names.size();
}

// Whether it is a name as in weir.conf(5); others were written by hand.
bool is_server_name(std::string_view name) {
  return !name.empty() && name.size() <= ClusterLeader::kNameMax &&
         std::all_of(name.begin(), name.end(), [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
                  (letter >= '0' && letter <= '9') || letter == '_' || letter == '-';
         });
}

bool is_registered(const MembershipView& view, std::string_view name) {
  return std::any_of(view.members.begin(), view.members.end(),
                     [&](const auto& one) { return one.name == name; });
}

// "members that are away: b, c"
std::string away_text(const MembershipView& view) {
  std::string text;
  std::size_t count = 0;
  for (const MembershipView::Member& one : view.known) {
    if (is_registered(view, one.name)) continue;
    if (count++ < kNamesTold) text += (text.empty() ? "" : ", ") + one.name;
  }
  if (count > kNamesTold) text += fmt::format(" and {} more", count - kNamesTold);
  return count == 0 ? "no member is away" : "members that are away: " + text;
}

class EtcdMembership final : public Membership {
 public:
  EtcdMembership(const Options& options, Listener listener, std::unique_ptr<EtcdClient> etcd,
                 host::Fd wake_fd)
      : options_(options),
        listener_(std::move(listener)),
        etcd_(std::move(etcd)),
        prefix_(options.prefix + "/"),
        history_(options.history),
        own_(fmt::format("{}@{:016x}", options.name, options.incarnation)),
        letters_(std::move(wake_fd)) {}

  ~EtcdMembership() override { stop(); }
  EtcdMembership(const EtcdMembership&) = delete;
  EtcdMembership& operator=(const EtcdMembership&) = delete;

  void start() override;
  void stop() override;
  void look_again() override;
  Result<std::function<void()>> read_certificates() override { return etcd_->read_certificates(); }
  void change_rule(const std::string& service, const RuleChange& change,
                   const Answer& answer) override {
    ask([this, service, change] { return carry_out(service, change); }, answer);
  }
  void forget(const std::string& name, const Answer& answer) override {
    ask([this, name] { return drop(name); }, answer);
  }
  std::string trouble() const override {
    const host::MutexLock lock(mutex_);
    return trouble_;
  }

 private:
  struct Asked {
    std::function<Result<void>()> carry_out;  // none: etcd has changed, or the thread must stop
    Answer answer;
  };

  void run();
  void wait();
  Result<void> turn();
  Result<void> hold_lease(Instant now);
  Result<void> look();
  Result<MembershipView> list();
  Connectivity connectivity_in(const MembershipView& view);
  bool may_campaign(const Connectivity& connectivity);
  Result<void> campaign(const MembershipView& view);
  Result<void> challenge(const MembershipView& view, const Connectivity& connectivity);
  Result<void> yield(const Connectivity& connectivity, std::size_t challenger);
  MembershipView read(const std::vector<EtcdClient::Entry>& entries);
  void read_leader(const EtcdClient::Entry& entry, MembershipView& view) const;
  void read_rule(const EtcdClient::Entry& entry, MembershipView& view);
  void read_challenges(const std::vector<EtcdClient::Entry>& entries, MembershipView& view) const;
  void lose_lease();
  Result<void> leave();
  void note(const Result<void>& turned);
  void tell_away(const Error& why);
  void ask(std::function<Result<void>()> carry_out, const Answer& answer);
  Result<void> carry_out(const std::string& service, const RuleChange& change);
  Result<void> drop(const std::string& name);
  std::string key(std::string_view rest) const { return prefix_ + std::string(rest); }
  Instant sure_until() const { return kept_at_ + length_ * 2 / 3; }

  Options options_;
  Listener listener_;
  std::unique_ptr<EtcdClient> etcd_;
  std::string prefix_;
  std::uint64_t history_;
  std::string own_;  // NAME@INCARNATION
  std::unique_ptr<EtcdWatch> watch_;
  std::thread thread_;

  host::Mailbox<Asked> letters_;
  std::atomic<bool> has_news_ = true;  // a letter was written for it, except the first time
  std::atomic<bool> is_ending_ = false;
  mutable host::Mutex mutex_;
  std::string trouble_ ABSL_GUARDED_BY(mutex_);

  // Members of its thread.
  std::deque<Asked> asked_;
  std::int64_t lease_ = 0;  // 0: none
  Nanoseconds length_{0};
  Instant kept_at_{};  // when it was last renewed
  Instant turn_at_{};
  std::uint32_t last_term_ = 0;  // the largest seen
  std::int64_t term_modified_ = 0;
  Instant leaderless_since_ = kNever;
  bool seeks_ = false;
  std::string challenge_;  // as written to etcd; empty: none
  Instant stands_aside_until_{};
  enum class Told : std::uint8_t { kNothing, kInEpochs, kAlone } told_ = Told::kNothing;
  bool was_joined_ = false;
  std::string last_mistake_;
};

// ---- its thread ----

void EtcdMembership::start() {
  watch_ = std::make_unique<EtcdWatch>(*etcd_, prefix_, [this] { look_again(); });
  thread_ = std::thread([this] { run(); });
}

void EtcdMembership::stop() {
  if (!thread_.joinable()) return;
  is_ending_ = true;
  (void)letters_.put_always({});
  thread_.join();
  watch_.reset();
  for (Asked& one : letters_.close()) asked_.push_back(std::move(one));
  for (const Asked& one : std::exchange(asked_, {})) {
    if (one.answer)
      one.answer(fail(std::errc::operation_canceled, "cluster", "this server is leaving it"));
  }
  if (lease_ == 0) return;
  for (int tries = trouble().empty() ? kGoodbyes : 1; tries > 0; --tries) {
    if (leave()) break;
  }
  (void)etcd_->revoke(lease_);
}

// Removes its name, so that it does not count as away. A name that another server has too stays.
Result<void> EtcdMembership::leave() {
  const auto entries = etcd_->list(prefix_);
  if (!entries) return tl::unexpected(entries.error());
  const std::string known_key = key(kKnown) + options_.name;
  const std::string member_key = key(kMembers) + own_;
  const std::string same_name = key(kMembers) + options_.name + "@";
  std::int64_t modified = 0;
  bool is_shared = false;
  for (const EtcdClient::Entry& one : *entries) {
    if (one.key == known_key) modified = one.modified;
    is_shared = is_shared || (one.key.starts_with(same_name) && one.key != member_key);
  }
  if (modified == 0 || is_shared) return {};
  const auto done = etcd_->commit({{known_key, modified}},
                                  {{known_key, std::nullopt, 0}, {member_key, std::nullopt, 0}});
  if (!done) return tl::unexpected(done.error());
  return {};
}

void EtcdMembership::look_again() {
  if (!has_news_.exchange(true)) (void)letters_.put_always({});
}

void EtcdMembership::run() {
  for (;;) {
    wait();
    if (is_ending_) return;
    if (!asked_.empty()) {
      const Asked asked = std::move(asked_.front());
      asked_.pop_front();
      auto done = asked.carry_out();
      // When a change is answered, it is in effect.
      if (done) note(look());
      asked.answer(std::move(done));
      if (host::now() < turn_at_) continue;
    } else {
      has_news_ = false;
    }
    note(turn());
  }
}

// Waits until there is something to do. Pending requests go before changes in etcd.
void EtcdMembership::wait() {
  letters_.wait(asked_.empty() && !has_news_ ? turn_at_ : Instant{});
  for (Asked& letter : letters_.take()) {
    if (letter.carry_out) asked_.push_back(std::move(letter));
  }
}

Result<void> EtcdMembership::turn() {
  const Instant now = host::now();
  turn_at_ = now + kRetry;
  if (auto held = hold_lease(now); !held) return held;
  if (auto looked = look(); !looked) return looked;
  turn_at_ = std::min(kept_at_ + length_ / 3, host::now() + length_ / 3);
  if (seeks_) turn_at_ = std::min(turn_at_, host::now() + kRetry);
  return {};
}

Result<void> EtcdMembership::hold_lease(Instant now) {
  if (lease_ != 0 && now < kept_at_ + length_ / 3 - milliseconds{1}) return {};
  if (lease_ != 0) {
    const auto kept = etcd_->keep_alive(lease_);
    if (kept) {
      kept_at_ = now;
      length_ = std::min<Nanoseconds>(*kept, options_.lease);
      return {};
    }
    const bool is_gone = kept.error().code == std::errc::no_such_file_or_directory;
    if (is_gone || now >= kept_at_ + length_) lose_lease();
    if (!is_gone) return tl::unexpected(kept.error());
  }
  const auto lease = etcd_->grant(options_.lease);
  if (!lease) return tl::unexpected(lease.error());
  const auto registered = etcd_->commit({}, {{key(kMembers) + own_, options_.address, lease->id},
                                             {key(kKnown) + options_.name, options_.address, 0}});
  if (!registered) return tl::unexpected(registered.error());
  lease_ = lease->id;
  length_ = std::min(lease->length, options_.lease);
  kept_at_ = now;
  return {};
}

void EtcdMembership::lose_lease() {
  lease_ = 0;
  challenge_.clear();  // the key ends with the lease
  listener_.deposed();
}

// An etcd without a history is new, unless this server has rules of an earlier one.
Result<MembershipView> EtcdMembership::list() {
  auto listing = etcd_->look(prefix_);
  if (!listing) return tl::unexpected(listing.error());
  MembershipView view = read(listing->entries);
  if (view.history == 0 && history_ == 0) {
    const auto begun =
        etcd_->commit({EtcdClient::absent(key(kHistory))},
                      {{key(kHistory), fmt::format("{:016x}", options_.incarnation)}});
    if (!begun) return tl::unexpected(begun.error());
    listing = etcd_->look(prefix_);
    if (!listing) return tl::unexpected(listing.error());
    view = read(listing->entries);
  }
  if (history_ == 0) history_ = view.history;
  view.revision = listing->revision;
  return view;
}

// Lists all keys and acts on them.
Result<void> EtcdMembership::look() {
  auto listed = list();
  if (!listed) return tl::unexpected(listed.error());
  MembershipView view = std::move(*listed);
  view.until = sure_until();
  listener_.heard(view);
  const Connectivity connectivity = connectivity_in(view);
  if (view.term != 0) leaderless_since_ = kNever;
  if (view.leads) {
    if (should_yield(connectivity, view.challenger)) return yield(connectivity, view.challenger);
    listener_.confirmed(view.until);
  }
  if (view.term == 0) return may_campaign(connectivity) ? campaign(view) : Result<void>{};
  return challenge(view, connectivity);
}

Connectivity EtcdMembership::connectivity_in(const MembershipView& view) {
  const Connected connected = listener_.connected();
  seeks_ = connected.seeks;
  return {.registered = count_names(view.members),
          .connected = connected.now,
          .was_connected = connected.was_connected};
}

bool EtcdMembership::may_campaign(const Connectivity& connectivity) {
  const Instant now = host::now();
  leaderless_since_ = std::min(leaderless_since_, now);
  if (lease_ == 0 || now < stands_aside_until_ || !listener_.may_lead()) return false;
  const auto wait = wait_to_lead(connectivity, length_);
  return wait && now >= leaderless_since_ + *wait;
}

// Writes or removes the challenge to the current leader.
Result<void> EtcdMembership::challenge(const MembershipView& view,
                                       const Connectivity& connectivity) {
  const bool challenges = seeks_ && !view.leads && lease_ != 0 && should_challenge(connectivity) &&
                          host::now() >= stands_aside_until_ && listener_.may_lead();
  std::string text = challenges ? fmt::format("{} {}", view.term, connectivity.connected) : "";
  if (text == challenge_) return {};
  EtcdClient::Write write{key(kChallenges) + own_, std::nullopt, 0};
  if (challenges) {
    write.value = text;
    write.lease = lease_;
  }
  const auto done = etcd_->commit({}, {write});
  if (!done) return tl::unexpected(done.error());
  challenge_ = std::move(text);
  return {};
}

// Stops leading first. Revokes the lease instead of deleting the key: otherwise there could be two
// leaders in one term, if etcd did not answer.
Result<void> EtcdMembership::yield(const Connectivity& connectivity, std::size_t challenger) {
  listener_.say(
      fmt::format("cluster: {} servers reach each other but not this one, which is connected with "
                  "{} of {}: stepping down as leader; if this repeats, check the certificates and "
                  "the network of this server",
                  challenger, connectivity.connected, connectivity.registered));
  const std::int64_t lease = lease_;
  lose_lease();
  stands_aside_until_ = host::now() + length_;
  return etcd_->revoke(lease);
}

Result<void> EtcdMembership::campaign(const MembershipView& view) {
  if (last_term_ >= kTermMax) {
    return fail(std::errc::value_too_large, "cluster", "has used up all terms",
                "set another prefix in [cluster]");
  }
  const std::uint32_t term = last_term_ + 1;
  const auto won =
      etcd_->commit({EtcdClient::absent(key(kLeader)), {key(kTerm), term_modified_}},
                    {{key(kLeader), fmt::format("{} {} {}", term, own_, options_.address), lease_},
                     {key(kTerm), std::to_string(term)}});
  if (!won) return tl::unexpected(won.error());
  look_again();  // to see which server won
  if (!*won) return {};
  MembershipView mine = view;
  mine.term = term;
  mine.leader = options_.name;
  mine.leader_address = options_.address;
  mine.leads = true;
  mine.is_first = term == 1;
  listener_.heard(mine);
  return {};
}

// ---- reading ----

MembershipView EtcdMembership::read(const std::vector<EtcdClient::Entry>& entries) {
  MembershipView view;
  term_modified_ = 0;
  for (const EtcdClient::Entry& entry : entries) {
    const std::string_view rest = std::string_view(entry.key).substr(prefix_.size());
    if (rest == kLeader) {
      read_leader(entry, view);
    } else if (rest == kHistory) {
      (void)std::from_chars(entry.value.data(), entry.value.data() + entry.value.size(),
                            view.history, 16);
    } else if (rest == kTerm) {
      term_modified_ = entry.modified;
      last_term_ = std::max(last_term_, read_term(entry.value).value_or(0));
    } else if (rest.starts_with(kMembers)) {
      const std::string_view who = rest.substr(kMembers.size());
      view.members.push_back({name_in(who), entry.value, incarnation_in(who)});
    } else if (rest.starts_with(kKnown)) {
      const std::string_view name = rest.substr(kKnown.size());
      if (is_server_name(name)) view.known.push_back({std::string(name), entry.value});
    } else if (rest.starts_with(kRules)) {
      read_rule(entry, view);
    }
  }
  last_term_ = std::max(last_term_, view.term);
  read_challenges(entries, view);
  std::sort(view.rules.begin(), view.rules.end(), [](const SharedRule& a, const SharedRule& b) {
    return std::pair(a.created, a.key()) < std::pair(b.created, b.key());
  });
  return view;
}

void EtcdMembership::read_leader(const EtcdClient::Entry& entry, MembershipView& view) const {
  const std::string_view value = entry.value;
  const std::size_t first = value.find(' ');
  const std::size_t second = value.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) return;
  const auto term = read_term(value.substr(0, first));
  if (!term) return;
  const std::string_view who = value.substr(first + 1, second - first - 1);
  view.term = *term;
  view.leader = name_in(who);
  view.leader_address = std::string(value.substr(second + 1));
  view.leads = who == own_ && entry.lease == lease_ && lease_ != 0;
  view.is_first = *term == 1;
}

// Challenges of the current term by other servers; none is connected with more servers than exist.
void EtcdMembership::read_challenges(const std::vector<EtcdClient::Entry>& entries,
                                     MembershipView& view) const {
  const std::string begin = key(kChallenges);
  for (const EtcdClient::Entry& entry : entries) {
    if (!entry.key.starts_with(begin) || entry.key.ends_with("/" + own_)) continue;
    const std::string_view value = entry.value;
    const std::size_t space = std::min(value.find(' '), value.size());
    if (read_term(value.substr(0, space)) != view.term) continue;
    std::size_t count = 0;
    (void)std::from_chars(value.data() + std::min(space + 1, value.size()),
                          value.data() + value.size(), count);
    view.challenger = std::max(view.challenger, std::min(count, count_names(view.members)));
  }
}

void EtcdMembership::read_rule(const EtcdClient::Entry& entry, MembershipView& view) {
  const std::string_view name = std::string_view(entry.key).substr(prefix_.size() + kRules.size());
  auto rule = read_shared_rule(name, entry.value);
  if (!rule) {
    const std::string mistake = rule.error().message();
    if (mistake != last_mistake_) listener_.say("cluster: " + mistake);
    last_mistake_ = mistake;
    return;
  }
  rule->created = entry.created;
  rule->modified = entry.modified;
  view.rules.push_back(std::move(*rule));
}

// Epochs continue without etcd while the leader does; the end of that is also logged, once.
void EtcdMembership::tell_away(const Error& why) {
  const Told now = listener_.is_led() ? Told::kInEpochs : Told::kAlone;
  if (told_ == now || told_ == Told::kAlone) return;
  told_ = now;
  const std::string_view words = now == Told::kAlone
                                     ? "running alone until etcd is available"
                                     : "etcd is not available; continuing in the epochs while the "
                                       "leader is reachable";
  listener_.say(fmt::format("cluster: {}: {}", words, why.message()));
}

// Logs once that etcd is not available, and once that it is available again.
void EtcdMembership::note(const Result<void>& turned) {
  {
    const host::MutexLock lock(mutex_);
    trouble_ = turned ? "" : turned.error().message();
  }
  if (!turned) {
    if (lease_ != 0 && host::now() >= kept_at_ + length_) lose_lease();
    tell_away(turned.error());
    listener_.unheard(turned.error());
    return;
  }
  if (std::exchange(told_, Told::kNothing) != Told::kNothing || !was_joined_) {
    listener_.say(fmt::format("cluster: registered as {}", options_.name));
  }
  was_joined_ = true;
}

// ---- requests ----

void EtcdMembership::ask(std::function<Result<void>()> carry_out, const Answer& answer) {
  if (letters_.put_always({std::move(carry_out), answer})) return;
  answer(fail(std::errc::operation_canceled, "cluster", "this server is leaving it"));
}

// Registration writes the same key, so a server that comes back meanwhile is not forgotten.
Result<void> EtcdMembership::drop(const std::string& name) {
  const auto entries = etcd_->list(prefix_);
  if (!entries) return tl::unexpected(entries.error());
  const MembershipView view = read(*entries);
  const std::string member = "member " + quote(name);
  if (is_registered(view, name)) {
    return fail(std::errc::device_or_resource_busy, member, "is registered",
                fmt::format("stop it first; a server that was killed stays registered until its "
                            "lease expires ({} s)",
                            options_.lease / std::chrono::seconds{1}));
  }
  const std::string known_key = key(kKnown) + name;
  const auto found = std::find_if(entries->begin(), entries->end(),
                                  [&](const auto& one) { return one.key == known_key; });
  if (found == entries->end()) {
    return fail(std::errc::no_such_file_or_directory, member, "is not known", away_text(view));
  }
  const auto done = etcd_->commit({{known_key, found->modified}}, {{known_key, std::nullopt, 0}});
  if (!done) return tl::unexpected(done.error());
  if (*done) return {};
  return fail(std::errc::resource_unavailable_try_again, member,
              "came back or was forgotten concurrently", "check with: weir cluster status");
}

Result<void> EtcdMembership::carry_out(const std::string& service, const RuleChange& change) {
  const std::string name = service + "/" + change.name;
  const std::string rule_key = key(kRules) + name;
  const auto entries = etcd_->list(rule_key);
  if (!entries) return tl::unexpected(entries.error());
  const auto found = std::find_if(entries->begin(), entries->end(),
                                  [&](const auto& one) { return one.key == rule_key; });
  const bool is_there = found != entries->end();
  if (is_there == (change.verb == Verb::kStart)) {
    return is_there ? fail(std::errc::file_exists, "rule " + quote(name), "already exists",
                           "change it, or stop it first")
                    : fail(std::errc::no_such_file_or_directory, "rule " + quote(name),
                           "is not a rule of the cluster", "list them: weir cluster rule list");
  }
  EtcdClient::Write write{rule_key, std::nullopt, 0};
  if (change.verb == Verb::kStart) {
    write.value = print(change) + "\n";
  } else if (change.verb == Verb::kChange) {
    auto rule = read_shared_rule(name, found->value);
    if (!rule) return tl::unexpected(rule.error());
    write.value = with_change(std::move(*rule), change).print();
  }
  if (change.verb != Verb::kStop) {
    if (auto checked = listener_.check(service, change); !checked) return checked;
  }
  const auto done = etcd_->commit({{rule_key, is_there ? found->modified : 0}}, {write});
  if (!done) return tl::unexpected(done.error());
  if (*done) return {};
  return fail(std::errc::resource_unavailable_try_again, "rule " + quote(name),
              "was changed concurrently", "try again");
}

}  // namespace

Result<std::unique_ptr<Membership>> Membership::create(const Options& options, Listener listener) {
  auto etcd = EtcdClient::create(options.etcd);
  if (!etcd) return tl::unexpected(etcd.error());
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  return std::make_unique<EtcdMembership>(options, std::move(listener), *std::move(etcd),
                                          *std::move(wake_fd));
}

}  // namespace weir::cluster
