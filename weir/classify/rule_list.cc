// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule_list.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "weir/base/assert.h"
#include "weir/base/quote.h"
#include "weir/classify/opcode.h"

namespace weir {
namespace {

constexpr std::string_view kDefault = "default";
// Number of rules that did not match named by explain().
constexpr std::size_t kExplainedMax = 3;

tl::unexpected<Error> no_such_rule(std::string_view name) {
  return fail(std::errc::no_such_file_or_directory, {}, "no rule named " + quote(name),
              "list the rules");
}

// The literal job ids of which one is required for the conjunction to hold, if there are any.
const std::vector<JobId>* required_jobs(const Conditions::Conjunction& conjunction) {
  for (const FieldTest& test : conjunction) {
    const auto* jobs = std::get_if<JobList>(&test.list);
    if (jobs != nullptr && !jobs->has_globs()) return &jobs->literals();
  }
  return nullptr;
}

// The same for all conjunctions of a rule; none if it may match other jobs too.
std::optional<std::vector<JobId>> required_jobs(const Conditions& conditions) {
  std::vector<JobId> all;
  for (const Conditions::Conjunction& conjunction : conditions.conjunctions()) {
    const std::vector<JobId>* jobs = required_jobs(conjunction);
    if (jobs == nullptr) return std::nullopt;
    all.insert(all.end(), jobs->begin(), jobs->end());
  }
  return all;
}

// ---- explaining ----

std::string value_text(const Attributes& attributes, Field field) {
  const auto id = [](std::uint32_t number) {
    return number == kUnknownId ? "unknown" : std::to_string(number);
  };
  switch (field) {
    case Field::kJobid:
      return quote(attributes.job.text());
    case Field::kNid:
      return print_nid(attributes.nid);
    case Field::kOpcode:
      return attributes.opcode == kUnknownId ? "unknown" : opcode_name(attributes.opcode);
    case Field::kUid:
      return id(attributes.uid);
    case Field::kGid:
      return id(attributes.gid);
    case Field::kProjid:
      return id(attributes.projid);
    case Field::kNodemap:
      return id(attributes.nodemap);
    case Field::kExport:
      return quote(attributes.export_name.text());
    case Field::kSubnet:  // in no condition
      break;
  }
  return {};
}

std::string_view text_of(const Rule& rule, const FieldTest& first, const FieldTest& last) {
  const std::string_view conds = rule.conds();
  return conds.substr(first.text_at, last.text_at + last.text_size - first.text_at);
}

// Why a rule does not match.
std::string refusal(const Rule& rule, const Attributes& attributes) {
  const auto& conjunctions = rule.conditions().conjunctions();
  for (const FieldTest& test : conjunctions.front()) {
    if (test.matches(attributes)) continue;
    std::string text =
        fmt::format("{}: {} is {}, not in {}", rule.name(), field_name(test.field),
                    value_text(attributes, test.field), quote(text_of(rule, test, test)));
    if (conjunctions.size() > 1) {
      text += fmt::format(" (nor does any other of its {} conditions match)", conjunctions.size());
    }
    return text;
  }
  return rule.name();
}

// Which conditions of a rule match.
std::string reason(const Rule& rule, const Attributes& attributes) {
  for (const Conditions::Conjunction& conjunction : rule.conditions().conjunctions()) {
    const auto holds = [&](const FieldTest& test) { return test.matches(attributes); };
    if (std::all_of(conjunction.begin(), conjunction.end(), holds)) {
      return quote(text_of(rule, conjunction.front(), conjunction.back())) + " matches";
    }
  }
  return "matches";
}

}  // namespace

RuleList::RuleList(FieldSet type) : type_(type) {
  auto* rule = new Rule;
  rule->name_ = kDefault;
  rule->conds_ = "*";
  rule->by_ = type;
  default_ = order_.insert(order_.end(), rule);
  by_name_.emplace(rule->name_, default_);
  counts_[0] = 1;
}

std::unique_ptr<RuleList> RuleList::copy() const {
  auto list = std::make_unique<RuleList>(type_);
  for (const Rule* const from : order_) {
    auto* const rule = from->is_default() ? *list->default_ : new Rule;
    rule->id_ = from->id_;
    rule->name_ = from->name_;
    rule->conds_ = from->conds_;
    rule->conditions_ = from->conditions_;
    rule->limits_ = from->limits_;
    rule->by_ = from->by_;
    rule->heads_ = from->heads_;
    rule->layer_ = from->layer_;
    if (from->is_default()) {
      list->order_.splice(list->order_.end(), list->order_, list->default_);
      continue;
    }
    list->by_name_.emplace(rule->name_, list->order_.insert(list->order_.end(), rule));
    ++list->counts_[rule->layer_];
  }
  list->next_id_ = next_id_;
  return list;
}

RuleList::~RuleList() {
  by_name_.clear();
  for (Rule* rule : order_) drop(rule);
}

void RuleList::drop(Rule* rule) {
  rule->listed_ = false;
  if (rule->refs_ == 0) delete rule;
}

const Rule* RuleList::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : *found->second;
}

