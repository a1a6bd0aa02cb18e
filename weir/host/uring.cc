// SPDX-License-Identifier: Apache-2.0
#include "weir/host/uring.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"

namespace weir::host {
namespace {

constexpr unsigned kBufferGroup = 1;
constexpr unsigned kReapMax = 256;
// For a receive of data that has already arrived, on a very busy machine.
constexpr Nanoseconds kTrialTime = std::chrono::seconds{5};

static_assert(Completion::kHasBuffer == IORING_CQE_F_BUFFER);
static_assert(Completion::kGoesOn == IORING_CQE_F_MORE);
static_assert(Completion::kBufferShift == IORING_CQE_BUFFER_SHIFT);

constexpr const char* kKernelCure =
    "run Linux 6.1 or later with io_uring allowed (sysctl kernel.io_uring_disabled=0; in a "
    "container, its seccomp profile must allow io_uring)";

// For users other than root the rings count as locked memory.
const char* cure_of(int error) {
  return error == ENOMEM ? "raise the limit of locked memory (ulimit -l); 8 MiB is enough"
                         : kKernelCure;
}

struct Need {
  int operation;
  const char* name;
};
constexpr std::array kNeeds = {
    Need{IORING_OP_ACCEPT, "accept"},     Need{IORING_OP_RECV, "recv"},
    Need{IORING_OP_SENDMSG, "sendmsg"},   Need{IORING_OP_READ, "read"},
    Need{IORING_OP_WRITE, "write"},       Need{IORING_OP_FSYNC, "fsync"},
    Need{IORING_OP_FALLOCATE, "falloc"},  Need{IORING_OP_FADVISE, "fadvise"},
    Need{IORING_OP_POLL_ADD, "poll_add"}, Need{IORING_OP_ASYNC_CANCEL, "async_cancel"},
};

}  // namespace

struct Uring::Kernel {
  io_uring ring{};
  bool is_open = false;
  io_uring_buf_ring* buffers = nullptr;
  std::size_t buffers_bytes = 0;
  Options options;
  std::uint64_t wakes = 0;  // destination of await_wake(); the value is not used

  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (is_open) io_uring_queue_exit(&ring);
    if (buffers != nullptr) munmap(buffers, buffers_bytes);
  }

  void add_buffer(const ReceiveMemory& memory, unsigned id) {
    io_uring_buf_ring_add(buffers, memory.at(id).data(), options.receive_bytes,
                          static_cast<unsigned short>(id),
                          io_uring_buf_ring_mask(options.receive_buffers), 0);
    io_uring_buf_ring_advance(buffers, 1);
  }
};

namespace {

// An entry of the submission queue; submits queued entries if none is left.
io_uring_sqe& entry(io_uring& ring, Operation& operation) {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring);
  if (sqe == nullptr) {
    io_uring_submit(&ring);
    sqe = io_uring_get_sqe(&ring);
    WEIR_ASSERT(sqe != nullptr);
  }
  io_uring_sqe_set_data(sqe, &operation);
  return *sqe;
}

}  // namespace

Uring::Uring(ReceiveMemory memory, std::unique_ptr<Kernel> kernel)
    : IoLoop(std::move(memory)), kernel_(std::move(kernel)) {}
Uring::~Uring() = default;

Result<std::unique_ptr<Uring>> Uring::create(const Options& options) {
  auto memory = ReceiveMemory::create(options.receive_buffers, options.receive_bytes);
  if (!memory) return tl::unexpected(memory.error());
  auto kernel = std::make_unique<Kernel>();
  kernel->options = options;
  if (auto opened = open(*kernel, options); !opened) return tl::unexpected(opened.error());
  if (auto opened = open_buffers(*kernel, *memory, options); !opened) {
    return tl::unexpected(opened.error());
  }
  std::unique_ptr<Uring> uring(new Uring(std::move(*memory), std::move(kernel)));
  if (auto tried = uring->try_out(); !tried) return tl::unexpected(tried.error());
  return uring;
}

