// SPDX-License-Identifier: Apache-2.0
//
// First in, first out. Every head has one as a fallback: it runs when no other policy was started,
// and holds the requests that arrived before.
//
// One ring: in at the back, out at the front. All operations take constant time and do
// not allocate.
#pragma once

#include <string_view>

#include "weir/schedule/policy.h"

namespace weir {

class Fifo final : public Policy {
 public:
  static constexpr std::string_view kName = "fifo";

  ~Fifo() override;

  std::string_view name() const override { return kName; }
  void admit(Request& request, Instant now) override;
  Pick pick(Instant now, Urge urge) override;
  void remove(Request& request, Instant now) override;

 private:
  Ring<Request, &Request::policy_ring> requests_;
};

}  // namespace weir