// ---- commands ----

Result<void> RuleList::check(const RuleCommand& command) const {
  if (command.type != type_) {
    return fail(std::errc::invalid_argument, {}, "the command was parsed for another type",
                "parse it for the type of this policy");
  }
  switch (command.verb) {
    case Verb::kStart:
      return check_start(command);
    case Verb::kChange:
      return check_change(command);
    case Verb::kStop:
      if (command.name != kDefault) return {};
      return fail(std::errc::operation_not_permitted, {}, "'default' cannot be stopped",
                  "change its rate instead");
  }
  return {};
}

Result<void> RuleList::check_start(const RuleCommand& command) const {
  const RuleKeys& keys = command.keys;
  if (find(command.name) != nullptr) {
    return fail(std::errc::file_exists, {}, "rule " + quote(command.name) + " already exists",
                "change or stop it, or use another name");
  }
  if (keys.rank && find(*keys.rank) == nullptr) return no_such_rule(*keys.rank);
  if (size() >= kRulesMax) {
    return fail(std::errc::no_space_on_device, {},
                fmt::format("the maximum of {} rules is reached", kRulesMax), "stop some rules");
  }
  return with_keys({}, keys, Verb::kStart).check();
}

Result<void> RuleList::check_change(const RuleCommand& command) const {
  const RuleKeys& keys = command.keys;
  const Rule* rule = find(command.name);
  if (rule == nullptr) return no_such_rule(command.name);
  if (keys.rank && find(*keys.rank) == nullptr) return no_such_rule(*keys.rank);
  if (rule->is_default() && keys.layer.value_or(0) != 0) {
    return fail(std::errc::invalid_argument, {}, "'default' belongs to layer 0",
                "start a rule in the other layer");
  }
  return with_keys(rule->limits(), keys, Verb::kChange).check();
}

Result<void> RuleList::apply(const RuleCommand& command) {
  if (auto checked = check(command); !checked) return checked;
  switch (command.verb) {
    case Verb::kStart:
      start(command);
      break;
    case Verb::kChange:
      change(command);
      break;
    case Verb::kStop:
      stop(command);
      break;
  }
  return {};
}

void RuleList::start(const RuleCommand& command) {
  const RuleKeys& keys = command.keys;
  auto* rule = new Rule;
  rule->id_ = next_id_++;
  rule->name_ = command.name;
  rule->conds_ = command.conds;
  rule->conditions_ = command.conditions;
  rule->limits_ = with_keys({}, keys, Verb::kStart);
  rule->by_ = keys.by.value_or(type_);
  rule->heads_ = command.heads;
  rule->layer_ = keys.layer.value_or(0);
  const auto before = keys.rank ? by_name_.find(*keys.rank)->second : order_.begin();
  by_name_.emplace(rule->name_, order_.insert(before, rule));
  ++counts_[rule->layer_];
  ++generation_;
}

