// SPDX-License-Identifier: Apache-2.0
//
// All options of a server, as plain values: set by the command line or a configuration file, and
// read by the server once at its start. A default here is the default everywhere.
//
//   ServeOptions            the whole server
//     ListenAddress         where clients come in
//     ServiceOptions        one Target: a policy, its rules, the controller and the capacity
//     ExportOptions         a name, a store, and the service that its requests pass
//       StoreOptions        a file, a block device or memory, perhaps made slow by a Shape
//
// The parse_x() functions read the short forms of the command line; their errors quote the input
// and say what to write. Options that refer to each other (an export that names a service) are
// checked by check(). Values only: nothing here opens or binds anything.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/block_sizes.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/limits.h"
#include "weir/classify/nid.h"
#include "weir/host/io_loop.h"
#include "weir/lock/server.h"
#include "weir/target/device_capacity.h"

namespace weir::serve {

// The service of an export that names none.
inline constexpr std::string_view kDefaultService = "ost_io";
inline constexpr std::uint16_t kDefaultPort = 10809;

// What numbers may be, wherever they are written.
struct ServeBounds {
  static constexpr std::size_t kDescriptionMax = 255;  // bytes
  static constexpr std::size_t kPlainNameMax = 31;     // of a service, a nodemap or a group
  static constexpr std::uint32_t kSlotsMax = 4096;
  static constexpr std::uint32_t kClassesMin = 16;
  static constexpr std::uint32_t kClassesMax = 1'000'000;
  static constexpr std::uint32_t kConnectionsMax = 1'000'000;
  static constexpr std::uint32_t kConnectionRequestsMax = 65'536;
  static constexpr Nanoseconds kHandshakeTimeoutMin = std::chrono::milliseconds{100};
  static constexpr Nanoseconds kHandshakeTimeoutMax = std::chrono::hours{1};
  static constexpr Nanoseconds kDrainTimeoutMax = std::chrono::hours{24};
};

// A name that rules and the parameter tree can spell: 1 to kPlainNameMax letters, digits, _ and -.
bool is_plain_name(std::string_view name);

// 127.0.0.1:10809, [::1]:10809, :10809 (every address), unix:PATH
struct ListenAddress {
  enum class Kind : std::uint8_t { kTcp, kUnix };
  Kind kind = Kind::kTcp;
  std::string host = {};  // a numeric address; empty: every address
  std::uint16_t port = kDefaultPort;
  std::string path = {};      // of kUnix
  std::string protocol = {};  // as in protocol.h; empty: the standard one

  bool operator==(const ListenAddress&) const = default;
};
Result<ListenAddress> parse_listen(std::string_view text, std::uint16_t without = kDefaultPort);
// The same for clients, who may be spoken to in another protocol: PROTOCOL+ADDRESS.
Result<ListenAddress> parse_entrance(std::string_view text);
std::string print_listen(const ListenAddress& address);

// What a store is slowed down to. Each part may be missing; a Shape without parts changes nothing.
struct Shape {
  std::optional<Rate> iops;       // operations a second
  std::optional<Rate> bandwidth;  // bytes a second
  Nanoseconds latency{0};         // of each operation, before it begins

  bool operator==(const Shape&) const = default;
};

//   file:PATH[,size=SIZE][,direct]   created (sparse) when missing; then size= is needed
//   device:PATH[,direct][,force]     force: although the system uses it
//   memory:SIZE
//   shaped:KEY=VALUE[,...]:STORE     iops=2000, bps=100MB, latency=1ms
struct StoreOptions {
  enum class Kind : std::uint8_t { kFile, kDevice, kMemory };
  Kind kind = Kind::kFile;
  std::string path;           // of kFile and kDevice
  std::optional<Bytes> size;  // of kMemory; of kFile: to create it, or what it has to have
  bool direct = false;        // O_DIRECT: past the page cache
  bool force = false;         // a device is written to although it is mounted or in use otherwise
  std::optional<Shape> shape;

  bool operator==(const StoreOptions&) const = default;
};
Result<StoreOptions> parse_store(std::string_view text);

// NAME=STORE[,readonly][,service=NAME][,description=TEXT]
struct ExportOptions {
  std::string name;  // may be empty: what clients get that ask for none. No ',' '/' or '=' in it
  StoreOptions store;
  bool read_only = false;
  std::string description;
  std::string service{kDefaultService};
  BlockSizes blocks;  // with direct, minimum is raised to what the device asks for

