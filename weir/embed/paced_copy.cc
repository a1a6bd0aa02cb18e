// SPDX-License-Identifier: Apache-2.0
#include "weir/embed/paced_copy.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"

namespace weir::embed {
namespace {

constexpr Nanoseconds kProgressEvery = std::chrono::milliseconds{100};
// A shallow bucket is overdrawn by this time at once, to avoid a wake-up for every byte.
constexpr Nanoseconds kPieceTimeMin = std::chrono::milliseconds{5};
constexpr std::uint64_t kPieceMax = 1 << 20;  // also the maximum pipe size for users

std::uint64_t piece_size(const RateLimiter& limiter, Bytes block) {
  const std::uint64_t most = std::min(block.count(), kPieceMax);
  if (!limiter.bytes()) return most;
  const LimiterBucket& bucket = *limiter.bytes();
  const std::uint64_t half = bucket.size().count() / 2;
  const std::uint64_t least = tokens_in(bucket.rate(), kPieceTimeMin).count();
  return std::clamp<std::uint64_t>(std::max(half, least), 1, most);
}

// Makes a pipe as deep as the bucket: otherwise writer and reader would have to alternate more
// often than the rate needs, and on a busy machine every turn may be late. Ignored if it is not a
// pipe or the size is not permitted.
void deepen_pipe(int fd, const RateLimiter& limiter) {
  if (!limiter.bytes()) return;
  const int size = fcntl(fd, F_GETPIPE_SZ);
  const auto depth = static_cast<int>(std::min(limiter.bytes()->size().count(), kPieceMax));
  if (size >= 0 && size < depth) fcntl(fd, F_SETPIPE_SZ, depth);
}

tl::unexpected<Error> reader_gone() {
  return fail_errno(EPIPE, "output", "the reader has closed it");
}

class Copy {
 public:
  Copy(int in, int out, LimiterTimer& limiter, const CopyOptions& options, CopyTotals& totals)
      : in_(in),
        out_(out),
        limiter_(limiter),
        options_(options),
        totals_(totals),
        piece_(piece_size(limiter.limiter(), options.block)),
        buffer_(std::make_unique<char[]>(piece_)),
        start_(host::now()) {
    deepen_pipe(in, limiter.limiter());
    deepen_pipe(out, limiter.limiter());
  }

  Result<void> run() {
    if (auto opened = open_epoll(); !opened) return opened;
    for (;;) {
      const auto length = read_piece();
      if (!length) return tl::unexpected(length.error());
      if (*length == 0) return {};
      if (auto paid = pay(*length); !paid) return paid;
      if (stopped()) return {};
      if (auto written = write_piece(*length); !written) return written;
      report();
      if (stopped()) return {};
    }
  }

 private:
  bool stopped() const { return options_.stop != nullptr && options_.stop->load(); }

  void report() {
    const Instant time = host::now();
    totals_.elapsed = time - start_;
    if (!options_.progress || time < next_report_) return;
    next_report_ = time + kProgressEvery;
    options_.progress(totals_);
  }

  Result<void> open_epoll() {
    epoll_ = host::Fd(epoll_create1(EPOLL_CLOEXEC));
    if (!epoll_.is_open()) return fail_errno(errno, "epoll", "raise the limit of open files");
    epoll_event timer{.events = EPOLLIN, .data = {.fd = limiter_.fd()}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, limiter_.fd(), &timer) != 0) {
      return fail_errno(errno, "epoll");
    }
    // Only errors and hang-ups. A plain file cannot be waited for (EPERM) and never hangs up.
    epoll_event output{.events = 0, .data = {.fd = out_}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, out_, &output) != 0 && errno != EPERM) {
      return fail_errno(errno, "output");
    }
    return {};
  }

  // Up to the end of the block; 0 at the end of the input or when stopped.
  Result<std::size_t> read_piece() {
    const std::uint64_t block_left =
        options_.block.count() - totals_.bytes.count() % options_.block.count();
    const std::size_t wanted = std::min(piece_, block_left);
    while (!stopped()) {
      const ssize_t got = read(in_, buffer_.get(), wanted);
      if (got >= 0) return static_cast<std::size_t>(got);
      if (errno == EAGAIN)
        wait_for(in_, POLLIN);
      else if (errno != EINTR)
        return fail_errno(errno, "input");
    }
    return 0;
  }

  // The descriptor may be non-blocking.
  static void wait_for(int fd, short events) {
    pollfd wait{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&wait, 1, -1);
    WEIR_ASSERT(ready >= 0 || errno == EINTR, errno);
  }

  bool consume(std::size_t length) {
    const bool first_of_block = totals_.bytes.count() % options_.block.count() == 0;
    if (first_of_block && !limiter_.consume_op(Bytes{length})) return false;
    if (!first_of_block && !limiter_.consume(Tokens{length}, TokenKind::kBytes)) return false;
    if (first_of_block) ++totals_.ops;
    return true;
  }

  Result<void> pay(std::size_t length) {
    while (!stopped()) {
      if (consume(length)) return {};
      if (auto waited = wait_for_tokens(); !waited) return waited;
    }
    return {};
  }

  Result<void> wait_for_tokens() {
    const int timeout_ms =
        options_.progress ? static_cast<int>(kProgressEvery / std::chrono::milliseconds{1}) : -1;
    std::array<epoll_event, 2> events;
    while (limiter_.is_blocked() && !stopped()) {
      const int count =
          epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
      WEIR_ASSERT(count >= 0 || errno == EINTR, errno);
      for (int i = 0; i < count; ++i) {
        if (events[static_cast<std::size_t>(i)].data.fd != limiter_.fd()) return reader_gone();
        if (auto handled = limiter_.event_handler(); !handled) return handled;
      }
      report();
    }
    return {};
  }

  Result<void> write_piece(std::size_t length) {
    std::size_t written = 0;
    while (written < length && !stopped()) {
      const ssize_t wrote = write(out_, buffer_.get() + written, length - written);
      if (wrote >= 0) {
        written += static_cast<std::size_t>(wrote);
        totals_.bytes += Bytes{static_cast<std::uint64_t>(wrote)};
      } else if (errno == EAGAIN) {
        wait_for(out_, POLLOUT);
      } else if (errno != EINTR) {
        const int error = errno;
        give_back(length - written);
        if (error == EPIPE) return reader_gone();
        return fail_errno(error, "output", error == ENOSPC ? "free some space" : "");
      }
    }
    give_back(length - written);
    return {};
  }

  void give_back(std::size_t unwritten) {
    if (unwritten > 0) limiter_.manual_replenish(Tokens{unwritten}, TokenKind::kBytes);
  }

  const int in_;
  const int out_;
  LimiterTimer& limiter_;
  const CopyOptions& options_;
  CopyTotals& totals_;
  const std::uint64_t piece_;
  const std::unique_ptr<char[]> buffer_;
  const Instant start_;
  Instant next_report_ = Instant::min();
  host::Fd epoll_;
};

}  // namespace

Result<void> paced_copy(int in, int out, LimiterTimer& limiter, const CopyOptions& options,
                        CopyTotals& totals) {
  WEIR_ASSERT(options.block > Bytes{0});
  Copy copy(in, out, limiter, options, totals);
  return copy.run();
}

}  // namespace weir::embed
