// SPDX-License-Identifier: Apache-2.0
#include "weir/control/serve_reload.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"

namespace weir::control {
namespace {

using serve::ServeOptions;
using serve::ServiceOptions;

// ---- rules ----

std::string_view take_word(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find(' '));
  rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  return word;
}

// A rule as it is written: [reg|hp] start NAME CONDITIONS [KEY=VALUE ...], or a change of default.
struct WrittenRule {
  using Pair = std::pair<std::string_view, std::string_view>;

  explicit WrittenRule(std::string_view command) : text(command) {
    std::string_view rest = command;
    std::string_view word = take_word(rest);
    if (word == "reg" || word == "hp") {
      head = word;
      word = take_word(rest);
    }
    is_start = word == "start";
    name = take_word(rest);
    if (is_start) {
      const std::size_t end = std::min(rest.rfind('}'), rest.size() - 1) + 1;
      conds = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    keys = rest;
    while (!rest.empty()) {
      const std::string_view pair = take_word(rest);
      const std::size_t equals = pair.find('=');
      // Before 2.8 a rate had no key.
      pairs.push_back(equals == std::string_view::npos
                          ? Pair{{}, pair}
                          : Pair{pair.substr(0, equals), pair.substr(equals + 1)});
    }
  }

  bool has(std::string_view key) const {
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const Pair& pair) { return pair.first == key; });
  }
  // Whether a rank can be written behind it, and it stands in one order with all others.
  bool can_be_ranked() const { return head.empty() && !has("rank") && !has(""); }

  std::string_view text;
  std::string_view head;
  std::string_view name;
  std::string_view conds;
  std::string_view keys;
  std::vector<Pair> pairs;
  bool is_start = false;
};

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Whether a change command makes the one of the other: it sets keys and takes none away.
bool can_be_changed(const WrittenRule& from, const WrittenRule& to) {
  if (from.head != to.head || from.name != to.name || from.conds != to.conds ||
      from.pairs.size() != to.pairs.size()) {
    return false;
  }
  for (std::size_t i = 0; i < from.pairs.size(); ++i) {
    const auto& [key, value] = from.pairs[i];
    const auto& [key_to, value_to] = to.pairs[i];
    if (key != key_to) return false;
    if (value == value_to) continue;
    if (key == "rank" || key == "realtime") return false;
    // Tokens and bytes are two bursts.
    if (key == "burst" && is_number(value) != is_number(value_to)) return false;
  }
  return true;
}

struct WrittenRules {
  explicit WrittenRules(const std::vector<std::string>& commands) {
    for (const std::string& command : commands) {
      WrittenRule rule(command);
      (rule.is_start ? starts : defaults).push_back(std::move(rule));
    }
  }
  bool can_be_ranked() const {
    return std::all_of(starts.begin(), starts.end(),
                       [](const WrittenRule& rule) { return rule.can_be_ranked(); });
  }

  std::vector<WrittenRule> starts;
  std::vector<WrittenRule> defaults;
};

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

// For each new rule the old one that stays in its place, or kNone. Places only grow, so what stays
// keeps its order. Without ranks nothing can be put before what stays: only a common beginning
// does.
std::vector<std::size_t> find_kept(const std::vector<WrittenRule>& before,
                                   const std::vector<WrittenRule>& after, bool ranked) {
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < before.size(); ++i) places.emplace(before[i].name, i);
  std::vector<std::size_t> kept(after.size(), kNone);
  std::size_t next = 0;
  for (std::size_t i = 0; i < after.size(); ++i) {
    std::size_t place = next;
    if (ranked) {
      const auto found = places.find(after[i].name);
      place = found == places.end() ? before.size() : found->second;
    }
    if (place < before.size() && place >= next && can_be_changed(before[place], after[i])) {
      kept[i] = place;
      next = place + 1;
    } else if (!ranked) {
      break;
    }
  }
  return kept;
}

std::string with_head(const WrittenRule& rule, std::string_view verb, std::string_view rest) {
  return fmt::format("{}{}{} {}{}{}", rule.head, rule.head.empty() ? "" : " ", verb, rule.name,
                     rest.empty() ? "" : " ", rest);
}

// Keys of default that were set and are not any more have no command that unsets them.
bool default_is_taken_back(const std::vector<WrittenRule>& before,
                           const std::vector<WrittenRule>& after) {
  for (const WrittenRule& old : before) {
    for (const WrittenRule::Pair& pair : old.pairs) {
      const bool stays = std::any_of(after.begin(), after.end(), [&](const WrittenRule& rule) {
        return rule.head == old.head && rule.has(pair.first);
      });
      if (!stays) return true;
    }
  }
  return false;
}

// ---- the whole file ----

class Plan {
 public:
  Plan(const ServeOptions& before, const ServeOptions& after) : before_(before), after_(after) {}

