// SPDX-License-Identifier: Apache-2.0
//
// All options of a server, as plain values: set by the command line or a configuration file, and
// read by the server once at its start. A default here is the default everywhere.
//
//   ServeOptions            the whole server
//     ListenAddress         an address to listen on
//     ServiceOptions        one Target: a policy, its rules, the controller and the capacity
//     ExportOptions         a name, a store, and the service that schedules its requests
//       StoreOptions        a file, a block device or memory, optionally slowed down by a Shape
//
// The parse_x() functions parse the short forms of the command line; their errors quote the input
// and state what is expected. Options that refer to each other (an export that names a service) are
// checked by check(). Values only: nothing here opens or binds anything.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/block_sizes.h"
#include "weir/base/quantity.h"
#include "weir/base/rate.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/classify/attributes.h"
#include "weir/classify/limits.h"
#include "weir/classify/nid.h"
#include "weir/classify/rule_spec.h"
#include "weir/host/io_loop.h"
#include "weir/lock/server.h"
#include "weir/target/device_capacity.h"

namespace weir::serve {

// The service of an export that does not name one.
inline constexpr std::string_view kDefaultService = "ost_io";
inline constexpr std::uint16_t kDefaultPort = 10809;

// Bounds of numbers, in all sources.
struct ServeBounds {
  static constexpr std::size_t kDescriptionMax = 255;  // bytes
  static constexpr std::size_t kPlainNameMax = 31;     // of a service, a nodemap or a group
  static constexpr std::uint32_t kSlotsMax = 4096;
  static constexpr Nanoseconds kLatencyTargetMin = std::chrono::microseconds{1};
  static constexpr Nanoseconds kLatencyTargetMax = std::chrono::minutes{1};
  static constexpr std::uint32_t kClassesMin = 16;
  static constexpr std::uint32_t kClassesMax = 1'000'000;
  static constexpr std::uint32_t kConnectionsMax = 1'000'000;
  static constexpr std::uint32_t kConnectionRequestsMax = 65'536;
  static constexpr Nanoseconds kHandshakeTimeoutMin = std::chrono::milliseconds{100};
  static constexpr Nanoseconds kHandshakeTimeoutMax = std::chrono::hours{1};
  static constexpr Nanoseconds kDrainTimeoutMax = std::chrono::hours{24};
};

// A name that can be used in rules and in the parameter tree: 1 to kPlainNameMax letters, digits, _
// and -.
bool is_plain_name(std::string_view name);

// 127.0.0.1:10809, [::1]:10809, :10809 (every address), unix:PATH
struct ListenAddress {
  enum class Kind : std::uint8_t { kTcp, kUnix };
  Kind kind = Kind::kTcp;
  std::string host = {};  // a numeric address; empty: every address
  std::uint16_t port = kDefaultPort;
  std::string path = {};      // of kUnix
  std::string protocol = {};  // as in protocol.h; empty: the standard one
  // Also accepts connections to addresses of other machines that are routed to this one.
  bool is_transparent = false;

  bool operator==(const ListenAddress&) const = default;
};
Result<ListenAddress> parse_listen(std::string_view text, std::uint16_t without = kDefaultPort);
// The same for clients, with an optional protocol: PROTOCOL+ADDRESS.
Result<ListenAddress> parse_entrance(std::string_view text);
std::string print_listen(const ListenAddress& address);

// The speed of a slowed-down store. Each member is optional; an empty Shape changes nothing.
struct Shape {
  std::optional<Rate> iops;       // operations per second
  std::optional<Rate> bandwidth;  // bytes per second
  Nanoseconds latency{0};         // of each operation, before it starts

  bool operator==(const Shape&) const = default;
};

//   file:PATH[,size=SIZE][,direct]   created (sparse) when missing; then size= is needed
//   device:PATH[,direct][,force]     force: although the system uses it
//   memory:SIZE
//   shaped:KEY=VALUE[,...]:STORE     iops=2000, bps=100MB, latency=1ms
struct StoreOptions {
  enum class Kind : std::uint8_t { kFile, kDevice, kMemory, kRemote };
  Kind kind = Kind::kFile;
  std::string path;           // of kFile and kDevice
  std::optional<Bytes> size;  // of kMemory; of kFile: size of a new file, or expected size
  bool direct = false;        // O_DIRECT: past the page cache
  bool force = false;         // use a device even if it is mounted or otherwise in use
  std::optional<Shape> shape;

  // There is no store: a gateway forwards all requests to another server.
  bool is_remote() const { return kind == Kind::kRemote; }

