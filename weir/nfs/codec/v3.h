// SPDX-License-Identifier: Apache-2.0
//
// NFS version 3 (RFC 1813) and its side protocol NFSACL: the arguments of all procedures, and the
// bytes that they moved according to their results.
//
//   const Procedure3* procedure = find_procedure3(kNfsProgram, 6);       READ
//   Call3 call = read_call3(*procedure, arguments);
//   Reply3 reply = read_reply3(*procedure, results);
//
// The first argument of every procedure except NULL is a file handle. `end` of a call is kGood if
// the arguments end exactly where the message ends; other calls are forwarded unchanged, and
// charged by what was parsed. Names, attributes and payloads are stepped over, not interpreted.
// Pure; no allocation.
#pragma once

#include <cstdint>
#include <string_view>

#include "weir/base/operation_kind.h"
#include "weir/nfs/codec/cost.h"
#include "weir/nfs/codec/xdr.h"

namespace weir::nfs {

inline constexpr std::uint32_t kNfsVersion3 = 3;      // version of NFS, NFSACL and MOUNT
inline constexpr std::uint32_t kFileHandle3Max = 64;  // NFS3_FHSIZE
inline constexpr std::uint32_t kJukebox = 10008;      // NFS3ERR_JUKEBOX
inline constexpr std::uint32_t kProcedures3 = 22;
inline constexpr std::uint32_t kAclProcedures = 3;

enum class Proc3 : std::uint32_t {
  kNull = 0,
  kGetAttr = 1,
  kSetAttr = 2,
  kLookup = 3,
  kAccess = 4,
  kReadLink = 5,
  kRead = 6,
  kWrite = 7,
  kCreate = 8,
  kMkDir = 9,
  kSymLink = 10,
  kMkNod = 11,
  kRemove = 12,
  kRmDir = 13,
  kRename = 14,
  kLink = 15,
  kReadDir = 16,
  kReadDirPlus = 17,
  kFsStat = 18,
  kFsInfo = 19,
  kPathConf = 20,
  kCommit = 21,
};

struct Procedure3 {
  std::string_view name;       // "READDIRPLUS"
  std::string_view arguments;  // after the file handle: see form.h
  std::string_view results;    // after a status of 0
  std::string_view failure;    // after any other status
  OperationKind kind = OperationKind::kOther;
  // Zero words after the status of a failure that has no other content.
  std::uint8_t failure_words = 0;
  bool takes_handle = true;
};

// Of NFS or NFSACL; nullptr if there is no such procedure.
const Procedure3* find_procedure3(std::uint32_t program, std::uint32_t procedure);

struct Call3 {
  Bytes file_handle;
  std::uint64_t offset = 0;  // of READ, WRITE and COMMIT
  std::uint32_t asked = 0;   // bytes that the reply may contain: READ, READDIR, READDIRPLUS
  std::uint32_t sent = 0;    // bytes of a WRITE's payload
  Cost cost;
  XdrState end = XdrState::kGood;
};

Call3 read_call3(const Procedure3& procedure, XdrReader arguments);

struct Reply3 {
  std::uint32_t status = 0;
  std::uint64_t returned = 0;  // bytes, of READ, READDIR and READDIRPLUS
  XdrState end = XdrState::kGood;
};

Reply3 read_reply3(const Procedure3& procedure, XdrReader results);

}  // namespace weir::nfs
