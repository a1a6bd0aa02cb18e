// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/gate_epochs.h"

namespace weir {

void GateEpochs::tick(Instant now) {
  if (is_over_) return;
  if (gate_.is_shut_down() && gate_.queued() == 0) {
    is_over_ = true;
    return participant_.shutdown(now);
  }
  participant_.tick(now);
}

}  // namespace weir
