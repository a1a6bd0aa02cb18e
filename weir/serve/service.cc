// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/service.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "weir/adapt/allocator.h"
#include "weir/adapt/options.h"
#include "weir/adapt/slot_search.h"
#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/number.h"
#include "weir/host/fd.h"
#include "weir/schedule/policy_kinds.h"
#include "weir/serve/target_port.h"
#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

TraceTarget describe(const ServiceOptions& options, const std::vector<NodemapOptions>& nodemaps,
                     UnknownJobs unknown_jobs, Instant now) {
  TraceTarget described;
  described.name = options.name;
  described.made_at = now;
  Target::Options& target = described.options;
  const std::uint32_t slots = options.slots.value_or(kSlotsDefault);
  target.auto_slots = slots == kSlotsAuto;
  target.gate.slots =
      target.auto_slots ? std::max(SlotOptions{}.start, options.hp_slots + 1) : slots;
  target.latency_target = options.latency_target;
  target.gate.hp_slots = options.hp_slots;
  target.gate.rules.classes_max = options.classes;
  target.jobs_max = options.classes;
  target.gate.rules.watched_queues = kWatchedQueues;
  target.timed_jobs_max = kTimedJobs;
  target.nodes_by_clients = unknown_jobs == UnknownJobs::kClients;
  described.nodemaps.reserve(nodemaps.size());
  for (const NodemapOptions& nodemap : nodemaps) described.nodemaps.push_back(nodemap.name);
  target.gate.nodemaps = nodemaps_named(described.nodemaps);
  if (options.adaptive == Adaptive::kOn) target.controller = ControllerOptions{};
  if (options.adaptive == Adaptive::kPaper) target.controller = ControllerOptions::paper();
  if (target.controller) {
    if (options.period) target.controller->period = *options.period;
    // More than the default would take the loop too long, because all are copied once a second.
    target.controller->jobs_max =
        std::min<std::size_t>(target.controller->jobs_max, options.classes);
  }
  target.capacity = options.capacity.rate;
  target.estimate_capacity =
      target.controller.has_value() && options.capacity.kind == Capacity::Kind::kAuto;
  if (options.capacity.kind == Capacity::Kind::kBytes) target.cost = Cost::bytes();
  if (options.cost) target.cost = *options.cost;
  target.share_levels = options.shares.levels;
  return described;
}

// The same number for the same groups on every machine: FNV-1a.
std::uint32_t meaning_of(const std::vector<ClientGroup>& groups) {
  std::uint32_t hash = 2166136261U;
  const auto add = [&](std::string_view text) {
    for (const char letter : text) hash = (hash ^ static_cast<std::uint8_t>(letter)) * 16777619U;
    hash *= 16777619U;
  };
  for (const ClientGroup& group : groups) {
    add(group.name);
    add(group.nids_text);
  }
  return hash;
}

GroupOptions turns_of(const GroupsOptions& options) {
  GroupOptions turns{.lengths = {},
                     .rest_length = options.length,
                     .quiesce = options.quiesce,
                     .quiet_max = options.quiet_max,
                     .meaning = meaning_of(options.groups)};
  turns.lengths.reserve(options.groups.size());
  for (const ClientGroup& group : options.groups) {
    turns.lengths.push_back(group.length.value_or(options.length));
  }
  return turns;
}

}  // namespace

ServiceGroups::ServiceGroups(Target& target, const GroupsOptions& options, Instant now)
    : target_(target), use_(target, turns_of(options)) {
  names_.reserve(options.groups.size() + 1);
  for (const ClientGroup& group : options.groups) names_.push_back(group.name);
  names_.emplace_back(kNoGroup);
  epochs_.emplace(target, local_, use_).init(now);
}

void ServiceGroups::join(EpochHandler& others, Instant now) {
  has_joined_ = true;
  epochs_.emplace(target_, others, use_).init(now);
}

Instant ServiceGroups::next_wake() const {
  return has_joined_ || target_.queued() > 0 ? epochs_->next_wake() : kNever;
}

