// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/options.h"

#include <algorithm>
#include <charconv>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/un.h>

#include "weir/base/control_characters.h"
#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/number.h"
#include "weir/host/machine.h"
#include "weir/lock/term.h"
#include "weir/serve/protocol.h"
#include "weir/target/nrs_text.h"

namespace weir::serve {
namespace {

constexpr const char* kListenHint =
    "expected ADDRESS:PORT such as 127.0.0.1:10809, [::1]:10809 or :10809, or unix:PATH";
constexpr const char* kStoreHint =
    "expected file:PATH[,size=SIZE][,direct], device:PATH[,direct][,force], memory:SIZE or "
    "shaped:KEY=VALUE,...:STORE";
constexpr const char* kExportHint =
    "expected NAME=STORE[,readonly][,service=NAME][,description=TEXT]";
constexpr const char* kCapacityHint =
    "expected auto, operations per second such as 4000, or bytes per second such as 100MB/s";
constexpr std::size_t kExportNameMax = 255;

tl::unexpected<Error> refuse(std::string_view text, std::string_view what, std::string_view hint) {
  return fail(std::errc::invalid_argument, {}, fmt::format("{} {}", quote(text), what), hint);
}

// Removes and returns the text up to the separator, and removes the separator.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return taken;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_address(int family, const std::string& text) {
  in6_addr unused;
  return inet_pton(family, text.c_str(), &unused) == 1;
}

Result<Shape> parse_shape(std::string_view text) {
  Shape shape;
  while (!text.empty()) {
    std::string_view value = take_until(text, ',');
    const std::string_view key = take_until(value, '=');
    if (key == "iops") {
      const auto rate = parse_rate(value);
      if (!rate) return tl::unexpected(rate.error());
      shape.iops = *rate;
    } else if (key == "bps") {
      const auto rate = parse_bandwidth(value);
      if (!rate) return tl::unexpected(rate.error());
      shape.bandwidth = *rate;
    } else if (key == "latency") {
      const auto time = parse_duration(value);
      if (!time) return tl::unexpected(time.error());
      shape.latency = *time;
    } else {
      return refuse(key, "is not a shaping parameter",
                    "expected iops=2000, bps=100MB or latency=1ms");
    }
  }
  return shape;
}

// Parses a store and, if `of` is given, the keys of the export: they share one list of keys.
Result<StoreOptions> parse_keys(std::string_view text, StoreOptions store, ExportOptions* of) {
  while (!text.empty()) {
    const std::string_view whole = text;
    std::string_view value = take_until(text, ',');
    const std::string_view pair = value;
    const std::string_view key = take_until(value, '=');
    if (key == "size" && store.kind == StoreOptions::Kind::kFile) {
      const auto size = parse_size(value);
      if (!size) return tl::unexpected(size.error());
      store.size = *size;
    } else if (pair == "direct" && store.kind != StoreOptions::Kind::kMemory) {
      store.direct = true;
    } else if (pair == "force" && store.kind == StoreOptions::Kind::kDevice) {
      store.force = true;
    } else if (of != nullptr && pair == "readonly") {
      of->read_only = true;
    } else if (of != nullptr && key == "service" && !value.empty()) {
      of->service = value;
    } else if (of != nullptr && key == "description") {
      // To the end of the text, since a description may contain commas.
      of->description = whole.substr(std::string_view("description=").size());
      return store;
    } else {
      return refuse(pair, "is not a key of this store", of == nullptr ? kStoreHint : kExportHint);
    }
  }
  return store;
}

Result<StoreOptions> parse_store_of(std::string_view text, ExportOptions* of) {
  const std::string_view whole = text;
  StoreOptions store;
  if (take_prefix(text, "shaped:")) {
    const auto shape = parse_shape(take_until(text, ':'));
    if (!shape) return tl::unexpected(shape.error());
    auto inner = parse_store_of(text, of);
    if (inner && inner->shape) return refuse(whole, "is shaped twice", kStoreHint);
    if (inner) inner->shape = *shape;
    return inner;
  }
  const bool file = take_prefix(text, "file:");
  if (file || take_prefix(text, "device:")) {
    store.kind = file ? StoreOptions::Kind::kFile : StoreOptions::Kind::kDevice;
    store.path = take_until(text, ',');
    if (store.path.empty()) return refuse(whole, "has no path", kStoreHint);
    return parse_keys(text, store, of);
  }
  if (take_prefix(text, "memory:")) {
    store.kind = StoreOptions::Kind::kMemory;
    const auto size = parse_size(take_until(text, ','));
    if (!size) return tl::unexpected(size.error());
    store.size = *size;
    return parse_keys(text, store, of);
  }
  return refuse(whole, "is not a store", kStoreHint);
}

}  // namespace

