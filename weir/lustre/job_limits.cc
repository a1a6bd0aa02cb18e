// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/job_limits.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/coordinate/slices.h"
#include "weir/lustre/names.h"

namespace weir::lustre {
namespace {

using Wide = __int128;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kOne = 1024;
constexpr std::uint64_t kYieldMin = kOne / 2;
// No longer time counts: of a driver that was stopped, say.
constexpr Nanoseconds kElapsedMax = std::chrono::seconds{5};
// A balance is spread over this time, or over that in which the slice gives as many tokens as a
// change gives away free, kFreeParts times.
constexpr Nanoseconds kRepay = std::chrono::milliseconds{400};
constexpr Nanoseconds kRepayMax = std::chrono::seconds{10};
constexpr std::int64_t kFreeParts = 5;
// A class owes at most what its limit gives in this time.
constexpr std::int64_t kDebtSeconds = 5;
// A job is judged over at least this time, and over two gaps between its completions.
constexpr Nanoseconds kJudgeMin = std::chrono::milliseconds{40};
constexpr Nanoseconds kJudgeMax = std::chrono::milliseconds{500};
// A server follows a change when the job's next request has arrived and the old timer has fired.
constexpr std::int64_t kOldIntervals = 2;
constexpr Nanoseconds kFollowMax = std::chrono::milliseconds{500};
// Requests that its cap allows in that time on each CPT, and that show at once that a job is
// backlogged.
constexpr std::uint64_t kJudgeRequests = 8;
constexpr std::uint64_t kQuickRequests = 16;
// Small changes: falls of one job after this time, rises after half of it, and changes of all jobs.
constexpr Nanoseconds kKeepFor = std::chrono::milliseconds{200};
constexpr Nanoseconds kAdjustEvery = std::chrono::milliseconds{50};
constexpr std::uint64_t kStepPercent = 3;
// Large changes.
constexpr Nanoseconds kSettle = std::chrono::milliseconds{20};
// A job that starts may use this many times its part of the limit, if it had one on each server.
constexpr std::int64_t kWelcome = 2;
// Requests of a size that is not known yet.
constexpr std::uint64_t kSizeUnknown = std::uint64_t{1} << 20;
constexpr std::uint64_t kSizeMax = std::uint64_t{1} << 30;
constexpr std::int64_t kMoreThanUsed = 20 * kMilli;
constexpr std::int64_t kBytesPerRequest = 1 << 20;

std::int64_t milli_of(const std::optional<Rate>& rate) {
  if (!rate) return 0;
  const std::uint64_t milli = tokens_in(*rate, std::chrono::seconds{kMilli}).count();
  return static_cast<std::int64_t>(std::min(milli, static_cast<std::uint64_t>(kSliceLimitMax)));
}

std::int64_t bounded(Wide value, std::int64_t least, std::int64_t most) {
  return static_cast<std::int64_t>(std::clamp<Wide>(value, least, most));
}

// count in a time, in thousandths a second.
std::int64_t per_second(std::uint64_t count, Nanoseconds time) {
  if (time <= Nanoseconds{0}) return 0;
  return bounded(Wide{count} * kMilli * kSecond / time.count(), 0, kSliceLimitMax);
}

auto parts_of(const Nid& nid) {
  return std::make_tuple(nid.high, nid.low, nid.net_number, nid.net, nid.family);
}

bool can_limit(Field field) {
  return field == Field::kJobid || field == Field::kNid || field == Field::kUid ||
         field == Field::kGid || field == Field::kProjid || field == Field::kNodemap;
}

// How to make ids tell this field.
std::string_view cure_for(Field field) {
  switch (field) {
    case Field::kUid:
      return "name the code %u with --job-pattern, or uid= in the table of --job-facts";
    case Field::kGid:
      return "name the code %g with --job-pattern, or gid= in the table of --job-facts";
    case Field::kProjid:
    case Field::kNid:
    case Field::kNodemap:
      return "name it in the table of --job-facts";
    default:
      return "limit by jobid, uid, gid, projid, nid or nodemap";
  }
}

}  // namespace

bool JobLimits::ClassId::operator<(const ClassId& other) const {
  const auto parts = [](const ClassId& id) {
    return std::tie(id.rule, id.key.job, id.key.uid, id.key.gid, id.key.projid, id.key.nodemap);
  };
  if (parts(*this) != parts(other)) return parts(*this) < parts(other);
  return parts_of(key.nid) < parts_of(other.key.nid);
}

JobLimits::JobLimits(const Options& options) : options_(options), rules_(FieldSet::generic()) {}

// ---- rules ----

Result<RuleCommand> JobLimits::command_of(const RuleChange& change) const {
  RuleChange full = change;
  const bool starts = change.verb == Verb::kStart;
  if (starts && !full.keys.by) full.keys.by = FieldSet{Field::kJobid};
  auto command = bind(full, FieldSet::generic(), [](std::string_view name) {
    return std::optional(JobFacts::nodemap_id(name));
  });
  if (!command) return command;
  const RuleKeys& keys = full.keys;
  const auto refused = [&](std::string_view what, std::string_view hint) {
    return fail(std::errc::not_supported, "rule " + quote(change.name), what, hint);
  };
  if (keys.burst_ops || keys.burst_bytes || keys.weight || keys.cost || keys.reserve ||
      keys.realtime) {
    return refused("has a key that a Lustre server cannot follow",
                   "give only rates, by, layer and rank");
  }
  FieldSet used = keys.by.value_or(FieldSet{});
  for (const Conditions::Conjunction& conjunction : command->conditions.conjunctions()) {
    for (const FieldTest& test : conjunction) {
      if (test.field != Field::kSubnet) used = used | FieldSet{test.field};
    }
  }
  for (unsigned i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    if (!used.has(field) || (can_limit(field) && options_.facts.fields().has(field))) continue;
    return refused(
        fmt::format("uses {}, which the job ids of this server do not tell", field_name(field)),
        cure_for(field));
  }
  return command;
}

Result<void> JobLimits::check_rules(std::span<const RuleChange> changes) const {
  const std::unique_ptr<RuleList> tried = rules_.copy();
  for (const RuleChange& change : changes) {
    const auto command = command_of(change);
    if (!command) return tl::unexpected(command.error());
    if (auto done = tried->apply(*command); !done) return done;
  }
  return {};
}

Result<void> JobLimits::apply_rules(std::span<const RuleChange> changes, Instant now) {
  if (auto checked = check_rules(changes); !checked) return checked;
  accrue(now);
  for (const RuleChange& change : changes) {
    if (auto applied = rules_.apply(*command_of(change)); !applied) return applied;
  }
  classify_again();
  return {};
}

bool JobLimits::has_rule(std::string_view name) const { return rules_.find(name) != nullptr; }

std::vector<SlicedRule> JobLimits::sliced_rules() const {
  std::vector<SlicedRule> sliced;
  for (const Rule* const rule : rules_.rules()) {
    if (rule->is_default() || rule->limits().scope != Scope::kCluster) continue;
    sliced.push_back({.rule = rule->name(),
                      .ops = slice_limit(rule->limits(), false),
                      .bytes = slice_limit(rule->limits(), true),
                      .by = rule->by()});
  }
  return sliced;
}

// ---- classes ----

std::vector<JobLimits::ClassId> JobLimits::classes_of(const JobId& id) const {
  std::vector<ClassId> classes;
  const Attributes told = options_.facts.of(id);
  for (unsigned layer = 0; layer < kLayers; ++layer) {
    if (!rules_.has_layer(layer)) continue;
    const Rule* const rule = rules_.match(told, layer);
    if (rule == nullptr || rule->is_default() || rule->limits().scope != Scope::kCluster) continue;
    classes.push_back({rule->name(), told.only(rule->by())});
  }
  return classes;
}

JobLimits::Class& JobLimits::class_of(const ClassId& id) {
  const auto [found, is_new] = classes_.try_emplace(id);
  if (!is_new) return found->second;
  if (const auto rest = rest_.find(id.rule); rest != rest_.end()) {
    found->second.ops.slice = rest->second.ops;
    found->second.bytes.slice = rest->second.bytes;
  }
  return found->second;
}

// Rules have changed: jobs that match none have no cap.
void JobLimits::classify_again() {
  generation_ = rules_.generation();
  for (auto& [id, one] : classes_) one.jobs.clear();
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    each->second.classes = classes_of(each->first);
    for (const ClassId& id : each->second.classes) class_of(id).jobs.push_back(each->first);
    if (!each->second.classes.empty()) {
      ++each;
      continue;
    }
    caps_.erase(each->first);
    each = jobs_.erase(each);
  }
  std::erase_if(classes_, [&](const auto& one) { return !has_rule(one.first.rule); });
  std::erase_if(rest_, [&](const auto& one) { return !has_rule(one.first); });
}

