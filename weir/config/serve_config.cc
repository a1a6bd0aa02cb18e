// SPDX-License-Identifier: Apache-2.0
#include "weir/config/serve_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weir/adapt/options.h"
#include "weir/adapt/tree_allocator.h"
#include "weir/adapt/tree_shares.h"
#include "weir/base/control_characters.h"
#include "weir/base/job_id.h"
#include "weir/base/nearest.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/command.h"
#include "weir/classify/number.h"
#include "weir/classify/plain_rates.h"
#include "weir/classify/rule_list.h"
#include "weir/classify/share_level.h"
#include "weir/config/slurm.h"
#include "weir/config/toml_table.h"
#include "weir/host/files.h"
#include "weir/target/nrs_text.h"
#include "weir/target/target.h"
#include "weir/target/tree_levels.h"

namespace weir::config {
namespace {

using serve::ServeOptions;
using Bounds = ServeConfigBounds;
using Words = std::vector<std::string_view>;

struct Part {
  std::string_view table;
  Words keys;
};

const std::array<Part, 14>& parts() {
  static const std::array<Part, 14> parts = {{
      {"server",
       {"listen", "user", "control_socket", "trace", "io", "threads", "connections", "memory",
        "connection_memory", "connection_requests", "handshake_timeout", "drain_timeout"}},
      {"control", {"tcp", "token", "tls", "journal"}},
      {"cluster",
       {"name", "etcd", "listen", "advertise", "prefix", "epoch", "timeout", "lease", "user",
        "password_file", "tls_directory", "etcd_tls_directory", "state", "start_without",
        "start_rate", "partition", "socket", "insecure"}},
      {"tls", {"mode", "directory", "verify_clients"}},
      {"lock",
       {"listen", "state", "limit", "preset", "lease", "grace", "policy", "rules", "insecure"}},
      {"claims", {"local", "allow"}},
      {"jobs",
       {"file", "job_pattern", "nodes", "slurm", "slurm_every", "squeue", "sshare", "unknown"}},
      {"nodemap", {"name", "nids"}},
      {"groups", {"length", "quiesce", "quiet_max"}},
      {"group", {"name", "nids", "length"}},
      {"service",
       {"name", "policy", "tunables", "rules", "adaptive", "capacity", "slots", "hp_slots",
        "latency_target", "period", "cost", "classes"}},
      {"shares", {"accounts", "names", "service", "tree", "weights"}},
      {"export",
       {"name", "store", "size", "direct", "force", "read_only", "description", "service",
        "block_min", "block_preferred", "block_max"}},
      {"nfs",
       {"name", "listen", "server", "service", "max_wait", "mount_port", "lock_port", "status_port",
        "portmap_port", "delay_v3", "delay_v40", "rpc_tls", "source", "send_proxy", "accept_proxy",
        "export_handles"}},
  }};
  return parts;
}

const Words& keys_of(std::string_view table) {
  return std::find_if(parts().begin(), parts().end(),
                      [&](const Part& part) { return part.table == table; })
      ->keys;
}

// Reports a parser's error for the value of a key.
void refuse_with(const TomlTable& table, TomlPlace at, std::string_view what, const Error& error) {
  const std::string where = error.where.empty() ? "" : error.where + ": ";
  table.mistakes().add(at, fmt::format("{}: {}: {}{}", table.name(), what, where, error.what),
                       error.hint);
}

// A text of at most this many bytes, without NUL bytes, as system calls require.
std::string bounded_text(const TomlTable& table, std::string_view key, std::size_t most) {
  std::string text = table.text(key, "");
  if (text.size() > most) {
    table.refuse(key, fmt::format("is {} bytes long; the maximum is {}", text.size(), most));
  } else if (text.find('\0') != std::string::npos) {
    table.refuse(key, "contains a NUL byte");
  } else {
    return text;
  }
  return {};
}

// The name of a service or nodemap, or "" after an error.
std::string plain_name(const TomlTable& table, std::string without) {
  std::string name = table.text("name", std::move(without));
  if (serve::is_plain_name(name)) return name;
  const auto given = table.get("name");
  if (!given) {
    table.miss("name");
  } else if (given->as<std::string>() != nullptr) {
    table.refuse("name", "is not a valid name",
                 fmt::format("expected 1 to {} letters, digits, _ and -", Bounds::kPlainNameMax));
  }
  return {};
}

template <class List>
bool is_named_before(const List& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& each) { return each.name == name; });
}

// Whether there is room for one more; reports an error if not.
template <class List>
bool has_room(const TomlTable& table, const List& list, std::size_t most) {
  if (list.size() < most) return true;
  table.mistakes().add(table.at(), fmt::format("{}: the maximum is {}", table.name(), most));
  return false;
}

// ---- tables that occur once ----

void read_listen(const TomlTable& table, ServeOptions& options) {
  for (const TomlTable::Item& item : table.texts("listen")) {
    const auto address = serve::parse_entrance(item.text);
    if (!address) {
      refuse_with(table, item.at, "listen", address.error());
    } else if (std::find(options.listen.begin(), options.listen.end(), *address) !=
               options.listen.end()) {
      table.mistakes().add(
          item.at, fmt::format("{}: listen contains {} twice", table.name(), quote(item.text)));
    } else {
      options.listen.push_back(*address);
    }
  }
  if (options.listen.size() > Bounds::kListenMax) {
    table.refuse("listen", fmt::format("contains more than {} addresses", Bounds::kListenMax));
  }
}

void read_threads(const TomlTable& table, ServeOptions& options) {
  const auto value = table.get("threads");
  if (!value) return;
  const auto* const number = value->as<std::int64_t>();
  const auto threads = serve::parse_threads(number != nullptr ? fmt::format("{}", *number)
                                                              : table.text("threads", "auto"));
  if (threads) {
    options.threads = *threads;
  } else {
    refuse_with(table, value->at(), "threads", threads.error());
  }
}