  ServeReload make() {
    // A new field of the options has to be dealt with here: without a name it does not compile.
    const auto& [listen, exports, services, nodemaps, claims, limits, tls, jobs_file, jobs,
                 unknown_jobs, slurm, user, control_socket, trace_file, control, lock, groups] =
        after_;
    restart_if(before_.listen != listen, "server.listen");
    restart_if(before_.user != user, "server.user");
    restart_if(before_.control_socket != control_socket, "server.control_socket");
    restart_if(before_.trace_file != trace_file, "server.trace");
    restart_if(before_.control != control, "control");
    restart_if(before_.lock != lock, "lock");
    restart_if(before_.tls != tls, "tls");
    restart_if(before_.claims != claims, "claims");
    restart_if(before_.nodemaps != nodemaps, "nodemap");
    restart_if(before_.slurm != slurm, "jobs.slurm");
    restart_if(before_.groups != groups, "groups");
    plan_limits(limits);
    if (before_.jobs_file != jobs_file || before_.jobs != jobs ||
        before_.unknown_jobs != unknown_jobs) {
      plan_.jobs = {jobs_file, jobs, unknown_jobs};
      plan_.changes.emplace_back("jobs");
    }
    plan_services(with_default(before_.services), with_default(services));
    plan_exports(exports);
    return std::move(plan_);
  }

 private:
  void restart_if(bool differs, std::string_view key) {
    if (differs) plan_.restart.emplace_back(key);
  }
  void change(std::string_view key, const std::string& from, const std::string& to) {
    if (from != to) plan_.changes.push_back(fmt::format("{}: {} -> {}", key, from, to));
  }

  void plan_limits(const serve::ServeLimits& limits) {
    const serve::ServeLimits& old = before_.limits;
    if (old == limits) return;
    plan_.limits = limits;
    const auto& [connections, memory, connection_memory, connection_requests, handshake_timeout,
                 drain_timeout] = limits;
    change("server.connections", std::to_string(old.connections), std::to_string(connections));
    change("server.memory", print_size(old.memory), print_size(memory));
    change("server.connection_memory", print_size(old.connection_memory),
           print_size(connection_memory));
    change("server.connection_requests", std::to_string(old.connection_requests),
           std::to_string(connection_requests));
    change("server.handshake_timeout", print_duration(old.handshake_timeout),
           print_duration(handshake_timeout));
    change("server.drain_timeout", print_duration(old.drain_timeout),
           print_duration(drain_timeout));
  }

  // The default service runs whether or not the file has it.
  static std::vector<ServiceOptions> with_default(std::vector<ServiceOptions> services) {
    if (find(services, serve::kDefaultService) == nullptr) services.push_back({});
    return services;
  }
  template <class List>
  static const typename List::value_type* find(const List& list, std::string_view name) {
    const auto found =
        std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.name == name; });
    return found == list.end() ? nullptr : &*found;
  }

  void plan_services(const std::vector<ServiceOptions>& before,
                     const std::vector<ServiceOptions>& after) {
    for (const ServiceOptions& service : after) {
      const ServiceOptions* old = find(before, service.name);
      restart_if(old == nullptr, "service " + quote(service.name));
      if (old != nullptr) plan_service(*old, service);
    }
    for (const ServiceOptions& old : before) {
      restart_if(find(after, old.name) == nullptr, "service " + quote(old.name));
    }
  }

  void plan_service(const ServiceOptions& old, const ServiceOptions& service) {
    const auto& [name, policy, rules, adaptive, capacity, slots, hp_slots, period, cost, classes] =
        service;
    const std::string called = "service " + quote(name);
    restart_if(old.policy != policy, called + ": policy");
    restart_if(old.adaptive != adaptive, called + ": adaptive");
    restart_if(old.slots != slots, called + ": slots");
    restart_if(old.hp_slots != hp_slots, called + ": hp_slots");
    restart_if(old.period != period, called + ": period");
    restart_if(old.cost != cost, called + ": cost");
    restart_if(old.classes != classes, called + ": classes");
    ServiceReload reload{name, {}, {}};
    if (old.rules != rules) {
      // Under another policy, or with other nodemaps, the commands would mean something else.
      const bool stands = old.policy == policy && before_.nodemaps == after_.nodemaps;
      auto commands = stands ? rule_commands(old.rules, rules) : std::nullopt;
      restart_if(!commands, called + ": rules");
      if (commands) {
        for (const std::string& command : *commands) {
          plan_.changes.push_back(fmt::format("{}: {}", called, command));
        }
        reload.commands = *std::move(commands);
      }
    }
    if (old.capacity != capacity) {
      // Bytes and operations cost differently.
      using Kind = serve::Capacity::Kind;
      const bool same_cost =
          cost || (old.capacity.kind == Kind::kBytes) == (capacity.kind == Kind::kBytes);
      restart_if(!same_cost, called + ": capacity");
      if (same_cost) {
        change(called + ": capacity", print(old.capacity), print(capacity));
        reload.capacity = capacity;
      }
    }
    if (!reload.commands.empty() || reload.capacity) plan_.services.push_back(std::move(reload));
  }

  static std::string print(const serve::Capacity& capacity) {
    if (!capacity.rate) return "auto";
    return capacity.kind == serve::Capacity::Kind::kBytes ? print_bandwidth(*capacity.rate)
                                                          : print_rate(*capacity.rate);
  }

  void plan_exports(const std::vector<serve::ExportOptions>& exports) {
    for (const serve::ExportOptions& exported : exports) {
      const serve::ExportOptions* old = find(before_.exports, exported.name);
      if (old == nullptr || !plan_shape(*old, exported)) {
        plan_.restart.push_back("export " + quote(exported.name));
      }
    }
    for (const serve::ExportOptions& old : before_.exports) {
      restart_if(find(exports, old.name) == nullptr, "export " + quote(old.name));
    }
  }

  // False if more differs than the pace of a shaped store.
  bool plan_shape(const serve::ExportOptions& old, const serve::ExportOptions& exported) {
    if (old == exported) return true;
    serve::ExportOptions reshaped = old;
    if (!old.store.shape || !exported.store.shape) return false;
    reshaped.store.shape = exported.store.shape;
    if (reshaped != exported) return false;
    change("export " + quote(old.name), print(*old.store.shape), print(*exported.store.shape));
    plan_.shapes.push_back({exported.name, *exported.store.shape});
    return true;
  }

  static std::string print(const serve::Shape& shape) {
    std::string text = shape.iops ? "iops=" + print_rate(*shape.iops) : "";
    const auto add = [&](const char* key, const std::string& value) {
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
    };
    if (shape.bandwidth) add("bps", print_bandwidth(*shape.bandwidth));
    if (shape.latency > Nanoseconds{0}) add("latency", print_duration(shape.latency));
    return text.empty() ? "as fast as it is" : text;
  }

  const ServeOptions& before_;
  const ServeOptions& after_;
  ServeReload plan_;
};

}  // namespace