lock::ServerOptions LockOptions::server_defaults() {
  lock::ServerOptions server;
  const auto mib = static_cast<std::int64_t>(host::machine_memory().count() >> 20);
  if (mib > 0) server.pool.limit = std::min(mib * kLimitPerMib, lock::kLimitMax);
  return server;
}

Bytes ServeLimits::memory_for(Bytes machine) {
  if (machine.count() == 0) return kMemoryMost;
  const Bytes share{machine.count() / 4 >> 20 << 20};  // whole MiB
  return std::clamp(share, kMemoryLeast, kMemoryMost);
}

Bytes ServeLimits::memory_default() { return memory_for(host::machine_memory()); }

Nanoseconds GroupsOptions::longest() const {
  Nanoseconds most = length;
  for (const ClientGroup& group : groups) most = std::max(most, group.length.value_or(length));
  return quiesce ? most + quiet_max : most;
}

bool is_plain_name(std::string_view name) {
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && name.size() <= ServeBounds::kPlainNameMax &&
         std::all_of(name.begin(), name.end(), is_plain);
}

Result<ListenAddress> parse_listen(std::string_view text, std::uint16_t without) {
  ListenAddress address;
  address.port = without;
  std::string_view rest = text;
  if (take_prefix(rest, "unix:")) {
    address.kind = ListenAddress::Kind::kUnix;
    address.path = rest;
    if (rest.empty()) return refuse(text, "has no path", kListenHint);
    if (rest.size() >= sizeof(sockaddr_un::sun_path)) {
      return refuse(text, "has too long a path", "a socket path has at most 107 bytes");
    }
    return address;
  }
  if (take_prefix(rest, "[")) {
    const bool closed = rest.find(']') != std::string_view::npos;
    address.host = take_until(rest, ']');
    if (!closed || !is_address(AF_INET6, address.host)) {
      return refuse(text, "contains no valid IPv6 address", kListenHint);
    }
  } else {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    address.host = rest.substr(0, colon);
    rest.remove_prefix(colon);
    if (address.host == "localhost") address.host = "127.0.0.1";
    if (!address.host.empty() && !is_address(AF_INET, address.host)) {
      return refuse(text, "contains no valid IPv4 address", kListenHint);
    }
  }
  if (rest.empty() && !address.host.empty()) return address;
  if (!take_prefix(rest, ":")) return refuse(text, "is not an address to listen on", kListenHint);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), address.port);
  if (error != std::errc{} || end != rest.data() + rest.size()) {
    return refuse(text, "has no port from 0 to 65535", kListenHint);
  }
  return address;
}

Result<ListenAddress> parse_entrance(std::string_view text) {
  std::string_view rest = text;
  std::string_view protocol;
  const std::size_t plus = rest.find('+');
  if (plus != std::string_view::npos && is_plain_name(rest.substr(0, plus))) {
    protocol = take_until(rest, '+');
  }
  auto address = parse_listen(rest);
  if (address) address->protocol = protocol;
  return address;
}

std::string print_listen(const ListenAddress& address) {
  const std::string spoken = address.protocol.empty() ? "" : address.protocol + "+";
  if (address.kind == ListenAddress::Kind::kUnix) return spoken + "unix:" + address.path;
  const bool six = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}", spoken, six ? "[" : "", address.host, six ? "]" : "",
                     address.port);
}

Result<StoreOptions> parse_store(std::string_view text) { return parse_store_of(text, nullptr); }

Result<ExportOptions> parse_export(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) return refuse(text, "is not an export", kExportHint);
  ExportOptions result;
  result.name = text.substr(0, equals);
  const auto store = parse_store_of(text.substr(equals + 1), &result);
  if (!store) return tl::unexpected(store.error());
  result.store = *store;
  return result;
}

