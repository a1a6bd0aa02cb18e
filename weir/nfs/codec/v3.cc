// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/v3.h"

#include <algorithm>
#include <iterator>

#include "weir/nfs/codec/form.h"
#include "weir/nfs/codec/rpc.h"

namespace weir::nfs {
namespace {

using Kind = OperationKind;
constexpr Kind kMetaRead = Kind::kMetadataRead;
constexpr Kind kMetaChange = Kind::kMetadataChange;

// RFC 1813, section 3.3. Some fields of READ and WRITE are read one by one: see below.
constexpr Procedure3 kNfsProcedures[] = {
    {"NULL", "", "", "", Kind::kOther, 0, false},
    {"GETATTR", "", "84", "", kMetaRead, 0},
    {"SETATTR", "s(0:|1:8)", "w", "w", kMetaChange, 2},
    {"LOOKUP", "o", "opp", "p", kMetaRead, 1},
    {"ACCESS", "4", "p4", "p", kMetaRead, 1},
    {"READLINK", "", "po", "p", kMetaRead, 1},
    {"READ", "8 4", "p 8 o", "p", Kind::kRead, 1},
    {"WRITE", "8 4 4 o", "w 16", "w", Kind::kWrite, 2},
    {"CREATE", "o(0,1:s|2:8)", "hpw", "w", kMetaChange, 2},
    {"MKDIR", "os", "hpw", "w", kMetaChange, 2},
    {"SYMLINK", "oso", "hpw", "w", kMetaChange, 2},
    {"MKNOD", "o(3,4:s8|6,7:s|*:)", "hpw", "w", kMetaChange, 2},
    {"REMOVE", "o", "w", "w", kMetaChange, 2},
    {"RMDIR", "o", "w", "w", kMetaChange, 2},
    {"RENAME", "ooo", "ww", "ww", kMetaChange, 4},
    {"LINK", "oo", "pw", "pw", kMetaChange, 3},
    {"READDIR", "8 8 4", "p8{8o8}4", "p", kMetaRead, 1},
    {"READDIRPLUS", "8 8 4 4", "p8{8o8ph}4", "p", kMetaRead, 1},
    {"FSSTAT", "", "p 52", "p", kMetaRead, 1},
    {"FSINFO", "", "p 48", "p", kMetaRead, 1},
    {"PATHCONF", "", "p 24", "p", kMetaRead, 1},
    {"COMMIT", "8 4", "w 8", "w", Kind::kFlush, 2},
};
static_assert(std::size(kNfsProcedures) == kProcedures3);

// As Solaris defined it and Linux has it: a mask, then entries of (type, id, permissions), with
// their number once as a field and once as the length of the array; the same for default entries.
constexpr Procedure3 kAclTable[] = {
    {"NULL", "", "", "", Kind::kOther, 0, false},
    {"GETACL", "4", "p4 4[12] 4[12]", "p", kMetaRead, 1},
    {"SETACL", "4 4[12] 4[12]", "p", "p", kMetaChange, 1},
};
static_assert(std::size(kAclTable) == kAclProcedures);

bool is(const Procedure3& procedure, Proc3 wanted) {
  return &procedure == &kNfsProcedures[static_cast<std::size_t>(wanted)];
}

void read_fields(const Procedure3& procedure, XdrReader& reader, Call3& call) {
  if (is(procedure, Proc3::kRead)) {
    call.offset = reader.u64();
    call.asked = reader.u32();
  } else if (is(procedure, Proc3::kWrite)) {
    call.offset = reader.u64();
    reader.u32();  // the count, which the payload's length repeats
    reader.u32();  // how stable
    call.sent = reader.payload();
  } else if (is(procedure, Proc3::kReadDir)) {
    reader.skip(16);
    call.asked = reader.u32();
  } else if (is(procedure, Proc3::kReadDirPlus)) {
    reader.skip(16);
    reader.u32();  // for the names alone
    call.asked = reader.u32();
  } else if (is(procedure, Proc3::kCommit)) {
    call.offset = reader.u64();
    reader.u32();
  } else {
    walk(reader, procedure.arguments);
  }
}

}  // namespace

const Procedure3* find_procedure3(std::uint32_t program, std::uint32_t procedure) {
  if (program == kNfsProgram && procedure < kProcedures3) return &kNfsProcedures[procedure];
  if (program == kNfsAclProgram && procedure < kAclProcedures) return &kAclTable[procedure];
  return nullptr;
}

Call3 read_call3(const Procedure3& procedure, XdrReader arguments) {
  Call3 call;
  arguments.set_bound(kWalkBytesMax);
  if (procedure.takes_handle) call.file_handle = arguments.opaque(kFileHandle3Max);
  read_fields(procedure, arguments, call);
  if (arguments.good() && arguments.left() > 0) arguments.fail(XdrState::kUnknown);
  call.end = arguments.state();
  call.cost = {1, std::uint64_t{call.asked} + call.sent};
  return call;
}

Reply3 read_reply3(const Procedure3& procedure, XdrReader results) {
  Reply3 reply;
  if (!procedure.takes_handle) {  // NULL
    reply.end = results.left() == 0 ? XdrState::kGood : XdrState::kUnknown;
    return reply;
  }
  reply.status = results.u32();
  const bool is_directory = is(procedure, Proc3::kReadDir) || is(procedure, Proc3::kReadDirPlus);
  const bool returns_bytes = is_directory || is(procedure, Proc3::kRead);
  const std::uint64_t rest = results.left();
  results.set_bound(kWalkBytesMax);
  if (!results.good() || reply.status != 0) {
    walk(results, procedure.failure);
  } else if (is(procedure, Proc3::kRead)) {
    walk(results, "p8");  // attributes, a count and the end of the file
    reply.returned = results.payload();
  } else {
    if (is_directory) reply.returned = rest;
    walk(results, procedure.results);
  }
  if (results.good() && results.left() > 0) results.fail(XdrState::kUnknown);
  reply.end = results.state();
  // Results that cannot be parsed are charged by their length.
  const bool is_read = reply.end == XdrState::kGood || reply.end == XdrState::kMissing;
  if (!is_read && returns_bytes) reply.returned = rest;
  return reply;
}

}  // namespace weir::nfs
