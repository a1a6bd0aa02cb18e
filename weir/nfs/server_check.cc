// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/server_check.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "weir/base/big_endian.h"
#include "weir/base/quote.h"
#include "weir/host/fd.h"
#include "weir/nfs/codec/compound.h"
#include "weir/nfs/codec/file_handle.h"
#include "weir/nfs/codec/message_writer.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/codec/v3.h"

namespace weir::nfs {
namespace {

using Level = Finding::Level;

constexpr std::uint16_t kPortmapPort = 111;
constexpr std::uint32_t kPortmapVersion = 2;
constexpr std::uint32_t kGetPort = 3;
constexpr std::uint32_t kMountExport = 5;  // MOUNTPROC3_EXPORT
constexpr std::uint32_t kTcp = 6;
constexpr std::uint32_t kMinorMismatch = 10021;       // NFS4ERR_MINOR_VERS_MISMATCH
constexpr std::uint32_t kPnfsMetadata = 0x0002'0000;  // EXCHGID4_FLAG_USE_PNFS_MDS
constexpr std::uint32_t kAnswerMax = 1U << 20;        // of one answer
constexpr std::size_t kEntriesMax = 4096;             // exports, and clients of one, that are read

struct Export {
  std::string path;
  std::vector<std::string> clients;
};

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string hex(Bytes bytes) {
  std::string digits;
  for (const std::byte byte : bytes) digits += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return digits;
}

// An answer with a parsed header; results only if it succeeded.
struct Answer {
  std::string message;
  ReplyHeader header;

  XdrReader results() const {
    XdrReader reader(whole(std::as_bytes(std::span(message))));
    reader.skip(header.results_at);
    return reader;
  }
};

class ServerCheck {
 public:
  explicit ServerCheck(const AskServer& ask) : ask_(ask) {}

  std::vector<Finding> run();

 private:
  void find_versions();
  std::optional<std::uint32_t> compound_status(std::uint32_t minor);
  void find_lease();
  void find_pnfs();
  void find_exports();
  std::vector<Export> list_exports(std::uint16_t port);
  void try_export(std::uint16_t port, const Export& one);
  void look_for_others(const Export& one);
  std::optional<std::uint16_t> mount_port();

  Result<Answer> ask(std::uint16_t port, const XdrWriter& call);
  void add(Level level, std::string text) { findings_.push_back({level, std::move(text)}); }

