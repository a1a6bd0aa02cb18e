// SPDX-License-Identifier: Apache-2.0
#include "weir/control/explain.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/rule_spec.h"
#include "weir/control/explain_words.h"
#include "weir/control/json_nlohmann.h"
#include "weir/control/words.h"
#include "weir/schedule/policy_kinds.h"
#include "weir/serve/target_port.h"

namespace weir::control {
namespace {

constexpr std::uint64_t kNsPerSecond = 1'000'000'000;
// A shorter wait is no reason to change anything.
constexpr std::uint64_t kShortWait = 100'000;
// Requests in less time are a queue that fills, not a demand.
constexpr Nanoseconds kAskedWindow = std::chrono::seconds{5};
// A shorter time in the device is not slow.
constexpr std::uint64_t kSlowDevice = 1'000'000;

std::uint64_t per_second(std::uint64_t count, Nanoseconds time) {
  if (time <= Nanoseconds{0}) return 0;
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(count) * kNsPerSecond /
                                    static_cast<std::uint64_t>(time.count()));
}

// The name without what ClassQuery allows in front of it.
std::string_view bare(std::string_view name) {
  for (const std::string_view word : {"job=", "uid=", "gid=", "client=", "export=", "rule="}) {
    if (name.starts_with(word)) return name.substr(word.size());
  }
  return name;
}

const JobSnapshot* job_of(const ServiceSnapshot& service, const Explained& explained) {
  std::optional<JobId> wanted = explained.job;
  if (!wanted && explained.found != nullptr && explained.found->by.has(Field::kJobid)) {
    wanted = explained.found->key.job;
  }
  for (const JobSnapshot& job : service.jobs) {
    if (job.job == wanted) return &job;
  }
  return nullptr;
}

// The rules of a wait, one for each layer.
const LayerRules& rules_at(const ServiceSnapshot& service, std::size_t at) {
  static const LayerRules none{};
  return at < service.wait_rules.size() ? service.wait_rules[at] : none;
}

bool has_rule(const LayerRules& rules, std::string_view name) {
  return !name.empty() && std::find(rules.begin(), rules.end(), name) != rules.end();
}

// Whether the requests of a wait are in this class. Which are in an overflow class is not known.
bool is_in(const WaitView& wait, const LayerRules& rules, const ClassSnapshot& one) {
  return has_rule(rules, one.rule) && !one.is_overflow && wait.key.only(one.by) == one.key;
}

// The class of a rule in which the requests of a wait are; nullptr: it is not known.
const ClassSnapshot* class_under(const ServiceSnapshot& service, const WaitView& wait,
                                 std::string_view rule) {
  const ClassSnapshot* overflow = nullptr;
  for (const ClassSnapshot& one : service.classes) {
    if (one.rule != rule) continue;
    if (one.is_overflow) {
      overflow = &one;
    } else if (wait.key.only(one.by) == one.key) {
      return &one;
    }
  }
  return overflow;
}

bool is_of(const ServiceSnapshot& service, std::size_t at, const Explained& explained) {
  const WaitView& wait = service.waits[at];
  if (explained.job && wait.key.job != *explained.job) return false;
  return is_in(wait, rules_at(service, at), *explained.found);
}

WaitSpan span_of(const ServiceSnapshot& service, const Explained& explained,
                 const WaitHistory& history) {
  WaitSpan all;
  std::set<JobId> jobs;  // whose device time is counted
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (!is_of(service, i, explained)) continue;
    const WaitView& wait = service.waits[i];
    const DeviceSums device =
        i < service.wait_devices.size() ? service.wait_devices[i] : DeviceSums{};
    const WaitSpan one = history.since(explained.service, wait, device, service.now);
    for (std::size_t cause = 0; cause < kDelays; ++cause) all.delays[cause] += one.delays[cause];
    all.requests += one.requests;
    all.arrived += one.arrived;
    all.waiting += one.waiting;
    all.from = std::min(all.from, one.from);
    if (!jobs.insert(wait.key.job).second) continue;
    all.device.requests += one.device.requests;
    all.device.ns += one.device.ns;
  }
  return all;
}

std::string conditions_of(const ServiceSnapshot& service, std::string_view rule) {
  for (const RuleSnapshot& one : service.rules) {
    if (one.name == rule) return "requests that match " + quote(one.conditions);
  }
  return "it is no longer listed";
}