// nullptr: no limit matches it, or there is no room.
JobLimits::Job* JobLimits::job_of(const JobId& id, Instant now) {
  if (const auto found = jobs_.find(id); found != jobs_.end()) return &found->second;
  std::vector<ClassId> classes = classes_of(id);
  if (classes.empty()) return nullptr;
  if (jobs_.size() >= kJobsMax || !is_expressible(id)) {
    ++unlimited_;
    return nullptr;
  }
  for (const ClassId& one : classes) class_of(one).jobs.push_back(id);
  Job& job = jobs_[id];
  job.classes = std::move(classes);
  job.active_at = now;
  return &job;
}

void JobLimits::drop_idle(Instant now) {
  // Makes room before a job has to do without a cap.
  const bool is_full = jobs_.size() >= kJobsMax;
  const Nanoseconds idle_max = is_full ? kKeepFor * kFreeParts : kIdleMax;
  for (auto each = jobs_.begin(); each != jobs_.end();) {
    if (now - each->second.active_at < idle_max) {
      ++each;
      continue;
    }
    for (const ClassId& id : each->second.classes) std::erase(classes_.at(id).jobs, each->first);
    caps_.erase(each->first);
    each = jobs_.erase(each);
  }
  // A class that owes is kept until it has paid.
  std::erase_if(classes_, [](const auto& entry) {
    const Class& one = entry.second;
    return one.jobs.empty() && one.ops.balance >= 0 && one.bytes.balance >= 0;
  });
}

