// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/cluster_leader.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/coordinate/cluster_rules.h"
#include "weir/coordinate/epoch_bundle.h"
#include "weir/coordinate/epoch_combine.h"
#include "weir/coordinate/message.h"
#include "weir/coordinate/vectors.h"

namespace weir::cluster {
namespace {

// Enough for all members to report their number before slices are granted.
constexpr int kHearingPart = 16;           // of a lease
constexpr std::size_t kSlicesShown = 100;  // of a member

std::string_view word_of(Partition partition) {
  return partition == Partition::kLast ? "last" : "safe";
}

// Courses of services sum vectors; others say by their names what they do. None: not valid.
std::optional<EpochLeader::Options> course_options(const std::string& course, std::uint32_t term) {
  EpochLeader::Options options{.term = term, .combine = add_vectors};
  if (!is_local_course(course)) return options;
  const auto combine = combine_of(course);
  if (!combine) return std::nullopt;
  options.gathers = *combine == Combine::kGather;
  options.combine = options.gathers ? nullptr : function_of(*combine);
  return options;
}

Result<EpochMessage> members_message(const std::string& course, EpochView bytes) {
  auto message = decode(bytes);
  if (!message) return message;
  if (std::holds_alternative<Start>(*message) || std::holds_alternative<Refuse>(*message)) {
    return fail(std::errc::bad_message, "message", "only a leader may send this message");
  }
  if (course.size() > kCourseNameMax) {
    return fail(std::errc::bad_message, "message",
                "names a course that is not a valid service name");
  }
  return message;
}

}  // namespace

ClusterLeader::ClusterLeader(const Options& options, const SliceLimits& limits, Instant now)
    : options_(options),
      speaks_at_(options.is_first || options.terms.partition == Partition::kLast
                     ? now
                     : now + options.terms.lease * (kHearingPart - 1) / kHearingPart),
      limits_(limits),
      slices_(
          {.terms = options.terms, .term = options.term, .is_first = options.is_first},
          [this](std::string_view name) -> std::optional<std::int64_t> {
            const auto found = limits_.find(limit_name(name));
            if (found == limits_.end()) return std::nullopt;
            return found->second;
          },
          now),
      leader_({.term = options.term, .combine = add_vectors, .payload = &slices_}),
      tree_(options.fanout) {}

Result<ClusterLeader::Welcome> ClusterLeader::greet(const Hello& hello, Instant now) {
  const std::string member = "member " + quote(hello.name);
  if (hello.protocol != kEpochProtocol) {
    return fail(std::errc::protocol_not_supported, member,
                fmt::format("uses version {} of the protocol, but the leader, {}, uses version {}",
                            hello.protocol, options_.name, kEpochProtocol),
                "run compatible versions of weir");
  }
  if (hello.partition != options_.terms.partition) {
    return fail(
        std::errc::protocol_not_supported, member,
        fmt::format("has partition = \"{}\", but the leader, {}, has \"{}\"",
                    word_of(hello.partition), options_.name, word_of(options_.terms.partition)),
        "set the same partition in [cluster] on all servers");
  }
  if (hello.term != options_.term) {
    return fail_errno(
        ESTALE, member,
        fmt::format("{} leads in term {}, not in {}", options_.name, options_.term, hello.term));
  }
  if (hello.name.empty() || hello.name.size() > kNameMax) {
    return fail(std::errc::invalid_argument, member, "is not a valid server name");
  }
  if (names_.size() >= kEpochMembersMax) {
    return fail(std::errc::no_space_on_device, member, "exceeds the maximum number of members");
  }
  Known& known = known_[hello.name];
  const bool is_same = known.id != 0 && known.incarnation == hello.incarnation;
  if (known.is_joined && !is_same && now - known.heard < kSilence) {
    return fail(std::errc::file_exists, member, "is already the name of another running server",
                "give each server its own name in [cluster]");
  }
  Welcome welcome;
  if (known.is_joined) {
    welcome.replaced = known.id;
    ended(known.id, now);
  }
  if (!is_same) {
    slices_.forget(known.id);
    known.id = next_id_++;
    known.incarnation = hello.incarnation;
    known.has_signalled = false;
  }
  known.is_joined = true;
  known.heard = now;
  known.address = hello.address;
  names_[known.id] = hello.name;
  // The messages of its own member need no way.
  if (!hello.address.empty() && hello.name != options_.name) tree_.add(known.id);
  welcome.id = known.id;
  if (!is_same) count_absent();
  return welcome;
}

const std::string& ClusterLeader::name_of(MemberId member) const {
  const auto found = names_.find(member);
  WEIR_ASSERT(found != names_.end(), member);
  return found->second;
}

Result<void> ClusterLeader::receive(MemberId from, const std::string& course, EpochView bytes,
                                    Instant now) {
  known_.find(name_of(from))->second.heard = now;
  const auto message = members_message(course, bytes);
  if (!message) {
    ++garbage_;
    return tl::unexpected(message.error());
  }
  take(from, from, course, *message, now);
  return {};
}

// A relay checks what it carries, so it answers for it.
Result<void> ClusterLeader::receive_bundle(MemberId from, EpochView bytes, Instant now) {
  known_.find(name_of(from))->second.heard = now;
  const auto bundle = read_bundle(bytes);
  if (!bundle) {
    ++garbage_;
    return fail(std::errc::bad_message, "bundle", "it is truncated or not valid");
  }
  ++bundles_;
  for (const CarriedMessage& one : *bundle) {
    const auto message = members_message(one.course, one.message);
    if (!message) {
      ++garbage_;
      return tl::unexpected(message.error());
    }
    if (names_.contains(one.member)) take(one.member, from, one.course, *message, now);
  }
  return {};
}

EpochTree::Copy ClusterLeader::copy_of(MemberId member, const std::string& course,
                                       const EpochMessage& message) const {
  const auto found = courses_.find(course);
  const EpochLeader* const leader = course.empty()            ? &leader_
                                    : found == courses_.end() ? nullptr
                                                              : &found->second;
  const bool is_copy = leader != nullptr && leader->has_received(member, message);
  return is_copy ? EpochTree::Copy::kAgain : EpochTree::Copy::kFirst;
}

void ClusterLeader::take(MemberId member, MemberId from, const std::string& course,
                         const EpochMessage& message, Instant now) {
  if (!tree_.came(member, from, copy_of(member, course, message))) return;
  Known& known = known_.find(name_of(member))->second;
  known.heard = now;
  if (!course.empty()) {
    receive_of_course(member, course, message, now);
  } else if (now >= speaks_at_) {
    leader_.receive(member, message, now);
  }
  if (!known.has_signalled && slices_.knows(member)) {
    known.has_signalled = true;
    count_absent();
  }
}

void ClusterLeader::receive_of_course(MemberId from, const std::string& course,
                                      const EpochMessage& message, Instant now) {
  auto found = courses_.find(course);
  const auto* const ready = std::get_if<Ready>(&message);
  if (found == courses_.end()) {
    if (ready == nullptr) return;
    if (courses_.size() >= kCoursesMax) {
      refused_.push_back({from, course, Refuse{-ENOSPC, ready->serial}});
      return;
    }
    auto options = course_options(course, options_.term);
    if (!options) {
      refused_.push_back({from, course, Refuse{-EINVAL, ready->serial}});
      return;
    }
    found = courses_.try_emplace(course, *std::move(options)).first;
    found->second.confirm(confirmed_until_);
  }
  found->second.receive(from, message, now);
}

void ClusterLeader::ended(MemberId member, Instant now) {
  const auto named = names_.find(member);
  if (named == names_.end()) return;
  Known& known = known_.find(named->second)->second;
  if (known.id == member) known.is_joined = false;
  names_.erase(named);
  tree_.remove(member);
  leader_.evict(member, now);
  for (auto& [name, course] : courses_) course.evict(member, now);
}

void ClusterLeader::confirm(Instant until) {
  if (options_.terms.partition == Partition::kLast) until = kNever;
  confirmed_until_ = until;
  leader_.confirm(until);
  for (auto& [name, course] : courses_) course.confirm(until);
}

void ClusterLeader::set_known(MemberNames names, MemberNames running) {
  named_ = std::move(names);
  running_ = std::move(running);
  std::erase_if(known_, [&](const auto& one) {
    const auto& [name, known] = one;
    if (known.is_joined || named_->contains(name)) return false;
    slices_.forget(known.id);
    return true;
  });
  count_absent();
}

void ClusterLeader::count_absent() {
  if (!named_) return;
  std::uint32_t absent = 0;
  std::uint32_t running = 0;
  for (const std::string& name : *named_) {
    const auto found = known_.find(name);
    if (found != known_.end() && slices_.knows(found->second.id)) continue;
    ++absent;
    if (running_.contains(name)) ++running;
  }
  slices_.set_absent(absent, running);
}

void ClusterLeader::tick(Instant now) {
  leader_.tick(now);
  for (auto& [name, course] : courses_) course.tick(now);
}

Instant ClusterLeader::next_wake() const {
  Instant at = leader_.next_wake();
  for (const auto& [name, course] : courses_) at = std::min(at, course.next_wake());
  return at;
}

std::vector<ClusterLeader::Outgoing> ClusterLeader::take_outgoing() {
  const EpochLeader::Counters& counters = leader_.counters();
  if (counters.rounds != rounds_) {
    times_[rounds_ % kRoundsKept] = counters.last_round;
    rounds_ = counters.rounds;
  }
  std::vector<Outgoing> all = std::exchange(refused_, {});
  const auto add = [&](const std::string& name, EpochLeader& leader) {
    for (auto& [to, message] : leader.take_outgoing())
      all.push_back({to, name, std::move(message)});
  };
  add({}, leader_);
  for (auto& [name, course] : courses_) add(name, course);
  return all;
}

std::vector<ClusterLeader::Route> ClusterLeader::take_routes() {
  std::vector<Route> routes;
  for (const auto& [member, parent] : tree_.take_changes()) {
    routes.push_back({member, parent ? known_.find(name_of(*parent))->second.address : ""});
  }
  return routes;
}

// The duration that `permille` of a thousand rounds do not exceed.
Nanoseconds ClusterLeader::round_quantile(std::size_t permille) const {
  const auto count = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(rounds_, kRoundsKept));
  if (count == 0) return Nanoseconds{0};
  std::vector<Nanoseconds> times(times_.begin(), times_.begin() + count);
  const auto at = times.begin() + (count - 1) * static_cast<std::ptrdiff_t>(permille) / 1000;
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

std::size_t ClusterLeader::connected(Instant now) const {
  return 1 +
         static_cast<std::size_t>(std::count_if(known_.begin(), known_.end(), [&](const auto& one) {
           const auto& [name, known] = one;
           return name != options_.name && now - known.heard < kSilence;
         }));
}

serve::LeaderStatus ClusterLeader::describe(Instant now) const {
  const EpochLeader::Counters& counters = leader_.counters();
  serve::LeaderStatus status{
      .term = options_.term,
      .epoch = leader_.epoch(),
      .rounds = counters.rounds,
      .evictions = counters.evictions,
      .refused = counters.refused + counters.stale,
      .garbage = counters.garbage + garbage_,
      .round_median = round_quantile(500),
      .round_p99 = round_quantile(990),
      .waits_for_reports = slices_.is_quiet() && options_.terms.partition == Partition::kLast,
      .bundles = bundles_};
  status.courses.reserve(courses_.size());
  for (const auto& [name, course] : courses_) {
    status.courses.push_back({.service = name,
                              .epoch = course.epoch(),
                              .rounds = course.counters().rounds,
                              .evictions = course.counters().evictions,
                              .members = course.members()});
  }
  status.members.reserve(known_.size());
  for (const auto& [name, known] : known_) {
    serve::MemberStatus& member = status.members.emplace_back(
        serve::MemberStatus{.name = name, .is_joined = leader_.is_in_epochs(known.id, now)});
    for (const SliceLeader::InUse& used : slices_.slices(known.id, kSlicesShown, now)) {
      member.slices.push_back({.of = used.of, .milli = used.milli, .is_leased = used.is_leased});
    }
  }
  return status;
}

}  // namespace weir::cluster