// The key of a request that matches the rule, if one was seen.
Attributes key_under(const ServiceSnapshot& service, const ClassSnapshot& one) {
  for (std::size_t i = 0; one.by.empty() && i < service.waits.size(); ++i) {
    if (has_rule(rules_at(service, i), one.rule)) return service.waits[i].key;
  }
  return one.key;
}

// The classes that limit the requests of `explained`, one for each layer at most.
std::vector<const ClassSnapshot*> limits_on(const ServiceSnapshot& service,
                                            const Explained& explained) {
  const auto limit_of = [&](std::size_t at) {
    return service.waits[at].delays[static_cast<std::size_t>(Delay::kLimit)];
  };
  std::optional<std::size_t> most;  // the queue that has waited longest
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (is_of(service, i, explained) && (!most || limit_of(*most) < limit_of(i))) most = i;
  }
  std::vector<const ClassSnapshot*> all;
  const auto see = [&](const ClassSnapshot* one) {
    if (one != nullptr && (one->rate > 0 || one->bps > 0)) all.push_back(one);
  };
  if (!most) see(explained.found);
  for (unsigned layer = 0; most && layer < kLayers; ++layer) {
    const std::string& rule = rules_at(service, *most)[layer];
    if (!rule.empty()) see(class_under(service, service.waits[*most], rule));
  }
  return all;
}

// The class whose bucket has the least in it; nullptr: there is none.
const ClassSnapshot* emptiest(const std::vector<const ClassSnapshot*>& limits) {
  // In millionths of the depth, so that a large bucket is comparable with a small one.
  const auto fill = [](const ClassSnapshot& one) {
    const auto of = [](std::uint64_t level, std::uint64_t depth) {
      return static_cast<unsigned __int128>(level) * 1'000'000 / std::max<std::uint64_t>(depth, 1);
    };
    constexpr unsigned __int128 kFull = 2'000'000;
    return std::min(one.rate > 0 ? of(one.level, one.depth) : kFull,
                    one.bps > 0 ? of(one.byte_level, one.byte_depth) : kFull);
  };
  const auto least =
      std::min_element(limits.begin(), limits.end(),
                       [&](const auto* a, const auto* b) { return fill(*a) < fill(*b); });
  return least == limits.end() ? nullptr : *least;
}

// A word that a shell passes on as it is.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+:,./_-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

// Whether requests of the job are in the class.
bool has_wait_in(const ServiceSnapshot& service, const JobId& job, const ClassSnapshot& one) {
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (service.waits[i].key.job == job && is_in(service.waits[i], rules_at(service, i), one)) {
      return true;
    }
  }
  return false;
}

// ---- the answer ----

// The limit of the rule itself; that of a class may be this server's part of it.
const RuleSnapshot* rule_of(const ServiceSnapshot& service, std::string_view name) {
  for (const RuleSnapshot& one : service.rules) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

// What the requests of a wait ask for, per second; 0: not known. Requests that wait count too, and
// a queue that has just filled is not a demand. Bytes: with the mean size of the requests of the
// class that were served.
std::uint64_t asked_for(const ServiceSnapshot& service, const ClassSnapshot& by,
                        const WaitSpan& span, bool is_bytes) {
  if (span.from == kNever || service.now - span.from < kAskedWindow) return 0;
  const std::uint64_t operations = per_second(span.arrived, service.now - span.from);
  if (!is_bytes) return operations;
  if (by.totals.served == 0) return 0;
  return operations * (by.totals.bytes / by.totals.served);
}

// The command that sets another limit of its rule.
std::string higher_limit(const ClassSnapshot& by, bool is_bytes, std::uint64_t limit) {
  RuleKeys more;
  if (is_bytes) {
    more.bps = Rate::per_second(limit);
  } else {
    more.rate = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, kRateMax));
  }
  return fmt::format("weir {} {}", by.is_of_cluster ? "cluster rule" : "rule",
                     print(change_of(by.rule, more)));
}