// ---- accounts ----

void JobLimits::accrue(Instant now) {
  const Nanoseconds time =
      accrued_ ? std::clamp(Nanoseconds(now - *accrued_), Nanoseconds{0}, kElapsedMax)
               : Nanoseconds{0};
  accrued_ = now;
  for (auto& [id, one] : classes_) {
    for (Account* const account : {&one.ops, &one.bytes}) {
      const Wide due = Wide{account->slice} * time.count() + account->rest;
      account->rest = static_cast<std::int64_t>(due % kSecond);
      account->balance = bounded(account->balance + due / kSecond, -kSliceLimitMax, kSliceLimitMax);
    }
  }
}

void JobLimits::skip(Instant now) {
  counted_ = now;
  accrued_ = now;
}

std::uint64_t JobLimits::yield_of(const Job& job) const {
  return job.yield != 0 ? job.yield : kOne * options_.cpts;
}

std::uint64_t JobLimits::size_of(const Job& job) const {
  return job.mean_size != 0 ? job.mean_size : kSizeUnknown;
}

void JobLimits::count(std::span<const ServedByJob> served, Instant now) {
  if (generation_ != rules_.generation()) classify_again();
  const Nanoseconds elapsed =
      counted_ ? std::clamp(Nanoseconds(now - *counted_), Nanoseconds{0}, kElapsedMax)
               : Nanoseconds{0};
  counted_ = now;
  unlimited_ = 0;
  accrue(now);
  drop_idle(now);
  if (is_empty()) return;
  for (const ServedByJob& one : served) {
    if (one.requests == 0) continue;
    Job* const job = job_of(one.job, now);
    if (job == nullptr) continue;
    job->active_at = now;
    job->requests += one.requests;
    job->bytes += one.bytes;
    job->spacing = std::max(Nanoseconds(job->silence + elapsed), job->spacing * 7 / 8);
    job->silence = Nanoseconds{0} - elapsed;  // passes below
    const std::uint64_t size = std::min(one.bytes / one.requests, kSizeMax);
    if (size > 0) job->mean_size = job->mean_size == 0 ? size : (job->mean_size * 7 + size) / 8;
    for (const ClassId& id : job->classes) {
      Class& in = classes_.at(id);
      in.ops.balance = bounded(Wide{in.ops.balance} - Wide{one.requests} * kMilli, -kSliceLimitMax,
                               kSliceLimitMax);
      in.bytes.balance = bounded(Wide{in.bytes.balance} - Wide{one.bytes} * kMilli, -kSliceLimitMax,
                                 kSliceLimitMax);
    }
  }
  for (auto& [id, job] : jobs_) {
    const auto cap = caps_.find(id);
    job.time += elapsed;
    job.silence = std::min<Nanoseconds>(job.silence + elapsed, kElapsedMax);
    const bool is_followed = job.following == Nanoseconds{0};
    job.following = std::max(job.following - elapsed, Nanoseconds{0});
    if (cap != caps_.end() && is_followed) {
      // Until it is known what a token gives, the least is assumed.
      const std::uint64_t yield = job.yield != 0 ? job.yield : kYieldMin;
      job.allowed += static_cast<std::uint64_t>(Wide{cap->second.rate} * yield * kMilli / kOne *
                                                elapsed.count() / kSecond);
    }
    judge(job, cap == caps_.end() ? nullptr : &cap->second);
  }
  set_levels();
  forget_unused();
  set_caps(now);
}

