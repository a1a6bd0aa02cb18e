// SPDX-License-Identifier: Apache-2.0
//
// A lock server that grants locks at once after a restart, which no other program of this project
// does: tests use it to show why the grace period is needed, and that their checker detects the
// conflict.
//
//   careless SOCKET STATE LEASE_MS        prints "ready"; ends with its standard input
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "weir/cluster/lock_service.h"

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  weir::cluster::LockServiceOptions options;
  options.lock.listen =
      weir::serve::ListenAddress{.kind = weir::serve::ListenAddress::Kind::kUnix, .path = argv[1]};
  options.lock.state_file = argv[2];
  options.lock.server.lease = std::chrono::milliseconds{std::atoll(argv[3])};
  options.lock.server.grace = std::chrono::nanoseconds{0};
  const auto service = weir::cluster::LockService::create(options);
  if (!service) {
    std::fprintf(stderr, "%s\n", service.error().message().c_str());
    return 73;
  }
  std::puts("ready");
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
