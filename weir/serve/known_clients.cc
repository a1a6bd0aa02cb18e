// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/known_clients.h"

#include <algorithm>

namespace weir::serve {

void KnownClients::note(const Attributes& client) {
  const Attributes kept = client.only({Field::kJobid, Field::kNid, Field::kUid, Field::kGid});
  const host::MutexLock lock(mutex_);
  if (!hashes_.insert(kept.hash()).second) return;
  noted_.push_back(kept);
  if (noted_.size() <= kMax) return;
  hashes_.erase(noted_.front().hash());
  noted_.pop_front();
}

std::vector<JobId> KnownClients::jobs(Field field, const Attributes& wanted) const {
  const Attributes key = wanted.only({field});
  std::vector<JobId> found;
  const host::MutexLock lock(mutex_);
  for (auto one = noted_.rbegin(); one != noted_.rend(); ++one) {
    if (one->only({field}) != key) continue;
    if (std::find(found.begin(), found.end(), one->job) == found.end()) found.push_back(one->job);
  }
  return found;
}

}  // namespace weir::serve