void JobLimits::judge_anew(Job& job) {
  job.requests = job.bytes = job.allowed = 0;
  job.time = Nanoseconds{0};
}

// It had more to do than its cap allows, and has nothing now: all of its tokens are unused.
bool JobLimits::has_stopped(const Job& job, const Cap& cap) const {
  return job.is_backlogged && job.silence >= job.spacing * 2 &&
         Wide{cap.rate} * job.silence.count() >= Wide{kJudgeRequests} * kSecond;
}

// Whether the job uses what its cap allows.
void JobLimits::judge(Job& job, const Cap* cap) {
  if (cap != nullptr && has_stopped(job, *cap)) {
    job.is_backlogged = false;
    job.rate = 0;
    return judge_anew(job);
  }
  // On each CPT one request more or less depends on where the time ends.
  const std::uint64_t reach = (yield_of(job) + kOne - 1) / kOne;
  const bool uses_all = job.requests > 0 && (job.requests + reach) * kMilli * 5 >= job.allowed * 4;
  const Nanoseconds least = std::clamp(job.spacing * 2, kJudgeMin, kJudgeMax);
  const bool is_long = job.time >= least && (job.allowed >= kJudgeRequests * reach * kMilli ||
                                             job.time >= kJudgeMax || cap == nullptr);
  const bool is_quick = uses_all && job.requests >= kQuickRequests && job.time > Nanoseconds{0};
  if (!is_long && !is_quick) return;
  job.is_backlogged = cap != nullptr ? uses_all : job.requests >= kJudgeRequests;
  job.rate = per_second(job.requests, job.time);
  const bool tells_yield =
      cap != nullptr && job.is_backlogged && !job.has_changed && job.requests >= kJudgeRequests;
  if (cap != nullptr && !uses_all && job.requests > 0 && job.yield != 0) {
    // It may be that it reaches fewer CPTs than before.
    job.yield = std::max(job.yield * 7 / 8, kYieldMin);
  }
  if (tells_yield) {
    const Wide yield = Wide{job.requests} * kOne * kSecond / (Wide{cap->rate} * job.time.count());
    const std::uint64_t most = kOne * options_.cpts * 21 / 20;
    const auto now = static_cast<std::uint64_t>(std::clamp<Wide>(yield, kYieldMin, most));
    job.yield = job.yield == 0 ? now : (job.yield * 3 + now) / 4;
  }
  job.has_changed = job.following > Nanoseconds{0};
  judge_anew(job);
}

