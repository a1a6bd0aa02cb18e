// SPDX-License-Identifier: Apache-2.0
#include "weir/cluster/local_epochs.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/cluster/epoch_course.h"
#include "weir/coordinate/epoch_combine.h"
#include "weir/coordinate/local_wire.h"
#include "weir/host/clock.h"
#include "weir/host/fd.h"
#include "weir/host/mailbox.h"

namespace weir::cluster {
namespace {

// Letters from the leader; one that does not fit is dropped, as on a lossy network.
constexpr std::size_t kLettersMax = 4096;
constexpr int kBacklog = 128;  // all schedulers of a machine may start together
constexpr mode_t kSocketMode = 0660;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

// Whether a server accepts connections there.
bool is_in_use(const sockaddr_un& address) {
  const host::Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

Result<host::Fd> listen_on(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    return fail(std::errc::filename_too_long, path, "is too long for a Unix socket");
  }
  const sockaddr_un address = address_of(path);
  struct stat found {};
  if (lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) return fail(std::errc::file_exists, path, "is not a socket");
    if (is_in_use(address)) {
      return fail(std::errc::address_in_use, path, "is in use by another server",
                  "set another path in [cluster] socket");
    }
    (void)unlink(path.c_str());
  }
  host::Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.is_open()) return fail_errno(errno, path);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), kSocketMode) != 0 || listen(listener.get(), kBacklog) != 0) {
    return fail_errno(errno, path);
  }
  return listener;
}

// A connection, and the epochs of its scheduler after it has joined.
struct Scheduler {
  explicit Scheduler(host::Fd fd) : socket(std::move(fd)) {}

  host::Fd socket;
  LocalReader reader;
  std::string output;
  std::string course;
  std::unique_ptr<EpochCourse> epochs;
  std::int64_t epoch = kFirstEpoch;
  bool is_calling = false;
  bool is_ending = false;  // closed when its output is written
  bool is_gone = false;
};

class Local final : public LocalEpochs {
 public:
  using Letter = std::function<void()>;

  Local(std::string path, host::Fd listener, host::Fd wake_fd, Send send)
      : path_(std::move(path)),
        listener_(std::move(listener)),
        letters_(std::move(wake_fd), kLettersMax),
        send_(std::move(send)),
        thread_([this] { run(); }) {}
  ~Local() override {
    is_over_ = true;
    (void)letters_.put_always([] {});
    thread_.join();
    (void)unlink(path_.c_str());
  }
  Local(const Local&) = delete;
  Local& operator=(const Local&) = delete;

  void follow(std::uint32_t term) override {
    (void)letters_.put_always([this, term] {
      term_ = term;
      for (Scheduler& one : schedulers_) {
        if (one.epochs) one.epochs->follow(term != 0, host::now());
      }
    });
  }
  void receive(std::uint32_t term, const std::string& course, EpochMessage message) override {
    (void)letters_.put([this, term, course, message = std::move(message)] {
      if (term != term_) return;
      for (Scheduler& one : schedulers_) {
        if (one.epochs && one.course == course) one.epochs->receive(message, host::now());
      }
    });
  }

 private:
  void run();
  int wait_ms() const;
  void poll_all();
  void accept_all();
  void read(Scheduler& one);
  void obey(Scheduler& one, LocalMessage message);
  void join(Scheduler& one, const LocalJoin& join);
  void call(Scheduler& one, LocalReady ready);
  void leave(Scheduler& one);
  void refuse(Scheduler& one, int error, std::string_view text);
  void answer(Scheduler& one, std::string_view bytes);
  static void write(Scheduler& one);

  const std::string path_;
  const host::Fd listener_;
  host::Mailbox<Letter> letters_;
  const Send send_;
  std::atomic<bool> is_over_ = false;

  // All members below belong to the thread.
  std::list<Scheduler> schedulers_;
  std::uint32_t term_ = 0;
  std::thread thread_;  // started last
};

void Local::run() {
  while (!is_over_) {
    poll_all();
    for (const Letter& letter : letters_.take()) letter();
    const Instant now = host::now();
    for (Scheduler& one : schedulers_) {
      if (one.epochs) one.epochs->tick(now);
      write(one);
    }
    schedulers_.remove_if([this](Scheduler& one) {
      if (one.is_gone) leave(one);
      return one.is_gone;
    });
  }
}

int Local::wait_ms() const {
  Instant wake = kNever;
  for (const Scheduler& one : schedulers_) {
    if (one.epochs) wake = std::min(wake, one.epochs->next_wake());
  }
  if (wake == kNever) return -1;
  const Nanoseconds left = std::max(wake - host::now(), Nanoseconds{0});
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<std::int64_t>(ms, std::numeric_limits<int>::max()));
}

