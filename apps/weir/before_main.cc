// SPDX-License-Identifier: Apache-2.0
//
// Code that runs before main() in both programs; a library cannot do this.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

// Clang has no macro for a sanitizer, as GCC has.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
// OpenSSL's memory for a thread or a handshake is freed by a thread of gRPC, unless that thread
// ends after the process has started to exit. It is not a leak, and must not change the exit status
// of a test.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcrypto.so\n"; }
extern "C" const char* __lsan_default_options() { return "print_suppressions=0"; }
#endif

namespace weir::app {
namespace {

// A file opened later must not become standard output by accident. Libraries open theirs before
// main(), so this runs before them: nothing is set up yet, not even for a sanitizer.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("address", "undefined", "thread")))
#endif
void reserve_standard_streams(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  for (int fd = 0; fd <= 2; ++fd) {
    if (syscall(SYS_fcntl, fd, F_GETFD) != -1) continue;
    // Opened in the wrong direction, so that using it fails as with a closed one.
    const int flags = fd == 0 ? O_WRONLY : O_RDONLY;
    if (syscall(SYS_openat, AT_FDCWD, "/dev/null", flags) != fd) {
      _exit(74);  // as in command.h, which takes seconds to compile
    }
  }
}
[[gnu::section(".preinit_array"), gnu::used]] constexpr auto* kBeforeAll =
    &reserve_standard_streams;

}  // namespace
}  // namespace weir::app
