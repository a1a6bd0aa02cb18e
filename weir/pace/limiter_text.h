// SPDX-License-Identifier: Apache-2.0
//
// The state of a rate limiter as text, to be kept in a file or sent with a paused machine. One line
// a bucket, every number decimal and exact:
//
//   weir-limiter 1
//   bytes size=524288 burst=0/0 rate=4096/78125 zero=-2500000+0
//   ops size=10 burst=3/5 rate=1/1000000 zero=10000000+0
//   block bytes 65536
//   end
//
// burst is left/initial; rate is tokens/ns; zero is how many ns before the moment of saving the
// balance was zero (negative: a debt), plus a part in 1/tokens ns. The last line shows that nothing
// is missing. Absent lines mean: not limited, not blocked.
#pragma once

#include <string>
#include <string_view>

#include "weir/base/result.h"
#include "weir/pace/rate_limiter.h"

namespace weir {

std::string limiter_text(const RateLimiter::State& state);

// `where` names the text in an error, e.g. its file. Accepts what limiter_text() writes and nothing
// else; whether the numbers make a limiter is RateLimiter::restore's to say.
Result<RateLimiter::State> parse_limiter_text(std::string_view text, std::string_view where);

}  // namespace weir