void read_server(const TomlTable& table, ServeOptions& options) {
  read_listen(table, options);
  options.user = bounded_text(table, "user", Bounds::kNameMax);
  options.control_socket = bounded_text(table, "control_socket", Bounds::kSocketPathMax);
  options.trace_file = bounded_text(table, "trace", Bounds::kPathMax);
  using Io = host::IoChoice;
  constexpr std::array<Io, 3> kIo = {Io::kAuto, Io::kUring, Io::kEpoll};
  options.io = kIo.at(table.word("io", 0, {"auto", "uring", "epoll"}));
  read_threads(table, options);
  serve::ServeLimits& limits = options.limits;
  limits.connections = table.small("connections", limits.connections, 1, Bounds::kConnectionsMax);
  limits.memory = table.size("memory", limits.memory, Bounds::kMemoryMin, Bounds::kMemoryMax);
  limits.connection_memory = table.size("connection_memory", limits.connection_memory,
                                        Bounds::kMemoryMin, Bounds::kMemoryMax);
  limits.connection_requests = table.small("connection_requests", limits.connection_requests, 1,
                                           Bounds::kConnectionRequestsMax);
  limits.handshake_timeout = table.time("handshake_timeout", limits.handshake_timeout,
                                        Bounds::kHandshakeTimeoutMin, Bounds::kHandshakeTimeoutMax);
  limits.drain_timeout =
      table.time("drain_timeout", limits.drain_timeout, Nanoseconds{0}, Bounds::kDrainTimeoutMax);
  if (limits.connection_memory > limits.memory) {
    table.refuse("connection_memory",
                 fmt::format("exceeds memory, which is {}", print_size(limits.memory)));
  }
}

void read_tls(const TomlTable& table, serve::TlsOptions& tls) {
  using Mode = serve::TlsOptions::Mode;
  constexpr std::array<Mode, 3> kModes = {Mode::kOff, Mode::kOn, Mode::kRequire};
  tls.mode = kModes.at(table.word("mode", 0, {"off", "on", "require"}));
  tls.directory = bounded_text(table, "directory", Bounds::kPathMax);
  tls.verify_clients = table.flag("verify_clients", false);
  if (tls.mode != Mode::kOff && tls.directory.empty()) {
    table.miss("directory", "name the directory of ca-cert.pem and the other files");
  }
}

// Ranges of several texts, as one list.
std::optional<NidList> read_nids(const TomlTable& table, std::string_view key) {
  std::string joined;
  bool is_right = true;
  for (const TomlTable::Item& item : table.texts(key)) {
    if (const auto list = NidList::parse(item.text); !list) {
      refuse_with(table, item.at, fmt::format("{} {}", key, quote(item.text)), list.error());
      is_right = false;
    }
    joined += joined.empty() ? item.text : " " + item.text;
  }
  if (joined.empty() || !is_right) return std::nullopt;
  auto list = NidList::parse(joined);
  if (!list) {
    refuse_with(table, table.place_of(key), key, list.error());
    return std::nullopt;
  }
  return *std::move(list);
}

void read_claims(const TomlTable& table, serve::ClaimsOptions& claims) {
  claims.local = table.flag("local", claims.local);
  claims.nids = read_nids(table, "allow");
}

void read_job_nodes(const TomlTable& table, std::vector<serve::JobNodes>& jobs) {
  const auto value = table.get("nodes");
  if (!value) return;
  if (!value->is_table()) {
    table.refuse("nodes", "must be a table such as { 'ior.n1' = 4 }");
    return;
  }
  for (const TomlMember& member : value->members()) {
    const TomlKey& key = member.key;
    const auto* count = member.value.as<std::int64_t>();
    const auto refuse = [&](std::string_view what, std::string_view hint = {}) {
      table.mistakes().add(
          key.at, fmt::format("{}: nodes of {} {}", table.name(), quote(key.name), what), hint);
    };
    if (key.name.empty() || key.name.size() > JobId::kSizeMax) {
      refuse("have no valid job id", fmt::format("a job id has 1 to {} bytes", JobId::kSizeMax));
    } else if (member.value.is_table()) {
      refuse("must not be a table", "quote a job id that contains dots: 'ior.n1' = 4");
    } else if (count == nullptr || *count < 1 ||
               static_cast<std::uint64_t>(*count) > Bounds::kNodesMax) {
      refuse(fmt::format("must be a whole number from 1 to {}", Bounds::kNodesMax));
    } else {
      jobs.push_back({key.name, static_cast<std::uint64_t>(*count)});
    }
  }
}

void read_slurm(const TomlTable& table, serve::SlurmOptions& slurm) {
  slurm.is_on = table.flag("slurm", false);
  slurm.every = table.time("slurm_every", slurm.every, serve::SlurmOptions::kEveryMin,
                           serve::SlurmOptions::kEveryMax);
  if (table.has("squeue")) slurm.squeue = bounded_text(table, "squeue", Bounds::kPathMax);
  if (slurm.squeue.empty()) table.refuse("squeue", "is empty", "name the program");
  if (table.has("sshare")) slurm.sshare = bounded_text(table, "sshare", Bounds::kPathMax);
  if (slurm.sshare.empty()) table.refuse("sshare", "is empty", "name the program");
  if (!table.has("job_pattern")) return;
  slurm.pattern = bounded_text(table, "job_pattern", Bounds::kNameMax);
  if (const auto pattern = JobPattern::parse_known(slurm.pattern); !pattern) {
    table.refuse("job_pattern", pattern.error().what, pattern.error().hint);
  }
}

void read_jobs(const TomlTable& table, ServeOptions& options) {
  options.jobs_file = bounded_text(table, "file", Bounds::kPathMax);
  read_job_nodes(table, options.jobs);
  options.unknown_jobs = table.word("unknown", 0, {"one", "clients"}) == 0
                             ? serve::UnknownJobs::kOne
                             : serve::UnknownJobs::kClients;
  read_slurm(table, options.slurm);
}

