// SPDX-License-Identifier: Apache-2.0
#include "weir/host/epoll.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir/base/assert.h"

namespace weir::host {
namespace {

constexpr std::uint32_t kBroken = EPOLLERR | EPOLLHUP;

// Repeats a call that was interrupted by a signal. Returns its count, or a negative errno.
template <class Call>
std::int32_t result_of(Call call) {
  for (;;) {
    const auto result = call();
    if (result >= 0) return static_cast<std::int32_t>(result);
    if (errno != EINTR) return -errno;
  }
}

bool would_wait(std::int32_t result) { return result == -EAGAIN || result == -EWOULDBLOCK; }

Result<void> watch_edges(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = fd;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll");
  return {};
}

std::size_t size_of(const msghdr& message) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) bytes += message.msg_iov[i].iov_len;
  return bytes;
}

}  // namespace

Epoll::Epoll(ReceiveMemory memory, const Options& options, Fd epoll, TimerFd timer,
             std::unique_ptr<FileWorkers> workers)
    : IoLoop(std::move(memory)),
      epoll_(std::move(epoll)),
      timer_(std::move(timer)),
      workers_(std::move(workers)) {
  for (std::uint32_t id = options.receive_buffers; id > 0; --id) free_buffers_.push_back(id - 1);
}

Epoll::~Epoll() = default;

Result<std::unique_ptr<Epoll>> Epoll::create(const Options& options) {
  auto memory = ReceiveMemory::create(options.receive_buffers, options.receive_bytes);
  if (!memory) return tl::unexpected(memory.error());
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) {
    return fail_errno(errno, "epoll", "raise the limit of open files (ulimit -n)");
  }
  auto timer = TimerFd::create();
  if (!timer) return tl::unexpected(timer.error());
  auto workers = FileWorkers::create();
  if (!workers) return tl::unexpected(workers.error());
  for (const int fd : {timer->fd(), (*workers)->fd()}) {
    if (auto added = watch_edges(epoll.get(), fd); !added) return tl::unexpected(added.error());
  }
  return std::unique_ptr<Epoll>(new Epoll(std::move(*memory), options, std::move(epoll),
                                          std::move(*timer), std::move(*workers)));
}

// ---- sockets ----

Epoll::Watched& Epoll::watched(int fd) {
  const auto index = static_cast<std::size_t>(fd);
  if (index >= watched_.size()) watched_.resize(std::max(index + 1, 2 * watched_.size()));
  if (watched_[index] == nullptr) {
    watched_[index] = std::make_unique<Watched>();
    watched_[index]->fd = fd;
  }
  return *watched_[index];
}

int Epoll::set_events(Watched& one, std::uint32_t events) {
  if (one.events == events) return 0;
  epoll_event event{};
  event.events = events;
  event.data.fd = one.fd;
  const int action = events == 0 ? EPOLL_CTL_DEL : one.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const int failed = epoll_ctl(epoll_.get(), action, one.fd, &event);
  if (failed != 0 && action == EPOLL_CTL_ADD) return -errno;
  WEIR_ASSERT(failed == 0, errno);
  one.events = events;
  return 0;
}

// ENOSPC, ENOMEM: there are too many descriptors in epoll.
void Epoll::begin_in(int fd, In kind, Operation& operation) {
  Watched& one = watched(fd);
  WEIR_ASSERT(one.in == nullptr, fd);
  if (const int failed = set_events(one, one.events | EPOLLIN); failed != 0) {
    return finish(operation, failed);
  }
  operation.descriptor = fd;
  one.in = &operation;
  one.in_kind = kind;
}

void Epoll::begin_out(Watched& one, Out kind, Operation& operation) {
  WEIR_ASSERT(one.out == nullptr, one.fd);
  if (const int failed = set_events(one, one.events | EPOLLOUT); failed != 0) {
    return finish(operation, failed);
  }
  operation.descriptor = one.fd;
  one.out = &operation;
  one.out_kind = kind;
}