Verdict limited(const ServiceSnapshot& service, const Explained& explained, const std::string& who,
                const WaitSpan& span) {
  const std::vector<const ClassSnapshot*> limits = limits_on(service, explained);
  const ClassSnapshot* const by = emptiest(limits);
  if (by == nullptr) {
    return {
        .cause = "limit",
        .text = who + " is limited by a rule in another layer (list the rules with weir rule list)",
        .cure = ""};
  }
  const bool is_bytes =
      by->bps > 0 && (by->rate == 0 || by->byte_level * by->depth < by->level * by->byte_depth);
  const std::uint64_t limit = is_bytes ? by->bps : by->rate;
  const RuleSnapshot* const rule = rule_of(service, by->rule);
  std::uint64_t whole = limit;
  std::string text = fmt::format("{} is limited by rule {}", who, quote(by->rule));
  if (rule != nullptr && rule->layer > 0) text += fmt::format(" in layer {}", rule->layer);
  if (by->is_of_cluster) {
    if (rule != nullptr) whole = std::max(limit, is_bytes ? rule->bps : rule->rate);
    text += fmt::format(" (this server's slice of the cluster's {}: {}",
                        limit_words(whole, is_bytes), limit_words(limit, is_bytes));
  } else {
    text += " (" + limit_words(limit, is_bytes);
  }
  text += by->is_overflow  ? " for all classes that found no room)"
          : by->by.empty() ? " for all its requests together)"
                           : ")";
  const std::uint64_t asked = asked_for(service, *by, span, is_bytes);
  const bool asks_more = asked > limit + limit / 4;
  if (asks_more) {
    text += fmt::format("; it asked for {}{}", is_bytes ? "about " : "",
                        limit_words(three_digits(asked), is_bytes));
  }
  // Then a higher limit of this rule alone would change nothing.
  const auto as_low = std::find_if(limits.begin(), limits.end(), [&](const ClassSnapshot* other) {
    const std::uint64_t its = is_bytes ? other->bps : other->rate;
    return other != by && its > 0 && its <= limit;
  });
  if (as_low != limits.end()) {
    text += fmt::format("; rule {} allows no more than that either", quote((*as_low)->rule));
  }
  const bool is_own = !by->by.empty() && !by->is_overflow && !by->is_of_cluster;
  const std::uint64_t wanted = asks_more && is_own && !is_bytes ? three_digits(asked) : 0;
  return {.cause = "limit",
          .text = text,
          .cure = as_low != limits.end() ? ""
                                         : higher_limit(*by, is_bytes, std::max(2 * whole, wanted)),
          .limited_by = by->name()};
}

// ---- a tree of shares ----

// The nodes above the job, top first; empty: they are not known.
std::vector<const NodeSnapshot*> nodes_above(const ServiceSnapshot& service,
                                             const JobSnapshot& job) {
  std::vector<const NodeSnapshot*> nodes;
  for (std::size_t at = 0; service.tree && !job.path.empty() && at <= job.path.size();) {
    const std::size_t end = std::min(job.path.find('/', at), job.path.size());
    const std::string_view path = std::string_view(job.path).substr(0, end);
    const auto& all = service.tree->nodes;
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.path == path; });
    if (found == all.end()) return {};
    nodes.push_back(&*found);
    at = end + 1;
  }
  return nodes;
}

// "40 %", "33.3 %", or "all"
std::string part_words(std::uint64_t weight, std::uint64_t of) {
  if (weight >= of) return "all";
  const auto permille =
      static_cast<std::uint64_t>(static_cast<unsigned __int128>(weight) * 1000 / of);
  if (permille == 0) return "less than 0.1 %";
  if (permille % 10 == 0) return fmt::format("{} %", permille / 10);
  return fmt::format("{}.{} %", permille / 10, permille % 10);
}

// "project 7 40 % -> uid 1001 50 % -> ior.7 all"; empty: it is not known.
std::string path_words(const ServiceSnapshot& service, const JobSnapshot& job) {
  const auto nodes = nodes_above(service, job);
  if (nodes.empty() || job.siblings < job.weight) return {};
  std::string text;
  for (const NodeSnapshot* const node : nodes) {
    text += fmt::format("{} {} {} -> ", node->level, node->shown(),
                        part_words(node->weight, node->siblings));
  }
  return text + printable_id(job.job.text()) + " " + part_words(job.weight, job.siblings);
}

// A part of a part of the capacity.
std::optional<std::uint64_t> entitlement_in_tree(const ServiceSnapshot& service,
                                                 const JobSnapshot& job) {
  const auto nodes = nodes_above(service, job);
  if (nodes.empty() || !job.share || !service.capacity || job.siblings < job.weight) return {};
  unsigned __int128 part = *service.capacity;
  for (const NodeSnapshot* const node : nodes) part = part * node->weight / node->siblings;
  return static_cast<std::uint64_t>(part * job.weight / job.siblings);
}

// The command that would enlarge its share; none for requests without a job.
std::string larger_share(const JobSnapshot& job, const RuleSnapshot* weighing) {
  if (weighing != nullptr) {
    RuleKeys more;
    more.weight = static_cast<std::uint32_t>(std::min<std::uint64_t>(2 * job.weight, kWeightMax));
    return "weir rule " + print(change_of(weighing->name, more));
  }
  if (job.job.empty() || job.weight != job.nodes) return "";
  return fmt::format("weir job set {} {}", shell_word(printable_id(job.job.text())), 2 * job.nodes);
}

