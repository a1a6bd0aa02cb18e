// SPDX-License-Identifier: Apache-2.0
#include "weir/classify/rule.h"

#include <fmt/format.h>

namespace weir {

void Rule::release() const {
  if (--refs_ == 0 && !listed_) delete this;
}

std::string Rule::listing_line() const {
  return fmt::format("{} {} {}, ref {}", name_, conds_, limits_.rate_in_force(), refs_);
}

}  // namespace weir