Result<void> Uring::open(Kernel& kernel, const Options& options) {
  // The kernel does its part of the work when this thread asks for completions, instead of
  // interrupting it: a turn then finds everything in one batch.
  io_uring_params parameters{};
  parameters.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE |
                     IORING_SETUP_CLAMP;
  parameters.cq_entries = options.entries * 4;
  const int failed = io_uring_queue_init_params(options.entries, &kernel.ring, &parameters);
  if (failed != 0) return fail_errno(-failed, "io_uring", cure_of(-failed));
  kernel.is_open = true;
  constexpr unsigned kFeatures =
      IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE | IORING_FEAT_EXT_ARG;
  if ((parameters.features & kFeatures) != kFeatures) {
    return fail(std::errc::function_not_supported, "io_uring", "the kernel is too old",
                kKernelCure);
  }
  io_uring_probe* const probe = io_uring_get_probe_ring(&kernel.ring);
  if (probe == nullptr) {
    return fail(std::errc::function_not_supported, "io_uring", "cannot be probed", kKernelCure);
  }
  const char* missing = nullptr;
  for (const Need& need : kNeeds) {
    if (io_uring_opcode_supported(probe, need.operation) == 0) missing = need.name;
  }
  io_uring_free_probe(probe);
  if (missing == nullptr) return {};
  return fail(std::errc::function_not_supported, "io_uring",
              fmt::format("the kernel does not support the operation '{}'", missing), kKernelCure);
}

Result<void> Uring::open_buffers(Kernel& kernel, const ReceiveMemory& memory,
                                 const Options& options) {
  WEIR_ASSERT(options.receive_buffers > 0 &&
              (options.receive_buffers & (options.receive_buffers - 1)) == 0);
  kernel.buffers_bytes = options.receive_buffers * sizeof(io_uring_buf);
  void* const ring = mmap(nullptr, kernel.buffers_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (ring == MAP_FAILED) return fail_errno(errno, "receive buffers");
  kernel.buffers = static_cast<io_uring_buf_ring*>(ring);
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uintptr_t>(kernel.buffers);
  registration.ring_entries = options.receive_buffers;
  registration.bgid = kBufferGroup;
  const int failed = io_uring_register_buf_ring(&kernel.ring, &registration, 0);
  if (failed != 0) return fail_errno(-failed, "io_uring: buffer rings", cure_of(-failed));
  io_uring_buf_ring_init(kernel.buffers);
  for (unsigned id = 0; id < options.receive_buffers; ++id) kernel.add_buffer(memory, id);
  return {};
}

// Tests what the probe reported: receives a byte through a socket into a buffer of the pool. The
// first io_uring_enter may be refused.
Result<void> Uring::try_out() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return fail_errno(errno, "socketpair");
  }
  const Fd from(ends[0]);
  const Fd to(ends[1]);
  if (::write(from.get(), "w", 1) != 1) return fail_errno(errno, "socketpair");
  Operation trial;
  receive(to.get(), trial);
  const Instant now = host::now();
  int result = submit_and_wait(now + kTrialTime, now);
  io_uring_cqe* cqe = nullptr;
  if (result >= 0 && (result = io_uring_peek_cqe(&kernel_->ring, &cqe)) == 0) {
    result = cqe->res;
    give_back({cqe->res, cqe->flags});
    io_uring_cqe_seen(&kernel_->ring, cqe);
  }
  if (result == 1) return {};
  return fail_errno(result < 0 ? -result : EIO, "io_uring: a receive that was tried", kKernelCure);
}