void read_lock(const TomlTable& table, serve::LockOptions& lock) {
  if (table.has("listen")) {
    const auto address = serve::parse_listen(table.text("listen", ""), serve::LockOptions::kPort);
    if (address) {
      lock.listen = *address;
    } else {
      refuse_with(table, table.place_of("listen"), "listen", address.error());
    }
  }
  lock.state_file = bounded_text(table, "state", Bounds::kPathMax);
  lock::PoolOptions& pool = lock.server.pool;
  pool.limit = static_cast<std::int64_t>(table.number(
      "limit", static_cast<std::uint64_t>(pool.limit), 1, std::uint64_t{lock::kLimitMax}));
  constexpr std::array<lock::Preset, 3> kPresets = {lock::Preset::kWeir, lock::Preset::kDld,
                                                    lock::Preset::kLustre};
  pool.preset = kPresets.at(table.word("preset", 0, {"weir", "dld", "lustre"}));
  lock.server.lease = table.time("lease", lock.server.lease, Bounds::kLeaseMin, Bounds::kLeaseMax);
  lock.server.grace = table.time("grace", lock.server.lease + lock.server.lease / 2,
                                 Bounds::kLeaseMin, 2 * Bounds::kLeaseMax);
  if (const auto checked = lock::check(lock.server); !checked) {
    table.refuse(table.has("grace") ? "grace" : "lease", checked.error().what,
                 checked.error().hint);
  }
  lock.policy = table.text("policy", lock.policy);
  std::size_t number = 0;
  for (const TomlTable::Item& item : table.texts("rules")) {
    ++number;
    auto rule = parse_rule(with_plain_rates(item.text));
    if (rule) {
      lock.rules.push_back(*std::move(rule));
    } else {
      refuse_with(table, item.at, fmt::format("rule {}", number), rule.error());
    }
  }
  lock.insecure = table.flag("insecure", false);
}

// ---- tables that may occur several times ----

void read_nodemap(const TomlTable& table, ServeOptions& options) {
  if (!has_room(table, options.nodemaps, Bounds::kNodemapsMax)) return;
  const std::string name = plain_name(table, "");
  auto nids = read_nids(table, "nids");
  if (!table.has("nids")) table.miss("nids", "such as ['10.0.0.[1-9]@tcp']");
  if (name == "default") {
    table.refuse("name", "is reserved for the nodemap of all other clients", "use another name");
  } else if (is_named_before(options.nodemaps, name)) {
    table.refuse("name", "is used twice");
  }
  // Also after an error, so that rules that use it are not reported too.
  options.nodemaps.push_back({name, nids ? *std::move(nids) : NidList{}});
}

void read_groups(const TomlTable& table, serve::GroupsOptions& groups) {
  groups.length = table.time("length", groups.length, kGroupLengthMin, kGroupLengthMax);
  groups.quiesce = table.flag("quiesce", groups.quiesce);
  groups.quiet_max = table.time("quiet_max", groups.quiet_max, kGroupLengthMin, kGroupLengthMax);
}

void read_group(const TomlTable& table, ServeOptions& options) {
  std::vector<serve::ClientGroup>& groups = options.groups.groups;
  if (!has_room(table, groups, Bounds::kClientGroupsMax)) return;
  serve::ClientGroup group;
  group.name = plain_name(table, "");
  if (is_named_before(groups, group.name)) table.refuse("name", "is used twice");
  if (group.name == serve::kNoGroup)
    table.refuse("name", "is reserved for clients without a group");
  if (!table.has("nids")) table.miss("nids", "such as ['10.0.0.[1-9]@tcp']");
  if (auto nids = read_nids(table, "nids")) group.nids = *std::move(nids);
  for (const TomlTable::Item& item : table.texts("nids")) group.nids_text += item.text + ' ';
  if (table.has("length")) {
    group.length = table.time("length", options.groups.length, kGroupLengthMin, kGroupLengthMax);
  }
  groups.push_back(std::move(group));
}

// Tries a service's rules on the lists that its heads would have.
class RuleTrial {
 public:
  RuleTrial(const Target& target, const std::vector<serve::NodemapOptions>& nodemaps)
      : nodemaps_(nodemaps) {
    for (const Head head : {Head::kRegular, Head::kHigh}) {
      const RuleView* const rules = target.rules(head);
      if (rules == nullptr) continue;
      type_ = rules->type();
      lists_.at(static_cast<std::size_t>(head)).emplace(type_);
    }
  }

  bool has_rules() const { return lists_[0] || lists_[1]; }

  // Returns the change that the text means.
  Result<RuleChange> apply(std::string_view text) {
    auto command =
        parse_command(text, type_, [this](std::string_view name) { return id_of(name); });
    if (!command) return tl::unexpected(command.error());
    const bool is_state = command->verb == Verb::kStart ||
                          (command->verb == Verb::kChange && command->name == "default");
    if (!is_state) {
      return fail(std::errc::invalid_argument, {}, "not allowed in a configuration",
                  "use start commands, and change for 'default'");
    }
    for (const bool applies : {false, true}) {
      for (const Head head : {Head::kRegular, Head::kHigh}) {
        if (command->heads == (head == Head::kRegular ? Heads::kHigh : Heads::kRegular)) continue;
        auto& list = lists_.at(static_cast<std::size_t>(head));
        if (!list) {
          return fail(std::errc::invalid_argument, {},
                      head == Head::kRegular ? "tbf does not run for regular requests"
                                             : "tbf does not run for high-priority requests",
                      "write reg or hp before the command");
        }
        const auto done = applies ? list->apply(*command) : list->check(*command);
        if (!done) return tl::unexpected(done.error());
      }
    }
    return static_cast<RuleChange&&>(*command);
  }