// What gives the job a larger part: a larger weight, if others share its node; otherwise the weight
// of the lowest node that has siblings.
std::string more_share(const ServiceSnapshot& service, const JobSnapshot& job,
                       const RuleSnapshot* weighing, std::string& cure) {
  const bool is_alone = service.tree && job.siblings <= job.weight;
  if (!is_alone) {
    cure = larger_share(job, weighing);
    return {};
  }
  const auto nodes = nodes_above(service, job);
  const auto shared = std::find_if(nodes.rbegin(), nodes.rend(), [](const NodeSnapshot* node) {
    return node->weight < node->siblings;
  });
  if (shared == nodes.rend()) return {};
  return fmt::format("; the weight of {} {} in [[shares]] determines it", (*shared)->level,
                     quote((*shared)->path));
}

// What the job is entitled to of the capacity; none: the weights of all jobs are not known.
std::optional<std::uint64_t> entitlement_of(const ServiceSnapshot& service,
                                            const JobSnapshot& job) {
  if (service.tree) return entitlement_in_tree(service, job);
  const auto& weights = service.share_weights;
  if (!job.share || !service.capacity || !weights || weights->sum < job.weight) return {};
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(*service.capacity) * job.weight /
                                    weights->sum);
}

// Whether another job wants some of the capacity that this one has: requests of it wait, and
// mostly not for a limit of a rule.
bool has_rivals(const ServiceSnapshot& service, const JobSnapshot& job) {
  return std::any_of(service.waits.begin(), service.waits.end(), [&](const WaitView& wait) {
    if (wait.waiting == 0 || wait.key.job == job.job) return false;
    const std::uint64_t all =
        std::accumulate(wait.delays.begin(), wait.delays.end(), std::uint64_t{0});
    return wait.delays[static_cast<std::size_t>(Delay::kLimit)] <= all / 2;
  });
}

// The rule of its class if that sets the weight of the job's share, so that its nodes do not count.
const RuleSnapshot* weighing_rule(const ServiceSnapshot& service, const Explained& explained) {
  const RuleSnapshot* const rule =
      explained.found == nullptr ? nullptr : rule_of(service, explained.found->rule);
  return rule == nullptr || rule->weight == 0 ? nullptr : rule;
}

Verdict out_of_share(const ServiceSnapshot& service, const Explained& explained,
                     const JobSnapshot* job, const std::string& who) {
  if (job == nullptr || !job->share) {
    return {"share", who + " uses all of its share of the capacity", ""};
  }
  // Then every loan is this job's, and a larger share would only replace them.
  if (service.adaptive == "on" && service.capacity && !has_rivals(service, *job)) {
    return {"root",
            fmt::format("{} has all of the capacity of service {}, {}, that other jobs leave", who,
                        service.name, tokens_rate(*service.capacity, service)),
            ""};
  }
  const RuleSnapshot* const weighing = weighing_rule(service, explained);
  const std::string of =
      weighing != nullptr ? fmt::format("weight {} of rule {}", job->weight, quote(weighing->name))
      : job->weight != job->nodes ? fmt::format("weight {}", job->weight)
                                  : counted(job->nodes, "node");
  std::string text = fmt::format("{} uses all of its share of the capacity, {} for {}", who,
                                 tokens_rate(three_digits(*job->share), service), of);
  const auto entitled = entitlement_of(service, *job);
  if (job->record < 0 && entitled && *job->share < *entitled) {
    text += fmt::format(", and repays {} tokens to other jobs",
                        count_words(three_digits(static_cast<std::uint64_t>(-job->record))));
  }
  std::string cure;
  text += more_share(service, *job, weighing, cure);
  return {"share", text, cure};
}

// Whether the share is nearly all of the capacity: then more nodes would not enlarge it.
bool has_everything(const ServiceSnapshot& service, const JobSnapshot& job) {
  return job.share && service.capacity && *job.share >= *service.capacity - *service.capacity / 20;
}

// Whether the job gets its share and others get theirs: then a larger share would help.
bool gets_its_share(const ServiceSnapshot& service, const JobSnapshot* job, const WaitSpan& span) {
  if (job == nullptr || !job->share || has_everything(service, *job) ||
      service.capacity_unit != "operations") {
    return false;
  }
  const std::uint64_t left = span.requests - std::min(span.requests, span.waiting);
  const std::uint64_t served = per_second(left, service.now - span.from);
  return served >= *job->share - *job->share / 10;
}

