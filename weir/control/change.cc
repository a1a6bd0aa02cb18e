// SPDX-License-Identifier: Apache-2.0
#include "weir/control/change.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weir/base/quote.h"
#include "weir/control/job_sizes.h"
#include "weir/control/params.h"

namespace weir::control {
namespace {

using Json = nlohmann::json;
constexpr std::string_view kRuleLeaf = ".nrs_tbf_rule";
constexpr std::string_view kPolicyLeaf = ".nrs_policies";

// A rule command in its words, without "reg" and "hp".
struct Words {
  std::string head;
  std::string verb;
  std::string name;
  std::vector<std::string> keys;  // of a change: what it sets
};

Words words_of(std::string_view text) {
  std::vector<std::string> all;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    if (!word.empty()) all.emplace_back(word);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  Words words;
  auto next = all.begin();
  if (next != all.end() && (*next == "reg" || *next == "hp")) words.head = *next++;
  if (next != all.end()) words.verb = *next++;
  if (next != all.end()) words.name = *next++;
  for (; next != all.end(); ++next) words.keys.push_back(next->substr(0, next->find('=')));
  std::sort(words.keys.begin(), words.keys.end());
  return words;
}

std::string without_blanks(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (c != ' ') kept += c;
  }
  return kept;
}

bool is_rule(const Change& change) {
  return change.kind == Change::Kind::kParam && change.target.ends_with(kRuleLeaf);
}

bool has_key(const Words& words, std::string_view key) {
  return std::find(words.keys.begin(), words.keys.end(), key) != words.keys.end();
}

// The records that a command for a rule may be merged with: those after the last one that could
// have ended the rule, or put it elsewhere, by another way. Where that is hard to tell all is kept.
auto mergeable(std::vector<Change>& kept, const Change& change, const Words& words) {
  const auto barrier = std::find_if(kept.rbegin(), kept.rend(), [&](const Change& one) {
    if (one.kind != Change::Kind::kParam) return false;
    if (one.target.ends_with(kPolicyLeaf)) return true;
    if (!is_rule(one)) return false;
    const Words other = words_of(*one.value);
    if (one.target != change.target) return other.name == words.name;
    return has_key(other, "rank") || (other.name == words.name && other.head != words.head);
  });
  return barrier.base();
}

// The same for a command for a rule.
bool supersede_rule(std::vector<Change>& kept, const Change& change) {
  const Words words = words_of(*change.value);
  const auto begin = mergeable(kept, change, words);
  const auto is_same = [&](const Change& one, std::string_view verb) {
    if (!is_rule(one)) return false;
    const Words other = words_of(*one.value);
    return other.name == words.name && other.verb == verb;
  };
  if (words.verb == "stop") {
    const auto started =
        std::find_if(begin, kept.end(), [&](const Change& one) { return is_same(one, "start"); });
    if (started == kept.end()) return true;
    kept.erase(std::remove_if(started, kept.end(),
                              [&](const Change& one) {
                                return is_same(one, "start") || is_same(one, "change");
                              }),
               kept.end());
    return false;
  }
  if (words.verb == "change") {
    if (has_key(words, "rank")) return true;
    kept.erase(std::remove_if(begin, kept.end(),
                              [&](const Change& one) {
                                return is_same(one, "change") &&
                                       words_of(*one.value).keys == words.keys;
                              }),
               kept.end());
    return true;
  }
  const auto last = std::find_if(
      kept.rbegin(), std::make_reverse_iterator(begin),
      [&](const Change& one) { return is_same(one, "start") || is_same(one, "stop"); });
  return last == std::make_reverse_iterator(begin) ||
         without_blanks(*last->value) != without_blanks(*change.value);
}

// Makes room for a later record among the earlier ones; false if the later one is not needed.
bool supersede(std::vector<Change>& kept, const Change& change) {
  if (change.kind == Change::Kind::kForget) {
    std::erase_if(kept, [&](const Change& one) {
      return one.kind == Change::Kind::kParam && one.target == change.target &&
             (!change.value || without_blanks(*one.value) == without_blanks(*change.value));
    });
    return false;
  }
  // Another policy ends the rules of the one before, so their order has to stay.
  if (change.target.ends_with(kPolicyLeaf)) {
    const auto last = std::find_if(kept.rbegin(), kept.rend(), [&](const Change& one) {
      return one.kind == change.kind && one.target == change.target;
    });
    return last == kept.rend() || *last != change;
  }
  if (!is_rule(change)) {
    std::erase_if(kept, [&](const Change& one) {
      return one.kind == change.kind && one.target == change.target;
    });
    return true;
  }
  return supersede_rule(kept, change);
}

// The last of each job, at most as many as the server keeps; those taken back are none.
class JobRecords {
 public:
  void add(const Change& change) {
    if (const auto gone = sizes_.set(change.target, change.nodes, {})) changes_.erase(*gone);
    if (change.nodes == 0) {
      changes_.erase(change.target);
    } else {
      changes_.insert_or_assign(change.target, std::pair{++count_, change});
    }
  }
  // In the order they were set, so that the oldest make room first after a restart too.
  void append_to(std::vector<Change>& kept) const {
    std::map<std::uint64_t, const Change*> in_order;
    for (const auto& [job, one] : changes_) in_order[one.first] = &one.second;
    for (const auto& [number, change] : in_order) kept.push_back(*change);
  }

