// SPDX-License-Identifier: Apache-2.0
#include "weir/control/snapshot.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weir/base/quote.h"
#include "weir/classify/nid.h"
#include "weir/classify/opcode.h"
#include "weir/control/words.h"
#include "weir/host/log.h"
#include "weir/schedule/policy_kinds.h"
#include "weir/target/tree_levels.h"

namespace weir::control {
namespace {

std::string id_text(std::uint32_t id) { return id == kUnknownId ? "unknown" : std::to_string(id); }

std::string field_text(const Attributes& key, FieldSet fields, Field field) {
  switch (field) {
    case Field::kJobid:
      return printable_id(key.job.text());
    case Field::kNid:
      return print_nid(key.nid);
    case Field::kOpcode:
      return key.opcode == kUnknownId ? "unknown" : opcode_name(key.opcode);
    case Field::kUid:
      return id_text(key.uid);
    case Field::kGid:
      return id_text(key.gid);
    case Field::kProjid:
      return id_text(key.projid);
    case Field::kNodemap:
      return id_text(key.nodemap);
    case Field::kExport:
      return printable_id(key.export_name.text());
    case Field::kSubnet:
      return print_network(key.nid, fields.subnet_length());
  }
  return {};
}

std::uint64_t per_second(const BucketShape& shape) {
  return tokens_in(shape.rate(), std::chrono::seconds{1}).count();
}

ClassSnapshot class_shot(const ClassView& view) {
  ClassSnapshot shot;
  shot.rule = view.rule.name();
  shot.key = view.key;
  shot.by = view.rule.by();
  shot.is_overflow = view.is_overflow;
  if (view.ops) {
    shot.rate = per_second(*view.ops);
    shot.depth = view.ops->depth().count();
    shot.level = view.ops_level.count();
  }
  if (view.bytes) {
    shot.bps = per_second(*view.bytes);
    shot.byte_depth = view.bytes->depth().count();
    shot.byte_level = view.bytes_level.count();
  }
  if (view.reserve) {
    shot.reserve = per_second(*view.reserve);
    shot.reserves_bytes = view.reserves_bytes;
  }
  shot.is_of_cluster = view.rule.limits().scope == Scope::kCluster;
  shot.totals = view.totals;
  return shot;
}

// Values with / between them. Of the characters that are escaped, only "(none)" has some.
std::string printable_path(TreeShares::Path path) {
  std::string text;
  for (const JobId& value : path) {
    if (&value != path.data()) text += '/';
    text += value.text() == TreeAllocator::kNone ? std::string(TreeAllocator::kNone)
                                                 : printable_id(value.text());
  }
  return text;
}

JobSnapshot job_shot(const Target& target, const JobStats::Entry& entry) {
  JobSnapshot shot{.job = entry.job,
                   .arrived = entry.arrived.requests,
                   .finished = entry.finished.requests,
                   .waiting = entry.waiting().requests,
                   .running = entry.running().requests,
                   .read_bytes = entry.read.count(),
                   .written_bytes = entry.written.count(),
                   .wait_ns = static_cast<std::uint64_t>(entry.wait_sum.count()),
                   .latency_ns = static_cast<std::uint64_t>(entry.latency_sum.count()),
                   .device = device_of(&entry)};
  const Controller* const controller = target.controller();
  if (controller == nullptr) return shot;
  shot.nodes = shot.weight = controller->nodes_of(entry.job);
  if (const auto share = controller->share_of(entry.job)) {
    shot.weight = share->nodes;
    if (share->rate) shot.share = tokens_in(*share->rate, std::chrono::seconds{1}).count();
  }
  if (const Ledger::Account* const account = controller->account_of(entry.job)) {
    shot.record = account->record;
    shot.lent = account->lent_sum.count();
    shot.borrowed = account->borrowed_sum.count();
  }
  if (const TreeShares* const tree = controller->tree()) {
    shot.path = printable_path(tree->path_of(entry.job));
    shot.siblings = tree->siblings_of(entry.job);
  }
  return shot;
}

// ---- trees of shares ----

const TreeShares* tree_of(const Target& target) {
  return target.controller() == nullptr ? nullptr : target.controller()->tree();
}

// `service` knows the names of nodes, if it is that of the target.
NodeSnapshot node_shot(const Target& target, const serve::Service* service,
                       const TreeShares::NodeView& node) {
  NodeSnapshot shot{.path = printable_path(node.values),
                    .level = level_word(target.share_levels()[node.values.size() - 1]),
                    .weight = node.weight,
                    .siblings = node.siblings};
  if (node.rate) shot.share = tokens_in(*node.rate, std::chrono::seconds{1}).count();
  if (service != nullptr) {
    const auto& names = service->shares.names;
    const auto name = names.find(std::string(node.path));
    if (name != names.end()) shot.name = printable_id(name->second);
  }
  if (node.account == nullptr) return shot;
  shot.record = node.account->record;
  shot.lent = node.account->lent_sum.count();
  shot.borrowed = node.account->borrowed_sum.count();
  return shot;
}

void add_tree(const Target& target, ServiceSnapshot& shot) {
  const TreeShares* const tree = tree_of(target);
  if (tree == nullptr) return;
  shot.tree.emplace().levels = print_tree_levels(target.share_levels());
  shot.tree->nodes_in_all = tree->nodes();
}

void add_all_nodes(const Target& target, const serve::Service* service, ServiceSnapshot& shot) {
  if (!shot.tree) return;
  tree_of(target)->visit(TreeSnapshot::kNodesMax, [&](const TreeShares::NodeView& node) {
    shot.tree->nodes.push_back(node_shot(target, service, node));
  });
}

void add_nodes_above(const Target& target, const serve::Service* service, const JobId& job,
                     ServiceSnapshot& shot) {
  if (!shot.tree) return;
  const TreeShares& tree = *tree_of(target);
  const TreeShares::Path path = tree.path_of(job);
  for (std::size_t depth = 1; depth <= path.size(); ++depth) {
    const auto node = tree.find(path.first(depth));
    const auto is_there = [&](const NodeSnapshot& one) {
      return one.path == printable_path(node->values);
    };
    auto& nodes = shot.tree->nodes;
    if (node && std::none_of(nodes.begin(), nodes.end(), is_there)) {
      nodes.push_back(node_shot(target, service, *node));
    }
  }
}

std::string_view name_of(Heads heads) {
  return heads == Heads::kBoth ? "both" : heads == Heads::kRegular ? "reg" : "hp";
}

std::string_view name_of(Head head) { return head == Head::kRegular ? "regular" : "high_priority"; }

// A rule of the cluster is in neither list.
bool is_temporary(const serve::KeptRules& rules, const std::string& name, Head head) {
  const RuleBook::Entry* const now = rules.all().find(name, head);
  const RuleBook::Entry* const kept = rules.kept().find(name, head);
  if (now == nullptr) return false;
  return kept == nullptr || kept->conds != now->conds || kept->keys != now->keys;
}

void add_rule(ServiceSnapshot& shot, RuleSnapshot one) {
  ++shot.rules_in_all;
  if (shot.rules.size() < ServiceSnapshot::kRulesMax) shot.rules.push_back(std::move(one));
}

// The active rules. Without a book of kept rules, all of them.
void add_rules(ServiceSnapshot& shot, const Target& target, const serve::KeptRules* book) {
  for (const Head head : kHeads) {
    const RuleView* const rules = target.rules(head);
    if (rules == nullptr) continue;
    for (const Rule* const rule : rules->rules(head).rules()) {
      // A rule for both heads is listed once.
      if (rule->heads() == Heads::kBoth && head == Head::kHigh) continue;
      Limits limits = rule->limits();
      if (limits.rate_in_force() > 0) limits.rate = limits.rate_in_force();
      RuleSnapshot one{.name = rule->name(),
                       .conditions = rule->conds(),
                       .limits = limits.summary(),
                       .heads = std::string(name_of(rule->heads() == Heads::kBoth ? Heads::kBoth
                                                    : head == Head::kRegular      ? Heads::kRegular
                                                                                  : Heads::kHigh)),
                       .layer = rule->layer(),
                       .rate = limits.rate_in_force(),
                       .weight = limits.weight.value_or(0),
                       .classes = rule->refs()};
      if (limits.bps) one.bps = tokens_in(*limits.bps, std::chrono::seconds{1}).count();
      if (rule->is_default() && !rules->limits_by_default()) {
        one.limits.clear();
        one.rate = 0;
      }
      if (book != nullptr && is_temporary(*book, rule->name(), head)) one.state = "temporary";
      add_rule(shot, std::move(one));
    }
  }
}

void add_inactive_rules(ServiceSnapshot& shot, const serve::KeptRules& book) {
  const RuleBook::Entries& kept = book.kept().entries();
  for (auto entry = kept.rbegin(); entry != kept.rend(); ++entry) {
    if (entry->is_default() || book.running().find(entry->name) != nullptr) continue;
    RuleSnapshot one{.name = entry->name,
                     .conditions = entry->conds,
                     .limits = print_keys(entry->keys),
                     .heads = std::string(name_of(entry->heads)),
                     .layer = entry->keys.layer.value_or(0),
                     .rate = entry->keys.rate.value_or(entry->keys.bps ? 0 : kDefaultRate),
                     .state = "inactive"};
    if (!one.limits.empty()) one.limits.erase(0, 1);
    if (entry->keys.bps) one.bps = tokens_in(*entry->keys.bps, std::chrono::seconds{1}).count();
    add_rule(shot, std::move(one));
  }
}

void add_policies(ServiceSnapshot& shot, const Target& target) {
  static constexpr std::string_view kStates[] = {"stopped", "stopping", "started"};
  for (const Head head : kHeads) {
    for (const Gate::PolicyStatus& policy : target.policies(head)) {
      shot.policies.push_back(
          {.head = std::string(name_of(head)),
           .name = std::string(policy.name),
           .argument = std::string(policy.argument),
           .state = std::string(kStates[static_cast<std::size_t>(policy.state)]),
           .queued = policy.queued,
           .running = policy.running});
    }
  }
}

void add_tunables(ServiceSnapshot& shot, const Target& target) {
  for (const Head head : kHeads) {
    const Policy& policy = target.policy(head);
    const auto kind = find_policy(policy.name());
    if (!kind) continue;
    for (const Tunable& one : (*kind)->tunables) {
      const auto value = policy.tunable(one.name);
      if (!value) continue;
      shot.tunables.push_back({.policy = (*kind)->name,
                               .name = one.name,
                               .head = std::string(name_of(head)),
                               .value = *value,
                               .least = one.least,
                               .most = one.most,
                               .help = one.help});
    }
  }
}

GroupsSnapshot groups_shot(const serve::ServiceGroups& groups, const Target& target) {
  const GroupEpochs& turns = groups.turns();
  const RuleView* const rules = target.rules(Head::kRegular);
  GroupsSnapshot shot;
  shot.epoch = groups.epochs().participant().epoch();
  shot.ragged = turns.ragged();
  shot.step = !groups.has_joined()  ? "own"
              : !turns.is_in_step() ? "cut off"
              : turns.is_mixed()    ? "mixed"
                                    : "cluster";
  if (rules == nullptr) shot.step = "inactive";
  shot.groups.reserve(groups.names().size());
  for (std::uint32_t i = 0; i < groups.names().size(); ++i) {
    shot.groups.push_back({.name = groups.names()[i],
                           .turns = turns.turns()[i],
                           .waiting = rules == nullptr ? 0 : rules->group_queues(i)});
    if (rules != nullptr && turns.preferred() == i) shot.preferred = groups.names()[i];
  }
  return shot;
}

SlotsSnapshot slots_shot(const Target& target) {
  SlotsSnapshot shot;
  shot.count = target.slots();
  const SlotSearch* const search = target.slot_search();
  if (search == nullptr) return shot;
  const auto ns = [](std::optional<Nanoseconds> time) {
    return time ? std::optional(static_cast<std::uint64_t>(time->count())) : std::nullopt;
  };
  shot.is_auto = true;
  shot.is_settled = search->is_settled();
  shot.latency_ns = ns(search->latency());
  shot.latency_target_ns = ns(search->options().latency_target);
  return shot;
}

void begin_target(const Target& target, const serve::Service* service, ServiceSnapshot& shot,
                  Instant now) {
  shot.now = now;
  shot.queued = target.queued();
  shot.running = target.running();
  shot.capacity_unit = unit_of(target.cost());
  if (const auto capacity = target.capacity()) {
    shot.capacity = tokens_in(*capacity, std::chrono::seconds{1}).count();
  }
  shot.slots = slots_shot(target);
  const Controller* const controller = target.controller();
  shot.adaptive = controller == nullptr ? "off" : controller->suspended().value_or("on");
  add_tree(target, shot);
  add_policies(shot, target);
  add_tunables(shot, target);
  shot.notes = notes_of(target, service);
  add_rules(shot, target, service == nullptr ? nullptr : &service->rules);
  if (const RuleView* const rules = target.rules(Head::kRegular)) {
    shot.reserve_scale = rules->reserve_scale();
    shot.has_rules = true;
    shot.overflowed = rules->overflowed();
    shot.classes.reserve(rules->classes());
    rules->visit_waits(now, [&](const WaitView& wait) { shot.waits.push_back(wait); });
  }
  if (service == nullptr) return;
  shot.name = service->name;
  add_inactive_rules(shot, service->rules);
  if (service->groups != nullptr) shot.groups = groups_shot(*service->groups, target);
}

// The jobs with the largest records of each sign.
std::vector<JobId> largest_records(const Controller* controller, std::size_t count) {
  std::vector<JobId> jobs;
  if (controller == nullptr) return jobs;
  std::vector<const JobRecord*> records;
  for (const JobRecord& one : controller->records()) records.push_back(&one);
  const auto add = [&](auto is_larger) {
    const std::size_t kept = std::min(count, records.size());
    std::partial_sort(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(kept),
                      records.end(), is_larger);
    for (std::size_t i = 0; i < kept; ++i) jobs.push_back(records[i]->job);
  };
  add([](const JobRecord* a, const JobRecord* b) { return a->record > b->record; });
  add([](const JobRecord* a, const JobRecord* b) { return a->record < b->record; });
  return jobs;
}

}  // namespace

std::string ClassSnapshot::name() const { return class_name(rule, key, by, is_overflow); }

std::vector<std::string> notes_of(const Target& target, const serve::Service* service) {
  std::vector<std::string> notes;
  const RuleView* const rules = target.rules(Head::kRegular);
  if (rules != nullptr && target.controller() == nullptr && rules->limits_by_default()) {
    const Rule& rule = *rules->rules(Head::kRegular).find("default");
    if (!rule.limits().rate && !rule.limits().bps) {
      notes.push_back(fmt::format(
          "adaptive is off: rule 'default' limits each class without another rule to {} "
          "operations/s; to change it: weir rule change default rate=N",
          count_words(rule.limits().rate_in_force())));
    }
  }
  if (service == nullptr) return notes;
  std::vector<std::string> inactive;
  for (const RuleBook::Entry& entry : service->rules.kept().entries()) {
    if (!entry.is_default() && service->rules.running().find(entry.name) == nullptr) {
      inactive.push_back(entry.name);
    }
  }
  const std::string policy(target.policy(Head::kRegular).name());
  if (!inactive.empty()) {
    notes.push_back(fmt::format("kept, but inactive under policy {}: rule{} {}", policy,
                                inactive.size() == 1 ? "" : "s", fmt::join(inactive, ", ")));
  }
  if (service->groups != nullptr && rules == nullptr) {
    notes.push_back(fmt::format("groups of clients take no turns under policy {}; they require {}",
                                policy, policies_with_rules()));
  }
  return notes;
}

std::string store_words(const serve::StoreOptions& options) {
  using Kind = serve::StoreOptions::Kind;
  const std::string what = options.kind == Kind::kFile     ? "file " + visible(options.path)
                           : options.kind == Kind::kDevice ? "device " + visible(options.path)
                           : options.kind == Kind::kMemory ? "memory"
                                                           : "another server";
  return options.shape ? what + ", slowed down" : what;
}

Moment moment_at(Instant now) {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return {now, std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count()};
}

std::string class_name(std::string_view rule, const Attributes& key, FieldSet by,
                       bool is_overflow) {
  std::string name(rule);
  name += '/';
  name += is_overflow ? "(others)" : key_name(key, by);
  return name;
}

std::string key_name(const Attributes& key, FieldSet fields) {
  std::string name;
  for (unsigned i = 0; i < kFields; ++i) {
    const auto field = static_cast<Field>(i);
    if (!fields.has(field)) continue;
    if (!name.empty()) name += '+';
    name += field_text(key, fields, field);
  }
  return fields.empty() ? "*" : name;
}

DeviceSums device_of(const JobStats::Entry* job) {
  if (job == nullptr) return {};
  return {job->finished.requests, static_cast<std::uint64_t>(job->device_sum.count())};
}

ClassQuery::ClassQuery(std::string name) : name_(std::move(name)) {
  for (const std::string_view word : {"job=", "uid=", "gid=", "client=", "export=", "rule="}) {
    if (!name_.starts_with(word)) continue;
    name_.erase(0, word.size());
    is_rule_ = word == "rule=";
    break;
  }
  const auto job_of = [](std::string_view text) -> std::optional<JobId> {
    const auto id = read_id(text);
    return id ? std::optional(JobId(*id)) : std::nullopt;
  };
  whole_ = job_of(name_);
  if (const std::size_t slash = name_.find('/'); slash != std::string::npos) {
    rest_ = job_of(std::string_view(name_).substr(slash + 1));
  }
}

std::vector<JobId> ClassQuery::jobs() const {
  std::vector<JobId> jobs;
  for (const auto& job : {whole_, rest_}) {
    if (job) jobs.push_back(*job);
  }
  return jobs;
}

bool ClassQuery::may_be(const ClassView& view) const {
  if (view.rule.by().empty()) return true;  // one for each rule: it may be the class of a job
  return is_named(view.rule, view.key, view.is_overflow);
}

bool ClassQuery::concerns(const Attributes& key,
                          const std::array<const Rule*, kLayers>& rules) const {
  if (!is_rule_ && !key.job.empty() && is_job(key.job)) return true;
  return std::any_of(rules.begin(), rules.end(), [&](const Rule* rule) {
    return rule != nullptr && is_named(*rule, key.only(rule->by()), false);
  });
}

bool ClassQuery::is_named(const Rule& rule, const Attributes& key, bool is_overflow) const {
  if (is_rule_) return rule.name() == name_;
  const FieldSet by = rule.by();
  // A fast path for the usual classes.
  if (by == FieldSet{Field::kJobid} && !is_overflow) {
    return is_job(key.job) || rule.name() == name_;
  }
  if (by.has(Field::kJobid) && key.job == whole_) return true;
  const std::string text = is_overflow ? "(others)" : key_name(key, by);
  return text == name_ || rule.name() == name_ || rule.name() + "/" + text == name_;
}

void SnapshotTaker::begin(serve::Server& server) {
  has_begun_ = true;
  shot_.moment = moment_at(server.now());
  shot_.counters = server.counters();
  for (const auto& kind : serve::protocol_kinds()) {
    if (!kind->counts) continue;
    for (serve::ProtocolCount& one : kind->counts()) shot_.protocols.push_back(std::move(one));
  }
  shot_.io = server.io_name();
  shot_.loops = server.loops();
  shot_.connections = server.connection_count();
  shot_.memory_used = server.memory_used().count();
  shot_.memory_kept = server.memory_kept().count();
  shot_.memory_limit = server.options().limits.memory.count();
  shot_.log_dropped = host::log_dropped();
  shot_.services.resize(server.services().size());
  for (const auto& served : server.exports()) {
    shot_.exports.push_back(served->options.name);
    shot_.stores.push_back({.name = served->options.name,
                            .service = served->service->name,
                            .store = store_words(served->options.store),
                            .bytes = served->facts.size,
                            .is_read_only = served->facts.is_read_only});
    const auto hung = server.hung(*served);
    if (!hung) continue;
    shot_.hung.push_back({.name = served->options.name,
                          .service = served->service->name,
                          .unfinished = hung->unfinished,
                          .kept = hung->kept,
                          .silent_ns = static_cast<std::uint64_t>(hung->silence.count())});
  }
  if (const serve::LoopComponent* const component = server.component()) {
    component->describe(shot_.cluster.emplace(), server.now());
  }
}

bool SnapshotTaker::step_target(const Target& target, const serve::Service* service,
                                ServiceSnapshot& shot, Instant now) {
  switch (part_) {
    case Part::kHead:
      begin_target(target, service, shot, now);
      if (!query_) add_all_nodes(target, service, shot);
      add_wait_rules(target, shot);
      part_ = Part::kClasses;
      return false;
    case Part::kClasses:
      if (!step_classes(target, shot, now)) return false;
      if (query_) add_sought_jobs(target, service, shot);
      part_ = query_ ? Part::kWeights : Part::kJobs;
      return false;
    case Part::kJobs:
      if (step_jobs(target, shot)) part_ = Part::kTimes;
      return false;
    case Part::kTimes:
      return step_times(target.stats(), shot);
    case Part::kWeights:
      break;
  }
  if (!step_weights(target, shot, now)) return false;
  from_ = JobId();
  part_ = Part::kHead;
  return true;
}

// The key of a wait has all fields that its rules can use.
void SnapshotTaker::add_wait_rules(const Target& target, ServiceSnapshot& shot) {
  companions_.clear();
  for (const WaitView& wait : shot.waits) {
    const RuleView* const view = target.rules(wait.head);
    std::array<const Rule*, kLayers> rules{};
    LayerRules& names = shot.wait_rules.emplace_back();
    for (unsigned layer = 0; layer < kLayers && view != nullptr; ++layer) {
      rules[layer] = view->rules(wait.head).match(wait.key, layer);
      if (rules[layer] != nullptr) names[layer] = rules[layer]->name();
    }
    shot.wait_devices.push_back(device_of(target.stats().find(wait.key.job)));
    if (!query_ || !query_->concerns(wait.key, rules)) continue;
    for (const Rule* const rule : rules) {
      if (rule != nullptr) companions_[rule->name()].insert(wait.key.only(rule->by()));
    }
  }
}

bool SnapshotTaker::step_classes(const Target& target, ServiceSnapshot& shot, Instant now) {
  const RuleView* const rules = target.rules(Head::kRegular);
  if (rules == nullptr) return true;
  const Rule* last = nullptr;
  const std::unordered_set<Attributes>* keys = nullptr;  // of companions under that rule
  const auto is_companion = [&](const ClassView& view) {
    if (companions_.empty()) return false;
    if (&view.rule != last) {
      const auto found = companions_.find(view.rule.name());
      keys = found == companions_.end() ? nullptr : &found->second;
      last = &view.rule;
    }
    return keys != nullptr && keys->contains(view.key);
  };
  const auto keep = [&](const ClassView& view) {
    if (!query_ || query_->may_be(view) || is_companion(view)) {
      shot.classes.push_back(class_shot(view));
    }
  };
  const auto next = rules->visit_classes(at_, query_ ? kSeekStep : kStep, now, keep);
  at_ = next.value_or(0);
  return !next;
}

bool SnapshotTaker::step_jobs(const Target& target, ServiceSnapshot& shot) {
  const JobStats& stats = target.stats();
  const std::size_t end = std::min(at_ + kStep, stats.size());
  for (; at_ < end; ++at_) shot.jobs.push_back(job_shot(target, stats.entry(at_)));
  if (at_ < stats.size()) return false;
  at_ = 0;
  return true;
}

void SnapshotTaker::add_sought_jobs(const Target& target, const serve::Service* service,
                                    ServiceSnapshot& shot) const {
  std::vector<JobId> jobs = query_->jobs();
  for (const JobId& job : jobs) add_nodes_above(target, service, job, shot);
  const std::vector<JobId> records = largest_records(target.controller(), kRecordsMax);
  jobs.insert(jobs.end(), records.begin(), records.end());
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  for (const JobId& job : jobs) {
    if (const JobStats::Entry* const entry = target.stats().find(job)) {
      shot.jobs.push_back(job_shot(target, *entry));
    }
  }
}

// Adds up the weights of the shares of jobs that were active lately. In a tree, those of siblings
// count.
bool SnapshotTaker::step_weights(const Target& target, ServiceSnapshot& shot, Instant now) {
  constexpr Nanoseconds kShareMax = std::chrono::seconds{10};
  const Controller* const controller = target.controller();
  if (controller == nullptr || shot.tree) return true;
  const auto add = [&](const JobId& job, const Share& share) {
    const JobStats::Entry* const entry = shot.share_weights ? target.stats().find(job) : nullptr;
    if (entry == nullptr || now - entry->last_seen > kShareMax) return;
    shot.share_weights->sum += share.nodes;
    if (++shot.share_weights->jobs > ServiceSnapshot::kWeighedJobsMax) shot.share_weights.reset();
  };
  const auto next = controller->visit_shares(from_, kSeekStep, add);
  from_ = next.value_or(JobId());
  return !next || !shot.share_weights;
}

bool SnapshotTaker::step_times(const JobStats& stats, ServiceSnapshot& shot) {
  if (at_ == 0) {
    shot.times = stats.shared_times();
    delayed_.clear();
  }
  const std::size_t end = std::min(at_ + kTimesStep, stats.timed_jobs());
  for (; at_ < end; ++at_) {
    const JobStats::TimedJob& job = stats.timed_job(at_);
    shot.times += job.times;
    delayed_.emplace_back(job.entry->wait_sum, at_);
  }
  if (at_ < stats.timed_jobs()) return false;
  const std::size_t kept = std::min(delayed_.size(), ServiceSnapshot::kTimedJobsMax);
  std::partial_sort(delayed_.begin(), delayed_.begin() + static_cast<std::ptrdiff_t>(kept),
                    delayed_.end(), std::greater<>());
  for (std::size_t i = 0; i < kept; ++i) {
    const JobStats::TimedJob& job = stats.timed_job(delayed_[i].second);
    shot.job_times.emplace_back(job.entry->job, job.times);
  }
  at_ = 0;
  part_ = Part::kHead;
  return true;
}

bool SnapshotTaker::step(serve::Server& server) {
  if (!has_begun_) begin(server);
  const auto services = server.services();
  if (service_ < services.size()) {
    const serve::Service& service = *services[service_];
    if (step_target(service.target, &service, shot_.services[service_], server.now())) ++service_;
  }
  return service_ >= services.size();
}

void SnapshotTaker::add(serve::TargetPort& port) {
  ServiceSnapshot shot;
  shot.name = port.service();
  bool is_whole = false;
  while (!is_whole) {
    const bool is_there = port.look([&](const Target& target, Instant now) {
      is_whole = step_target(target, nullptr, shot, now);
    });
    if (!is_there) return;
  }
  shot_.services.push_back(std::move(shot));
}

}  // namespace weir::control