  bool operator==(const StoreOptions&) const = default;
};
Result<StoreOptions> parse_store(std::string_view text);

// NAME=STORE[,readonly][,service=NAME][,description=TEXT]
struct ExportOptions {
  std::string name;  // may be empty: for clients that ask for no name. No ',' '/' or '='
  StoreOptions store;
  bool read_only = false;
  std::string description;
  std::string service{kDefaultService};
  BlockSizes blocks;  // with direct, the minimum is raised to that of the device

  bool operator==(const ExportOptions&) const = default;
};
Result<ExportOptions> parse_export(std::string_view text);

enum class Adaptive : std::uint8_t {
  kOff,    // only limits apply
  kOn,     // ControllerOptions{}
  kPaper,  // ControllerOptions::paper()
};
Result<Adaptive> parse_adaptive(std::string_view text);

// auto | N (operations a second) | SIZE/s (then a request costs its bytes)
using weir::Capacity;
Result<Capacity> parse_capacity(std::string_view text);

// Requests that the stores work on at a time. kSlotsAuto: as many as they need, which is measured.
inline constexpr std::uint32_t kSlotsAuto = 0;
inline constexpr std::uint32_t kSlotsDefault = 16;
// auto | N
Result<std::uint32_t> parse_slots(std::string_view text);

// A tree of shares: its levels above the jobs, top first, and the weights of nodes by the values of
// their paths with / between them. Without levels there is no tree.
struct SharesOptions {
  std::vector<FieldSet> levels = {};
  std::map<std::string, std::uint64_t> weights = {};
  // Nodes that have the shares of an account of Slurm as their weight, unless they are listed
  // above: "physics", or "physics/alice" for a user of an account.
  std::map<std::string, std::string> accounts = {};
  // Of nodes, for people: "bio" of project 1001.
  std::map<std::string, std::string> names = {};

  bool operator==(const SharesOptions&) const = default;
};

struct ServiceOptions {
  std::string name{kDefaultService};
  std::string policy = "tbf jobid";         // as written to nrs_policies
  std::vector<std::string> tunables = {};   // of the policy: "quantum=8"
  std::vector<RuleChange> rules;            // in this order
  std::vector<RuleChange> more_rules = {};  // from the command line, after those of the file
  Adaptive adaptive = Adaptive::kOn;
  Capacity capacity;
  std::optional<std::uint32_t> slots;  // none: kSlotsDefault, or that of a gateway
  std::uint32_t hp_slots = 0;          // reserved for high priority; less than slots
  // With kSlotsAuto: the mean time in a store that the number must not exceed.
  std::optional<Nanoseconds> latency_target = std::nullopt;
  std::optional<Nanoseconds> period;  // of the controller; none: its default
  std::optional<Cost> cost;  // of a request, against the capacity; none: according to the capacity
  std::uint32_t classes = 8192;  // maximum number of classes, and of jobs; others share a class
  SharesOptions shares = {};

  bool operator==(const ServiceOptions&) const = default;
};

// A set of clients by address. Its id, used by rules, is its position in the list, from 1; 0
// is default.
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
  std::optional<Nanoseconds> length;  // of its turns; none: as in GroupsOptions

  bool operator==(const ClientGroup&) const = default;
};
// The name of the group of clients without a group.
inline constexpr std::string_view kNoGroup = "others";

struct GroupsOptions {
  Nanoseconds length = std::chrono::milliseconds{100};
  bool quiesce = false;
  Nanoseconds quiet_max = std::chrono::milliseconds{50};
  std::vector<ClientGroup> groups;  // none: no group is preferred

  // The longest time between the ends of two turns, including quiet phases.
  Nanoseconds longest() const;

  bool operator==(const GroupsOptions&) const = default;
};

// The nodes of a job are its weight when a target is shared.
struct JobNodes {
  std::string job;
  std::uint64_t nodes = 1;

  bool operator==(const JobNodes&) const = default;
};
// The number of nodes of a job that is not listed.
enum class UnknownJobs : std::uint8_t {
  kOne,      // one
  kClients,  // the number of clients with that job
};

// Whose claims of job, uid, gid and project are accepted.
struct ClaimsOptions {
  bool local = true;            // of clients on loopback and on Unix sockets
  std::optional<NidList> nids;  // also of these

  bool operator==(const ClaimsOptions&) const = default;
};

struct TlsOptions {
  enum class Mode : std::uint8_t { kOff, kOn, kRequire };
  Mode mode = Mode::kOff;
  // With ca-cert.pem, server-cert.pem, server-key.pem, as for nbdkit and QEMU.
  std::string directory;
  bool verify_clients = false;  // clients need a certificate of the same authority

  bool operator==(const TlsOptions&) const = default;
};
Result<TlsOptions::Mode> parse_tls(std::string_view text);

// auto | uring | epoll
Result<host::IoChoice> parse_io(std::string_view text);

