// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/call_class.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "weir/base/hash.h"
#include "weir/classify/opcode.h"

namespace weir::nfs {
namespace {

std::uint32_t number(std::string_view name) { return opcode_number(name).value(); }

// Looked up once.
struct Opcodes {
  std::uint32_t read = number("ost_read");
  std::uint32_t write = number("ost_write");
  std::uint32_t sync = number("ost_sync");
  std::uint32_t punch = number("ost_punch");
  std::uint32_t allocate = number("ost_fallocate");
  std::uint32_t list = number("mds_readpage");
  std::uint32_t file_system = number("mds_statfs");
  std::uint32_t look = number("mds_getattr");
  std::uint32_t change = number("mds_reint");
  std::uint32_t lock = number("ldlm_enqueue");
};

bool lists_directory(const Call& call) {
  if (call.compound) return call.compound->has(Op::kReadDir);
  return call.procedure != nullptr && call.header.program == kNfsProgram &&
         (call.header.procedure == static_cast<std::uint32_t>(Proc3::kReadDir) ||
          call.header.procedure == static_cast<std::uint32_t>(Proc3::kReadDirPlus));
}

bool asks_for_file_system(const Call& call) {
  return call.procedure != nullptr && call.header.program == kNfsProgram &&
         call.header.procedure >= static_cast<std::uint32_t>(Proc3::kFsStat) &&
         call.header.procedure <= static_cast<std::uint32_t>(Proc3::kPathConf);
}

// For each call: a tenth of the instructions of fmt.
JobId job_of_user(std::uint32_t uid) {
  std::array<char, JobId::kSizeMax> text{'u', 'i', 'd', '.'};
  const char* const end = std::to_chars(text.data() + 4, text.data() + text.size(), uid).ptr;
  return JobId({text.data(), static_cast<std::size_t>(end - text.data())});
}

}  // namespace

std::uint64_t hash_of(Bytes bytes) {
  std::uint64_t hash = bytes.size();
  for (const std::byte byte : bytes) hash = hash_words(hash, static_cast<std::uint64_t>(byte));
  return hash;
}

std::uint32_t opcode_of(const Call& call) {
  static const Opcodes numbers;
  switch (call.kind) {
    case OperationKind::kRead:
      return numbers.read;
    case OperationKind::kWrite:
      return numbers.write;
    case OperationKind::kFlush:
      return numbers.sync;
    case OperationKind::kDiscard:
      return numbers.punch;
    case OperationKind::kZero:
      return numbers.allocate;
    case OperationKind::kMetadataRead:
      return lists_directory(call)        ? numbers.list
             : asks_for_file_system(call) ? numbers.file_system
                                          : numbers.look;
    case OperationKind::kMetadataChange:
      return numbers.change;
    case OperationKind::kLock:
      return numbers.lock;
    case OperationKind::kOther:
      break;
  }
  return kUnknownId;
}

Attributes attributes_of(const Attributes& client, const Call& call) {
  Attributes attributes = client;
  const Credential& credential = call.header.credential;
  if (call.header.defect == Defect::kNone && credential.sys) {
    attributes.uid = credential.sys->uid;
    attributes.gid = credential.sys->gid;
    attributes.job = job_of_user(attributes.uid);
  } else if (call.header.defect == Defect::kNone && credential.gss) {
    const std::uint64_t user = hash_words(client.nid.hash(), hash_of(credential.gss->handle));
    attributes.job = JobId(fmt::format("gss.{:016x}", user));
    return attributes;
  }
  attributes.opcode = opcode_of(call);
  return attributes;
}

}  // namespace weir::nfs