Decision Service::next_of_groups(Instant now) {
  groups->tick(now);
  const Decision decision = target.next(now);
  if (decision.kind() == Decision::Kind::kRun) return decision;
  const Instant turn_ends = groups->next_wake();
  return turn_ends < decision.until() ? Decision::wait_until(turn_ends) : decision;
}

Result<void> check_groups(const GroupsOptions& groups,
                          const std::vector<std::unique_ptr<Service>>& services) {
  if (groups.groups.empty() || services.empty()) return {};
  for (const auto& service : services) {
    if (service->target.rules(Head::kRegular) != nullptr) return {};
  }
  return fail(std::errc::invalid_argument, "groups",
              fmt::format("policy {} does not support groups of clients",
                          quote(services.front()->target.policy(Head::kRegular).name())),
              fmt::format("use policy {}, or remove the groups", policies_with_rules()));
}

Result<std::unique_ptr<Service>> open_service(const ServiceOptions& options,
                                              const std::vector<NodemapOptions>& nodemaps,
                                              UnknownJobs unknown_jobs, const GroupsOptions& groups,
                                              Instant now, TraceFile* trace, Standing standing) {
  if (!options.shares.levels.empty() && options.adaptive == Adaptive::kOff) {
    return fail(std::errc::invalid_argument, "service " + quote(options.name),
                "a tree of shares has no effect with adaptive off",
                "use adaptive on, or remove [shares]");
  }
  TraceTarget described = describe(options, nodemaps, unknown_jobs, now);
  described.options.gate.rules.in_cluster = standing == Standing::kInCluster;
  described.options.gate.rules.groups.reserve(groups.groups.size());
  for (const ClientGroup& group : groups.groups) {
    described.options.gate.rules.groups.push_back(group.nids);
  }
  auto service = std::make_unique<Service>(options.name, described.options, now);
  if (trace != nullptr) service->target.record(&trace->add_target(described));
  if (auto started = write_nrs_policies(service->target, options.policy, now); !started) {
    Error error = started.error();
    error.code = std::errc::invalid_argument;  // an error in the options
    error.where = "policy " + quote(options.policy);
    return tl::unexpected(error);
  }
  for (const std::string& text : options.tunables) {
    auto set = set_tunable(service->target, options.policy, text, now);
    if (!set) return tl::unexpected(set.error());
  }
  for (const auto& [path, weight] : options.shares.weights) {
    auto set = service->target.set_node_weight(path, weight, now);
    if (!set) return tl::unexpected(set.error());
  }
  service->shares = options.shares;
  if (auto begun = service->rules.begin(options.rules, options.more_rules, now); !begun) {
    return tl::unexpected(begun.error());
  }
  if (!groups.groups.empty()) {
    service->groups = std::make_unique<ServiceGroups>(service->target, groups, now);
  }
  return service;
}

Result<void> try_services(const ServeOptions& options) {
  std::vector<std::unique_ptr<Service>> services;
  for (const ServiceOptions& one : options.services) {
    auto tried =
        open_service(one, options.nodemaps, options.unknown_jobs, options.groups, Instant{});
    if (!tried) return tl::unexpected(tried.error());
    services.push_back(std::move(*tried));
  }
  return check_groups(options.groups, services);
}