// Whether requests of others wait too.
bool has_others(const ServiceSnapshot& service, const Explained& explained) {
  for (std::size_t i = 0; i < service.waits.size(); ++i) {
    if (service.waits[i].waiting > 0 && !is_of(service, i, explained)) return true;
  }
  return false;
}

Verdict at_capacity(const ServiceSnapshot& service, const Explained& explained,
                    const std::string& who) {
  return {"root",
          fmt::format("service {} is at its capacity{}, {}", service.name,
                      service.capacity ? " of " + tokens_rate(*service.capacity, service) : "",
                      has_others(service, explained)
                          ? fmt::format("which {} shares with other jobs", who)
                          : fmt::format("of which {} gets all that other jobs leave", who)),
          ""};
}

// Whether groups of clients take turns now: while one group has all the requests, it goes first
// all the time.
bool take_turns(const GroupsSnapshot& groups) {
  if (groups.step == "inactive" || groups.step == "mixed") return false;
  return std::count_if(groups.groups.begin(), groups.groups.end(),
                       [](const auto& group) { return group.waiting > 0; }) > 1;
}

Verdict behind_others(const ServiceSnapshot& service, const std::string& who) {
  const auto& groups = service.groups;
  if (groups && take_turns(*groups)) {
    const std::string turn = groups->preferred.empty() ? ""
                                                       : fmt::format("; now it is that of group {}",
                                                                     quote(groups->preferred));
    return {"order",
            fmt::format("{} waits for its group's turn: groups of clients take turns{}", who, turn),
            ""};
  }
  return {"order", who + " waits while requests of other classes or jobs run, which go first", ""};
}

// Requests of locks that have passed the scheduler may wait in the table for room.
std::optional<Verdict> out_of_room(std::span<const lock::NamespaceView> locks,
                                   const std::string& who) {
  for (const lock::NamespaceView& one : locks) {
    if (one.parked == 0) continue;
    return Verdict{
        "volume",
        fmt::format("{} waits for room in namespace {}: {} locks are granted, its limit is {}, and "
                    "{} requests wait until clients give up locks that they do not use",
                    who, quote(one.name), count_words(static_cast<std::uint64_t>(one.granted)),
                    count_words(static_cast<std::uint64_t>(one.limit)), count_words(one.parked)),
        fmt::format("weir lctl set_param ldlm.namespaces.{}.pool.limit={}", shell_word(one.name),
                    2 * one.limit)};
  }
  return std::nullopt;
}

// Whether nothing is left in the bucket of the class, so that its requests wait for it.
bool is_empty(const ClassSnapshot& one) {
  return (one.rate > 0 && one.level == 0) || (one.bps > 0 && one.byte_level < one.byte_depth / 2);
}

// Without a measured wait: what the state of buckets and jobs says.
Verdict not_measured(const ServiceSnapshot& service, const Explained& explained,
                     const std::string& who) {
  const JobSnapshot* const job = job_of(service, explained);
  if (job != nullptr && job->waiting == 0) {
    return {"none", who + " has no requests that wait", ""};
  }
  const ClassSnapshot* const by = emptiest(limits_on(service, explained));
  if (by != nullptr && is_empty(*by)) return limited(service, explained, who, {});
  return {"unknown",
          fmt::format("{} is not measured: causes are known for {} queues with requests at a time",
                      job != nullptr ? fmt::format("what {} of {} wait{} for",
                                                   counted(job->waiting, "request"), who,
                                                   job->waiting == 1 ? "s" : "")
                                     : who,
                      count_words(serve::kWatchedQueues)),
          ""};
}

}  // namespace

std::uint64_t WaitSpan::wait_ns() const {
  return std::accumulate(delays.begin(), delays.end(), std::uint64_t{0});
}

void WaitHistory::add(Sample sample) {
  samples.push_back(std::move(sample));
  if (samples.size() > kSamplesMax) samples.pop_front();
}

