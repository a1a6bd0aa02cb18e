// SPDX-License-Identifier: Apache-2.0
//
// Builds calls and replies of NFS on top of xdr_writer.h, for tests, benchmarks and load
// generators.
//
//   XdrWriter read = sys_call(xid, kNfsVersion3, 6, uid);           NFS 3, READ, AUTH_SYS
//   read.opaque(handle).u64(0).u32(4096);
//
//   CompoundWriter compound(1);                                     minor version 1
//   compound.sequence(slot, sequence).put_handle(handle);
//   compound.op(Op::kRead).zeros(16).u64(0).u32(4096);
//   XdrWriter call = compound.call(xid, uid);
//
// Results of a compound are written the same way, with a status after each operation.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weir/nfs/codec/compound.h"
#include "weir/nfs/codec/operations.h"
#include "weir/nfs/codec/rpc.h"
#include "weir/nfs/codec/xdr_writer.h"

namespace weir::nfs {

inline XdrWriter call_header(std::uint32_t xid, std::uint32_t program, std::uint32_t version,
                             std::uint32_t procedure, Flavor flavor, std::string_view credential) {
  XdrWriter call;
  call.u32(xid).u32(0).u32(kRpcVersion2).u32(program).u32(version).u32(procedure);
  call.u32(static_cast<std::uint32_t>(flavor)).opaque(credential).u32(0).u32(0);
  return call;
}

// A credential of AUTH_SYS with one group, its own.
inline std::string sys_credential(std::uint32_t uid) {
  return XdrWriter().u32(1).opaque("host").u32(uid).u32(100).u32(1).u32(100).text();
}

// A call of NFS up to its arguments.
inline XdrWriter sys_call(std::uint32_t xid, std::uint32_t version, std::uint32_t procedure,
                          std::uint32_t uid, std::uint32_t program = kNfsProgram) {
  return call_header(xid, program, version, procedure, Flavor::kSys, sys_credential(uid));
}

// A reply up to its results.
inline XdrWriter success_header(std::uint32_t xid) {
  XdrWriter reply;
  reply.u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
  return reply;
}

class CompoundWriter {
 public:
  explicit CompoundWriter(std::uint32_t minor_version, std::string_view tag = "")
      : minor_version_(minor_version), tag_(tag) {}

  // The next operation; its arguments follow.
  XdrWriter& op(std::uint32_t number) {
    ++count_;
    return body_.u32(number);
  }
  XdrWriter& op(Op number) { return op(static_cast<std::uint32_t>(number)); }
  CompoundWriter& sequence(std::uint32_t slot, std::uint32_t sequence) {
    op(Op::kSequence).zeros(kSessionIdBytes).u32(sequence).u32(slot).u32(slot).u32(0);
    return *this;
  }
  CompoundWriter& put_handle(std::string_view handle) {
    op(Op::kPutFh).opaque(handle);
    return *this;
  }
  // The next result of a reply.
  XdrWriter& result(Op number, std::uint32_t status = 0) { return op(number).u32(status); }
  // `highest`: the slot that the server wants to be the highest.
  CompoundWriter& sequence_result(std::uint32_t slot, std::uint32_t sequence,
                                  std::uint32_t highest = 63) {
    result(Op::kSequence)
        .zeros(kSessionIdBytes)
        .u32(sequence)
        .u32(slot)
        .u32(63)
        .u32(highest)
        .u32(0);
    return *this;
  }

  // Sets the count of operations to any value, for tests.
  void claim(std::uint32_t count) { count_ = count; }

  XdrWriter arguments() const {
    XdrWriter all;
    all.opaque(tag_).u32(minor_version_).u32(count_).raw(body_.text());
    return all;
  }
  XdrWriter call(std::uint32_t xid, std::uint32_t uid) const {
    XdrWriter call = sys_call(xid, kNfsVersion4, kCompoundProcedure, uid);
    call.raw(arguments().text());
    return call;
  }
  XdrWriter results(std::uint32_t status) const {
    XdrWriter all;
    all.u32(status).opaque(tag_).u32(count_).raw(body_.text());
    return all;
  }
  XdrWriter reply(std::uint32_t xid, std::uint32_t status = 0) const {
    XdrWriter reply = success_header(xid);
    reply.raw(results(status).text());
    return reply;
  }

 private:
  std::uint32_t minor_version_;
  std::string tag_;
  std::uint32_t count_ = 0;
  XdrWriter body_;
};

}  // namespace weir::nfs