std::optional<std::vector<std::string>> rule_commands(const std::vector<std::string>& before,
                                                      const std::vector<std::string>& after) {
  const WrittenRules old(before);
  const WrittenRules now(after);
  if (default_is_taken_back(old.defaults, now.defaults)) return std::nullopt;
  const bool ranked = old.can_be_ranked() && now.can_be_ranked();
  const std::vector<std::size_t> kept = find_kept(old.starts, now.starts, ranked);
  std::vector<std::string> commands;
  commands.reserve(before.size() + after.size());
  std::vector<bool> stays(old.starts.size());
  std::size_t last_kept = 0;  // one behind it
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == kNone) continue;
    stays[kept[i]] = true;
    last_kept = i + 1;
  }
  // The newest first: a rule may have been ranked before an older one.
  for (std::size_t i = old.starts.size(); i-- > 0;) {
    if (!stays[i]) commands.push_back(with_head(old.starts[i], "stop", {}));
  }
  for (std::size_t i = 0; i < now.starts.size(); ++i) {
    const WrittenRule& rule = now.starts[i];
    if (kept[i] != kNone) {
      if (old.starts[kept[i]].text != rule.text) {
        commands.push_back(with_head(rule, "change", rule.keys));
      }
    } else if (i < last_kept) {
      // A rule is put first; where others stay that are newer in the file it goes behind them.
      const std::string_view older = i == 0 ? "default" : now.starts[i - 1].name;
      commands.push_back(fmt::format("{} rank={}", rule.text, older));
    } else {
      commands.emplace_back(rule.text);
    }
  }
  // Later ones may repeat a key of earlier ones, so all or none.
  const auto same_text = [](const WrittenRule& a, const WrittenRule& b) {
    return a.text == b.text;
  };
  if (!std::equal(old.defaults.begin(), old.defaults.end(), now.defaults.begin(),
                  now.defaults.end(), same_text)) {
    for (const WrittenRule& rule : now.defaults) commands.emplace_back(rule.text);
  }
  return commands;
}

ServeOptions reached(ServeOptions before, const ServeReload& plan, const ServeOptions& after) {
  const auto find = [](auto& list, std::string_view name) {
    return std::find_if(list.begin(), list.end(), [&](auto& each) { return each.name == name; });
  };
  if (plan.limits) before.limits = *plan.limits;
  if (plan.jobs) {
    before.jobs_file = plan.jobs->file;
    before.jobs = plan.jobs->nodes;
    before.unknown_jobs = plan.jobs->unknown;
  }
  for (const ServiceReload& reload : plan.services) {
    auto service = find(before.services, reload.service);
    if (service == before.services.end()) service = before.services.emplace(service);
    if (reload.capacity) service->capacity = *reload.capacity;
    if (reload.commands.empty()) continue;
    const auto wanted = find(after.services, reload.service);
    service->rules = wanted == after.services.end() ? std::vector<std::string>{} : wanted->rules;
  }
  for (const ShapeReload& reload : plan.shapes) {
    find(before.exports, reload.exported)->store.shape = reload.shape;
  }
  return before;
}

ServeReload plan_reload(const ServeOptions& before, const ServeOptions& after) {
  return Plan(before, after).make();
}

}  // namespace weir::control
