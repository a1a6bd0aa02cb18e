// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/shared_rule.h"

#include <algorithm>
#include <optional>
#include <set>

#include "weir/base/quote.h"
#include "weir/classify/command.h"
#include "weir/coordinate/slices.h"

namespace weir::cluster {
namespace {

constexpr std::string_view kScope = "scope=cluster";

// Rules are read here for their limits alone, so what they ask for may be anything: the server that
// carries them out knows its policy and its nodemaps.
Result<RuleCommand> parse(std::string_view text) {
  return parse_command(text, FieldSet::all(),
                       [](std::string_view) { return std::optional<std::uint32_t>(0); });
}

// The keys that a change sets, which stand behind its name.
std::set<std::string, std::less<>> keys_of(std::string_view change) {
  std::set<std::string, std::less<>> keys;
  for (int i = 0; i < 2; ++i) change.remove_prefix(std::min(change.find(' ') + 1, change.size()));
  while (!change.empty()) {
    const std::string_view word = change.substr(0, change.find(' '));
    if (!word.empty()) keys.emplace(word.substr(0, word.find('=')));
    change.remove_prefix(std::min(word.size() + 1, change.size()));
  }
  return keys;
}

std::int64_t milli_of(Rate rate) {
  const std::uint64_t tokens = tokens_in(rate, std::chrono::seconds{kMilli}).count();
  const auto most = static_cast<std::uint64_t>(kSliceLimitMax);
  return static_cast<std::int64_t>(std::clamp<std::uint64_t>(tokens, 1, most));
}

}  // namespace

std::pair<std::string, std::string> SharedRule::parts(std::string_view key) {
  const std::size_t slash = std::min(key.find('/'), key.size());
  return {std::string(key.substr(0, slash)),
          std::string(key.substr(std::min(slash + 1, key.size())))};
}

std::string SharedRule::parent(std::string_view key) {
  return std::string(key.substr(0, std::min(key.rfind('/'), key.size())));
}

std::string SharedRule::print() const {
  std::string text;
  for (const std::string& command : commands) text += command + "\n";
  return text;
}

Result<SharedRule> read_shared_rule(std::string_view key, std::string_view value) {
  SharedRule rule;
  std::tie(rule.service, rule.name) = SharedRule::parts(key);
  while (!value.empty()) {
    const std::string_view line = value.substr(0, value.find('\n'));
    value.remove_prefix(std::min(line.size() + 1, value.size()));
    if (line.empty()) continue;
    const auto command = parse(line);
    const bool fits = command && command->name == rule.name &&
                      command->verb == (rule.commands.empty() ? Verb::kStart : Verb::kChange);
    if (!fits) {
      return fail(std::errc::invalid_argument, "rule " + quote(key) + " in etcd",
                  quote(line) + " is no command of it", "stop it with: weir cluster rule stop");
    }
    rule.commands.emplace_back(line);
  }
  if (rule.commands.empty()) {
    return fail(std::errc::invalid_argument, "rule " + quote(key) + " in etcd", "is empty");
  }
  return rule;
}

Result<SharedCommand> read_shared_command(std::string_view text) {
  const auto command = parse(text);
  if (!command) return tl::unexpected(command.error());
  SharedCommand shared{.name = command->name, .text = std::string(text)};
  if (command->heads != Heads::kBoth) {
    return fail(std::errc::invalid_argument, quote(text), "is for one head only",
                "rules of the cluster are for both: leave out reg and hp");
  }
  if (text.find('\n') != std::string_view::npos) {
    return fail(std::errc::invalid_argument, quote(text), "has more than one line");
  }
  if (command->name == "default") {
    return fail(std::errc::operation_not_permitted, "rule 'default'",
                "is each server's own and not the cluster's");
  }
  const RuleKeys& keys = command->keys;
  if (keys.scope && *keys.scope != Scope::kCluster) {
    return fail(std::errc::invalid_argument, quote(text), "is no rule of the cluster",
                "start it on its server with: weir rule start");
  }
  switch (command->verb) {
    case Verb::kStart:
      shared.verb = SharedCommand::Verb::kStart;
      if (!keys.rate && !keys.bps) {
        return fail(std::errc::invalid_argument, quote(text), "has no limit",
                    "give rate= or bps=, which holds for all servers together");
      }
      if (!keys.scope) shared.text += " " + std::string(kScope);
      break;
    case Verb::kChange:
      shared.verb = SharedCommand::Verb::kChange;
      break;
    case Verb::kStop:
      shared.verb = SharedCommand::Verb::kStop;
      break;
  }
  return shared;
}

SharedRule with_change(SharedRule rule, const SharedCommand& change) {
  const auto set = keys_of(change.text);
  const auto is_overtaken = [&](const std::string& earlier) {
    const auto keys = keys_of(earlier);
    return std::includes(set.begin(), set.end(), keys.begin(), keys.end());
  };
  rule.commands.erase(std::remove_if(rule.commands.begin() + 1, rule.commands.end(), is_overtaken),
                      rule.commands.end());
  rule.commands.push_back(change.text);
  return rule;
}

void add_limits(const SharedRule& rule, SliceLimits& limits) {
  std::optional<std::uint32_t> rate;
  std::optional<Rate> bps;
  for (const std::string& text : rule.commands) {
    const auto command = parse(text);
    if (!command) continue;  // was read before
    if (command->keys.rate) rate = command->keys.rate;
    if (command->keys.bps) bps = command->keys.bps;
  }
  if (rate && *rate > 0) limits[rule.key() + "/ops"] = std::int64_t{*rate} * kMilli;
  if (bps) limits[rule.key() + "/bytes"] = milli_of(*bps);
}

}  // namespace weir::cluster