Result<Adaptive> parse_adaptive(std::string_view text) {
  if (text == "on") return Adaptive::kOn;
  if (text == "off") return Adaptive::kOff;
  if (text == "paper") return Adaptive::kPaper;
  return refuse(text, "is not a valid mode", "expected on, off or paper");
}

Result<TlsOptions::Mode> parse_tls(std::string_view text) {
  if (text == "off") return TlsOptions::Mode::kOff;
  if (text == "on") return TlsOptions::Mode::kOn;
  if (text == "require") return TlsOptions::Mode::kRequire;
  return refuse(text, "is not a TLS mode", "expected off, on or require");
}

Result<host::IoChoice> parse_io(std::string_view text) {
  if (text == "auto") return host::IoChoice::kAuto;
  if (text == "uring") return host::IoChoice::kUring;
  if (text == "epoll") return host::IoChoice::kEpoll;
  return refuse(text, "is not a way to do I/O", "expected auto, uring or epoll");
}

Result<RelayPorts> parse_relay(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto listen = read_decimal(text.substr(0, colon));
  const auto server =
      colon == std::string_view::npos ? listen : read_decimal(text.substr(colon + 1));
  if (!listen || *listen > UINT16_MAX || !server || *server == 0 || *server > UINT16_MAX) {
    return refuse(text, "is not a port", "expected PORT or PORT:SERVER_PORT, such as 20048");
  }
  return RelayPorts{static_cast<std::uint16_t>(*listen), static_cast<std::uint16_t>(*server)};
}

Result<ExportHandle> parse_export_handle(std::string_view text) {
  const std::size_t equals = text.rfind('=');  // a name may contain others
  const std::string_view digits =
      equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
  ExportHandle handle{std::string(text.substr(0, std::min(equals, text.size()))), {}};
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    const std::string_view pair = digits.substr(at, 2);
    std::uint8_t byte = 0;
    const auto read = std::from_chars(pair.data(), pair.data() + pair.size(), byte, 16);
    if (read.ec != std::errc() || read.ptr != pair.data() + pair.size()) break;
    handle.prefix.push_back(std::byte{byte});
  }
  const bool is_whole = digits.size() == 2 * handle.prefix.size();
  if (!is_whole || handle.prefix.empty() || handle.name.empty() || has_control(handle.name) ||
      handle.prefix.size() > ExportHandle::kHandleBytesMax) {
    return refuse(text, "is not an export and a prefix of its file handles",
                  "expected NAME=PREFIX, such as /home=43000007");
  }
  return handle;
}

Result<SourceMode> parse_source(std::string_view text) {
  for (const SourceMode mode : {SourceMode::kAny, SourceMode::kReserved, SourceMode::kClient}) {
    if (text == print_source(mode)) return mode;
  }
  return refuse(text, "is not a source", "expected any, reserved or client");
}

std::string print_source(SourceMode mode) {
  switch (mode) {
    case SourceMode::kAny:
      return "any";
    case SourceMode::kReserved:
      return "reserved";
    case SourceMode::kClient:
      break;
  }
  return "client";
}

Result<std::uint32_t> parse_threads(std::string_view text) {
  if (text == "auto") return kThreadsAuto;
  const auto count = read_decimal(text);
  if (count && *count >= 1 && *count <= kThreadsMax) return static_cast<std::uint32_t>(*count);
  return refuse(text, "is not a number of threads",
                fmt::format("expected auto or a number from 1 to {}", kThreadsMax));
}

Result<Capacity> parse_capacity(std::string_view text) {
  if (text == "auto") return Capacity{};
  if (const auto ops = parse_rate(text)) return Capacity{Capacity::Kind::kOps, *ops};
  const auto bytes = parse_bandwidth(text);
  if (!bytes) return refuse(text, "is not a valid capacity", kCapacityHint);
  return Capacity{Capacity::Kind::kBytes, *bytes};
}

Result<std::uint32_t> parse_slots(std::string_view text) {
  if (text == "auto") return kSlotsAuto;
  const auto count = read_decimal(text);
  if (count && *count >= 1 && *count <= ServeBounds::kSlotsMax) {
    return static_cast<std::uint32_t>(*count);
  }
  return refuse(text, "is not a number of slots",
                fmt::format("expected auto or a number from 1 to {}", ServeBounds::kSlotsMax));
}