// Control of a server in addition to its socket.
struct ControlFiles {
  std::string tcp;         // "127.0.0.1:9810"; empty: none. Beyond loopback only with tls
  std::string token_file;  // contains the token that requests over TCP must send
  std::string journal;     // of changes that survive a restart; empty: none
  std::string tls = {};    // directory of the certificate for TCP; empty: plain text

  bool operator==(const ControlFiles&) const = default;
};

// Membership in a cluster; servers find each other through etcd.
struct ClusterOptions {
  std::string name;               // of this server, unique in the cluster; empty: in no cluster
  std::string prefix = "/weir";   // of all keys in etcd; one for each cluster
  std::vector<std::string> etcd;  // HOST:PORT
  std::string listen;             // for the other servers, as ListenAddress has it
  std::string advertise;          // HOST:PORT at which they reach it; empty: same as `listen`
  Nanoseconds epoch = std::chrono::milliseconds{10};
  Nanoseconds timeout = std::chrono::milliseconds{100};  // of a round; see weir/coordinate/leader.h
  Nanoseconds lease = std::chrono::seconds{5};           // of the leader, in whole seconds
  std::string user;                                      // for etcd; empty: none
  std::string password_file;
  std::string tls_directory;  // between servers, see weir/cluster/credentials.h; empty: plain text
  std::string etcd_tls_directory;  // to etcd
  std::string state_file;          // stores the rules of the cluster; required, see cluster_state.h
  // What to do while no rules are known and etcd does not answer.
  enum class StartWithout : std::uint8_t {
    kClosed,  // accept no clients
    kRate,    // limit the whole server to `start_rate` operations per second
  };
  StartWithout start_without = StartWithout::kClosed;
  std::uint32_t start_rate = 0;
  // What this server may use while it is cut off; the same on all servers.
  enum class Partition : std::uint8_t {
    kSafe,  // limit / (10 x members)
    kLast,  // its last slice, which no other server gets
  };
  Partition partition = Partition::kSafe;
  std::string socket;     // for schedulers of other programs, see local_epochs.h; empty: none
  bool insecure = false;  // do not warn about plain text on the network, see plain_text.h

  bool is_on() const { return !name.empty(); }
  bool operator==(const ClusterOptions&) const = default;
};

// The lock service (docs/design/lock-volume.md), beside exports or without any.
struct LockOptions {
  static constexpr std::uint16_t kPort = 10811;
  static constexpr std::int64_t kLimitPerMib = 100;  // of this machine's memory, by default
  // The service name under which its requests are shown.
  static constexpr std::string_view kService = "locks";

  // The defaults.
  static lock::ServerOptions server_defaults();

  std::optional<ListenAddress> listen;  // none: no lock service
  std::string state_file;               // state that must survive restarts; required
  lock::ServerOptions server = server_defaults();
  std::string policy = "fifo";  // of its Gate, as written to nrs_policies
  std::vector<RuleChange> rules{};
  bool insecure = false;  // do not warn about plain text on the network, see plain_text.h

  bool operator==(const LockOptions&) const = default;
};

// Which source address and port the server of a gateway sees.
enum class SourceMode : std::uint8_t {
  kAny,       // of this machine
  kReserved,  // of this machine, a port below 1024
  kClient,    // of the client
};
// any | reserved | client
Result<SourceMode> parse_source(std::string_view text);
std::string print_source(SourceMode mode);

// A port on which a gateway forwards a protocol beside NFS.
struct RelayPorts {
  std::uint16_t listen = 0;  // 0: a free one
  std::uint16_t server = 0;

  bool operator==(const RelayPorts&) const = default;
};
// PORT | PORT:SERVER_PORT
Result<RelayPorts> parse_relay(std::string_view text);

// Files whose handles begin with these bytes belong to an export.
struct ExportHandle {
  static constexpr std::size_t kMax = 256;             // of a gateway
  static constexpr std::size_t kHandleBytesMax = 128;  // NFS4_FHSIZE

  std::string name;
  std::vector<std::byte> prefix;

  bool operator==(const ExportHandle&) const = default;
};
// NAME=PREFIX, the prefix in hexadecimal.
Result<ExportHandle> parse_export_handle(std::string_view text);

// A gateway to an NFS server (docs/design/nfs.md).
struct NfsOptions {
  static constexpr std::uint16_t kPort = 2049;
  static constexpr std::uint32_t kSlots = 256;  // of its service, unless set
  static constexpr Nanoseconds kMaxWaitMin = std::chrono::milliseconds{100};
  static constexpr Nanoseconds kMaxWaitMax = std::chrono::seconds{30};
  // Unanswered calls of a connection; clients do not limit this number themselves.
  static constexpr std::uint32_t kConnectionRequests = ServeBounds::kConnectionRequestsMax;
  static constexpr Nanoseconds kDrainTimeout = std::chrono::seconds{10};