Result<std::unique_ptr<ServedExport>> open_export(const ExportOptions& options, Service& service,
                                                  host::IoLoop& io) {
  auto served = std::make_unique<ServedExport>(service.jobs_max);
  served->options = options;
  served->service = &service;
  auto store = open_store(options.store, options.read_only, io);
  if (!store) return tl::unexpected(store.error());
  served->store = std::move(*store);

  ExportFacts& facts = served->facts;
  facts.name = served->options.name;
  facts.description = served->options.description;
  facts.size = served->store->size();
  facts.features = served->store->features();
  facts.is_read_only = options.read_only;
  if (options.read_only) {
    constexpr unsigned kWriting = kCanDiscard | kCanZero | kCanZeroFast | kCanWriteDurably;
    facts.features = static_cast<std::uint8_t>(facts.features & ~kWriting);
  }
  BlockSizes& blocks = facts.blocks;
  blocks = options.blocks;
  blocks.minimum = std::max(blocks.minimum, served->store->block_min());
  blocks.preferred = std::max(blocks.preferred, blocks.minimum);
  if (!are_valid(blocks, facts.size)) {
    return fail(std::errc::invalid_argument, "export " + quote(options.name),
                fmt::format("of {} bytes cannot have block sizes {}, {} and {}", facts.size,
                            blocks.minimum, blocks.preferred, blocks.maximum),
                "minimum and preferred must be powers of 2, the size a multiple of the minimum");
  }
  return served;
}

bool has_accounts(const ServeOptions& options) {
  return std::any_of(options.services.begin(), options.services.end(),
                     [](const ServiceOptions& one) { return !one.shares.accounts.empty(); });
}

std::vector<std::string> set_account_weights(Service& service, const AccountShares& accounts,
                                             Instant now) {
  std::vector<std::string> gone;
  const Controller* const controller = service.target.controller();
  const TreeShares* const tree = controller == nullptr ? nullptr : controller->tree();
  if (tree == nullptr) return gone;
  for (const auto& [path, account] : service.shares.accounts) {
    if (service.shares.weights.contains(path)) continue;
    const auto found = accounts.find(account);
    const std::uint64_t weight =
        found == accounts.end()
            ? 0
            : std::clamp<std::uint64_t>(found->second, 1, TreeAllocator::kWeightMax);
    if (tree->weight_of(path) == std::max<std::uint64_t>(weight, 1)) continue;
    const auto set = service.target.set_node_weight(path, weight, now);
    WEIR_ASSERT(set.has_value());  // as the file was checked
    if (weight == 0) {
      gone.push_back(
          fmt::format("account {} is not listed any more; node {} of service {} has the "
                      "weight 1",
                      quote(account), quote(path), quote(service.name)));
    }
  }
  return gone;
}

Result<JobTable> parse_jobs(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  JobTable jobs;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = line.substr(0, line.find('#'));
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    if (line.empty()) continue;
    line = line.substr(0, line.find_last_not_of(kBlank) + 1);
    const std::size_t gap = std::min(line.find_first_of(kBlank), line.size());
    const std::string_view job = line.substr(0, gap);
    line.remove_prefix(gap);
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    const auto nodes = read_decimal(line);
    if (!nodes || *nodes == 0 || *nodes > Allocator::kNodesMax || job.size() > JobId::kSizeMax) {
      return fail(
          std::errc::invalid_argument, fmt::format("line {}", number),
          "is not a job and its number of nodes",
          fmt::format("expected JOB NODES: an id of up to 31 bytes and a number from 1 to {}",
                      Allocator::kNodesMax));
    }
    jobs[std::string(job)] = *nodes;
  }
  return jobs;
}

Result<JobTable> read_jobs(const std::string& path) {
  const host::Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return fail_errno(errno, quote(path), "name a file of lines JOB NODES");
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    const ssize_t got = read(file.get(), piece.data(), piece.size());
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, quote(path), "name a file of lines JOB NODES");
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  auto jobs = parse_jobs(text);
  if (!jobs) jobs.error().where = fmt::format("{}: {}", quote(path), jobs.error().where);
  return jobs;
}

Result<void> set_nodes(Target& target, const JobTable& before, const JobTable& jobs, Instant now) {
  Result<void> first;
  const auto set = [&](const std::string& job, std::uint64_t nodes) {
    auto done = target.set_nodes(JobId(job), nodes, now);
    if (!done && first) first = done;
  };
  for (const auto& [job, nodes] : before) {
    if (!jobs.contains(job)) set(job, 0);
  }
  for (const auto& [job, nodes] : jobs) set(job, nodes);
  return first;
}

}  // namespace weir::serve