namespace {

Result<void> check_export(const ServeOptions& options, const ExportOptions& one) {
  const std::string where = "export " + quote(one.name);
  if (one.name.size() > kExportNameMax || one.name.find_first_of(",/=") != std::string::npos ||
      has_control(one.name)) {
    return fail(std::errc::invalid_argument, where, "is not a valid export name",
                "a name has at most 255 bytes and no ',', '/', '=' or control characters");
  }
  if (has_control(one.description)) {
    return fail(std::errc::invalid_argument, where, "has control characters in its description",
                "remove them");
  }
  if (one.store.size && one.store.size->count() == 0) {
    return fail(std::errc::invalid_argument, where, "has an empty store",
                "give it a size, such as 4GiB");
  }
  const auto same = [&](const ExportOptions& other) { return other.name == one.name; };
  if (std::count_if(options.exports.begin(), options.exports.end(), same) != 1) {
    return fail(std::errc::invalid_argument, where, "is given twice", "name each export once");
  }
  const auto named = [&](const ServiceOptions& service) { return service.name == one.service; };
  if (one.service != kDefaultService &&
      std::none_of(options.services.begin(), options.services.end(), named)) {
    return fail(std::errc::invalid_argument, where,
                fmt::format("names the service {}, which does not exist", quote(one.service)),
                "define the service, or omit it");
  }
  if (one.description.size() > ServeBounds::kDescriptionMax) {
    return fail(std::errc::invalid_argument, where,
                fmt::format("has a description of {} bytes", one.description.size()),
                fmt::format("the maximum is {}", ServeBounds::kDescriptionMax));
  }
  const std::uint64_t memory =
      std::min(options.limits.memory.count(), options.limits.connection_memory.count());
  if (memory < one.blocks.maximum) {
    return fail(std::errc::invalid_argument, where,
                "has a maximum payload above the memory limit of a connection",
                "raise the memory limits, or lower the maximum payload");
  }
  return {};
}

Result<void> check_number(std::string_view where, std::string_view what, std::uint64_t number,
                          std::uint64_t least, std::uint64_t most) {
  if (number >= least && number <= most) return {};
  return fail(std::errc::invalid_argument, where, fmt::format("{} {}", number, what),
              fmt::format("expected {} to {}", least, most));
}

Result<void> check_limits(const ServeLimits& limits) {
  using Bounds = ServeBounds;
  const std::string where = "limits";
  if (auto checked =
          check_number(where, "connections", limits.connections, 1, Bounds::kConnectionsMax);
      !checked) {
    return checked;
  }
  if (auto checked = check_number(where, "requests of a connection", limits.connection_requests, 1,
                                  Bounds::kConnectionRequestsMax);
      !checked) {
    return checked;
  }
  const auto check_time = [&](std::string_view what, Nanoseconds time, Nanoseconds least,
                              Nanoseconds most) -> Result<void> {
    if (time >= least && time <= most) return {};
    return fail(std::errc::invalid_argument, where,
                fmt::format("a {} timeout of {}", what, print_duration(time)),
                fmt::format("expected {} to {}", print_duration(least), print_duration(most)));
  };
  if (auto checked = check_time("handshake", limits.handshake_timeout, Bounds::kHandshakeTimeoutMin,
                                Bounds::kHandshakeTimeoutMax);
      !checked) {
    return checked;
  }
  return check_time("drain", limits.drain_timeout, Nanoseconds{0}, Bounds::kDrainTimeoutMax);
}

Result<void> check_name(std::string_view kind, const std::string& name) {
  if (is_plain_name(name)) return {};
  return fail(std::errc::invalid_argument, fmt::format("{} {}", kind, quote(name)),
              "is not a valid name",
              fmt::format("expected 1 to {} letters, digits, _ and -", ServeBounds::kPlainNameMax));
}

Result<void> check_nodemaps(const std::vector<NodemapOptions>& nodemaps) {
  for (const NodemapOptions& one : nodemaps) {
    const std::string where = "nodemap " + quote(one.name);
    if (auto checked = check_name("nodemap", one.name); !checked) return checked;
    if (one.name == "default") {
      return fail(std::errc::invalid_argument, where, "is reserved for all other clients",
                  "use another name");
    }
    const auto same = [&](const NodemapOptions& other) { return other.name == one.name; };
    if (std::count_if(nodemaps.begin(), nodemaps.end(), same) != 1) {
      return fail(std::errc::invalid_argument, where, "is given twice", "name each nodemap once");
    }
  }
  return {};
}

Result<void> check_slots(const ServiceOptions& one, const std::string& where) {
  const bool is_auto = one.slots == kSlotsAuto;
  const std::uint32_t slots = is_auto ? ServeBounds::kSlotsMax : one.slots.value_or(kSlotsDefault);
  if (auto checked = check_number(where, "slots", slots, 1, ServeBounds::kSlotsMax); !checked) {
    return checked;
  }
  if (one.hp_slots >= slots) {
    return fail(std::errc::invalid_argument, where,
                fmt::format("reserves {} of {} slots for high priority", one.hp_slots, slots),
                "leave at least one for other requests");
  }
  if (!one.latency_target) return {};
  if (!is_auto) {
    return fail(std::errc::invalid_argument, where,
                fmt::format("has a latency target, but a fixed number of {} slots", slots),
                "use slots auto, or remove the latency target");
  }
  if (*one.latency_target < ServeBounds::kLatencyTargetMin ||
      *one.latency_target > ServeBounds::kLatencyTargetMax) {
    return fail(std::errc::invalid_argument, where,
                fmt::format("has a latency target of {}", print_duration(*one.latency_target)),
                "expected 1us to 1min");
  }
  return {};
}

Result<void> check_service(const ServeOptions& options, const ServiceOptions& one) {
  const std::string where = "service " + quote(one.name);
  if (auto checked = check_name("service", one.name); !checked) return checked;
  const auto same = [&](const ServiceOptions& other) { return other.name == one.name; };
  if (std::count_if(options.services.begin(), options.services.end(), same) != 1) {
    return fail(std::errc::invalid_argument, where, "is given twice", "name each service once");
  }
  if (auto checked = check_slots(one, where); !checked) return checked;
  if (one.cost) {
    if (auto fits = one.capacity.check_unit(*one.cost); !fits) {
      fits.error().where = where + ": capacity";
      return fits;
    }
  }
  return check_number(where, "classes", one.classes, ServeBounds::kClassesMin,
                      ServeBounds::kClassesMax);
}

Result<void> check_tls(const TlsOptions& tls) {
  const bool is_off = tls.mode == TlsOptions::Mode::kOff;
  if (!is_off && tls.directory.empty()) {
    return fail(std::errc::invalid_argument, "tls", "has no certificates",
                "name their directory: --tls-certificates DIRECTORY");
  }
  if (is_off && tls.verify_clients) {
    return fail(std::errc::invalid_argument, "tls",
                "is off, and clients without a certificate would be served in plain text",
                "add --tls require (mode in [tls]), or omit --tls-verify-peer "
                "(verify_clients)");
  }
  if (is_off && !tls.directory.empty()) {
    return fail(
        std::errc::invalid_argument, "tls",
        fmt::format("is off, and the certificates in {} would not be used", quote(tls.directory)),
        "add --tls require (mode in [tls]), or omit --tls-certificates (directory)");
  }
  return {};
}

// Rules of the cluster are only in etcd, so that all servers have the same.
Result<void> check_cluster(const ServeOptions& options) {
  const ClusterOptions& cluster = options.cluster;
  if (!cluster.is_on()) return {};
  if (cluster.etcd.empty() || cluster.listen.empty()) {
    return fail(std::errc::invalid_argument, "cluster", "needs etcd and listen",
                "see [cluster] in weir.conf(5)");
  }
  if (cluster.state_file.empty()) {
    return fail(std::errc::invalid_argument, "cluster", "has no state file",
                "without one its limits do not survive restarts: set state in [cluster]");
  }
  if ((cluster.start_without == ClusterOptions::StartWithout::kRate) != (cluster.start_rate > 0)) {
    return fail(std::errc::invalid_argument, "cluster", "needs start_rate for start_without = rate",
                "set both in [cluster], or neither");
  }
  if (cluster.timeout <= cluster.epoch) {
    return fail(std::errc::invalid_argument, "cluster", "has a timeout no longer than its epoch",
                "make it several times as long");
  }
  for (const ServiceOptions& service : options.services) {
    for (const auto* const rules : {&service.rules, &service.more_rules}) {
      for (const RuleChange& rule : *rules) {
        if (rule.keys.scope != Scope::kCluster) continue;
        return fail(std::errc::invalid_argument, "rule " + quote(print(rule)),
                    "is a rule of the cluster", "start it with: weir cluster rule start");
      }
    }
  }
  return {};
}

Result<void> check_lock(const LockOptions& lock, const std::vector<NodemapOptions>& nodemaps,
                        const std::vector<ServiceOptions>& services) {
  for (const ServiceOptions& one : services) {
    if (one.name != LockOptions::kService) continue;
    return fail(std::errc::invalid_argument, "service " + quote(one.name),
                "has the name under which requests for locks are shown", "use another name");
  }
  if (lock.state_file.empty()) {
    return fail(std::errc::invalid_argument, "lock", "has no state file",
                "without one locks are not safe across restarts: use --lock-state FILE");
  }
  if (auto checked = lock::check(lock.server); !checked) {
    Error error = checked.error();
    error.where = "lock " + error.where;
    return tl::unexpected(std::move(error));
  }
  std::vector<std::string> names;
  names.reserve(nodemaps.size());
  for (const NodemapOptions& nodemap : nodemaps) names.push_back(nodemap.name);
  Target::Options options;
  options.gate.nodemaps = nodemaps_named(std::move(names));
  Target trial(options, Instant{});
  if (auto written = write_nrs_policies(trial, lock.policy, Instant{}); !written) return written;
  return trial.check_rules(lock.rules);
}

}  // namespace

