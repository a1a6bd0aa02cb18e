// SPDX-License-Identifier: Apache-2.0
#include "weir/host/io_loop.h"

#include <cerrno>

#include <fmt/format.h>
#include <sys/mman.h>

#include "weir/host/epoll.h"
#include "weir/host/uring.h"

namespace weir::host {

Result<ReceiveMemory> ReceiveMemory::create(std::uint32_t buffers, std::uint32_t bytes) {
  const std::size_t size = std::size_t{buffers} * bytes;
  void* const memory =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return fail_errno(errno, "receive buffers");
  return ReceiveMemory({static_cast<std::byte*>(memory), size}, bytes);
}

ReceiveMemory::~ReceiveMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

Result<OpenedIo> open_io(IoChoice choice, const IoLoop::Options& options) {
  OpenedIo opened;
  if (choice != IoChoice::kEpoll) {
    auto uring = Uring::create(options);
    if (uring) {
      opened.loop = std::move(*uring);
      return opened;
    }
    if (choice == IoChoice::kUring) return tl::unexpected(uring.error());
    opened.why_not_uring = uring.error().message();
  }
  auto epoll = Epoll::create(options);
  if (!epoll) return tl::unexpected(epoll.error());
  opened.loop = std::move(*epoll);
  return opened;
}

}  // namespace weir::host