std::int64_t JobLimits::use_of(const Job& job, bool is_bytes) const {
  if (!is_bytes) return job.rate;
  return bounded(Wide{job.rate} * size_of(job), 0, kSliceLimitMax);
}

// What each job of a class may use: jobs that use less keep what they use, and half as much again.
void JobLimits::set_level(const Class& one, Account& account, bool is_bytes, std::int64_t welcome) {
  const std::int64_t token = is_bytes ? kBytesPerRequest : 1;
  const std::int64_t free = std::int64_t{options_.depth} * kFreeParts * kMilli * token;
  const std::int64_t slice = std::max<std::int64_t>(account.slice, kLeastSlice);
  const std::int64_t credit = std::max(slice / 16, free / kFreeParts);
  if (one.is_backlogged) account.balance = std::min(account.balance, credit);
  const Nanoseconds repay{bounded(Wide{free} * kSecond / slice, kRepay.count(), kRepayMax.count())};
  const Wide more = Wide{account.balance} * kSecond / repay.count();
  // Not so low that the timer of a rule delays what the slices allow next, and so close to the
  // slice that paying back needs few changes, unless it is much. What that is more than the slice
  // is paid back too.
  const std::int64_t low = account.balance < -slice / 2 ? slice / 4 : slice * 5 / 8;
  const std::int64_t least = std::max<std::int64_t>({low, welcome / 8, 1});
  std::int64_t wanted = bounded(slice + more, least, std::max(slice * 3 / 2, least));
  if (!one.is_backlogged && account.balance > -welcome / 8) wanted = std::max(wanted, welcome);
  std::vector<std::int64_t> uses;
  std::int64_t backlogged = 0;
  for (const JobId& id : one.jobs) {
    const Job& job = jobs_.at(id);
    if (job.is_backlogged) {
      ++backlogged;
    } else {
      uses.push_back(use_of(job, is_bytes) * 3 / 2);
    }
  }
  account.level = wanted;
  if (backlogged == 0) return;
  std::sort(uses.begin(), uses.end());
  std::int64_t rest = wanted;
  auto sharing = backlogged + static_cast<std::int64_t>(uses.size());
  for (const std::int64_t use : uses) {
    if (use * sharing >= rest) break;
    rest -= use;
    --sharing;
  }
  account.level = std::max<std::int64_t>(rest / sharing, 1);
}

// What a class did not use when it could is not kept for later. Only after what was served is
// counted: otherwise the class would owe what it used.
void JobLimits::forget_unused() {
  for (auto& [id, one] : classes_) {
    if (one.is_backlogged) continue;
    one.ops.balance = std::min<std::int64_t>(one.ops.balance, 0);
    one.bytes.balance = std::min<std::int64_t>(one.bytes.balance, 0);
  }
}