  bool operator==(const ExportOptions&) const = default;
};
Result<ExportOptions> parse_export(std::string_view text);

enum class Adaptive : std::uint8_t {
  kOff,    // limits alone decide
  kOn,     // ControllerOptions{}
  kPaper,  // ControllerOptions::paper()
};
Result<Adaptive> parse_adaptive(std::string_view text);

// auto | N (operations a second) | SIZE/s (then a request costs its bytes)
using weir::Capacity;
Result<Capacity> parse_capacity(std::string_view text);

struct ServiceOptions {
  std::string name{kDefaultService};
  std::string policy = "tbf jobid";          // as written to nrs_policies
  std::vector<std::string> rules;            // as written to nrs_tbf_rule, in this order
  std::vector<std::string> more_rules = {};  // of the command line, after those of the file
  Adaptive adaptive = Adaptive::kOn;
  Capacity capacity;
  std::uint32_t slots = 16;           // requests that the stores work on at a time
  std::uint32_t hp_slots = 0;         // of them kept from the regular head; less than slots
  std::optional<Nanoseconds> period;  // of the controller; none: its own
  std::optional<Cost> cost;      // of a request, against the capacity; none: as the capacity says
  std::uint32_t classes = 8192;  // and jobs that are known at a time; others share a class

  bool operator==(const ServiceOptions&) const = default;
};

// Clients by address. Its id, which rules ask for, is its place in the list, from 1; 0 is default.
struct NodemapOptions {
  std::string name;
  NidList nids;

  bool operator==(const NodemapOptions&) const = default;
};

// Clients that are preferred together, in turns with the other groups
// (weir/coordinate/group_epochs.h).
struct ClientGroup {
  std::string name;
  NidList nids;
  std::string nids_text;              // as it was written
  std::optional<Nanoseconds> length;  // of its turns; none: as GroupsOptions says

  bool operator==(const ClientGroup&) const = default;
};
// What clients of no group are called where groups are named.
inline constexpr std::string_view kNoGroup = "others";

struct GroupsOptions {
  Nanoseconds length = std::chrono::milliseconds{100};
  bool quiesce = false;
  Nanoseconds quiet_max = std::chrono::milliseconds{50};
  std::vector<ClientGroup> groups;  // none: nobody is preferred

  // The longest time between two ends of turns, with all that belongs to one.
  Nanoseconds longest() const;

  bool operator==(const GroupsOptions&) const = default;
};

// The nodes of a job are its weight when a target is shared out.
struct JobNodes {
  std::string job;
  std::uint64_t nodes = 1;

  bool operator==(const JobNodes&) const = default;
};
// What counts as the nodes of a job that nobody named.
enum class UnknownJobs : std::uint8_t {
  kOne,      // one
  kClients,  // the clients it was seen from
};

// Whose word about job, uid, gid and project counts.
struct ClaimsOptions {
  bool local = true;            // of clients on loopback and on Unix sockets
  std::optional<NidList> nids;  // of these besides

  bool operator==(const ClaimsOptions&) const = default;
};

struct TlsOptions {
  enum class Mode : std::uint8_t { kOff, kOn, kRequire };
  Mode mode = Mode::kOff;
  // ca-cert.pem, server-cert.pem, server-key.pem, as nbdkit and QEMU lay them out.
  std::string directory;
  bool verify_clients = false;  // they need a certificate of the same authority

  bool operator==(const TlsOptions&) const = default;
};
Result<TlsOptions::Mode> parse_tls(std::string_view text);

// auto | uring | epoll
Result<host::IoChoice> parse_io(std::string_view text);

// How a server is controlled, besides its socket.
struct ControlFiles {
  std::string tcp;         // "127.0.0.1:9810"; empty: none
  std::string token_file;  // holds what requests over TCP have to bring
  std::string journal;     // of changes that outlive the server; empty: none

