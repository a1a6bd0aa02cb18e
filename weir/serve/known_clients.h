// SPDX-License-Identifier: Apache-2.0
//
// Which jobs the clients and users of a server have named, so that an administrator who knows only
// a client or a user finds the job, although classes are by job:
//
//   clients.note(identity);                     by a connection, when its client is identified
//   clients.jobs(Field::kNid, wanted)           the jobs of the client wanted.nid, newest first
//
// The newest kMax combinations of client, user and job are known, also after their connections
// have ended. Invented names replace old ones and take no more memory. Thread-safe: connections of
// all loops note, and readers ask. It decides nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_set>
#include <vector>

#include "weir/classify/attributes.h"
#include "weir/host/mutex.h"

namespace weir::serve {

class KnownClients {
 public:
  static constexpr std::size_t kMax = 4096;

  void note(const Attributes& client);
  // Each once. REQUIRES: kNid, kUid or kGid.
  std::vector<JobId> jobs(Field field, const Attributes& wanted) const;

 private:
  mutable host::Mutex mutex_;
  std::deque<Attributes> noted_ ABSL_GUARDED_BY(mutex_);              // oldest first
  std::unordered_set<std::uint64_t> hashes_ ABSL_GUARDED_BY(mutex_);  // of noted_
};

}  // namespace weir::serve