void JobLimits::set_levels() {
  for (auto& [id, one] : classes_) {
    one.is_backlogged = std::any_of(one.jobs.begin(), one.jobs.end(),
                                    [&](const JobId& job) { return jobs_.at(job).is_backlogged; });
    const Rule* const rule = rules_.find(id.rule);
    for (const bool is_bytes : {false, true}) {
      Account& account = is_bytes ? one.bytes : one.ops;
      const auto limit = slice_limit(rule->limits(), is_bytes);
      if (!limit) {
        account = {};
        continue;
      }
      const std::int64_t welcome = members_ == 0 ? 0 : *limit / members_ * kWelcome;
      account.balance =
          std::max(account.balance, bounded(Wide{*limit} * -kDebtSeconds, -kSliceLimitMax, 0));
      set_level(one, account, is_bytes, std::min(*limit, welcome));
    }
  }
}

// ---- caps ----

std::optional<JobLimits::Cap> JobLimits::wanted_cap(const Job& job) const {
  std::optional<Cap> least;
  for (const ClassId& id : job.classes) {
    const Class& one = classes_.at(id);
    const Rule* const rule = rules_.find(id.rule);
    for (const bool is_bytes : {false, true}) {
      if (!slice_limit(rule->limits(), is_bytes)) continue;
      const Account& account = is_bytes ? one.bytes : one.ops;
      const std::uint64_t token = is_bytes ? size_of(job) : 1;
      const auto milli = static_cast<std::uint64_t>(account.level) / token;
      // In thousandths, so that few requests a second are not rounded to none.
      const std::uint64_t rate =
          (milli * kOne / yield_of(job) + std::uint64_t{kMilli} / 2) / std::uint64_t{kMilli};
      const Cap cap{
          .rate = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rate, 1, kRateMax)),
          .per_second = milli / std::uint64_t{kMilli},
          .rule = id.rule,
          .is_bytes = is_bytes};
      if (!least || cap.rate < least->rate) least = cap;
    }
  }
  return least;
}

void JobLimits::set_cap(const JobId& id, Job& job, Cap cap, Instant now) {
  job.has_changed = true;
  if (const auto before = caps_.find(id); before != caps_.end()) {
    job.following =
        std::min(kFollowMax, Nanoseconds{kOldIntervals * kSecond / before->second.rate});
  }
  judge_anew(job);
  job.capped_at = now;
  caps_[id] = std::move(cap);
}

// Each change gives free tokens. So it is made when the present rate has given, or withheld, more
// than that since the last one; a fall when the rate has also given several times as much. A large
// rise is urgent, since the job waits.
JobLimits::Change JobLimits::change_of(const Job& job, std::uint64_t is, std::uint64_t next,
                                       Instant now) const {
  const Nanoseconds since = now - job.capped_at;
  const std::uint64_t apart = is > next ? is - next : next - is;
  const Wide free = Wide{options_.depth} * kSecond;
  if (Wide{apart} * since.count() < free || since < kSettle) return Change::kNone;
  const bool is_rise = next > is;
  const bool is_paid = Wide{is} * since.count() >= free * kFreeParts;
  if (!is_paid && !is_rise) return Change::kNone;
  if (next * 2 >= is * 3 || next * 2 <= is) return Change::kNow;
  const bool is_due = is_paid && since >= (is_rise ? kKeepFor / 2 : kKeepFor);
  return is_due && apart * 100 >= kStepPercent * is ? Change::kWhenDue : Change::kNone;
}

void JobLimits::set_caps(Instant now) {
  std::optional<Wish> most;
  for (auto& [id, job] : jobs_) {
    auto wanted = wanted_cap(job);
    const auto found = caps_.find(id);
    if (!wanted) {
      if (found != caps_.end()) caps_.erase(found);
      continue;
    }
    if (found == caps_.end()) {
      set_cap(id, job, *std::move(wanted), now);
      continue;
    }
    const std::uint64_t is = found->second.rate;
    const std::uint64_t next = wanted->rate;
    if (is == next) {
      found->second = *std::move(wanted);
      continue;
    }
    const Change change = change_of(job, is, next, now);
    if (change == Change::kNow) {
      set_cap(id, job, *std::move(wanted), now);
      continue;
    }
    if (change != Change::kWhenDue) continue;
    const std::uint64_t off = (is > next ? is - next : next - is) * kOne / is;
    if (!most || off > most->off) most = Wish{id, *std::move(wanted), off};
  }
  if (!most || now - adjusted_at_ < kAdjustEvery) return;
  adjusted_at_ = now;
  set_cap(most->job, jobs_.at(most->job), std::move(most->cap), now);
}