  const AskServer& ask_;
  std::vector<Finding> findings_;
  std::uint32_t xid_ = 0x5765'6972;
  std::vector<std::string> versions_;
};

Result<Answer> ServerCheck::ask(std::uint16_t port, const XdrWriter& call) {
  auto message = ask_(port, call.text());
  if (!message) return tl::unexpected(message.error());
  Answer answer{std::move(*message), {}};
  answer.header = read_reply_header(whole(std::as_bytes(std::span(answer.message))));
  if (answer.header.defect != Defect::kNone || answer.header.xid != xid_) {
    return fail(std::errc::protocol_error, "the server", "answers with something that is not RPC",
                "is another service on this port?");
  }
  return answer;
}

std::vector<Finding> ServerCheck::run() {
  const auto reached = ask(0, call_header(++xid_, kNfsProgram, kNfsVersion3, 0, Flavor::kNone, ""));
  if (!reached) {
    add(Level::kProblem, reached.error().message());
    return findings_;
  }
  if (reached->header.succeeded()) versions_.emplace_back("3");
  find_versions();
  if (versions_.empty()) {
    add(Level::kProblem, "the server is reachable, but serves none of NFS 3, 4.0, 4.1 and 4.2");
    return findings_;
  }
  add(Level::kGood, fmt::format("reachable; serves NFS {}", fmt::join(versions_, ", ")));
  find_lease();
  find_pnfs();
  find_exports();
  return findings_;
}

// The status of a compound that reads attributes of the root, without a session.
std::optional<std::uint32_t> ServerCheck::compound_status(std::uint32_t minor) {
  CompoundWriter look(minor);
  look.op(Op::kPutRootFh);
  const auto answer = ask(0, look.call(++xid_, 0));
  if (!answer || !answer->header.succeeded()) return std::nullopt;
  return read_compound_reply(answer->results()).status;
}

void ServerCheck::find_versions() {
  for (const std::uint32_t minor : {0U, 1U, 2U}) {
    const auto status = compound_status(minor);
    // Versions with sessions answer NFS4ERR_OP_NOT_IN_SESSION.
    if (status && *status != kMinorMismatch) versions_.push_back(fmt::format("4.{}", minor));
  }
}

void ServerCheck::find_lease() {
  CompoundWriter look(0);
  look.op(Op::kPutRootFh);
  look.op(Op::kGetAttr).u32(1).u32(1U << 10);
  const auto answer = ask(0, look.call(++xid_, 0));
  if (!answer || !answer->header.succeeded()) return;
  const auto lease = read_compound_reply(answer->results()).lease_seconds;
  if (lease) {
    add(Level::kGood, fmt::format("the lease is {} s: an outage of the gateway must be shorter for "
                                  "clients of NFS 4 to keep their locks",
                                  *lease));
  }
}

void ServerCheck::find_pnfs() {
  CompoundWriter hello(1);
  hello.op(Op::kExchangeId).u64(xid_).opaque("weir nfs check").u32(0).u32(0).u32(0);
  const auto answer = ask(0, hello.call(++xid_, 0));
  if (!answer || !answer->header.succeeded()) return;
  XdrReader results = answer->results();
  const std::uint32_t status = results.u32();
  results.opaque();             // the tag
  results.skip(4 + 8 + 8 + 4);  // count, operation and status, client id, sequence
  const std::uint32_t flags = results.u32();
  if (!results.good() || status != 0) return;
  if ((flags & kPnfsMetadata) != 0) {
    add(Level::kWarning,
        "the server offers pNFS: clients read and write past the gateway; turn it off there");
  } else {
    add(Level::kGood, "the server does not offer pNFS");
  }
}

// By portmap.
std::optional<std::uint16_t> ServerCheck::mount_port() {
  XdrWriter call =
      call_header(++xid_, kPortmapProgram, kPortmapVersion, kGetPort, Flavor::kNone, "");
  call.u32(kMountProgram).u32(kMountVersion).u32(kTcp).u32(0);
  const auto answer = ask(kPortmapPort, call);
  if (!answer || !answer->header.succeeded()) return std::nullopt;
  const std::uint32_t port = answer->results().u32();
  if (port == 0 || port > UINT16_MAX) return std::nullopt;
  return static_cast<std::uint16_t>(port);
}

std::vector<Export> ServerCheck::list_exports(std::uint16_t port) {
  std::vector<Export> all;
  const auto answer =
      ask(port, call_header(++xid_, kMountProgram, kMountVersion, kMountExport, Flavor::kNone, ""));
  if (!answer || !answer->header.succeeded()) return all;
  XdrReader list = answer->results();
  while (list.u32() == 1 && list.good() && all.size() < kEntriesMax) {
    Export one{text_of(list.opaque(kMountPathMax)), {}};
    while (list.u32() == 1 && list.good() && one.clients.size() < kEntriesMax) {
      one.clients.push_back(text_of(list.opaque(kMountPathMax)));
    }
    if (list.good()) all.push_back(std::move(one));
  }
  return all;
}

void ServerCheck::find_exports() {
  const auto port = mount_port();
  if (!port) {
    add(Level::kWarning,
        "portmap does not name a port of MOUNT: the exports are not known, and clients of NFS 3 "
        "need mountport=");
    return;
  }
  const std::vector<Export> all = list_exports(*port);
  if (all.empty()) {
    add(Level::kWarning, fmt::format("MOUNT on port {} lists no export to the gateway", *port));
  }
  for (const Export& one : all) {
    if (&one - all.data() == static_cast<std::ptrdiff_t>(kExportsMax)) {
      add(Level::kGood, fmt::format("{} exports more", all.size() - kExportsMax));
      break;
    }
    try_export(*port, one);
    look_for_others(one);
  }
}

// MNT, then a call with the handle, from a source port that is not reserved.
void ServerCheck::try_export(std::uint16_t port, const Export& one) {
  XdrWriter mount = sys_call(++xid_, kMountVersion, kMountProcedure, 0, kMountProgram);
  mount.opaque(one.path);
  const auto mounted = ask(port, mount);
  const std::string name = "export " + quote(one.path);
  if (!mounted || !mounted->header.succeeded()) {
    return add(Level::kWarning, name + ": MOUNT does not answer");
  }
  const MountReply reply = read_mount_reply(mounted->results());
  if (reply.status != 0 || reply.end != XdrState::kGood) {
    return add(Level::kProblem,
               fmt::format("{}: refused to the gateway with status {}: export it to the address of "
                           "the gateway, on a Linux server with insecure",
                           name, reply.status));
  }
  XdrWriter look = sys_call(++xid_, kNfsVersion3, static_cast<std::uint32_t>(Proc3::kGetAttr), 0);
  look.opaque(text_of(reply.file_handle));
  const auto seen = ask(0, look);
  const bool is_allowed = seen && seen->header.succeeded() && seen->results().u32() == 0;
  if (is_allowed) {
    std::string text = name + ": the gateway may use it";
    if (const auto part = ExportPart::of(reply.file_handle)) {
      text += fmt::format(" (file handles begin with {})", hex(part->bytes()));
    }
    return add(Level::kGood, text);
  }
  add(Level::kProblem,
      name +
          ": may be mounted, but calls from an unreserved source port are refused: export it "
          "with insecure");
}

void ServerCheck::look_for_others(const Export& one) {
  const auto is_open = [](const std::string& client) {
    return client.empty() || client.find_first_of("*?/@") != std::string::npos ||
           client == "(everyone)";
  };
  const std::string name = "export " + quote(one.path);
  const bool is_for_all =
      one.clients.empty() || std::any_of(one.clients.begin(), one.clients.end(), is_open);
  if (is_for_all) {
    add(Level::kWarning, name +
                             ": open to clients that mount the server directly, past the "
                             "gateway: export it to the gateway alone, or block port 2049");
  } else if (one.clients.size() > 1) {
    add(Level::kWarning,
        fmt::format("{}: exported to {} clients; all but the gateway can bypass it", name,
                    one.clients.size()));
  }
}

// ---- over TCP ----

struct Connections {
  const serve::ServerAddress& server;
  Nanoseconds timeout;
  std::map<std::uint16_t, host::Fd> sockets;  // by port
};

Result<int> connected(Connections& all, std::uint16_t port) {
  if (const auto known = all.sockets.find(port); known != all.sockets.end()) {
    return known->second.get();
  }
  sockaddr_storage address = all.server.address;
  std::string where = "server " + all.server.text;
  if (port != 0) {
    auto& place = address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                                : reinterpret_cast<sockaddr_in&>(address).sin_port;
    place = htons(port);
    where += fmt::format(", port {}", port);
  }
  host::Fd socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!socket.is_open()) return fail_errno(errno, where);
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(all.timeout).count();
  const timeval time{us / 1'000'000, us % 1'000'000};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), all.server.size) != 0) {
    const int error = errno == EINPROGRESS ? ETIMEDOUT : errno;
    return fail_errno(error, where + " cannot be reached");
  }
  return (all.sockets[port] = std::move(socket)).get();
}

