// SPDX-License-Identifier: Apache-2.0
//
// The state of a rate limiter as text, to be stored in a file or sent with a paused machine. One
// line per bucket, every number decimal and exact:
//
//   weir-limiter 1
//   bytes size=524288 burst=0/0 rate=4096/78125 zero=-2500000+0
//   ops size=10 burst=3/5 rate=1/1000000 zero=10000000+0
//   block bytes 65536
//   end
//
// burst is left/initial; rate is tokens/ns; zero is how many ns before the moment of saving the
// balance was zero (negative: a debt), plus a fraction in 1/tokens ns. The last line shows that the
// text is complete. Missing lines mean: not limited, not blocked.
#pragma once

#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/pace/rate_limiter.h"

namespace weir {

std::string limiter_text(const RateLimiter::State& state);

// `where` names the text in an error, e.g. its file. Accepts exactly what limiter_text() writes;
// RateLimiter::restore checks whether the numbers are valid.
Result<RateLimiter::State> parse_limiter_text(std::string_view text, std::string_view where);

}  // namespace weir
