// SPDX-License-Identifier: Apache-2.0
//
// The device limiter of weir.h: a LimiterTimer and a lock.
#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "weir/base/quantity.h"
#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/embed/c_handle.h"
#include "weir/embed/limiter_timer.h"
#include "weir/embed/weir.h"
#include "weir/host/mutex.h"
#include "weir/pace/rate_limiter.h"

struct weir_limiter {
  weir::host::Mutex mutex;
  std::optional<weir::embed::LimiterTimer> timer ABSL_GUARDED_BY(mutex);  // none: freed
};

namespace weir::embed {
namespace {

Result<std::optional<LimiterSpec>> read_bucket(const weir_bucket* bucket) {
  if (bucket == nullptr) return std::optional<LimiterSpec>();
  if (bucket->refill_ns > static_cast<std::uint64_t>(INT64_MAX)) {
    return fail(std::errc::invalid_argument, "weir_bucket", "refill_ns is too long",
                "at most 100 years");
  }
  const Nanoseconds refill{static_cast<std::int64_t>(bucket->refill_ns)};
  return LimiterSpec::refilled_in(Tokens{bucket->size}, Tokens{bucket->one_time_burst}, refill);
}

BucketUpdate update_to(const std::optional<LimiterSpec>& spec) {
  return spec ? BucketUpdate::replace(*spec) : BucketUpdate::disable();
}

template <class Body>
int with_limiter(weir_limiter* limiter, std::string_view call, Body body) {
  return call_c(call, [&]() -> int {
    if (limiter == nullptr) return refuse_null(call, "limiter");
    const host::MutexLock lock(limiter->mutex);
    if (!limiter->timer) return refuse_freed(call, "limiter");
    return body(*limiter->timer);
  });
}

}  // namespace

extern "C" {

int weir_limiter_new(weir_limiter** limiter, const weir_bucket* bytes,
                     const weir_bucket* operations) {
  return call_c(__func__, [&]() -> int {
    if (limiter == nullptr) return refuse_null("weir_limiter_new", "limiter");
    *limiter = nullptr;
    const auto of_bytes = read_bucket(bytes);
    if (!of_bytes) return refuse(of_bytes.error());
    const auto of_operations = read_bucket(operations);
    if (!of_operations) return refuse(of_operations.error());
    auto timer = LimiterTimer::create(*of_bytes, *of_operations);
    if (!timer) return refuse(timer.error());
    auto made = std::make_unique<weir_limiter>();
    {
      const host::MutexLock lock(made->mutex);
      made->timer.emplace(std::move(*timer));
    }
    *limiter = made.release();
    return 0;
  });
}

int weir_limiter_free(weir_limiter* limiter) {
  return call_c(__func__, [&]() -> int {
    if (limiter == nullptr) return 0;
    {
      const host::MutexLock lock(limiter->mutex);
      if (!limiter->timer) return refuse_freed("weir_limiter_free", "limiter");
      limiter->timer.reset();
    }
    Quarantine<weir_limiter>::get().add(limiter);
    return 0;
  });
}

int weir_limiter_take(weir_limiter* limiter, uint64_t bytes) {
  return with_limiter(limiter, __func__, [&](LimiterTimer& timer) -> int {
    if (timer.consume_op(Bytes{bytes})) return 0;
    return refuse(EAGAIN, "limiter", "has no tokens left", "wait for weir_limiter_fd()");
  });
}

int weir_limiter_resume(weir_limiter* limiter) {
  return with_limiter(limiter, __func__, [&](LimiterTimer& timer) -> int {
    if (timer.event_handler()) return 0;
    return refuse(EAGAIN, "limiter", "no event is pending",
                  "call weir_limiter_resume() when weir_limiter_fd() is readable");
  });
}

int weir_limiter_give_back(weir_limiter* limiter, uint64_t bytes) {
  return with_limiter(limiter, __func__, [&](LimiterTimer& timer) -> int {
    timer.manual_replenish(Tokens{1}, TokenKind::kOps);
    timer.manual_replenish(Tokens{bytes}, TokenKind::kBytes);
    return 0;
  });
}

int weir_limiter_update(weir_limiter* limiter, const weir_bucket* bytes,
                        const weir_bucket* operations) {
  return with_limiter(limiter, __func__, [&](LimiterTimer& timer) -> int {
    const auto of_bytes = read_bucket(bytes);
    if (!of_bytes) return refuse(of_bytes.error());
    const auto of_operations = read_bucket(operations);
    if (!of_operations) return refuse(of_operations.error());
    timer.update_buckets(update_to(*of_bytes), update_to(*of_operations));
    return 0;
  });
}

int weir_limiter_fd(weir_limiter* limiter) {
  int fd = -1;
  const int refused = with_limiter(limiter, __func__, [&](LimiterTimer& timer) -> int {
    fd = timer.fd();
    return 0;
  });
  return refused == 0 ? fd : -1;
}

}  // extern "C"
}  // namespace weir::embed