Result<void> receive(int socket, std::byte* to, std::size_t size) {
  while (size > 0) {
    const ssize_t got = recv(socket, to, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = got == 0 ? ECONNRESET : errno == EAGAIN ? ETIMEDOUT : errno;
      return fail_errno(error, "the server does not answer a call");
    }
    to += got;
    size -= static_cast<std::size_t>(got);
  }
  return {};
}

Result<std::string> exchange(int socket, const std::string& call) {
  const auto mark = record_mark(static_cast<std::uint32_t>(call.size()));
  std::string record(reinterpret_cast<const char*>(mark.data()), mark.size());
  record += call;
  if (::send(socket, record.data(), record.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(record.size())) {
    return fail_errno(errno, "the server does not take a call");
  }
  std::string message;
  for (bool is_last = false; !is_last;) {
    std::array<std::byte, kRecordMarkBytes> head{};
    if (auto got = receive(socket, head.data(), head.size()); !got) {
      return tl::unexpected(got.error());
    }
    const auto word = load_be<std::uint32_t>(head.data());
    is_last = (word >> 31) != 0;
    const std::size_t length = word & 0x7FFF'FFFF;
    if (length > kAnswerMax || message.size() + length > kAnswerMax) {
      return fail(std::errc::message_size, "the server", "answers with more than 1 MiB",
                  "is another service on this port?");
    }
    const std::size_t before = message.size();
    message.resize(before + length);
    auto got = receive(socket, reinterpret_cast<std::byte*>(message.data()) + before, length);
    if (!got) return tl::unexpected(got.error());
  }
  return message;
}

}  // namespace

std::vector<Finding> check_server(const AskServer& ask) { return ServerCheck(ask).run(); }

AskServer ask_over_tcp(const serve::ServerAddress& server, Nanoseconds timeout) {
  auto all = std::make_shared<Connections>(Connections{server, timeout, {}});
  return [all](std::uint16_t port, const std::string& call) -> Result<std::string> {
    const auto socket = connected(*all, port);
    if (!socket) return tl::unexpected(socket.error());
    auto answer = exchange(*socket, call);
    if (!answer) all->sockets.erase(port);
    return answer;
  };
}

}  // namespace weir::nfs