void RuleList::change(const RuleCommand& command) {
  const RuleKeys& keys = command.keys;
  const auto place = by_name_.find(command.name)->second;
  Rule& rule = **place;
  const Limits limits = with_keys(rule.limits_, keys, Verb::kChange);
  const FieldSet by = keys.by.value_or(rule.by_);
  const std::uint8_t layer = keys.layer.value_or(rule.layer_);
  if (limits != rule.limits_ || by != rule.by_) ++rule.version_;
  if (by != rule.by_ || layer != rule.layer_) ++generation_;
  --counts_[rule.layer_];
  ++counts_[layer];
  rule.limits_ = limits;
  rule.by_ = by;
  rule.layer_ = layer;
  if (!keys.rank) return;
  const auto before = by_name_.find(*keys.rank)->second;
  if (before == place || before == std::next(place)) return;  // it is already there
  order_.splice(before, order_, place);
  ++generation_;
}

void RuleList::stop(const RuleCommand& command) {
  const auto found = by_name_.find(command.name);
  if (found == by_name_.end()) return;
  const auto place = found->second;
  Rule* rule = *place;
  by_name_.erase(found);
  order_.erase(place);
  --counts_[rule->layer_];
  ++generation_;
  drop(rule);
}

// ---- matching ----

const RuleList::Index& RuleList::index_of(unsigned layer) const {
  Index& index = indexes_[layer];
  if (indexed_generation_[layer] == generation_) return index;
  index = {};
  for (const Rule* rule : order_) {
    if (rule->layer() != layer || rule->is_default()) continue;
    const auto position = static_cast<std::uint32_t>(index.rules.size());
    index.rules.push_back(rule);
    const auto jobs = required_jobs(rule->conditions());
    if (!jobs) {
      index.tried.push_back(position);
      continue;
    }
    for (const JobId& job : *jobs) {
      std::vector<std::uint32_t>& positions = index.by_job[job];
      if (positions.empty() || positions.back() != position) positions.push_back(position);
    }
  }
  indexed_generation_[layer] = generation_;
  return index;
}

void RuleList::prepare() const {
  for (unsigned layer = 0; layer < kLayers; ++layer) index_of(layer);
}

const Rule* RuleList::match(const Attributes& attributes, unsigned layer) const {
  WEIR_ASSERT(layer < kLayers, layer);
  const Index& index = index_of(layer);
  const std::uint32_t none = static_cast<std::uint32_t>(index.rules.size());
  const std::uint32_t* job = &none;
  const std::uint32_t* job_end = job;
  if (const auto found = index.by_job.find(attributes.job); found != index.by_job.end()) {
    job = found->second.data();
    job_end = job + found->second.size();
  }
  // Both are in ascending order: the earlier one is tried first.
  const std::uint32_t* tried = index.tried.data();
  const std::uint32_t* tried_end = tried + index.tried.size();
  while (job != job_end || tried != tried_end) {
    const bool job_first = tried == tried_end || (job != job_end && *job < *tried);
    const Rule* rule = index.rules[job_first ? *job++ : *tried++];
    if (rule->matches(attributes)) return rule;
  }
  return layer == 0 ? *default_ : nullptr;
}

// ---- showing ----

std::vector<const Rule*> RuleList::rules() const { return {order_.begin(), order_.end()}; }

std::string RuleList::listing() const {
  std::string text;
  for (const Rule* rule : order_) text += rule->listing_line() + '\n';
  return text;
}

std::string RuleList::explain(const Attributes& attributes, unsigned layer) const {
  const Rule* found = match(attributes, layer);
  std::string text = found == nullptr ? "-" : found->name();
  text += '\t';
  const bool fits = found != nullptr && !found->is_default();
  text += fits ? reason(*found, attributes) : "no rule matches";
  std::size_t passed = 0;
  for (const Rule* rule : index_of(layer).rules) {
    if (rule == found) break;
    if (++passed <= kExplainedMax) {
      text += (passed == 1 && fits ? "; checked before it: " : "; ") + refusal(*rule, attributes);
    }
  }
  if (passed > kExplainedMax) text += fmt::format("; and {} more", passed - kExplainedMax);
  return text;
}

}  // namespace weir