 private:
  JobSizes sizes_;
  std::unordered_map<std::string, std::pair<std::uint64_t, Change>> changes_;
  std::uint64_t count_ = 0;
};

// One that is taken back is as the configuration or Slurm say, if they do.
Result<void> set_nodes(serve::Server& server, const Change& change) {
  const JobId job(change.target);
  const std::uint64_t nodes = change.nodes != 0 ? change.nodes : server.named_nodes(change.target);
  for (const auto& service : server.services()) {
    auto set = service->target.set_nodes(job, nodes, server.now());
    if (!set) return set;
  }
  return {};
}

Result<void> set_capacity(serve::Server& server, const Change& change) {
  serve::Service* const service = server.find_service(change.target);
  if (service == nullptr) {
    return fail(std::errc::no_such_file_or_directory, "service " + quote(change.target),
                "is not there");
  }
  const auto capacity = serve::parse_capacity(*change.value);
  if (!capacity) return tl::unexpected(capacity.error());
  auto set = service->target.set_capacity(*capacity, server.now());
  if (!set) {
    set.error().where =
        fmt::format("capacity {} of service {}", quote(*change.value), quote(change.target));
  }
  return set;
}

}  // namespace

std::string rule_path(std::string_view service) {
  return fmt::format("ost.OSS.{}.nrs_tbf_rule", service);
}
std::string policy_path(std::string_view service) {
  return fmt::format("ost.OSS.{}.nrs_policies", service);
}

std::string print_change(const Change& change) {
  Json json;
  switch (change.kind) {
    case Change::Kind::kParam:
      json = {{"param", change.target}, {"value", *change.value}};
      break;
    case Change::Kind::kJob:
      json = {{"job", printable_id(change.target)}, {"nodes", change.nodes}};
      break;
    case Change::Kind::kCapacity:
      json = {{"service", change.target}, {"capacity", *change.value}};
      break;
    case Change::Kind::kForget:
      json = {{"forget", change.target}};
      if (change.value) json["value"] = *change.value;
      break;
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

Result<Change> parse_change(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  const auto text = [&](const char* key) -> std::optional<std::string> {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return std::nullopt;
    return json[key].get<std::string>();
  };
  Change change;
  change.value = text("value");
  if (auto path = text("param"); path && change.value) {
    change.target = *path;
  } else if (auto job = text("job");
             job && json.contains("nodes") && json["nodes"].is_number_unsigned()) {
    auto id = read_id(*job);
    if (!id) return tl::unexpected(id.error());
    change.kind = Change::Kind::kJob;
    change.target = *id;
    change.nodes = json["nodes"].get<std::uint64_t>();
  } else if (auto capacity = text("capacity"); capacity && text("service")) {
    change.kind = Change::Kind::kCapacity;
    change.target = *text("service");
    change.value = capacity;
  } else if (auto forgotten = text("forget")) {
    change.kind = Change::Kind::kForget;
    change.target = *forgotten;
  } else {
    return fail(std::errc::invalid_argument, quote(line), "is no change");
  }
  return change;
}

std::vector<Change> effective(const std::vector<std::string>& records,
                              std::vector<std::string>& mistakes) {
  std::vector<Change> kept;
  JobRecords jobs;
  for (const std::string& record : records) {
    auto change = parse_change(record);
    if (!change) {
      mistakes.push_back(change.error().message());
    } else if (change->kind == Change::Kind::kJob) {
      jobs.add(*change);
    } else if (supersede(kept, *change)) {
      kept.push_back(std::move(*change));
    }
  }
  jobs.append_to(kept);
  return kept;
}

Result<void> check_own(const serve::Server& server, const Change& change) {
  if (!server.options().cluster.is_on() || !is_rule(change) || !change.value) return {};
  const std::string name = words_of(*change.value).name;
  bool is_shared = change.value->find("scope=cluster") != std::string::npos;
  for (const auto& service : server.services()) {
    const Tbf* const tbf = service->target.gate().tbf(Head::kRegular);
    const Rule* const rule = tbf == nullptr ? nullptr : tbf->rules(Head::kRegular).find(name);
    is_shared = is_shared || (rule != nullptr && rule->limits().scope == Scope::kCluster);
  }
  if (!is_shared) return {};
  return fail(std::errc::operation_not_permitted, "rule " + quote(name), "is the whole cluster's",
              "use: weir cluster rule");
}

std::vector<std::string> effective_records(const std::vector<std::string>& records) {
  std::vector<std::string> mistakes;
  const std::vector<Change> kept = effective(records, mistakes);
  if (!mistakes.empty()) return records;
  std::vector<std::string> lines;
  lines.reserve(kept.size());
  for (const Change& one : kept) lines.push_back(print_change(one));
  return lines;
}

Result<void> apply(serve::Server& server, const Change& change, const Moment& moment) {
  switch (change.kind) {
    case Change::Kind::kForget:
      return {};
    case Change::Kind::kJob:
      return set_nodes(server, change);
    case Change::Kind::kCapacity:
      return set_capacity(server, change);
    case Change::Kind::kParam:
      break;
  }
  const Params params = server_params(server, moment);
  const auto outcomes = write_params(params, change.target, *change.value);
  if (outcomes.empty()) {
    return fail(std::errc::no_such_file_or_directory, quote(change.target), "no such parameter",
                "list them with list_param");
  }
  for (const ParamOutcome& outcome : outcomes) {
    if (outcome.error.code != std::errc{}) return tl::unexpected(outcome.error);
  }
  return {};
}

}  // namespace weir::control