// If a client disconnects before it is accepted, accept4(2) must not block until the next one.
void Epoll::accept(int socket, Operation& operation) {
  const int flags = fcntl(socket, F_GETFL);
  if ((flags & O_NONBLOCK) == 0) fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  begin_in(socket, In::kAccept, operation);
}

void Epoll::receive(int socket, Operation& operation) { begin_in(socket, In::kReceive, operation); }

void Epoll::give_back(const Completion& completion) {
  if (completion.has_buffer()) free_buffers_.push_back(completion.buffer());
}

void Epoll::poll_data(int socket, Operation& operation) { begin_in(socket, In::kData, operation); }

void Epoll::receive_into(int socket, std::span<std::byte> buffer, Operation& operation) {
  begin_in(socket, In::kReceiveInto, operation);
  Watched& one = watched(socket);
  one.into = buffer;
  one.got = 0;
}

void Epoll::await_wake(int wake_fd, Operation& operation) {
  begin_in(wake_fd, In::kWake, operation);
}

void Epoll::send(int socket, const msghdr& message, Operation& operation) {
  const std::int32_t sent =
      result_of([&] { return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
  if (sent < 0 && !would_wait(sent)) return finish(operation, sent);
  auto skip = static_cast<std::size_t>(std::max(sent, 0));
  if (skip == size_of(message)) return finish(operation, sent);
  Watched& one = watched(socket);
  one.sent = static_cast<std::int32_t>(skip);
  one.unsent.clear();
  one.first_unsent = 0;
  for (std::size_t i = 0; i < message.msg_iovlen; ++i) {
    const iovec& part = message.msg_iov[i];
    const std::size_t skipped = std::min(skip, part.iov_len);
    skip -= skipped;
    if (skipped == part.iov_len) continue;
    one.unsent.push_back(
        {static_cast<std::byte*>(part.iov_base) + skipped, part.iov_len - skipped});
  }
  begin_out(one, Out::kSend, operation);
}

void Epoll::poll_room(int socket, Operation& operation) {
  begin_out(watched(socket), Out::kRoom, operation);
}

void Epoll::forget(int socket) {
  Watched& one = watched(socket);
  WEIR_ASSERT(one.in == nullptr && one.out == nullptr, socket);
  set_events(one, 0);
  one.refuses_nowait = false;
}

void Epoll::end_in(Watched& one, const Completion& completion) {
  Operation& operation = *std::exchange(one.in, nullptr);
  operation.done(operation, completion);
}

void Epoll::end_out(Watched& one, std::int32_t result) {
  Operation& operation = *std::exchange(one.out, nullptr);
  one.unsent = {};
  set_events(one, one.events & ~std::uint32_t{EPOLLOUT});
  operation.done(operation, {result, 0});
}

void Epoll::occurred(const epoll_event& event) {
  if (event.data.fd == timer_.fd()) {
    armed_ = kNever;
    return;
  }
  if (event.data.fd == workers_->fd()) {
    for (const FileResult& one : workers_->take()) {
      one.operation->done(*one.operation, {one.result, 0});
    }
    return;
  }
  Watched& one = watched(event.data.fd);
  const bool is_broken = (event.events & kBroken) != 0;
  const bool has_in = is_broken || (event.events & EPOLLIN) != 0;
  const bool has_out = is_broken || (event.events & EPOLLOUT) != 0;
  const bool is_wanted = (!has_in || one.in != nullptr) && (!has_out || one.out != nullptr);
  if (has_in && one.in != nullptr) go_in(one);
  if (has_out && one.out != nullptr) go_out(one, event.events);
  if (is_wanted) return;
  set_events(one, (one.in != nullptr ? EPOLLIN : 0U) | (one.out != nullptr ? EPOLLOUT : 0U));
}

void Epoll::go_in(Watched& one) {
  switch (one.in_kind) {
    case In::kAccept:
      return accept_some(one);
    case In::kReceive:
      return receive_one(one);
    case In::kReceiveInto:
      return receive_rest(one);
    case In::kData:
      return end_in(one, {EPOLLIN, 0});
    case In::kWake:
      eventfd_t wakes = 0;
      eventfd_read(one.fd, &wakes);
      return end_in(one, {sizeof wakes, 0});
  }
}

void Epoll::go_out(Watched& one, std::uint32_t events) {
  one.out_kind == Out::kSend ? send_rest(one) : end_out(one, static_cast<std::int32_t>(events));
}

void Epoll::accept_some(Watched& one) {
  Operation* const operation = one.in;
  for (int i = 0; i < kAcceptsMax && one.in == operation; ++i) {
    const std::int32_t result =
        result_of([&] { return accept4(one.fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    if (would_wait(result)) return;
    if (result < 0) return end_in(one, {result, 0});
    WEIR_ASSERT(watched(result).events == 0, result);  // forget() was called for an earlier one
    operation->done(*operation, {result, Completion::kGoesOn});
  }
}

void Epoll::receive_one(Watched& one) {
  if (free_buffers_.empty()) return end_in(one, {-ENOBUFS, 0});
  const std::uint32_t id = free_buffers_.back();
  const std::span<std::byte> buffer = receive_memory().at(id);
  const std::int32_t result =
      result_of([&] { return recv(one.fd, buffer.data(), buffer.size(), MSG_DONTWAIT); });
  if (would_wait(result)) return;
  if (result <= 0) return end_in(one, {result, 0});
  free_buffers_.pop_back();
  end_in(one, {result, Completion::kHasBuffer | id << Completion::kBufferShift});
}

void Epoll::receive_rest(Watched& one) {
  const std::span<std::byte> rest = one.into.subspan(one.got);
  const std::int32_t result = result_of(
      [&] { return recv(one.fd, rest.data(), std::min(rest.size(), kReceiveMax), MSG_DONTWAIT); });
  if (would_wait(result)) return;
  if (result > 0) one.got += static_cast<std::size_t>(result);
  if (result > 0 && one.got < one.into.size()) return;
  end_in(one, {one.got > 0 ? static_cast<std::int32_t>(one.got) : result, 0});
}

void Epoll::send_rest(Watched& one) {
  msghdr message{};
  message.msg_iov = one.unsent.data() + one.first_unsent;
  message.msg_iovlen = one.unsent.size() - one.first_unsent;
  const std::int32_t result =
      result_of([&] { return sendmsg(one.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT); });
  if (would_wait(result)) return;
  if (result < 0) return end_out(one, one.sent > 0 ? one.sent : result);
  one.sent += result;
  auto skip = static_cast<std::size_t>(result);
  while (one.first_unsent < one.unsent.size()) {
    iovec& part = one.unsent[one.first_unsent];
    if (skip < part.iov_len) {
      part.iov_base = static_cast<std::byte*>(part.iov_base) + skip;
      part.iov_len -= skip;
      return;
    }
    skip -= part.iov_len;
    ++one.first_unsent;
  }
  end_out(one, one.sent);
}

// ---- files ----

bool Epoll::may_try(int file) { return !watched(file).refuses_nowait; }

// Calls that would block are left to a thread, and so are errors.
void Epoll::tried(int file, Operation& operation, ssize_t result, const FileJob& job) {
  if (result >= 0) return finish(operation, static_cast<std::int32_t>(result));
  if (errno == EOPNOTSUPP || errno == EINVAL) watched(file).refuses_nowait = true;
  workers_->add(job);
}

void Epoll::read(int file, std::span<std::byte> buffer, std::uint64_t offset, Operation& operation,
                 Copy copy) {
  const FileJob job{.kind = FileJob::Kind::kRead,
                    .file = file,
                    .memory = buffer.data(),
                    .length = buffer.size(),
                    .offset = offset,
                    .operation = &operation};
  if (copy != Copy::kHere || !may_try(file)) return workers_->add(job);
  const iovec part{buffer.data(), buffer.size()};
  tried(file, operation, preadv2(file, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT), job);
}

void Epoll::write(int file, std::span<const std::byte> buffer, std::uint64_t offset, int flags,
                  Operation& operation, Copy copy) {
  auto* const memory = const_cast<std::byte*>(buffer.data());
  const FileJob job{.kind = FileJob::Kind::kWrite,
                    .file = file,
                    .flags = flags,
                    .memory = memory,
                    .length = buffer.size(),
                    .offset = offset,
                    .operation = &operation};
  // A durable write always waits for the device.
  if (copy != Copy::kHere || flags != 0 || !may_try(file)) return workers_->add(job);
  const iovec part{memory, buffer.size()};
  tried(file, operation, pwritev2(file, &part, 1, static_cast<off_t>(offset), RWF_NOWAIT), job);
}

void Epoll::sync_data(int file, Operation& operation) {
  workers_->add({.kind = FileJob::Kind::kSync, .file = file, .operation = &operation});
}

void Epoll::allocate(int file, int mode, std::uint64_t offset, std::uint64_t length,
                     Operation& operation) {
  workers_->add({.kind = FileJob::Kind::kAllocate,
                 .file = file,
                 .flags = mode,
                 .length = length,
                 .offset = offset,
                 .operation = &operation});
}

void Epoll::fetch(int file, std::uint64_t offset, std::uint32_t length, Operation& operation) {
  workers_->add({.kind = FileJob::Kind::kFetch,
                 .file = file,
                 .length = length,
                 .offset = offset,
                 .operation = &operation});
}

// ---- the loop ----

void Epoll::finish(Operation& operation, std::int32_t result) {
  finished_.push_back({&operation, {result, 0}});
}

void Epoll::cancel(Operation& operation) {
  const auto index = static_cast<std::size_t>(operation.descriptor);
  if (operation.descriptor >= 0 && index < watched_.size() && watched_[index] != nullptr) {
    Watched& one = *watched_[index];
    if (one.in == &operation) {
      one.in = nullptr;
      const bool has_some = one.in_kind == In::kReceiveInto && one.got > 0;
      return finish(operation, has_some ? static_cast<std::int32_t>(one.got) : -ECANCELED);
    }
    if (one.out == &operation) {
      one.out = nullptr;
      one.unsent = {};
      const bool has_some = one.out_kind == Out::kSend && one.sent > 0;
      return finish(operation, has_some ? one.sent : -ECANCELED);
    }
  }
  if (workers_->remove(operation)) finish(operation, -ECANCELED);
}

void Epoll::wait(Instant until, Instant now) {
  if (event_count_ > 0) return;  // the last events were not reaped
  int timeout = -1;
  if (!finished_.empty() || until <= now) {
    timeout = 0;
  } else if (until != kNever && until != armed_) {
    timer_.arm(until);
    armed_ = until;
  }
  const int count = epoll_wait(epoll_.get(), events_.data(), kEventsMax, timeout);
  WEIR_ASSERT(count >= 0 || errno == EINTR, errno);
  event_count_ = std::max(count, 0);
}

// An event completes a send and a receive at most, or other operations.
std::size_t Epoll::reap() {
  // Only operations that have completed now: an operation that completes at once again and again
  // must not prolong a turn.
  std::swap(finished_, reaped_);
  for (const Finished& one : reaped_) one.operation->done(*one.operation, one.completion);
  const std::size_t finished = reaped_.size();
  reaped_.clear();
  const int count = std::exchange(event_count_, 0);
  for (int i = 0; i < count; ++i) occurred(events_[static_cast<std::size_t>(i)]);
  return finished + 2 * static_cast<std::size_t>(count);
}

}  // namespace weir::host
