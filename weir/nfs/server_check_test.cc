// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/server_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weir/nfs/codec/message_writer.h"
#include "weir/nfs/codec/mount.h"
#include "weir/nfs/codec/v3.h"

namespace weir::nfs {
namespace {

using Level = Finding::Level;

// A server whose members determine its answers.
struct FakeServer {
  bool has_version3 = true;
  std::uint32_t minors = 3;  // 4.0 to 4.2
  std::uint32_t flags = 0;
  std::uint32_t mount_port = 20048;
  std::uint32_t mount_status = 0;
  std::uint32_t file_status = 0;
  struct Shared {
    std::string path;
    std::vector<std::string> clients;
  };
  std::vector<Shared> exports = {{"/data", {"10.0.0.9"}}};

  Result<std::string> answer(std::uint16_t port, const std::string& call) const;
  std::vector<Finding> findings() const {
    return check_server(
        [this](std::uint16_t port, const std::string& call) { return answer(port, call); });
  }
  // "ok: ...\n" and so on.
  std::string text() const {
    std::string all;
    for (const Finding& one : findings()) {
      const char* const marks[] = {"ok", "warning", "problem"};
      all += std::string(marks[static_cast<int>(one.level)]) + ": " + one.text + "\n";
    }
    return all;
  }

 private:
  std::string compound(const CallHeader& header, XdrReader arguments) const;
  void list(XdrWriter& reply) const {
    for (const Shared& one : exports) {
      reply.u32(1).opaque(one.path);
      for (const std::string& client : one.clients) reply.u32(1).opaque(client);
      reply.u32(0);
    }
    reply.u32(0);
  }
};

std::string FakeServer::compound(const CallHeader& header, XdrReader arguments) const {
  const CompoundCall call = read_compound(arguments, {});
  CompoundWriter results(call.minor_version);
  if (call.minor_version >= minors) return results.reply(header.xid, 10021).text();
  if (call.has(Op::kExchangeId)) {
    XdrWriter& result = results.result(Op::kExchangeId).u64(7).u32(1).u32(flags).u32(0);
    result.u64(0).opaque("server").opaque("scope").u32(0);
    return results.reply(header.xid).text();
  }
  if (call.minor_version > 0) {
    results.result(Op::kPutRootFh, 10071);
    return results.reply(header.xid, 10071).text();
  }
  results.result(Op::kPutRootFh);
  if (call.has(Op::kGetAttr)) results.result(Op::kGetAttr).u32(1).u32(1U << 10).u32(4).u32(60);
  return results.reply(header.xid).text();
}

Result<std::string> FakeServer::answer(std::uint16_t port, const std::string& call) const {
  const MessageView message = whole(std::as_bytes(std::span(call)));
  const CallHeader header = read_call_header(message);
  EXPECT_EQ(header.defect, Defect::kNone);
  const XdrReader arguments = open_arguments(message, header).value();
  XdrWriter reply = success_header(header.xid);
  switch (header.program) {
    case kPortmapProgram:
      EXPECT_EQ(port, 111);
      if (mount_port == 0) return fail_errno(ECONNREFUSED, "portmap");
      reply.u32(mount_port);
      break;
    case kMountProgram:
      EXPECT_EQ(port, mount_port);
      if (header.procedure != kMountProcedure) {
        list(reply);
      } else if (mount_status != 0) {
        reply.u32(mount_status);
      } else {
        reply.u32(0).opaque("handle").u32(1).u32(1);
      }
      break;
    default:
      EXPECT_EQ(port, 0);
      if (header.version == kNfsVersion4) return compound(header, arguments);
      if (!has_version3) {  // PROG_MISMATCH
        return XdrWriter().u32(header.xid).u32(1).u32(0).u32(0).u32(0).u32(2).u32(4).u32(4).text();
      }
      if (header.procedure != 0) reply.u32(file_status).zeros(file_status == 0 ? 84 : 0);
  }
  return reply.text();
}

TEST(ServerCheck, AServerThatIsFit) {
  EXPECT_EQ(FakeServer{}.text(),
            "ok: reachable; serves NFS 3, 4.0, 4.1, 4.2\n"
            "ok: the lease is 60 s: an outage of the gateway must be shorter for clients of NFS 4 "
            "to keep their locks\n"
            "ok: the server does not offer pNFS\n"
            "ok: export '/data': the gateway may use it\n");
}

TEST(ServerCheck, TheVersionsThatItServes) {
  EXPECT_NE((FakeServer{.has_version3 = false, .minors = 2}.text().find("NFS 4.0, 4.1\n")),
            std::string::npos);
  EXPECT_EQ((FakeServer{.has_version3 = false, .minors = 0}.text()),
            "problem: the server is reachable, but serves none of NFS 3, 4.0, 4.1 and 4.2\n");
}

TEST(ServerCheck, WaysRoundTheGateway) {
  EXPECT_NE(FakeServer{.flags = 0x0002'0000}.text().find("warning: the server offers pNFS"),
            std::string::npos);
  for (const std::string client : {"*", "10.0.0.0/8", "@lab", "*.example.org"}) {
    FakeServer server;
    server.exports = {{"/data", {"10.0.0.9", client}}};
    EXPECT_NE(server.text().find("warning: export '/data': open to clients"), std::string::npos)
        << client;
  }
  FakeServer server;
  server.exports = {{"/a", {}}, {"/b", {"one", "two"}}};
  const std::string text = server.text();
  EXPECT_NE(text.find("export '/a': open to clients"), std::string::npos) << text;
  EXPECT_NE(text.find("export '/b': exported to 2 clients"), std::string::npos) << text;
}

TEST(ServerCheck, ExportsThatDoNotAdmitTheGateway) {
  EXPECT_NE(FakeServer{.mount_status = 13}.text().find(
                "problem: export '/data': refused to the gateway with status 13"),
            std::string::npos);
  EXPECT_NE(FakeServer{.file_status = 1}.text().find("unreserved source port"), std::string::npos);
  FakeServer none;
  none.exports.clear();
  EXPECT_NE(none.text().find("lists no export"), std::string::npos);
  EXPECT_NE(FakeServer{.mount_port = 0}.text().find("warning: portmap"), std::string::npos);
}

TEST(ServerCheck, ManyExportsAreCounted) {
  FakeServer server;
  server.exports.assign(1000, {"/x", {"10.0.0.9"}});
  const auto findings = server.findings();
  EXPECT_EQ(findings.back().text, "936 exports more");
  EXPECT_EQ(findings.size(), 3 + kExportsMax + 1);
}

TEST(ServerCheck, AnswersAreNotTrusted) {
  const std::vector<std::string> wrong = {
      "",
      "x",
      std::string(24, '\0'),
      std::string(1000, '\xff'),
      success_header(1).text(),  // of another xid
  };
  for (const std::string& message : wrong) {
    const auto findings = check_server(
        [&](std::uint16_t, const std::string&) -> Result<std::string> { return message; });
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].level, Level::kProblem);
  }
  // Every prefix of every answer: nothing is read past its end.
  const FakeServer server;
  for (std::size_t cut = 0; cut < 200; ++cut) {
    const auto findings = check_server([&](std::uint16_t port, const std::string& call) {
      auto answer = server.answer(port, call);
      return answer.map(
          [&](std::string text) { return text.substr(0, std::max(cut, std::size_t{24})); });
    });
    EXPECT_FALSE(findings.empty());
  }
}

TEST(ServerCheck, AServerThatIsNotThere) {
  const auto findings = check_server([](std::uint16_t, const std::string&) -> Result<std::string> {
    return fail_errno(ECONNREFUSED, "server nowhere cannot be reached");
  });
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].level, Level::kProblem);
  EXPECT_NE(findings[0].text.find("cannot be reached"), std::string::npos);
}

}  // namespace
}  // namespace weir::nfs