// ---- slices ----

// What a backlogged job asks for: more than its part of the slice, not of the level, which moves
// with the account; and where the slice is small yet, more than it uses.
std::int64_t JobLimits::asked_by(const Job& job, const Class& one, std::int64_t limit,
                                 bool is_bytes) const {
  const Account& account = is_bytes ? one.bytes : one.ops;
  const auto jobs = static_cast<std::int64_t>(one.jobs.size());
  const std::int64_t part = std::max(account.slice / jobs, account.level);
  const bool is_small = members_ == 0 || account.slice < limit / members_;
  return is_small ? std::max(use_of(job, is_bytes), part) : part;
}

// A class that owes and is not backlogged asks for what it owes, so that it does not use what it is
// granted: the debt of a job that went to another server is paid by all that it has there.
SlicedLoad::Demand JobLimits::demand_of(const Class& one, const Rule& rule) const {
  SlicedLoad::Demand demand;
  for (const bool is_bytes : {false, true}) {
    const auto limit = slice_limit(rule.limits(), is_bytes);
    if (!limit) continue;
    const Account& account = is_bytes ? one.bytes : one.ops;
    const std::int64_t more = is_bytes ? kMoreThanUsed * kBytesPerRequest : kMoreThanUsed;
    Wide sum = 0;
    for (const JobId& id : one.jobs) {
      const Job& job = jobs_.at(id);
      const std::int64_t used = use_of(job, is_bytes);
      if (job.is_backlogged) {
        sum += Wide{asked_by(job, one, *limit, is_bytes)} * 3 / 2 + more;
      } else if (used > 0 || job.requests > 0) {
        sum += Wide{used} * 3 / 2 + more / 10;
      }
    }
    if (!one.is_backlogged) sum = std::max(sum, Wide{-account.balance} * kSecond / kRepay.count());
    (is_bytes ? demand.bytes : demand.ops) = bounded(sum, 0, kSliceLimitMax);
  }
  return demand;
}

std::vector<SlicedLoad> JobLimits::loads(Nanoseconds /*time*/) const {
  std::vector<SlicedLoad> loads;
  loads.reserve(classes_.size());
  for (const auto& [id, one] : classes_) {
    const Rule* const rule = rules_.find(id.rule);
    if (rule == nullptr) continue;
    loads.push_back({{.rule = id.rule, .key = id.key}, demand_of(one, *rule)});
  }
  return loads;
}

void JobLimits::set_slices(std::span<const ClassSlice> slices, Instant now) {
  accrue(now);
  for (const ClassSlice& one : slices) {
    const RestSlice slice{milli_of(one.slice.ops), milli_of(one.slice.bytes)};
    const Rule* const rule = rules_.find(one.rule);
    if (rule == nullptr) continue;
    const bool is_whole = !one.key && rule->by().empty();
    if (!one.key && !is_whole) {
      rest_.insert_or_assign(std::string(one.rule), slice);
      continue;
    }
    const ClassId id{rule->name(), one.key.value_or(Attributes{}.only({}))};
    if (is_whole) rest_.insert_or_assign(std::string(one.rule), slice);
    const auto found = classes_.find(id);
    if (found == classes_.end()) continue;
    found->second.ops.slice = slice.ops;
    found->second.bytes.slice = slice.bytes;
  }
  if (is_empty() || generation_ != rules_.generation()) return;
  set_levels();
  set_caps(now);
}

}  // namespace weir::lustre