void Local::poll_all() {
  std::vector<pollfd> fds = {{letters_.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  for (const Scheduler& one : schedulers_) {
    const auto write = static_cast<short>(one.output.empty() ? 0 : POLLOUT);
    fds.push_back({one.socket.get(), static_cast<short>(POLLIN | write), 0});
  }
  (void)poll(fds.data(), fds.size(), wait_ms());
  if ((fds[0].revents & POLLIN) != 0) letters_.clear();
  std::size_t at = 2;
  for (Scheduler& one : schedulers_) {
    if ((fds[at++].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read(one);
  }
  if ((fds[1].revents & POLLIN) != 0) accept_all();
}

void Local::accept_all() {
  for (;;) {
    host::Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) return;
    const bool is_full = schedulers_.size() >= kSchedulersMax;
    if (schedulers_.size() >= 2 * kSchedulersMax) continue;
    Scheduler& one = schedulers_.emplace_back(std::move(socket));
    if (is_full) refuse(one, ENOSPC, "this server has too many schedulers");
  }
}

void Local::read(Scheduler& one) {
  std::array<char, 8192> buffer{};
  const ssize_t size = recv(one.socket.get(), buffer.data(), buffer.size(), 0);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    one.is_gone = true;
    return;
  }
  if (one.is_ending) return;
  one.reader.add({buffer.data(), static_cast<std::size_t>(size)});
  while (!one.is_ending && !one.is_gone) {
    auto next = one.reader.next();
    if (!next) return refuse(one, static_cast<int>(next.error().code), next.error().message());
    if (!*next) return;
    obey(one, *std::move(*next));
  }
}

void Local::obey(Scheduler& one, LocalMessage message) {
  if (const auto* const join = std::get_if<LocalJoin>(&message)) return this->join(one, *join);
  if (one.epochs == nullptr) return refuse(one, ENOTCONN, "it has not joined a course");
  if (auto* const ready = std::get_if<LocalReady>(&message)) return call(one, std::move(*ready));
  one.is_gone = true;
}

void Local::join(Scheduler& one, const LocalJoin& join) {
  if (one.epochs != nullptr) return refuse(one, EISCONN, "it has joined a course already");
  const std::string course = course_of(join.combine, join.name);
  const bool is_taken = std::any_of(schedulers_.begin(), schedulers_.end(), [&](const auto& other) {
    return other.epochs != nullptr && !other.is_gone && other.course == course;
  });
  if (is_taken) {
    return refuse(one, EBUSY, "another scheduler on this server takes part in this course");
  }
  const Instant now = host::now();
  one.course = course;
  // Serials of a course grow although its scheduler is another one, as clocks do.
  one.epochs = std::make_unique<EpochCourse>(
      join.timeout,
      [this, course](EpochMessage message) { send_(term_, course, std::move(message)); },
      static_cast<std::uint64_t>(std::max<std::int64_t>(now.time_since_epoch().count(), 1)));
  one.epochs->follow(term_ != 0, now);
  answer(one, local_joined());
}

void Local::call(Scheduler& one, LocalReady ready) {
  if (one.is_calling) return refuse(one, EALREADY, "a call is in progress");
  one.is_calling = true;
  one.epochs->next_epoch(
      ready.epoch, std::move(ready.data),
      [this, &one](std::int64_t epoch, EpochView reduced, Instant) {
        one.is_calling = false;
        one.epoch = is_epoch_error(epoch) ? kFirstEpoch : epoch;
        answer(one, local_start(epoch, reduced));
      },
      host::now());
}

// It tells the leader, so that nobody waits for it.
void Local::leave(Scheduler& one) {
  if (one.epochs == nullptr) return;
  if (term_ != 0) one.epochs->last_epoch(one.epoch, host::now());
  one.epochs.reset();
}

void Local::refuse(Scheduler& one, int error, std::string_view text) {
  leave(one);
  answer(one, local_error(error, text));
  one.is_ending = true;
}

void Local::answer(Scheduler& one, std::string_view bytes) {
  if (one.output.size() + bytes.size() > kOutputMax) {
    one.is_gone = true;
    return;
  }
  one.output += bytes;
}

void Local::write(Scheduler& one) {
  if (!one.output.empty() && !one.is_gone) {
    const ssize_t size =
        send(one.socket.get(), one.output.data(), one.output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size > 0) one.output.erase(0, static_cast<std::size_t>(size));
    if (size < 0 && errno != EAGAIN && errno != EINTR) one.is_gone = true;
  }
  if (one.is_ending && one.output.empty()) one.is_gone = true;
}

}  // namespace

Result<std::unique_ptr<LocalEpochs>> LocalEpochs::create(const std::string& path, Send send) {
  auto listener = listen_on(path);
  if (!listener) return tl::unexpected(listener.error());
  auto wake_fd = host::make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  return std::make_unique<Local>(path, *std::move(listener), *std::move(wake_fd), std::move(send));
}

}  // namespace weir::cluster