 private:
  std::optional<std::uint32_t> id_of(std::string_view name) const {
    if (name == "default") return 0;
    for (std::uint32_t i = 0; i < nodemaps_.size(); ++i) {
      if (nodemaps_[i].name == name) return i + 1;
    }
    return std::nullopt;
  }

  const std::vector<serve::NodemapOptions>& nodemaps_;
  FieldSet type_;
  std::array<std::optional<RuleList>, 2> lists_;
};

void read_rules(const TomlTable& table, const ServeOptions& options,
                serve::ServiceOptions& service) {
  Target target({}, Instant{});
  if (table.has("policy")) {
    service.policy = table.text("policy", service.policy);
    if (const auto started = write_nrs_policies(target, service.policy, Instant{}); !started) {
      refuse_with(table, table.place_of("policy"), "policy", started.error());
      return;  // rules cannot be checked without it
    }
  } else {
    WEIR_ASSERT(write_nrs_policies(target, service.policy, Instant{}).has_value());
  }
  for (const TomlTable::Item& item : table.texts("tunables")) {
    if (const auto set = set_tunable(target, service.policy, item.text, Instant{}); !set) {
      refuse_with(table, item.at, "tunables", set.error());
    }
    service.tunables.push_back(item.text);
  }
  RuleTrial trial(target, options.nodemaps);
  std::size_t number = 0;
  for (const TomlTable::Item& item : table.texts("rules")) {
    ++number;
    if (!trial.has_rules()) {
      table.refuse("rules", fmt::format("have no effect under {}", quote(service.policy)),
                   "rules require the policy tbf");
      return;
    }
    auto rule = trial.apply(with_plain_rates(item.text));
    if (rule) {
      service.rules.push_back(*std::move(rule));
    } else {
      refuse_with(table, item.at, fmt::format("rule {}", number), rule.error());
    }
  }
}

void read_capacity(const TomlTable& table, serve::ServiceOptions& service) {
  if (const auto value = table.get("capacity")) {
    const auto* number = value->as<std::int64_t>();
    const auto capacity = serve::parse_capacity(number != nullptr ? fmt::format("{}", *number)
                                                                  : table.text("capacity", "auto"));
    if (capacity) {
      service.capacity = *capacity;
    } else {
      refuse_with(table, value->at(), "capacity", capacity.error());
    }
  }
  if (!table.has("cost")) return;
  service.cost = table.cost("cost", Cost::op());
  using Kind = serve::Capacity::Kind;
  const bool is_bytes = service.cost->kind() == Cost::Kind::kBytes;
  if (service.capacity.kind == Kind::kBytes && !is_bytes) {
    table.refuse("cost", "must be 'bytes', since the capacity is in bytes per second");
  } else if (service.capacity.kind == Kind::kOps && is_bytes) {
    table.refuse("cost", "cannot be 'bytes', since the capacity is in operations per second",
                 "give the capacity a unit, such as '100MB/s'");
  }
}

void read_slots(const TomlTable& table, serve::ServiceOptions& service) {
  const auto given = table.get("slots");
  const auto* word = given ? given->as<std::string>() : nullptr;
  const bool is_auto = word != nullptr && *word == "auto";
  if (is_auto) {
    service.slots = serve::kSlotsAuto;
  } else if (given) {
    service.slots = table.small("slots", serve::kSlotsDefault, 1, Bounds::kSlotsMax);
  }
  service.hp_slots = table.small("hp_slots", 0, 0, Bounds::kSlotsMax);
  const std::uint32_t slots =
      is_auto ? Bounds::kSlotsMax : service.slots.value_or(serve::kSlotsDefault);
  if (service.hp_slots >= slots) {
    table.refuse("hp_slots", fmt::format("must be less than slots, which is {}", slots));
  }
  if (!table.has("latency_target")) return;
  service.latency_target = table.time("latency_target", Bounds::kLatencyTargetMin,
                                      Bounds::kLatencyTargetMin, Bounds::kLatencyTargetMax);
  if (!is_auto) table.refuse("latency_target", "needs slots = \"auto\"");
}

void read_service(const TomlTable& table, ServeOptions& options) {
  if (!has_room(table, options.services, Bounds::kServicesMax)) return;
  serve::ServiceOptions service;
  service.name = plain_name(table, service.name);
  if (is_named_before(options.services, service.name)) {
    table.refuse("name", "is used twice");
  }
  read_rules(table, options, service);
  using serve::Adaptive;
  constexpr std::array<Adaptive, 3> kAdaptives = {Adaptive::kOff, Adaptive::kOn, Adaptive::kPaper};
  service.adaptive = kAdaptives.at(
      table.word("adaptive", static_cast<std::size_t>(service.adaptive), {"off", "on", "paper"}));
  read_capacity(table, service);
  read_slots(table, service);
  service.classes =
      table.small("classes", service.classes, Bounds::kClassesMin, Bounds::kClassesMax);
  if (table.has("period")) {
    service.period = table.time("period", ControllerOptions{}.period, ControllerOptions::kPeriodMin,
                                ControllerOptions::kPeriodMax);
    if (service.adaptive == Adaptive::kOff) {
      table.refuse("period", "has no effect with adaptive = 'off'");
    }
  }
  options.services.push_back(std::move(service));
}

void read_control(const TomlTable& table, serve::ControlFiles& control) {
  control.tcp = bounded_text(table, "tcp", Bounds::kNameMax);
  control.token_file = bounded_text(table, "token", Bounds::kPathMax);
  control.tls = bounded_text(table, "tls", Bounds::kPathMax);
  control.journal = bounded_text(table, "journal", Bounds::kPathMax);
  if (!control.tcp.empty() && control.token_file.empty()) {
    table.refuse("tcp", "needs a token", "name a file that contains it");
  }
  if (control.tcp.empty() && !control.tls.empty()) {
    table.refuse("tls", "encrypts nothing", "name an address with tcp");
  }
}

