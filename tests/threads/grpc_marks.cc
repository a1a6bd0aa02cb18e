// SPDX-License-Identifier: Apache-2.0
//
// Tells the thread sanitizer the order that gRPC guarantees. Debian's gRPC and Abseil are not built
// with it, so it does not see how they order threads and would report everything that they pass
// between threads as a race. These functions replace those of the libraries, call them, and mark
// exactly these guarantees of the interfaces:
//
//   grpc_call_start_batch    happens before the callback of its tag, or the wait that returns it
//   callbacks of a call      happen before its OnDone
//   unlocking a mutex        happens before it is locked the next time
//
// Nothing else is marked: a callback that touches what another thread touches is still a race.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <absl/synchronization/mutex.h>
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpcpp/support/server_callback.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

namespace {

// The function of the library that one of these replaces: the next one of the same name.
template <class Function>
Function next(Function own) {
  void* address = nullptr;
  static_assert(sizeof own >= sizeof address);
  std::memcpy(&address, &own, sizeof address);
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) std::abort();
  address = dlsym(RTLD_NEXT, info.dli_sname);
  if (address == nullptr) std::abort();
  std::memcpy(&own, &address, sizeof address);
  return own;
}

// ---- callbacks ----

using Run = void (*)(grpc_completion_queue_functor*, int);

// There are few kinds of callbacks. Each has its own function here that calls it.
constexpr std::size_t kRunsMax = 8;
std::atomic<Run> runs[kRunsMax];

template <std::size_t kNumber>
void run(grpc_completion_queue_functor* functor, int ok) {
  const Run original = runs[kNumber].load(std::memory_order_relaxed);
  functor->functor_run = original;
  __tsan_acquire(functor);
  original(functor, ok);
}

constexpr Run kMarked[kRunsMax] = {run<0>, run<1>, run<2>, run<3>, run<4>, run<5>, run<6>, run<7>};

// A tag is a callback, which begins with the address of code, or any other object.
bool is_code(Run address) {
  struct Search {
    ElfW(Addr) address;
    bool is_found = false;
  } search{reinterpret_cast<ElfW(Addr)>(address)};
  const auto look = [](dl_phdr_info* object, std::size_t, void* sought) {
    auto& wanted = *static_cast<Search*>(sought);
    for (std::size_t i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = object->dlpi_phdr[i];
      const ElfW(Addr) begin = object->dlpi_addr + part.p_vaddr;
      const bool is_code = part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0;
      if (is_code && wanted.address - begin < part.p_memsz) wanted.is_found = true;
    }
    return 0;
  };
  dl_iterate_phdr(look, &search);
  return search.is_found;
}

void mark(grpc_completion_queue_functor* functor) {
  const Run original = functor->functor_run;
  for (std::size_t i = 0; i < kRunsMax; ++i) {
    Run known = runs[i].load(std::memory_order_relaxed);
    if (known == nullptr) {
      if (!is_code(original)) return;
      if (runs[i].compare_exchange_strong(known, original, std::memory_order_relaxed)) {
        known = original;
      }
    }
    if (known == original) {
      functor->functor_run = kMarked[i];
      return;
    }
  }
  std::abort();
}

}  // namespace

extern "C" {

// The libraries also access memory through functions that the sanitizer intercepts, such as memcpy
// and free: only calls from their own code are ignored.
// NOLINTNEXTLINE(readability-identifier-naming): the sanitizer asks for this name
const char* __tsan_default_suppressions() {
  return "called_from_lib:libgrpc.so\n"
         "called_from_lib:libgrpc++.so\n"
         "called_from_lib:libgpr.so\n"
         "called_from_lib:libprotobuf.so\n"
         "called_from_lib:libabsl_cord.so\n"
         "called_from_lib:libabsl_cord_internal.so\n"
         "called_from_lib:libabsl_cordz_functions.so\n"
         "called_from_lib:libabsl_cordz_handle.so\n"
         "called_from_lib:libabsl_cordz_info.so\n"
         "called_from_lib:libabsl_exponential_biased.so\n"
         "called_from_lib:libabsl_graphcycles_internal.so\n"
         "called_from_lib:libabsl_random_internal_platform.so\n"
         "called_from_lib:libabsl_random_internal_pool_urbg.so\n"
         "called_from_lib:libabsl_random_internal_randen.so\n"
         "called_from_lib:libabsl_random_internal_randen_hwaes.so\n"
         "called_from_lib:libabsl_random_internal_randen_hwaes_impl.so\n"
         "called_from_lib:libabsl_random_internal_randen_slow.so\n"
         "called_from_lib:libabsl_random_internal_seed_material.so\n"
         "called_from_lib:libabsl_status.so\n"
         "called_from_lib:libabsl_statusor.so\n"
         "called_from_lib:libabsl_str_format_internal.so\n"
         "called_from_lib:libabsl_strings.so\n"
         "called_from_lib:libabsl_strings_internal.so\n"
         "called_from_lib:libabsl_synchronization.so\n"
         "called_from_lib:libabsl_time.so\n"
         "called_from_lib:libabsl_time_zone.so\n";
}

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static const auto real = next(&grpc_call_start_batch);
  if (tag != nullptr) {
    mark(static_cast<grpc_completion_queue_functor*>(tag));
    __tsan_release(tag);
  }
  return real(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static const auto real = next(&grpc_completion_queue_pluck);
  const grpc_event event = real(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(tag);
  return event;
}

}  // extern "C"

namespace grpc::internal {

// The library drops some references of a call itself: the thread that drops the last one sees
// everything done under the others.
void ServerCallbackCall::ScheduleOnDone(bool is_inline) {
  static const auto real = next(&ServerCallbackCall::ScheduleOnDone);
  __tsan_acquire(&callbacks_outstanding_);
  (this->*real)(is_inline);
}

}  // namespace grpc::internal

// ---- mutexes ----

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto real = next(&Mutex::Lock);
  (this->*real)();
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static const auto real = next(&Mutex::Unlock);
  __tsan_release(this);
  (this->*real)();
}

bool Mutex::TryLock() {
  static const auto real = next(&Mutex::TryLock);
  const bool is_locked = (this->*real)();
  if (is_locked) __tsan_acquire(this);
  return is_locked;
}

// Waiting unlocks the mutex and locks it again.
void CondVar::Wait(Mutex* mutex) {
  static const auto real = next(&CondVar::Wait);
  __tsan_release(mutex);
  (this->*real)(mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto real = next(&CondVar::WaitWithTimeout);
  __tsan_release(mutex);
  const bool is_over = (this->*real)(mutex, timeout);
  __tsan_acquire(mutex);
  return is_over;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto real = next(&CondVar::WaitWithDeadline);
  __tsan_release(mutex);
  const bool is_over = (this->*real)(mutex, deadline);
  __tsan_acquire(mutex);
  return is_over;
}

ABSL_NAMESPACE_END
}  // namespace absl
