// SPDX-License-Identifier: Apache-2.0
#include "weir/coordinate/target_epochs.h"

namespace weir {

void TargetEpochs::tick(Instant now) {
  if (is_over_) return;
  if (target_.is_shut_down() && target_.queued() == 0) {
    is_over_ = true;
    return participant_.shutdown(now);
  }
  participant_.tick(now);
}

}  // namespace weir
