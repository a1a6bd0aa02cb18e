// SPDX-License-Identifier: Apache-2.0
//
// Prices kinds of requests by the time that they take: mkdir of an MDT against getattr, or requests
// to a slow OST against those to a fast one of the same server. A token is a mean request, so that
// tokens a second are requests a second of the mix that the server has lately:
//
//   cost of a kind = (its time / its requests) / (time of all / requests of all)
//
//   getattr  900 requests   90 ms        100 us each    cost 0.5
//   mkdir    100 requests  110 ms      1,100 us each    cost 5.5         200 us on average
//
// Threads of a server are what its jobs compete for, and a request occupies one for that time.
//
//   costs.count(kind, requests, time);   ...   costs.pass(elapsed);       each round
//   costs.of(kind)                                                        in 1/kOne of a token
//
// A kind of which fewer than kEnough requests were counted costs one token, and so do all kinds if
// the release measures no times. Times are those of the last kWindow to 2 kWindow. The unit of time
// does not matter: with a table of costs, it is that of the table.
//
// Integers only, no clock; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weir/base/time.h"

namespace weir::lustre {

class RequestCosts {
 public:
  static constexpr std::uint64_t kOne = 1024;
  static constexpr std::uint64_t kEnough = 8;
  static constexpr Nanoseconds kWindow = std::chrono::seconds{10};
  // No kind is cheaper or dearer by more than this factor: a single request that waited for a lock
  // says little.
  static constexpr std::uint64_t kFactorMax = 64;

  void count(std::size_t kind, std::uint64_t requests, std::uint64_t time);
  void pass(Nanoseconds elapsed);
  std::uint64_t of(std::size_t kind) const;

 private:
  struct Sum {
    std::uint64_t requests = 0;
    std::uint64_t time = 0;

    void add(const Sum& other);
  };
  struct Kind {
    Sum now;
    Sum before;  // of the window before
    Sum priced;  // when it had enough requests last: a kind that is not used keeps its price
    std::uint64_t cost = kOne;
  };

  std::vector<Kind> kinds_;
  Nanoseconds window_{0};  // time since it began
};

}  // namespace weir::lustre