void Uring::accept(int socket, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_multishot_accept(&sqe, socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::receive(int socket, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_recv(&sqe, socket, nullptr, kernel_->options.receive_bytes, 0);
  io_uring_sqe_set_data(&sqe, &operation);
  sqe.flags |= IOSQE_BUFFER_SELECT;
  sqe.buf_group = kBufferGroup;
}

void Uring::give_back(const Completion& completion) {
  if (completion.has_buffer()) kernel_->add_buffer(receive_memory(), completion.buffer());
}

void Uring::receive_into(int socket, std::span<std::byte> buffer, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_recv(&sqe, socket, buffer.data(), buffer.size(), MSG_WAITALL);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::send(int socket, const msghdr& message, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_sendmsg(&sqe, socket, &message, MSG_NOSIGNAL | MSG_WAITALL);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::read(int file, std::span<std::byte> buffer, std::uint64_t offset, Operation& operation,
                 Copy copy) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_read(&sqe, file, buffer.data(), static_cast<unsigned>(buffer.size()), offset);
  io_uring_sqe_set_data(&sqe, &operation);
  if (copy == Copy::kWorker) sqe.flags |= IOSQE_ASYNC;
}

void Uring::write(int file, std::span<const std::byte> buffer, std::uint64_t offset, int flags,
                  Operation& operation, Copy copy) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_write(&sqe, file, buffer.data(), static_cast<unsigned>(buffer.size()), offset);
  io_uring_sqe_set_data(&sqe, &operation);
  sqe.rw_flags = flags;
  if (copy == Copy::kWorker) sqe.flags |= IOSQE_ASYNC;
}

void Uring::sync_data(int file, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_fsync(&sqe, file, IORING_FSYNC_DATASYNC);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::allocate(int file, int mode, std::uint64_t offset, std::uint64_t length,
                     Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_fallocate(&sqe, file, mode, static_cast<off_t>(offset), static_cast<off_t>(length));
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::fetch(int file, std::uint64_t offset, std::uint32_t length, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_fadvise(&sqe, file, offset, static_cast<off_t>(length), POSIX_FADV_WILLNEED);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::poll_data(int socket, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_poll_add(&sqe, socket, POLLIN);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::poll_room(int socket, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_poll_add(&sqe, socket, POLLOUT);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::await_wake(int wake_fd, Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_read(&sqe, wake_fd, &kernel_->wakes, sizeof kernel_->wakes, 0);
  io_uring_sqe_set_data(&sqe, &operation);
}

void Uring::cancel(Operation& operation) {
  io_uring_sqe& sqe = entry(kernel_->ring, operation);
  io_uring_prep_cancel(&sqe, &operation, 0);
  io_uring_sqe_set_data(&sqe, nullptr);  // its own completion is ignored
}

int Uring::submit_and_wait(Instant until, Instant now) {
  if (until == kNever) return io_uring_submit_and_wait(&kernel_->ring, 1);
  io_uring_cqe* first = nullptr;
  const std::int64_t ns = std::max<std::int64_t>((until - now).count(), 0);
  __kernel_timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
  return io_uring_submit_and_wait_timeout(&kernel_->ring, &first, 1, &time, nullptr);
}

void Uring::wait(Instant until, Instant now) {
  const int failed = submit_and_wait(until, now);
  // EBUSY: completions must be reaped before more can be submitted. EAGAIN: out of memory now.
  WEIR_ASSERT(
      failed >= 0 || failed == -ETIME || failed == -EINTR || failed == -EBUSY || failed == -EAGAIN,
      failed);
}

std::size_t Uring::reap() {
  // Only operations that have completed now: an operation that completes at once again and again
  // must not prolong a turn.
  std::array<io_uring_cqe*, kReapMax> batch;
  const unsigned ready = io_uring_cq_ready(&kernel_->ring);
  unsigned left = ready;
  while (left > 0) {
    const unsigned count =
        io_uring_peek_batch_cqe(&kernel_->ring, batch.data(), std::min(left, kReapMax));
    if (count == 0) break;
    for (unsigned i = 0; i < count; ++i) {
      const Completion completion{batch[i]->res, batch[i]->flags};
      auto* const operation = static_cast<Operation*>(io_uring_cqe_get_data(batch[i]));
      if (operation != nullptr) operation->done(*operation, completion);
    }
    io_uring_cq_advance(&kernel_->ring, count);
    left -= std::min(left, count);
  }
  return ready;
}

}  // namespace weir::host