// Whether it is HOST:PORT of another server.
bool is_reachable(std::string_view address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || address.find("//") != address.npos) {
    return false;
  }
  const std::string_view port = address.substr(colon + 1);
  return !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         address.find_first_of(" \t,") == address.npos;
}

void read_etcd(const TomlTable& table, serve::ClusterOptions& cluster) {
  for (const TomlTable::Item& item : table.texts("etcd")) {
    if (is_reachable(item.text)) {
      cluster.etcd.push_back(item.text);
    } else {
      table.mistakes().add(
          item.at, fmt::format("{}: etcd: {} is not HOST:PORT", table.name(), quote(item.text)),
          "such as '10.0.0.1:2379', without http://");
    }
  }
  if (cluster.etcd.size() > Bounds::kEtcdMax) {
    table.refuse("etcd", fmt::format("contains more than {} addresses", Bounds::kEtcdMax));
  }
  if (!table.has("etcd")) table.miss("etcd", "such as ['10.0.0.1:2379']");
}

void read_cluster_addresses(const TomlTable& table, serve::ClusterOptions& cluster) {
  cluster.listen = bounded_text(table, "listen", Bounds::kNameMax);
  cluster.advertise = bounded_text(table, "advertise", Bounds::kNameMax);
  if (!table.has("listen")) {
    table.miss("listen", "such as '10.0.0.1:7420'");
  } else if (const auto address = serve::parse_listen(cluster.listen);
             !address || address->kind != serve::ListenAddress::Kind::kTcp) {
    table.refuse("listen", "is not ADDRESS:PORT", "such as '10.0.0.1:7420'");
  } else if (address->host.empty() && cluster.advertise.empty()) {
    table.miss("advertise", "other servers need an address to connect to when listen has none");
  }
  if (!cluster.advertise.empty() && !is_reachable(cluster.advertise)) {
    table.refuse("advertise", "is not HOST:PORT");
  }
}

void read_cluster_start(const TomlTable& table, serve::ClusterOptions& cluster) {
  using StartWithout = serve::ClusterOptions::StartWithout;
  cluster.state_file = bounded_text(table, "state", Bounds::kPathMax);
  if (cluster.state_file.empty()) {
    table.miss("state", "name a file that the server can write, such as '/var/lib/weir/cluster'");
  }
  const std::string without = table.text("start_without", "closed");
  if (without == "rate") {
    cluster.start_without = StartWithout::kRate;
    if (!table.has("start_rate")) {
      table.miss("start_rate", "operations per second, for start_without = 'rate'");
    }
  } else if (without != "closed") {
    table.refuse("start_without", "must be 'closed' or 'rate'");
  } else if (table.has("start_rate")) {
    table.refuse("start_rate", "requires start_without = 'rate'");
  }
  if (table.has("start_rate")) {
    cluster.start_rate = static_cast<std::uint32_t>(table.number("start_rate", 1, 1, UINT32_MAX));
  }
}

void read_partition(const TomlTable& table, serve::ClusterOptions& cluster) {
  const std::string partition = table.text("partition", "safe");
  if (partition == "last") {
    cluster.partition = serve::ClusterOptions::Partition::kLast;
  } else if (partition != "safe") {
    table.refuse("partition", "must be 'safe' or 'last'");
  }
}

void read_cluster(const TomlTable& table, serve::ClusterOptions& cluster) {
  cluster.prefix = table.text("prefix", cluster.prefix);
  const bool is_prefix = cluster.prefix.size() > 1 && cluster.prefix.size() <= Bounds::kNameMax &&
                         cluster.prefix.starts_with('/') && !cluster.prefix.ends_with('/');
  if (!is_prefix)
    table.refuse("prefix", "is not a valid prefix", "such as '/weir', without a / at the end");
  cluster.epoch = table.time("epoch", cluster.epoch, Bounds::kEpochMin, Bounds::kEpochMax);
  cluster.timeout =
      table.time("timeout", cluster.timeout, Bounds::kEpochMin, Bounds::kEpochTimeoutMax);
  cluster.lease =
      table.time("lease", cluster.lease, Bounds::kLeaderLeaseMin, Bounds::kLeaderLeaseMax);
  if (cluster.timeout <= cluster.epoch) {
    table.refuse("timeout", fmt::format("must be longer than epoch, which is {}",
                                        print_duration(cluster.epoch)));
  }
  cluster.user = bounded_text(table, "user", Bounds::kNameMax);
  cluster.password_file = bounded_text(table, "password_file", Bounds::kPathMax);
  if (!cluster.user.empty() && cluster.password_file.empty()) {
    table.miss("password_file", "name a file that contains the user's password");
  }
  cluster.tls_directory = bounded_text(table, "tls_directory", Bounds::kPathMax);
  cluster.etcd_tls_directory = bounded_text(table, "etcd_tls_directory", Bounds::kPathMax);
  cluster.insecure = table.flag("insecure", false);
  if (!table.has("name") && !table.has("etcd") && !table.has("listen")) return;
  cluster.name = plain_name(table, "");
  read_etcd(table, cluster);
  read_cluster_addresses(table, cluster);
  read_cluster_start(table, cluster);
  read_partition(table, cluster);
  cluster.socket = bounded_text(table, "socket", Bounds::kPathMax);
}

