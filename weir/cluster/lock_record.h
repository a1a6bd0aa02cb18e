// SPDX-License-Identifier: Apache-2.0
//
// What the lock servers of a cluster store in etcd, as text. All keys are below one prefix:
//
//   PREFIX/locks/active   TERM NAME ADDRESS        the active server; ends with its lease
//   PREFIX/locks/term     TERM                     the last term
//   PREFIX/locks/key      64 hexadecimal digits    key of the clients' secrets, of all servers
//   PREFIX/locks/left     TERM clients CLIENT...   left in order: these clients may hold locks
//                         TERM unknown             left in order, but could not tell
//
// A record with a key that no server has written is not valid, and no server becomes active until
// it is mended: a term that is too small would give out fences that storage has already seen.
//
// Pure functions of bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weir/base/result.h"
#include "weir/cluster/etcd_client.h"
#include "weir/host/secret.h"
#include "weir/lock/term.h"

namespace weir::cluster {

struct LockRecord {
  lock::TermRecord terms;
  std::int64_t active_modified = 0;  // revision of the key; 0: it does not exist
  std::optional<host::Key> key;
};

// "PREFIX/locks/": all keys are below it.
std::string lock_keys(std::string_view prefix);

// EINVAL: the key that is not valid. Other keys are ignored.
Result<LockRecord> read_lock_record(std::string_view keys,
                                    const std::vector<EtcdClient::Entry>& entries);

std::string print_active(std::uint64_t term, std::string_view name, std::string_view address);
std::string print_handover(const lock::Handover& left);
std::optional<lock::Handover> parse_handover(std::string_view text);

}  // namespace weir::cluster
