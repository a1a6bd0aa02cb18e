// SPDX-License-Identifier: Apache-2.0
#include "weir/schedule/fifo.h"

#include "weir/base/assert.h"

namespace weir {

Fifo::~Fifo() { WEIR_ASSERT(requests_.empty(), requests_.size()); }

void Fifo::admit(Request& request, Instant /*now*/) { requests_.push_back(request); }

Pick Fifo::pick(Instant /*now*/, Urge /*urge*/) {
  if (requests_.empty()) return {};
  Request& first = requests_.front();
  requests_.pop_front();
  return {&first, kNever};
}

void Fifo::remove(Request& request, Instant /*now*/) {
  requests_.erase(requests_.iterator_to(request));
}

}  // namespace weir