void read_blocks(const TomlTable& table, BlockSizes& blocks) {
  const auto read = [&](std::string_view key, std::uint32_t without) {
    return static_cast<std::uint32_t>(
        table.size(key, Bytes{without}, Bytes{1}, Bytes{kPayloadMax}).count());
  };
  blocks.minimum = read("block_min", blocks.minimum);
  blocks.preferred = read("block_preferred", std::max(blocks.preferred, blocks.minimum));
  blocks.maximum = read("block_max", blocks.maximum);
  // A size that every minimum divides: that of the store is not known yet.
  constexpr std::uint64_t kAnySize = std::uint64_t{1} << 62;
  if (are_valid(blocks, kAnySize)) return;
  const std::string_view given = table.has("block_min")         ? "block_min"
                                 : table.has("block_preferred") ? "block_preferred"
                                                                : "block_max";
  table.refuse(
      given, "conflicts with the other block sizes",
      "block_min is a power of 2 up to 64KiB, block_preferred a power of 2 of at least "
      "512B and block_min, block_max a multiple of block_min from block_preferred to 64MiB");
}

void read_store(const TomlTable& table, serve::StoreOptions& store) {
  if (!table.has("store")) {
    table.miss("store", "such as 'file:/srv/scratch.img' or 'memory:1GiB'");
    return;
  }
  const auto parsed = serve::parse_store(bounded_text(table, "store", Bounds::kPathMax));
  if (!parsed) {
    refuse_with(table, table.place_of("store"), "store", parsed.error());
    return;
  }
  store = *parsed;
  using Kind = serve::StoreOptions::Kind;
  if (table.has("size")) {
    if (store.kind != Kind::kFile) {
      table.refuse(
          "size",
          store.kind == Kind::kMemory ? "is already given in store" : "cannot be set for a device",
          "remove it");
    } else if (store.size) {
      table.refuse("size", "is already given in store", "remove one of them");
    }
    constexpr Bytes kMost{std::uint64_t{1} << 62};
    store.size = table.size("size", Bytes{1}, Bytes{1}, kMost);
  }
  if (table.flag("direct", false)) {
    if (store.kind == Kind::kMemory) table.refuse("direct", "has no effect for memory");
    store.direct = true;
  }
  if (table.flag("force", false)) {
    if (store.kind != Kind::kDevice) table.refuse("force", "applies to devices only", "remove it");
    store.force = true;
  }
}

// The service that an export or a gateway names.
std::string service_name(const TomlTable& table, const ServeOptions& options) {
  std::string name = table.text("service", std::string(serve::kDefaultService));
  if (name != serve::kDefaultService && !is_named_before(options.services, name)) {
    Words names = {serve::kDefaultService};
    for (const serve::ServiceOptions& service : options.services) names.push_back(service.name);
    const auto meant = nearest(name, names);
    table.refuse(
        "service", fmt::format("{} does not exist", quote(name)),
        meant ? fmt::format("did you mean {}?", *meant) : "add a [[service]] of that name");
  }
  return name;
}

// A value of a level in the path of a weight, as requests have it; empty after an error.
std::string share_value(FieldSet level, std::string_view value,
                        const std::vector<serve::NodemapOptions>& nodemaps, std::string& wrong) {
  if (value == kNoShareValue) return std::string(value);
  if (level == kRuleLevel) {
    if (value.size() <= kRuleNameMax && check_rule_name(value)) return std::string(value);
    wrong = fmt::format("{} is not a name of a rule", quote(value));
    return {};
  }
  const Field field = level.first();
  if (field == Field::kNodemap) {
    if (value == "default") return "0";
    for (std::size_t i = 0; i < nodemaps.size(); ++i) {
      if (nodemaps[i].name == value) return std::to_string(i + 1);
    }
    wrong = fmt::format("{} is not a nodemap of this file", quote(value));
  } else if (field == Field::kUid || field == Field::kGid || field == Field::kProjid) {
    if (const auto id = read_decimal(value); id && *id < kUnknownId) return std::to_string(*id);
    wrong = fmt::format("{} is not a {}; write its number, or {}", quote(value), level.print_type(),
                        kNoShareValue);
  } else if (value.empty() || value.size() > JobId::kSizeMax) {
    wrong = fmt::format("{} is not a value of {}", quote(value), level.print_type());
  }
  return wrong.empty() ? std::string(value) : std::string();
}

// The nodes that a table of [[shares]] lists, by values or names.
class ShareNodes {
 public:
  ShareNodes(const TomlTable& table, const ServeOptions& options, serve::SharesOptions& shares)
      : table_(table), options_(options), shares_(shares) {}

  // Calls read(member, path, refuse) for each node of a key.
  template <class Read>
  void each(std::string_view key, std::string_view what, std::string_view form, Read read) const {
    const auto value = table_.get(key);
    if (!value) return;
    if (!value->is_table()) {
      table_.refuse(key, fmt::format("must be a table such as {}", form));
      return;
    }
    const std::vector<TomlMember> members = value->members();
    if (members.size() > Bounds::kWeightsMax) {
      table_.refuse(key, fmt::format("has more than {} nodes", Bounds::kWeightsMax));
      return;
    }
    for (const TomlMember& member : members) {
      const auto refuse = [&](std::string_view why, std::string_view hint = {}) {
        table_.mistakes().add(
            member.key.at,
            fmt::format("{}: {} of {} {}", table_.name(), what, quote(member.key.name), why), hint);
      };
      const std::string path = path_of(member.key.name, refuse);
      if (!path.empty()) read(member, path, refuse);
    }
  }
  // False if another child of its parent has the name.
  bool add_name(const std::string& path, const std::string& name) {
    const std::size_t value = path.rfind('/') + 1;
    return values_.emplace(path.substr(0, value) + name, path.substr(value)).second &&
           shares_.names.emplace(path, name).second;
  }

 private:
  // The path of a node above the jobs, as requests have it; empty after an error.
  template <class Refuse>
  std::string path_of(const std::string& text, Refuse refuse) const {
    const std::vector<JobId> values = path_values(text);
    if (values.size() > shares_.levels.size()) {
      refuse(
          fmt::format("has a path of {} values; the tree has {} level{} above the jobs",
                      values.size(), shares_.levels.size(), shares_.levels.size() == 1 ? "" : "s"),
          "the weight of a job is weight= of its rule, or its nodes");
      return {};
    }
    std::string path, wrong;
    for (std::size_t i = 0; i < values.size() && wrong.empty(); ++i) {
      path += i == 0 ? "" : "/";
      const auto named = values_.find(path + std::string(values[i].text()));
      path += named != values_.end()
                  ? named->second
                  : share_value(shares_.levels[i], values[i].text(), options_.nodemaps, wrong);
    }
    if (wrong.empty()) return path;
    refuse("cannot be set: " + wrong);
    return {};
  }