WaitSpan WaitHistory::since(std::size_t service, const WaitView& now, const DeviceSums& device,
                            Instant at) const {
  WaitSpan span{.delays = now.delays,
                .requests = now.left + now.waiting,
                .arrived = now.left + now.waiting,
                .waiting = now.waiting,
                .from = now.begun,
                .device = device};
  // All of it is in the window, however young the oldest sample is.
  if (at - now.begun <= kWindow) return span;
  for (const Sample& sample : samples) {
    if (service >= sample.size() || at - sample[service].at > kWindow) continue;
    const OfService& then = sample[service];
    for (std::size_t i = 0; i < then.waits.size(); ++i) {
      const WaitView& before = then.waits[i];
      if (before.key != now.key || before.head != now.head || before.begun != now.begun) continue;
      for (std::size_t cause = 0; cause < kDelays; ++cause) {
        span.delays[cause] -= before.delays[cause];
      }
      span.requests -= before.left;
      span.arrived -= before.left + before.waiting;
      span.from = then.at;
      if (i < then.devices.size() && then.devices[i].requests <= device.requests) {
        span.device.requests -= then.devices[i].requests;
        span.device.ns -= then.devices[i].ns;
      }
      return span;
    }
    // It was not watched then, so all its delays are later.
    if (now.begun >= then.at) return span;
  }
  return span;
}

std::optional<Explained> find_class(const Snapshot& shot, std::string_view service,
                                    std::string_view asked, std::string_view rule) {
  const std::string_view name = bare(asked);
  const bool is_rule = asked.starts_with("rule=");
  const auto id = read_id(name);
  const std::optional<JobId> job = id && !is_rule ? std::optional(JobId(*id)) : std::nullopt;
  std::optional<Explained> best, of_rule, of_key;
  for (std::size_t at = 0; at < shot.services.size(); ++at) {
    const ServiceSnapshot& in = shot.services[at];
    if (!service.empty() && in.name != service) continue;
    const bool is_seen =
        job && std::any_of(in.jobs.begin(), in.jobs.end(),
                           [&](const JobSnapshot& one) { return one.job == *job; });
    for (const ClassSnapshot& one : in.classes) {
      const bool has_rule = name.size() > one.rule.size() && name.starts_with(one.rule) &&
                            name[one.rule.size()] == '/';
      if (has_rule && one.name() == name) return Explained{at, &one, key_under(in, one), {}};
      if (one.rule == name &&
          (!of_rule || of_rule->found->totals.waited_ns < one.totals.waited_ns)) {
        of_rule = Explained{at, &one, key_under(in, one), {}};
      }
      if (is_rule || (best && (one.rule != rule || best->found->rule == rule))) continue;
      const bool is_jobs = job && one.by.has(Field::kJobid) && one.key.job == *job;
      if (is_jobs ||
          (!one.by.has(Field::kJobid) && !one.by.empty() && key_name(one.key, one.by) == name)) {
        best = Explained{at, &one, one.key, is_jobs ? job : std::nullopt};
      }
      // A class without jobs is that of a job whose requests are in it.
      if (is_seen && one.rule == rule && !best && (one.by.empty() || has_wait_in(in, *job, one))) {
        of_key = Explained{at, &one, one.key, job};
      }
    }
    if (best || of_key || !job || !in.has_rules) continue;
    // Without a class of its own: its key determines the rule.
    for (const JobSnapshot& seen : in.jobs) {
      if (seen.job != *job || !rule.empty()) continue;
      Attributes key;
      key.job = *job;
      for (const WaitView& wait : in.waits) {
        if (wait.key.job == *job) key = wait.key;
      }
      of_key = Explained{at, nullptr, key, job};
    }
  }
  return best ? best : of_key ? of_key : of_rule;
}

Error not_explained(const Snapshot& shot, std::string_view service, std::string_view name) {
  std::string policy;
  const auto id = read_id(bare(name));
  for (const ServiceSnapshot& one : shot.services) {
    if (!service.empty() && one.name != service) continue;
    const bool is_seen = id && std::any_of(one.jobs.begin(), one.jobs.end(),
                                           [&](const auto& job) { return job.job == JobId(*id); });
    if (one.has_rules && is_seen) {
      return {std::errc::no_such_file_or_directory, "job " + quote(bare(name)),
              "is known, but not its class: under policy " + quote(policy_text(one)) +
                  " other fields than the job determine it, or too many classes are busy",
              "explain its class, client or user; weir top lists the classes"};
    }
    const bool is_rule = std::any_of(one.rules.begin(), one.rules.end(),
                                     [&](const auto& rule) { return rule.name == bare(name); });
    if (one.has_rules && is_rule) {
      return {std::errc::no_such_file_or_directory, "rule " + quote(bare(name)),
              "has no class: no request has matched it",
              "weir rule list shows its conditions, and weir top the classes of requests"};
    }
    if (one.has_rules) {
      return {std::errc::no_such_file_or_directory, "",
              "no class, job or rule named " + quote(bare(name)),
              "list them with weir top, or /v1/services/NAME/classes"};
    }
    if (policy.empty()) policy = policy_text(one);
  }
  return {std::errc::no_such_device, "policy " + quote(policy),
          "has no rules, classes or shares that explain could show",
          "explain requires policy " + policies_with_rules()};
}

