// SPDX-License-Identifier: Apache-2.0
#include "weir/control/verdict.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/classify/rule_spec.h"
#include "weir/control/entitlement.h"
#include "weir/control/explain_words.h"
#include "weir/control/words.h"
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

}  // namespace weir::control