  const TomlTable& table_;
  const ServeOptions& options_;
  serve::SharesOptions& shares_;
  std::map<std::string, std::string> values_;  // by the path above, and the name
};

// A name must not be taken for a value.
void read_names(ShareNodes& nodes) {
  nodes.each("names", "the name", "{ '1001' = 'bio', '1001/5' = 'alice' }",
             [&](const TomlMember& member, const std::string& path, const auto& refuse) {
               const auto* name = member.value.template as<std::string>();
               if (name == nullptr || name->empty() || name->size() > JobId::kSizeMax ||
                   name->find('/') != std::string::npos || read_decimal(*name)) {
                 refuse("is not valid",
                        fmt::format("expected 1 to {} bytes without /, and not a number",
                                    JobId::kSizeMax));
               } else if (!nodes.add_name(path, *name)) {
                 refuse("is given twice", "give each node below the same parent a name of its own");
               }
             });
}

void read_weights(const ShareNodes& nodes, serve::SharesOptions& shares) {
  nodes.each(
      "weights", "the weight", "{ '1001' = 2, '1001/5' = 3 }",
      [&](const TomlMember& member, const std::string& path, const auto& refuse) {
        const auto* weight = member.value.template as<std::int64_t>();
        if (weight == nullptr || *weight < 1 ||
            static_cast<std::uint64_t>(*weight) > TreeAllocator::kWeightMax) {
          refuse(fmt::format("must be a whole number from 1 to {}", TreeAllocator::kWeightMax));
        } else if (!shares.weights.emplace(path, static_cast<std::uint64_t>(*weight)).second) {
          refuse("is given twice", "give each node once");
        }
      });
}

void read_accounts(const ShareNodes& nodes, serve::SharesOptions& shares) {
  nodes.each("accounts", "the account", "{ '1001' = 'physics', '1001/5' = 'physics/alice' }",
             [&](const TomlMember& member, const std::string& path, const auto& refuse) {
               const auto* account = member.value.template as<std::string>();
               if (account == nullptr || account->empty() || account->size() > Bounds::kNameMax ||
                   std::count(account->begin(), account->end(), '/') > 1) {
                 refuse("is not valid", "expected ACCOUNT, or ACCOUNT/USER");
               } else if (!shares.accounts.emplace(path, *account).second) {
                 refuse("is given twice", "give each node once");
               }
             });
}

void read_shares(const TomlTable& table, ServeOptions& options) {
  const std::string name = service_name(table, options);
  if (name == serve::kDefaultService && !is_named_before(options.services, name)) {
    options.services.emplace_back();
  }
  const auto service = std::find_if(options.services.begin(), options.services.end(),
                                    [&](const auto& one) { return one.name == name; });
  if (service == options.services.end()) return;  // reported
  if (!service->shares.levels.empty()) {
    table.refuse("service", fmt::format("{} has a tree of shares already", quote(name)));
    return;
  }
  if (!table.has("tree")) {
    table.miss("tree", "such as ['projid', 'uid', 'jobid']");
    return;
  }
  std::string text;
  for (const TomlTable::Item& item : table.texts("tree")) {
    text += (text.empty() ? "" : ",") + item.text;
  }
  const auto levels = parse_tree_levels(text);
  if (!levels) {
    refuse_with(table, table.place_of("tree"), "tree", levels.error());
    return;
  }
  service->shares.levels = *levels;
  if (service->adaptive == serve::Adaptive::kOff) {
    table.refuse("tree", "has no effect with adaptive = \"off\"",
                 "set adaptive = \"on\" for the service, or remove the tree");
  }
  ShareNodes nodes(table, options, service->shares);
  read_names(nodes);
  read_weights(nodes, service->shares);
  read_accounts(nodes, service->shares);
}

void read_export(const TomlTable& table, ServeOptions& options) {
  if (!has_room(table, options.exports, Bounds::kExportsMax)) return;
  serve::ExportOptions exported;
  if (!table.has("name")) table.miss("name", "'' serves clients that name no export");
  exported.name = bounded_text(table, "name", Bounds::kNameMax);
  if (exported.name.find_first_of(",/=") != std::string::npos) {
    table.refuse("name", "is not a valid name",
                 "a name cannot contain , / or =, which separate claims");
  } else if (has_control(exported.name)) {
    table.refuse("name", "contains control characters", "remove them");
  }
  if (is_named_before(options.exports, exported.name)) {
    table.refuse("name", "is used twice");
  }
  read_store(table, exported.store);
  exported.read_only = table.flag("read_only", false);
  exported.description = bounded_text(table, "description", Bounds::kDescriptionMax);
  if (has_control(exported.description)) {
    table.refuse("description", "contains control characters", "remove them");
  }
  read_blocks(table, exported.blocks);
  const Bytes payload{exported.blocks.maximum};
  if (payload > options.limits.connection_memory) {
    table.refuse("block_max",
                 fmt::format("is {}, which exceeds the server's connection_memory of {}",
                             print_size(payload), print_size(options.limits.connection_memory)),
                 "lower block_max or raise connection_memory");
  }
  exported.service = service_name(table, options);
  options.exports.push_back(std::move(exported));
}

void read_relay(const TomlTable& table, std::string_view key,
                std::optional<serve::RelayPorts>& relay) {
  if (!table.has(key)) return;
  const auto ports = serve::parse_relay(table.text(key, ""));
  if (ports) relay = *ports;
  if (!ports) refuse_with(table, table.place_of(key), key, ports.error());
}