Verdict verdict_of(const ServiceSnapshot& service, const Explained& explained, const WaitSpan& span,
                   std::span<const lock::NamespaceView> locks) {
  const std::string who =
      explained.job ? printable_id(explained.job->text()) : explained.found->name();
  const std::uint64_t wait = span.wait_each();
  const std::uint64_t device = span.device_each();
  const bool is_throttled =
      span.from != kNever && span.requests > 0 && wait >= kShortWait && wait >= device / 10;
  if (!is_throttled) {
    if (auto room = out_of_room(locks, who)) return *room;
  }
  if (span.from == kNever) return not_measured(service, explained, who);
  if (span.requests == 0) {
    const auto window = static_cast<std::uint64_t>((service.now - span.from).count());
    return {"none", fmt::format("{} has sent no requests in the last {}", who, time_words(window)),
            ""};
  }
  if (!is_throttled) {
    std::string text =
        fmt::format("{} is not throttled: its requests wait {} on average", who, time_words(wait));
    if (device > 0) text += fmt::format(", and the device takes {}", time_words(device));
    return {device >= kSlowDevice ? "device" : "none", text, ""};
  }
  if (device > wait) {
    return {"device",
            fmt::format("{} waits mostly for the device: {} of {} on average", who,
                        time_words(device), time_words(wait + device)),
            ""};
  }
  const auto most = std::max_element(span.delays.begin(), span.delays.end());
  const auto cause = static_cast<Delay>(most - span.delays.begin());
  const JobSnapshot* const job = job_of(service, explained);
  // At its capacity, a target gives each job its share by order.
  const bool is_ordered = cause == Delay::kOrder || cause == Delay::kRoot;
  if (is_ordered && gets_its_share(service, job, span))
    return out_of_share(service, explained, job, who);
  switch (cause) {
    case Delay::kLimit:
      return limited(service, explained, who, span);
    case Delay::kShare:
      if (job != nullptr && has_everything(service, *job))
        return at_capacity(service, explained, who);
      return out_of_share(service, explained, job, who);
    case Delay::kRoot:
      return at_capacity(service, explained, who);
    case Delay::kSlot:
      return {
          "slot",
          fmt::format("{} waits for the device: all {} slots of service {} are busy{}", who,
                      service.slots.count, service.name,
                      device > 0 ? fmt::format(", {} for each request", time_words(device)) : ""),
          ""};
    case Delay::kOrder:
      break;
  }
  return behind_others(service, who);
}

std::vector<std::string> standing_of(const ServiceSnapshot& service, const JobSnapshot& job,
                                     const Verdict& verdict) {
  std::vector<std::string> all;
  const auto tokens = [](std::int64_t number) {
    return count_words(three_digits(static_cast<std::uint64_t>(std::abs(number)))) + " tokens";
  };
  if (const auto owned = entitlement_of(service, job)) {
    const std::uint64_t entitled = *owned;
    const std::string part =
        service.tree ? path_words(service, job)
                     : fmt::format("{} of {} {}", count_words(job.weight),
                                   count_words(service.share_weights->sum),
                                   job.weight == job.nodes ? "nodes" : "parts by weight");
    all.push_back(part + ", entitled to " + tokens_rate(three_digits(entitled), service));
    const std::string now = "share now " + tokens_rate(three_digits(*job.share), service);
    if (verdict.cause == "limit") {
      all.push_back(now + "; its own limit holds it, so it neither lends nor borrows");
    } else if (*job.share + *job.share / 50 < entitled) {
      all.push_back(now + (job.record < 0 ? "; it repays other jobs with the rest"
                                          : "; it lends the rest to other jobs"));
    } else if (*job.share > entitled + entitled / 50) {
      all.push_back(now + (job.record < 0 ? "; it borrows the difference from other jobs"
                                          : "; other jobs repay it with the difference"));
    } else {
      all.push_back(now);
    }
  } else {
    if (std::string path = path_words(service, job); !path.empty()) all.push_back(std::move(path));
    all.push_back(
        fmt::format("{}, share {}", counted(job.nodes, "node"),
                    job.share ? tokens_rate(three_digits(*job.share), service) : "not known yet"));
  }
  if (job.record > 0) all.push_back("other jobs owe it " + tokens(job.record));
  if (job.record < 0) all.push_back("it owes other jobs " + tokens(job.record));
  if (job.lent > 0 || job.borrowed > 0) {
    const auto sum = [&](std::uint64_t number) {
      return tokens(static_cast<std::int64_t>(number));
    };
    all.push_back("within periods, since the start, it has " +
                  (job.borrowed == 0 ? "lent " + sum(job.lent)
                   : job.lent == 0
                       ? "borrowed " + sum(job.borrowed)
                       : "lent " + sum(job.lent) + " and borrowed " + sum(job.borrowed)));
  }
  return all;
}