  std::string name = "nfs";           // of its export
  std::vector<ListenAddress> listen;  // for clients
  std::string server;                 // HOST[:PORT]
  std::string service{kDefaultService};
  // Calls of a session that would wait longer are answered NFS4ERR_DELAY.
  Nanoseconds max_wait = std::chrono::seconds{10};
  // Those of versions 3 and 4.0 wait, unless they are to be answered NFS3ERR_JUKEBOX and
  // NFS4ERR_DELAY.
  bool delays_v3 = false;
  bool delays_v40 = false;
  std::optional<RelayPorts> mount;
  std::optional<RelayPorts> lock;    // NLM
  std::optional<RelayPorts> status;  // NSM
  std::optional<RelayPorts> portmap;
  // Whether a client may use TLS with the server. Then its users are not visible.
  bool passes_tls = false;
  SourceMode source = SourceMode::kAny;
  bool sends_proxy = false;              // a PROXY header precedes each connection to the server
  std::optional<NidList> accepts_proxy;  // clients that have to send one, and no others may
  std::vector<ExportHandle> export_handles;

  bool operator==(const NfsOptions&) const = default;
};

struct ServeLimits {
  // A quarter of the machine's memory, so that a small machine has room for everything else, but at
  // least two of the largest payloads and at most what the loop needs.
  static constexpr Bytes kMemoryLeast{std::uint64_t{1} << 26};
  static constexpr Bytes kMemoryMost{std::uint64_t{1} << 29};
  static Bytes memory_for(Bytes machine);  // 0: unknown
  static Bytes memory_default();           // of this machine

  std::uint32_t connections = 4096;  // more are refused, counted and logged
  // Payload of the whole server, and of one connection; a connection at its limit is not read from.
  // Neither may be less than the largest payload of an export.
  Bytes memory = memory_default();
  Bytes connection_memory{std::uint64_t{1} << 25};
  std::uint32_t connection_requests = 1024;  // unanswered requests of one connection
  Nanoseconds handshake_timeout = std::chrono::seconds{10};
  Nanoseconds drain_timeout = std::chrono::seconds{30};  // maximum drain time after SIGTERM

  bool operator==(const ServeLimits&) const = default;
};

// Sizes of jobs from Slurm, queried periodically by the owner of the server.
struct SlurmOptions {
  static constexpr Nanoseconds kEveryMin = std::chrono::seconds{1};
  static constexpr Nanoseconds kEveryMax = std::chrono::hours{1};

  bool is_on = false;
  std::string pattern = "%j";  // of job ids, with the codes that Slurm knows: %j and %u
  std::string squeue = "squeue";
  std::string sshare = "sshare";
  Nanoseconds every = std::chrono::seconds{10};

  bool operator==(const SlurmOptions&) const = default;
};

// Loops, each with a thread. kThreadsAuto: one for each processor, at most kThreadsAutoMax; one for
// an NFS gateway.
inline constexpr std::uint32_t kThreadsAuto = 0;
inline constexpr std::uint32_t kThreadsAutoMax = 8;
inline constexpr std::uint32_t kThreadsMax = 64;
// N | auto
Result<std::uint32_t> parse_threads(std::string_view text);

struct ServeOptions {
  std::vector<ListenAddress> listen;
  std::vector<ExportOptions> exports;
  std::vector<ServiceOptions> services;  // the default service exists even if it is not listed
  std::vector<NodemapOptions> nodemaps;
  ClaimsOptions claims;
  ServeLimits limits;
  TlsOptions tls;
  std::string jobs_file;       // lines "JOB NODES"; empty: none
  std::vector<JobNodes> jobs;  // in addition to the file, which takes precedence
  UnknownJobs unknown_jobs = UnknownJobs::kOne;
  SlurmOptions slurm;
  std::string user;            // to switch to after binding, if started as root; empty: none
  std::string control_socket;  // empty: none
  std::string trace_file;      // empty: none
  ControlFiles control;
  ClusterOptions cluster;
  LockOptions lock;
  std::vector<NfsOptions> nfs;
  GroupsOptions groups;
  host::IoChoice io = host::IoChoice::kAuto;
  std::uint32_t threads = kThreadsAuto;

  bool operator==(const ServeOptions&) const = default;
};

// Checks options that depend on each other: an address to listen on and an export exist, names are
// unique, services exist, numbers are within ServeBounds, limits leave room for the largest
// payload, certificates are used, policies can be started, and rules are valid for them.
Result<void> check(const ServeOptions& options);

}  // namespace weir::serve
