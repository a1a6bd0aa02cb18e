// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/fifo.h"

#include "weir/base/assert.h"

namespace weir {

Fifo::~Fifo() { WEIR_ASSERT(requests_.empty()); }

void Fifo::admit(Request& request, Instant /*now*/) { requests_.push_back(request); }

Pick Fifo::pick(Instant /*now*/, Urge /*urge*/) {
  if (requests_.empty()) return {};
  Request& first = requests_.front();
  requests_.erase(first);
  return {&first, kNever};
}

void Fifo::remove(Request& request, Instant /*now*/) { requests_.erase(request); }

}  // namespace weir