namespace {

Json texts_json(const std::vector<CauseTime>& causes) {
  Json all = Json::array();
  for (const CauseTime& one : causes) {
    all.push_back({{"cause", one.cause},
                   {"text", one.text},
                   {"each_ns", one.each},
                   {"total_ns", one.total},
                   {"each", time_words(one.each)},
                   {"total", time_words(one.total)}});
  }
  return all;
}

Json delays_json(const ServiceSnapshot& service, const WaitSpan& span) {
  if (span.from == kNever) return nullptr;
  Json delays = Json::object();
  for (std::size_t i = 0; i < kDelays; ++i) {
    delays[std::string(delay_name(static_cast<Delay>(i))) + "_ns"] = span.delays[i];
  }
  delays["wait_ns"] = span.wait_ns();
  delays["window_ns"] = (service.now - span.from).count();
  delays["requests"] = span.requests;
  delays["device_requests"] = span.device.requests;
  delays["device_ns"] = span.device.ns;
  delays["text"] = waited_words(service, span);
  delays["causes"] = texts_json(cause_times(span));
  return delays;
}

// The jobs with the largest records below or above 0.
Json largest_json(const std::vector<const JobSnapshot*>& jobs) {
  Json all = Json::array();
  for (const JobSnapshot* const job : jobs) {
    all.push_back({{"job", printable_id(job->job.text())}, {"tokens", std::abs(job->record)}});
  }
  return all;
}

}  // namespace

std::string explain_json(const Snapshot& shot, const Explained& explained,
                         const WaitHistory& history, std::string_view reason) {
  const ServiceSnapshot& service = shot.services[explained.service];
  const WaitSpan span = span_of(service, explained, history);
  const Verdict verdict = verdict_of(service, explained, span, shot.locks);
  const std::string why =
      reason.empty() ? conditions_of(service, explained.found->rule) : std::string(reason);
  Json json = class_json(*explained.found);
  json["service"] = service.name;
  json["reason"] = why;
  json["policy"] = policy_text(service);
  json["cause"] = verdict.cause;
  json["verdict"] = explained.asked_for + verdict.text;
  json["cure"] = verdict.cure.empty() ? Json(nullptr) : Json(verdict.cure);
  json["limited_by"] = verdict.limited_by.empty() ? Json(nullptr) : Json(verdict.limited_by);
  json["facts"] = Json::array();
  for (const Fact& one : facts_of(service, *explained.found,
                                  {.reason = why,
                                  .policy = policy_text(service),
                                  .limited_by = verdict.limited_by,
                                  .waiting = span.waiting,
                                  .is_measured = span.from != kNever})) {
    json["facts"].push_back({{"name", one.name}, {"text", one.text}});
  }
  const std::vector<const JobSnapshot*> debtors = largest_records(service, RecordSign::kOwes);
  const std::vector<const JobSnapshot*> lenders = largest_records(service, RecordSign::kIsOwed);
  json["standing"] = Json::array();
  if (const JobSnapshot* const job = job_of(service, explained)) {
    json["job"] = job_json(*job);
    const std::uint64_t owed = static_cast<std::uint64_t>(std::abs(job->record));
    json["owes"] = job->record < 0 ? owed : 0;
    json["is_owed"] = job->record > 0 ? owed : 0;
    if (service.adaptive == "on") {
      json["standing"] = standing_of(service, *job, verdict);
      for (std::string& one : record_words(debtors, lenders)) {
        json["standing"].push_back(std::move(one));
      }
    }
  }
  json["capacity"] = service.capacity ? Json(*service.capacity) : Json(nullptr);
  json["capacity_unit"] = service.capacity_unit;
  json["waiting"] = span.waiting;
  json["delays"] = delays_json(service, span);
  json["debtors"] = largest_json(debtors);
  json["lenders"] = largest_json(lenders);
  return text_of(json);
}

}  // namespace weir::control