Result<void> check(const ServeOptions& options) {
  if (options.exports.empty() && !options.lock.listen) {
    return fail(std::errc::invalid_argument, "exports", "no export is given",
                "add one: --export scratch=file:PATH,size=4GiB");
  }
  if (options.listen.empty() && !options.exports.empty()) {
    return fail(std::errc::invalid_argument, "listeners", "no listen address is given",
                "add one: --listen 127.0.0.1:10809");
  }
  if (!options.nfs.empty() && options.threads > 1) {
    return fail(std::errc::invalid_argument, "threads", "an NFS gateway uses one thread",
                "set threads = 1 or \"auto\", or run weir nfs beside weir serve");
  }
  for (const NfsOptions& one : options.nfs) {
    if (one.export_handles.size() > ExportHandle::kMax) {
      return fail(std::errc::invalid_argument, "gateway " + quote(one.name),
                  fmt::format("has more than {} export handles", ExportHandle::kMax),
                  "use shorter prefixes");
    }
    if (one.source == SourceMode::kAny || options.user.empty()) continue;
    return fail(std::errc::invalid_argument, "source " + print_source(one.source),
                "cannot be combined with user, which gives up the privileges it needs",
                "omit user, or start as that user with AmbientCapabilities of systemd");
  }
  for (const ListenAddress& one : options.listen) {
    if (one.protocol.empty()) continue;
    if (auto found = find_protocol(one.protocol); !found) {
      Error error = found.error();
      error.code = std::errc::invalid_argument;  // an error in the options
      return tl::unexpected(error);
    }
  }
  for (const ExportOptions& one : options.exports) {
    if (auto checked = check_export(options, one); !checked) return checked;
  }
  if (auto checked = check_nodemaps(options.nodemaps); !checked) return checked;
  for (const ServiceOptions& one : options.services) {
    if (auto checked = check_service(options, one); !checked) return checked;
  }
  for (const ClientGroup& one : options.groups.groups) {
    if (auto checked = check_name("group", one.name); !checked) return checked;
  }
  if (auto checked = check_limits(options.limits); !checked) return checked;
  if (auto checked = check_tls(options.tls); !checked) return checked;
  if (auto checked = check_cluster(options); !checked) return checked;
  if (!options.lock.listen) return {};
  if (options.cluster.is_on() && options.lock.server.lease < lock::kTermsLeaseMin) {
    return fail(std::errc::invalid_argument, "lock lease",
                fmt::format("{} is too short for a server of a cluster",
                            print_duration(options.lock.server.lease)),
                fmt::format("expected at least {}: it must not end while another server takes over",
                            print_duration(lock::kTermsLeaseMin)));
  }
  return check_lock(options.lock, options.nodemaps, options.services);
}

}  // namespace weir::serve