void read_relays(const TomlTable& table, serve::NfsOptions& gateway) {
  read_relay(table, "mount_port", gateway.mount);
  read_relay(table, "lock_port", gateway.lock);
  read_relay(table, "status_port", gateway.status);
  read_relay(table, "portmap_port", gateway.portmap);
}

void read_export_handles(const TomlTable& table, serve::NfsOptions& gateway) {
  for (const TomlTable::Item& item : table.texts("export_handles")) {
    const auto handle = serve::parse_export_handle(item.text);
    if (handle) gateway.export_handles.push_back(*handle);
    if (!handle) refuse_with(table, item.at, "export_handles", handle.error());
  }
}

void read_nfs(const TomlTable& table, ServeOptions& options) {
  using serve::NfsOptions;
  if (!has_room(table, options.nfs, Bounds::kGatewaysMax)) return;
  NfsOptions gateway;
  gateway.name = plain_name(table, gateway.name);
  if (is_named_before(options.nfs, gateway.name) ||
      is_named_before(options.exports, gateway.name)) {
    table.refuse("name", "is used twice");
  }
  for (const TomlTable::Item& item : table.texts("listen")) {
    const auto address = serve::parse_listen(item.text, NfsOptions::kPort);
    if (address) {
      gateway.listen.push_back(*address);
    } else {
      refuse_with(table, item.at, "listen", address.error());
    }
  }
  if (!table.has("listen")) table.miss("listen", "such as [':2049']");
  gateway.server = bounded_text(table, "server", Bounds::kNameMax);
  if (gateway.server.empty()) table.miss("server", "HOST[:PORT] of the NFS server");
  gateway.service = service_name(table, options);
  gateway.max_wait =
      table.time("max_wait", gateway.max_wait, NfsOptions::kMaxWaitMin, NfsOptions::kMaxWaitMax);
  gateway.delays_v3 = table.flag("delay_v3", false);
  gateway.delays_v40 = table.flag("delay_v40", false);
  read_relays(table, gateway);
  const std::string tls = table.text("rpc_tls", "refuse");
  gateway.passes_tls = tls == "pass";
  if (tls != "pass" && tls != "refuse") {
    table.refuse("rpc_tls", "is not valid", "expected 'refuse' or 'pass'");
  }
  const auto source = serve::parse_source(table.text("source", "any"));
  if (source) gateway.source = *source;
  if (!source) refuse_with(table, table.place_of("source"), "source", source.error());
  gateway.sends_proxy = table.flag("send_proxy", false);
  gateway.accepts_proxy = read_nids(table, "accept_proxy");
  read_export_handles(table, gateway);
  options.nfs.push_back(std::move(gateway));
}

// "service 'fast'": the name of one of several tables in messages.
std::string called(std::string_view table, const TomlValue& value) {
  const auto given = value.find("name");
  const auto* name = given ? given->as<std::string>() : nullptr;
  return name != nullptr ? fmt::format("{} {}", table, quote(*name)) : std::string(table);
}

// Tables that others refer to are read first.
void read_document(const TomlValue& document, TomlMistakes& mistakes, ServeOptions& options) {
  Words tables;
  for (const Part& part : parts()) tables.push_back(part.table);
  const TomlTable root(document, "file", mistakes, tables);
  const auto once = [&](std::string_view name, auto read) {
    if (const auto value = root.get(name)) {
      read(TomlTable(*value, std::string(name), mistakes, keys_of(name)));
    }
  };
  const auto many = [&](std::string_view name, auto read) {
    root.each(name, [&](const TomlValue& value) {
      read(TomlTable(value, called(name, value), mistakes, keys_of(name)), options);
    });
  };
  once("server", [&](const TomlTable& table) { read_server(table, options); });
  once("control", [&](const TomlTable& table) { read_control(table, options.control); });
  once("cluster", [&](const TomlTable& table) { read_cluster(table, options.cluster); });
  once("tls", [&](const TomlTable& table) { read_tls(table, options.tls); });
  once("lock", [&](const TomlTable& table) { read_lock(table, options.lock); });
  once("claims", [&](const TomlTable& table) { read_claims(table, options.claims); });
  once("jobs", [&](const TomlTable& table) { read_jobs(table, options); });
  many("nodemap", read_nodemap);
  once("groups", [&](const TomlTable& table) { read_groups(table, options.groups); });
  many("group", read_group);
  many("service", read_service);
  many("shares", read_shares);
  many("export", read_export);
  many("nfs", read_nfs);
}

}  // namespace

std::vector<ServeConfigKey> serve_config_keys() {
  std::vector<ServeConfigKey> keys;
  for (const Part& part : parts()) {
    keys.reserve(keys.size() + part.keys.size());
    for (const std::string_view key : part.keys) keys.push_back({part.table, key});
  }
  return keys;
}

tl::expected<ServeOptions, std::vector<Error>> parse_serve_config(std::string_view text,
                                                                  const std::string& file) {
  const auto document = parse_toml(text, file);
  if (!document) return tl::unexpected(std::vector<Error>{document.error()});
  TomlMistakes mistakes(file);
  ServeOptions options;
  read_document(*document, mistakes, options);
  if (!mistakes.empty()) return tl::unexpected(mistakes.in_order());
  return options;
}

Result<ServeOptions> load_serve_config(const std::string& path) {
  const auto text = host::read_file(path);
  if (!text) return tl::unexpected(text.error());
  auto options = parse_serve_config(*text, path);
  if (options) return *std::move(options);
  Error all = options.error().front();
  all.what = all.message().substr(all.where.size() + 2);
  all.hint.clear();
  for (std::size_t i = 1; i < options.error().size(); ++i) {
    all.what += "\n" + options.error()[i].message();
  }
  return tl::unexpected(all);
}

}  // namespace weir::config
