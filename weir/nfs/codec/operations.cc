// SPDX-License-Identifier: Apache-2.0
#include "weir/nfs/codec/operations.h"

#include <iterator>

namespace weir::nfs {
namespace {

using Kind = OperationKind;
constexpr Kind kLookAt = Kind::kMetadataRead;
constexpr Kind kChange = Kind::kMetadataChange;
constexpr Kind kNoKind = Kind::kOther;

constexpr std::uint32_t kTooSmall = 10005;             // NFS4ERR_TOOSMALL
constexpr std::uint32_t kDenied = 10010;               // NFS4ERR_DENIED
constexpr std::uint32_t kClientIdInUse = 10017;        // NFS4ERR_CLID_INUSE
constexpr std::uint32_t kLayoutTryLater = 10058;       // NFS4ERR_LAYOUTTRYLATER
constexpr std::uint32_t kOffloadNoReqs = 10094;        // NFS4ERR_OFFLOAD_NO_REQS
constexpr std::string_view kDeniedLock = "28o";        // LOCK4denied
constexpr std::string_view kChangeSummary = "20";      // change_info4
constexpr std::string_view kSecurity = "[(6:o8|*:)]";  // SECINFO4resok

// By number.
constexpr Operation kOperations[] = {
    {},
    {},
    {},
    {"ACCESS", "4", "8", kLookAt},
    {"CLOSE", "20", "16", kChange, Turn::kRelease},
    {"COMMIT", "12", "8", Kind::kFlush},
    {"CREATE", "(5:o|3,4:8|*:)oa", "20b", kChange},
    {"DELEGPURGE", "8", "", kNoKind, Turn::kState},
    {"DELEGRETURN", "16", "", Kind::kLock, Turn::kRelease},
    {"GETATTR", "b", "a", kLookAt},
    {"GETFH", "", "o", kNoKind, Turn::kHandle},
    {"LINK", "o", kChangeSummary, kChange},
    {"LOCK", "24(1:32o|0:20)", "16", Kind::kLock, Turn::kOrdinary, kDenied, kDeniedLock},
    {"LOCKT", "28o", "", Kind::kLock, Turn::kOrdinary, kDenied, kDeniedLock},
    {"LOCKU", "40", "16", Kind::kLock, Turn::kRelease},
    {"LOOKUP", "o", "", kLookAt},
    {"LOOKUPP", "", "", kLookAt},
    {"NVERIFY", "a", "", kLookAt},
    {"OPEN", "12 8o (1:(0,1:a|2:8|3:8a)|*:) (0,3:o|1:4|2:16o|4,6:|5:16)", "40bd", kLookAt},
    {"OPENATTR", "4", "", kLookAt},
    {"OPEN_CONFIRM", "20", "16", kLookAt, Turn::kRelease},
    {"OPEN_DOWNGRADE", "28", "16", kLookAt, Turn::kRelease},
    {"PUTFH", "o", "", kNoKind, Turn::kHandle},
    {"PUTPUBFH", "", "", kNoKind, Turn::kHandle},
    {"PUTROOTFH", "", "", kNoKind, Turn::kHandle},
    {"READ", "16 8 4", "4o", Kind::kRead, Turn::kBytes},
    {"READDIR", "8 8 4 4 b", "8{8oa}4", kLookAt, Turn::kBytes},
    {"READLINK", "", "o", kLookAt},
    {"REMOVE", "o", kChangeSummary, kChange},
    {"RENAME", "oo", "40", kChange},
    {"RENEW", "8", "", kNoKind, Turn::kState},
    {"RESTOREFH", "", "", kNoKind, Turn::kHandle},
    {"SAVEFH", "", "", kNoKind, Turn::kHandle},
    {"SECINFO", "o", kSecurity, kNoKind, Turn::kState},
    {"SETATTR", "16a", "b", kChange, Turn::kOrdinary, kEveryFailure, "b"},
    {"SETCLIENTID", "8o 4oo 4", "16", kNoKind, Turn::kState, kClientIdInUse, "oo"},
    {"SETCLIENTID_CONFIRM", "16", "", kNoKind, Turn::kState},
    {"VERIFY", "a", "", kLookAt},
    {"WRITE", "16 8 4o", "16", Kind::kWrite, Turn::kBytes},
    {"RELEASE_LOCKOWNER", "8o", "", kNoKind, Turn::kState},
    {"BACKCHANNEL_CTL", "4[c]", "", kNoKind, Turn::kState},
    {"BIND_CONN_TO_SESSION", "24", "24", kNoKind, Turn::kState},
    {"EXCHANGE_ID", "8o4 (0:|1:bb|2:bb[o][o]8) [i]", "16(0:|1:bb|2:bb16[o])8oo[i]", kNoKind,
     Turn::kState},
    {"CREATE_SESSION", "16qq4[c]", "24qq", kNoKind, Turn::kState},
    {"DESTROY_SESSION", "16", "", kNoKind, Turn::kState},
    {"FREE_STATEID", "16", "", kNoKind, Turn::kState},
    {"GET_DIR_DELEGATION", "4b24bb", "(0:24bbb|1:4)", Kind::kLock},
    {"GETDEVICEINFO", "24b", "4ob", kLookAt, Turn::kOrdinary, kTooSmall, "4"},
    {"GETDEVICELIST", "24", "16[16]4", kLookAt},
    {"LAYOUTCOMMIT", "36(0:|1:8)(0:|1:12)4o", "(0:|1:8)", kChange, Turn::kRelease},
    {"LAYOUTGET", "56", "20[24o]", Kind::kLock, Turn::kOrdinary, kLayoutTryLater, "4"},
    {"LAYOUTRETURN", "12(1:32o|*:)", "(0:|1:16)", Kind::kLock, Turn::kRelease},
    {"SECINFO_NO_NAME", "4", kSecurity, kNoKind, Turn::kState},
    {"SEQUENCE", "32", "36", kNoKind, Turn::kState},
    {"SET_SSV", "oo", "o", kNoKind, Turn::kState},
    {"TEST_STATEID", "[16]", "[4]", kNoKind, Turn::kState},
    {"WANT_DELEGATION", "4(1:4|4,6:)", "d", Kind::kLock},
    {"DESTROY_CLIENTID", "8", "", kNoKind, Turn::kState},
    {"RECLAIM_COMPLETE", "4", "", kNoKind, Turn::kState},
    {"ALLOCATE", "16 8 8", "", Kind::kZero, Turn::kBytes},
    {"COPY", "32 16 8 8[n]", "r8", Kind::kWrite, Turn::kBytes, kOffloadNoReqs, "8"},
    {"COPY_NOTIFY", "16n", "28[n]", kLookAt},
    {"DEALLOCATE", "16 8 8", "", Kind::kDiscard, Turn::kBytes},
    {"IO_ADVISE", "32b", "b", kLookAt},
    {"LAYOUTERROR", "32[24]", "", kChange},
    {"LAYOUTSTATS", "84o", "", kChange},
    {"OFFLOAD_CANCEL", "16", "", kNoKind, Turn::kRelease},
    {"OFFLOAD_STATUS", "16", "8[4]", kLookAt},
    {"READ_PLUS", "16 8 4", "4[(0:8o|1:16)]", Kind::kRead, Turn::kBytes},
    {"SEEK", "28", "12", kLookAt},
    {"WRITE_SAME", "20 8 8 8 20o", "r", Kind::kWrite, Turn::kBytes},
    {"CLONE", "32 16 8", "", Kind::kWrite, Turn::kBytes},
    {"GETXATTR", "o", "o", kLookAt},
    {"SETXATTR", "4oo", kChangeSummary, kChange},
    {"LISTXATTRS", "12", "8[o]4", kLookAt},
    {"REMOVEXATTR", "o", kChangeSummary, kChange},
};
static_assert(std::size(kOperations) == kOperationsEnd);

// By number. A callback never waits, so the turns are not used.
constexpr Operation kCallbackOperations[] = {
    {},
    {},
    {},
    {"CB_GETATTR", "ob", "a"},
    {"CB_RECALL", "20o", ""},
    {"CB_LAYOUTRECALL", "12(1:o32|2:16|3:)", ""},
    {"CB_NOTIFY", "16o[a]", ""},  // notify4 has the form of fattr4
    {"CB_PUSH_DELEG", "od", ""},
    {"CB_RECALL_ANY", "4b", ""},
    {"CB_RECALLABLE_OBJ_AVAIL", "4b", ""},
    {"CB_RECALL_SLOT", "4", ""},
    {"CB_SEQUENCE", "32[16[8]]", "32"},
    {"CB_WANTS_CANCELLED", "8", ""},
    {"CB_NOTIFY_LOCK", "o8o", ""},
    {"CB_NOTIFY_DEVICEID", "[a]", ""},
    {"CB_OFFLOAD", "o16(0:r|*:8)", ""},
};
static_assert(std::size(kCallbackOperations) == kCallbackOperationsEnd);

// In results, of an operation that does not exist.
constexpr Operation kIllegal = {"ILLEGAL", "", ""};

template <std::size_t size>
const Operation* find(const Operation (&table)[size], std::uint32_t number) {
  if (number == kIllegalOperation) return &kIllegal;
  if (number >= size || table[number].name.empty()) return nullptr;
  return &table[number];
}

}  // namespace

const Operation* find_operation(std::uint32_t number) { return find(kOperations, number); }

const Operation* find_callback_operation(std::uint32_t number) {
  return find(kCallbackOperations, number);
}

}  // namespace weir::nfs
