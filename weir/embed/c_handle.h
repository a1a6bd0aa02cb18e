// SPDX-License-Identifier: Apache-2.0
//
// Common code of the C functions (weir.h): the message of the last error, and handles that detect
// their own misuse.
//
//   return call_c("weir_gate_free", [&]() -> int { ... return refuse(EBUSY, "gate", ...); });
//
// A freed handle is kept for a while in a Quarantine and marked, so that a call with it returns an
// error instead of reading memory of something else. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "weir/base/result.h"
#include "weir/embed/weir.h"
#include "weir/host/mutex.h"

namespace weir::embed {

// Sets the message of this thread and returns the code.
int refuse(int code, std::string_view where, std::string_view what, std::string_view hint = {});
int refuse(const Error& error);
int refuse_null(std::string_view call, std::string_view what);
int refuse_freed(std::string_view call, std::string_view what);
// Without allocating.
int refuse_for_memory() noexcept;
// 0, or as above.
int answer(const Result<void>& result);

// Runs the body of a C function, so that no exception leaves it.
template <class Body>
int call_c(std::string_view call, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return refuse_for_memory();
  } catch (const std::exception& error) {
    try {
      return refuse(std::make_error_code(std::errc::io_error).value(), call, error.what());
    } catch (const std::bad_alloc&) {
      return refuse_for_memory();
    }
  }
}

// Freed handles, the last WEIR_FREED_MAX of them. Destroying the others frees their memory.
template <class Handle>
class Quarantine {
 public:
  // Never destroyed, because other threads may still free handles while the process exits.
  static Quarantine& get() {
    static Quarantine& quarantine = *new Quarantine;
    return quarantine;
  }

  void add(Handle* freed) {
    std::unique_ptr<Handle> added(freed);
    std::unique_ptr<Handle> oldest;  // destroyed without the lock
    const host::MutexLock lock(mutex_);
    freed_.push_back(std::move(added));
    if (freed_.size() <= WEIR_FREED_MAX) return;
    oldest = std::move(freed_.front());
    freed_.pop_front();
  }

 private:
  host::Mutex mutex_;
  std::deque<std::unique_ptr<Handle>> freed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weir::embed