  bool operator==(const ControlFiles&) const = default;
};

// The servers that act as one with this one; they find each other through etcd.
struct ClusterOptions {
  std::string name;               // of this server, unlike all others'; empty: in no cluster
  std::string prefix = "/weir";   // of all keys in etcd; one for each cluster
  std::vector<std::string> etcd;  // HOST:PORT
  std::string listen;             // for the other servers, as ListenAddress has it
  std::string advertise;          // HOST:PORT they reach it by; empty: as `listen`
  Nanoseconds epoch = std::chrono::milliseconds{10};
  Nanoseconds timeout = std::chrono::milliseconds{100};  // of a round; see weir/coordinate/leader.h
  Nanoseconds lease = std::chrono::seconds{5};           // of the leader, in whole seconds
  std::string user;                                      // of etcd; empty: none
  std::string password_file;
  std::string tls_directory;       // between servers, see weir/cluster/credentials.h; empty: plain
  std::string etcd_tls_directory;  // to etcd
  std::string state_file;          // what is known of the rules; needed, see cluster_state.h
  // While no rules are known and etcd cannot be asked for them.
  enum class StartWithout : std::uint8_t {
    kClosed,  // nobody is accepted
    kRate,    // the whole server does `start_rate` operations a second
  };
  StartWithout start_without = StartWithout::kClosed;
  std::uint32_t start_rate = 0;
  bool insecure = false;  // plain text beyond this machine is wanted, see plain_text.h

  bool is_on() const { return !name.empty(); }
  bool operator==(const ClusterOptions&) const = default;
};

// The lock service (docs/design/lock-volume.md), beside the exports or without any.
struct LockOptions {
  static constexpr std::uint16_t kPort = 10811;
  static constexpr std::int64_t kLimitPerMib = 100;  // of this machine's memory, by default

  // What is not said otherwise.
  static lock::ServerOptions server_defaults();

  std::optional<ListenAddress> listen;  // none: there is no lock service
  std::string state_file;               // what must grow over restarts; needed
  lock::ServerOptions server = server_defaults();
  std::string policy = "fifo";       // of its Gate, as written to nrs_policies
  std::vector<std::string> rules{};  // as written to nrs_tbf_rule
  bool insecure = false;             // plain text beyond this machine is wanted, see plain_text.h

  bool operator==(const LockOptions&) const = default;
};

struct ServeLimits {
  // A quarter of the machine's memory, so that a small one has room for everything else, but not
  // less than two of the largest payloads and not more than the loop needs.
  static constexpr Bytes kMemoryLeast{std::uint64_t{1} << 26};
  static constexpr Bytes kMemoryMost{std::uint64_t{1} << 29};
  static Bytes memory_for(Bytes machine);  // 0: unknown
  static Bytes memory_default();           // of this machine

  std::uint32_t connections = 4096;  // more are refused, counted and logged
  // Of payload in the whole server, and in one connection; whoever is at it is not read from.
  // Neither may be less than the largest payload of an export.
  Bytes memory = memory_default();
  Bytes connection_memory{std::uint64_t{1} << 25};
  std::uint32_t connection_requests = 1024;  // of one connection that are not answered
  Nanoseconds handshake_timeout = std::chrono::seconds{10};
  Nanoseconds drain_timeout = std::chrono::seconds{30};  // from SIGTERM to the end

  bool operator==(const ServeLimits&) const = default;
};

// Sizes of jobs from Slurm, asked every so often. Who asks is the owner of the server.
struct SlurmOptions {
  static constexpr Nanoseconds kEveryMin = std::chrono::seconds{1};
  static constexpr Nanoseconds kEveryMax = std::chrono::hours{1};

  bool is_on = false;
  std::string pattern = "%j";  // of job ids, made of what Slurm knows: %j and %u
  std::string squeue = "squeue";
  Nanoseconds every = std::chrono::seconds{10};

  bool operator==(const SlurmOptions&) const = default;
};

struct ServeOptions {
  std::vector<ListenAddress> listen;
  std::vector<ExportOptions> exports;
  std::vector<ServiceOptions> services;  // one of the default name is there even if not listed
  std::vector<NodemapOptions> nodemaps;
  ClaimsOptions claims;
  ServeLimits limits;
  TlsOptions tls;
  std::string jobs_file;       // lines "JOB NODES"; empty: none
  std::vector<JobNodes> jobs;  // known without the file, whose lines win
  UnknownJobs unknown_jobs = UnknownJobs::kOne;
  SlurmOptions slurm;
  std::string user;            // to become after binding, when started as root; empty: none
  std::string control_socket;  // empty: none
  std::string trace_file;      // empty: none
  ControlFiles control;
  ClusterOptions cluster;
  LockOptions lock;
  GroupsOptions groups;
  host::IoChoice io = host::IoChoice::kAuto;

  bool operator==(const ServeOptions&) const = default;
};

// What holds between the parts: something to listen on and to export, names that are given once,
// services that exist, numbers within ServeBounds, bounds that leave room for the largest payload,
// certificates that are used, policies that can be started and rules that they take.
Result<void> check(const ServeOptions& options);

}  // namespace weir::serve
