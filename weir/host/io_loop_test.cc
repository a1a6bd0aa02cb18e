// SPDX-License-Identifier: Apache-2.0
//
// The behaviour of every IoLoop, tested on both implementations. Sockets and files are real; no
// test waits for time to pass, except tests of deadlines.
#include "weir/host/io_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/falloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "weir/host/clock.h"
#include "weir/host/fd.h"
#include "weir/host/file_workers.h"
#include "weir/host/mailbox.h"

namespace weir::host {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Nanoseconds kStuck = seconds{60};  // after this time a test counts as stuck

// The most turns that a loop with spurious wake-ups needs; a loop that does not wait needs more.
constexpr int kFewTurns = 5;

// An operation that records its completions.
struct Asked : Operation {
  Asked() {
    done = [](Operation& operation, const Completion& completion) {
      auto& self = static_cast<Asked&>(operation);
      self.completions.push_back(completion);
      if (self.then) self.then(completion);
    };
  }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;

  int result() const { return completions.empty() ? -ETIME : completions.back().result; }
  std::size_t count() const { return completions.size(); }

  std::vector<Completion> completions;
  std::function<void(const Completion&)> then;
};

struct Pair {
  Fd ours;
  Fd theirs;
};

Pair make_pair() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string pattern(std::size_t bytes) {
  std::string text(bytes, 0);
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

void put(const Fd& socket, std::string_view text) {
  ASSERT_EQ(write(socket.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

// All bytes that are available now.
std::string take(const Fd& socket) {
  std::string all;
  std::array<char, 65536> piece;
  ssize_t got = 0;
  while ((got = read(socket.get(), piece.data(), piece.size())) > 0) {
    all.append(piece.data(), static_cast<std::size_t>(got));
  }
  return all;
}

Fd open_temporary() {
  std::string path = testing::TempDir() + "weir_io_XXXXXX";
  Fd file(mkostemp(path.data(), O_CLOEXEC));
  unlink(path.c_str());
  return file;
}

struct Listener {
  Fd socket;
  sockaddr_in address{};
};

Listener make_listener() {
  Listener listener;
  listener.socket = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  listener.address.sin_family = AF_INET;
  listener.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof listener.address;
  auto* const address = reinterpret_cast<sockaddr*>(&listener.address);
  EXPECT_EQ(bind(listener.socket.get(), address, size), 0);
  EXPECT_EQ(listen(listener.socket.get(), 512), 0);
  EXPECT_EQ(getsockname(listener.socket.get(), address, &size), 0);
  return listener;
}

Fd connect_to(const Listener& listener) {
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&listener.address),
                    sizeof listener.address),
            0);
  return client;
}

class IoLoopTest : public testing::TestWithParam<IoChoice> {
 protected:
  void SetUp() override { open({}); }

  void open(const IoLoop::Options& options) {
    io_.reset();
    auto opened = open_io(GetParam(), options);
    if (!opened) GTEST_SKIP() << opened.error().message();
    io_ = std::move(opened->loop);
  }

  void turn(Instant until) {
    io_->wait(until, host::now());
    io_->reap();
  }
  // Turns that do not wait: afterwards everything that could complete has.
  void settle() {
    for (int i = 0; i < 5; ++i) turn(host::now());
  }
  // The number of waits until that time. One is expected, but a process that was stopped and
  // continues (SIGCONT, a frozen cgroup) returns early.
  int turns_until(Instant end) {
    int turns = 0;
    for (; host::now() < end; ++turns) turn(end);
    return turns;
  }
  void until(const std::function<bool()>& holds) {
    const Instant stuck = host::now() + kStuck;
    while (!holds()) {
      ASSERT_LT(host::now(), stuck);
      turn(stuck);
    }
  }
  void until_done(const Asked& asked, std::size_t count = 1) {
    until([&] { return asked.count() >= count; });
  }
  // Receives this many bytes that the loop sends. The loop does not wait meanwhile: nothing
  // completes before the end.
  std::string take_all(const Fd& socket, std::size_t bytes) {
    std::string all;
    for (const Instant stuck = host::now() + kStuck; all.size() < bytes && host::now() < stuck;) {
      all += take(socket);
      turn(host::now());
    }
    return all;
  }
  std::string text_of(const Completion& completion) {
    const auto bytes = io_->received(completion);
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    io_->give_back(completion);
    return text;
  }
  // The result of one operation on a file.
  int file_result(const std::function<void(Operation&)>& ask) {
    Asked asked;
    ask(asked);
    until_done(asked);
    return asked.result();
  }

  std::unique_ptr<IoLoop> io_;
};

INSTANTIATE_TEST_SUITE_P(Backends, IoLoopTest, testing::Values(IoChoice::kUring, IoChoice::kEpoll),
                         [](const auto& one) {
                           return one.param == IoChoice::kUring ? "Uring" : "Epoll";
                         });

TEST_P(IoLoopTest, SaysWhatItIs) {
  EXPECT_EQ(io_->name(), GetParam() == IoChoice::kUring ? "io_uring" : "epoll");
}

// ---- accept ----

TEST_P(IoLoopTest, AcceptGivesEveryConnectionUntilItIsCancelled) {
  constexpr std::size_t kClients = 200;  // more than a turn of epoll accepts
  const Listener listener = make_listener();
  std::vector<Fd> clients;
  std::vector<Fd> accepted;
  Asked asked;
  asked.then = [&](const Completion& completion) {
    if (completion.result >= 0) accepted.emplace_back(completion.result);
  };
  for (std::size_t i = 0; i < kClients; ++i) clients.push_back(connect_to(listener));
  io_->accept(listener.socket.get(), asked);
  EXPECT_EQ(asked.count(), 0U);  // not before reap()
  until([&] { return accepted.size() == kClients; });
  for (const Completion& one : asked.completions) EXPECT_TRUE(one.goes_on());
  for (const Fd& one : accepted) EXPECT_NE(fcntl(one.get(), F_GETFL) & O_NONBLOCK, 0);
  io_->cancel(asked);
  until_done(asked, kClients + 1);
  EXPECT_EQ(asked.result(), -ECANCELED);
  EXPECT_FALSE(asked.completions.back().goes_on());
  clients.push_back(connect_to(listener));
  settle();
  EXPECT_EQ(accepted.size(), kClients);
  io_->forget(listener.socket.get());
}

TEST_P(IoLoopTest, AcceptEndsWhenThereAreNoDescriptorsAndCanBeAskedForAgain) {
  const Listener listener = make_listener();
  const Fd client = connect_to(listener);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  {
    const Fd next(dup(client.get()));
    const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  Asked asked;
  io_->accept(listener.socket.get(), asked);
  until_done(asked);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(asked.result(), -EMFILE);
  EXPECT_FALSE(asked.completions.back().goes_on());
  settle();  // no operation was started
  EXPECT_EQ(asked.count(), 1U);
  io_->accept(listener.socket.get(), asked);
  until_done(asked, 2);
  const Fd accepted(asked.result());
  EXPECT_TRUE(accepted.is_open());
}

// ---- receive ----

TEST_P(IoLoopTest, ReceiveGivesWhatHasCome) {
  const Pair pair = make_pair();
  Asked asked;
  io_->receive(pair.ours.get(), asked);
  settle();
  EXPECT_EQ(asked.count(), 0U);
  put(pair.theirs, "first");
  until_done(asked);
  EXPECT_EQ(text_of(asked.completions[0]), "first");
  put(pair.theirs, "second");
  io_->receive(pair.ours.get(), asked);
  EXPECT_EQ(asked.count(), 1U);  // not before reap()
  until_done(asked, 2);
  EXPECT_EQ(text_of(asked.completions[1]), "second");
}

TEST_P(IoLoopTest, WhatDoesNotFitComesWithTheNextReceive) {
  open({.receive_buffers = 2, .receive_bytes = 4096});
  const Pair pair = make_pair();
  const std::string sent = pattern(10'000);
  put(pair.theirs, sent);
  std::string received;
  Asked asked;
  for (std::size_t i = 1; received.size() < sent.size(); ++i) {
    io_->receive(pair.ours.get(), asked);
    until_done(asked, i);
    ASSERT_GT(asked.result(), 0);
    ASSERT_LE(asked.result(), 4096);
    received += text_of(asked.completions.back());
  }
  EXPECT_TRUE(received == sent);
}

TEST_P(IoLoopTest, WithoutAFreeBufferReceiveSaysSoAndCanBeAskedForAgain) {
  open({.receive_buffers = 2, .receive_bytes = 4096});
  std::array<Pair, 3> pairs;
  std::array<Asked, 3> asked;
  for (std::size_t i = 0; i < 3; ++i) {
    pairs[i] = make_pair();
    put(pairs[i].theirs, std::string(1, static_cast<char>('a' + i)));
    io_->receive(pairs[i].ours.get(), asked[i]);
  }
  for (const Asked& one : asked) until_done(one);
  std::size_t refused = 3;
  for (std::size_t i = 0; i < 3; ++i) {
    if (asked[i].result() == -ENOBUFS) refused = i;
  }
  ASSERT_LT(refused, 3U);
  const auto expect_text = [&](std::size_t i) {
    ASSERT_EQ(asked[i].result(), 1);
    EXPECT_EQ(text_of(asked[i].completions.back()), std::string(1, static_cast<char>('a' + i)));
  };
  for (std::size_t i = 0; i < 3; ++i) {
    if (i != refused) expect_text(i);
  }
  io_->receive(pairs[refused].ours.get(), asked[refused]);
  until_done(asked[refused], 2);
  expect_text(refused);
}

TEST_P(IoLoopTest, AThousandIdleSocketsHoldNoBuffer) {
  constexpr std::size_t kSockets = 1000;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit raised = limit;
  raised.rlim_cur = std::max<rlim_t>(limit.rlim_cur, 2 * kSockets + 100);
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) GTEST_SKIP() << "the limit of open files is too low";
  open({.receive_buffers = 1, .receive_bytes = 4096});
  std::vector<Pair> pairs;
  std::vector<Asked> asked(kSockets);
  for (Asked& one : asked) {
    pairs.push_back(make_pair());
    io_->receive(pairs.back().ours.get(), one);
  }
  settle();
  for (const std::size_t i : {std::size_t{0}, kSockets / 2, kSockets - 1}) {
    put(pairs[i].theirs, "x");
    until_done(asked[i]);
    EXPECT_EQ(text_of(asked[i].completions[0]), "x");
  }
  std::size_t completed = 0;
  for (const Asked& one : asked) completed += one.count();
  EXPECT_EQ(completed, 3U);
  for (std::size_t i = 0; i < kSockets; ++i) io_->cancel(asked[i]);
  for (const Asked& one : asked) until_done(one);
  for (const Pair& one : pairs) io_->forget(one.ours.get());
  pairs.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_P(IoLoopTest, TheEndOfAConnectionIsZeroBytes) {
  Pair pair = make_pair();
  Asked asked;
  put(pair.theirs, "last");
  io_->receive(pair.ours.get(), asked);
  until_done(asked);
  EXPECT_EQ(text_of(asked.completions[0]), "last");
  io_->receive(pair.ours.get(), asked);
  pair.theirs = Fd();
  until_done(asked, 2);
  EXPECT_EQ(asked.result(), 0);
  EXPECT_TRUE(io_->received(asked.completions[1]).empty());
  io_->give_back(asked.completions[1]);
}

TEST_P(IoLoopTest, AConnectionThatIsResetIsAnError) {
  const Listener listener = make_listener();
  Fd client = connect_to(listener);
  const Fd ours(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  Asked asked;
  io_->receive(ours.get(), asked);
  settle();
  const linger reset{1, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  client = Fd();
  until_done(asked);
  EXPECT_EQ(asked.result(), -ECONNRESET);
}

TEST_P(IoLoopTest, ShutdownEndsWhatIsInProgress) {
  const Pair pair = make_pair();
  Asked receives;
  Asked sends;
  io_->receive(pair.ours.get(), receives);
  const std::string large = pattern(std::size_t{8} << 20);
  iovec part{const_cast<char*>(large.data()), large.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  io_->send(pair.ours.get(), message, sends);
  settle();
  EXPECT_EQ(receives.count() + sends.count(), 0U);
  shutdown(pair.ours.get(), SHUT_RDWR);
  until_done(receives);
  until_done(sends);
  EXPECT_EQ(receives.result(), 0);
  EXPECT_LT(sends.result(), static_cast<int>(large.size()));
}

// ---- receive_into ----

TEST_P(IoLoopTest, ReceiveIntoWaitsForAllOfIt) {
  const Pair pair = make_pair();
  const std::string sent = pattern(90'000);
  std::string into(sent.size(), 0);
  Asked asked;
  io_->receive_into(pair.ours.get(), std::as_writable_bytes(std::span(into)), asked);
  for (std::size_t at = 0; at < sent.size(); at += 30'000) {
    EXPECT_EQ(asked.count(), 0U);
    put(pair.theirs, std::string_view(sent).substr(at, 30'000));
    settle();
  }
  until_done(asked);
  EXPECT_EQ(asked.result(), static_cast<int>(sent.size()));
  EXPECT_TRUE(into == sent);
}

TEST_P(IoLoopTest, ReceiveIntoTakesNoMoreThanItsBuffer) {
  const Pair pair = make_pair();
  std::string into(4, 0);
  Asked asked;
  put(pair.theirs, "abcdefg");
  io_->receive_into(pair.ours.get(), std::as_writable_bytes(std::span(into)), asked);
  until_done(asked);
  EXPECT_EQ(into, "abcd");
  io_->receive(pair.ours.get(), asked);
  until_done(asked, 2);
  EXPECT_EQ(text_of(asked.completions[1]), "efg");
}

TEST_P(IoLoopTest, ReceiveIntoGivesLessWhenTheConnectionEnds) {
  Pair pair = make_pair();
  std::string into(100, 0);
  Asked asked;
  io_->receive_into(pair.ours.get(), std::as_writable_bytes(std::span(into)), asked);
  put(pair.theirs, "some");
  settle();
  pair.theirs = Fd();
  until_done(asked);
  EXPECT_EQ(asked.result(), 4);
  io_->receive_into(pair.ours.get(), std::as_writable_bytes(std::span(into)), asked);
  until_done(asked, 2);
  EXPECT_EQ(asked.result(), 0);
}

TEST_P(IoLoopTest, ACancelledReceiveIntoTellsHowMuchHasCome) {
  const Pair pair = make_pair();
  std::string into(100, 0);
  Asked asked;
  io_->receive_into(pair.ours.get(), std::as_writable_bytes(std::span(into)), asked);
  settle();
  io_->cancel(asked);
  until_done(asked);
  EXPECT_EQ(asked.result(), -ECANCELED);
  io_->receive_into(pair.ours.get(), std::as_writable_bytes(std::span(into)), asked);
  put(pair.theirs, "some");
  settle();
  io_->cancel(asked);
  until_done(asked, 2);
  EXPECT_EQ(asked.result(), 4);
  EXPECT_EQ(into.substr(0, 4), "some");
}

// ---- send ----

TEST_P(IoLoopTest, SendGoesOnUntilAllOfItIsSentThoughItsHeaderChanges) {
  const Pair pair = make_pair();
  const int small = 4096;
  setsockopt(pair.ours.get(), SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  const std::string sent = pattern(1'000'000);
  constexpr std::size_t kParts = 100;
  std::array<iovec, kParts> parts;
  for (std::size_t i = 0; i < kParts; ++i) {
    parts[i] = {const_cast<char*>(sent.data()) + i * sent.size() / kParts, sent.size() / kParts};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = kParts;
  Asked asked;
  io_->send(pair.ours.get(), message, asked);
  EXPECT_EQ(asked.count(), 0U);  // not before reap()
  turn(host::now());
  EXPECT_EQ(asked.count(), 0U);
  parts.fill({nullptr, 1});
  message = {};
  const std::string received = take_all(pair.theirs, sent.size());
  until_done(asked);
  EXPECT_TRUE(received == sent);
  EXPECT_EQ(asked.result(), static_cast<int>(sent.size()));
  EXPECT_EQ(asked.count(), 1U);
}

msghdr message_of(iovec& part) {
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  return message;
}

TEST_P(IoLoopTest, SendToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  Pair pair = make_pair();
  pair.theirs = Fd();
  std::string text = "text";
  iovec part{text.data(), text.size()};
  const msghdr message = message_of(part);
  Asked asked;
  io_->send(pair.ours.get(), message, asked);
  until_done(asked);
  EXPECT_EQ(asked.result(), -EPIPE);
}

TEST_P(IoLoopTest, SendTellsHowMuchHadLeftWhenThePeerGoes) {
  Pair pair = make_pair();
  std::string large = pattern(std::size_t{4} << 20);
  iovec part{large.data(), large.size()};
  const msghdr message = message_of(part);
  Asked asked;
  io_->send(pair.ours.get(), message, asked);
  settle();
  pair.theirs = Fd();
  until_done(asked);
  EXPECT_GT(asked.result(), 0);
  EXPECT_LT(asked.result(), static_cast<int>(large.size()));
}

TEST_P(IoLoopTest, ASocketReceivesWhileItWaitsToSend) {
  const Pair pair = make_pair();
  std::string large = pattern(std::size_t{4} << 20);
  iovec part{large.data(), large.size()};
  const msghdr message = message_of(part);
  Asked sends;
  Asked receives;
  io_->send(pair.ours.get(), message, sends);
  io_->receive(pair.ours.get(), receives);
  for (std::size_t i = 1; i <= 3; ++i) {
    put(pair.theirs, "more");
    until_done(receives, i);
    EXPECT_EQ(text_of(receives.completions.back()), "more");
    EXPECT_EQ(sends.count(), 0U);
    io_->receive(pair.ours.get(), receives);
  }
  const std::string received = take_all(pair.theirs, large.size());
  until_done(sends);
  EXPECT_TRUE(received == large);
}

TEST_P(IoLoopTest, PollRoomCompletesOnceThereIsRoom) {
  const Pair pair = make_pair();
  Asked asked;
  io_->poll_room(pair.ours.get(), asked);
  until_done(asked);
  EXPECT_GT(asked.result(), 0);
  const std::string piece = pattern(65536);
  while (write(pair.ours.get(), piece.data(), piece.size()) > 0) continue;
  io_->poll_room(pair.ours.get(), asked);
  settle();
  EXPECT_EQ(asked.count(), 1U);
  take(pair.theirs);
  until_done(asked, 2);
  settle();
  EXPECT_EQ(asked.count(), 2U);
}

TEST_P(IoLoopTest, PollDataCompletesOnceThereIsDataAndLeavesItThere) {
  Pair pair = make_pair();
  Asked asked;
  io_->poll_data(pair.ours.get(), asked);
  settle();
  EXPECT_EQ(asked.count(), 0U);
  put(pair.theirs, "some");
  until_done(asked);
  EXPECT_GT(asked.result(), 0);
  EXPECT_EQ(take(pair.ours), "some");
  io_->poll_data(pair.ours.get(), asked);
  settle();
  EXPECT_EQ(asked.count(), 1U);
  io_->cancel(asked);
  until_done(asked, 2);
  EXPECT_EQ(asked.result(), -ECANCELED);
  io_->poll_data(pair.ours.get(), asked);
  pair.theirs = Fd();
  until_done(asked, 3);
  EXPECT_GT(asked.result(), 0) << "the end";
}

// ---- cancel ----

TEST_P(IoLoopTest, WhatIsCancelledCompletesOnce) {
  const Pair pair = make_pair();
  Asked receives;
  Asked room;
  const std::string piece = pattern(65536);
  while (write(pair.ours.get(), piece.data(), piece.size()) > 0) continue;
  io_->receive(pair.ours.get(), receives);
  io_->poll_room(pair.ours.get(), room);
  settle();
  io_->cancel(receives);
  io_->cancel(room);
  until_done(receives);
  until_done(room);
  EXPECT_EQ(receives.result(), -ECANCELED);
  EXPECT_EQ(room.result(), -ECANCELED);
  put(pair.theirs, "late");
  take(pair.theirs);
  settle();
  EXPECT_EQ(receives.count() + room.count(), 2U);
  io_->receive(pair.ours.get(), receives);
  until_done(receives, 2);
  EXPECT_EQ(text_of(receives.completions.back()), "late");
}

TEST_P(IoLoopTest, CancellingWhatIsDoneChangesNothing) {
  const Pair pair = make_pair();
  Asked asked;
  put(pair.theirs, "x");
  io_->receive(pair.ours.get(), asked);
  until_done(asked);
  io_->cancel(asked);
  settle();
  EXPECT_EQ(asked.count(), 1U);
  EXPECT_EQ(text_of(asked.completions[0]), "x");
}

// ---- wake-ups ----

TEST_P(IoLoopTest, AWakeUpCompletesOnceAndIsRead) {
  const Wake wake(std::move(*make_wake_fd()));
  Asked asked;
  io_->await_wake(wake.fd(), asked);
  settle();
  EXPECT_EQ(asked.count(), 0U);
  wake.set();
  wake.set();
  until_done(asked);
  io_->await_wake(wake.fd(), asked);
  settle();
  EXPECT_EQ(asked.count(), 1U);
  wake.set();
  until_done(asked, 2);
}

// ---- files ----

TEST_P(IoLoopTest, FilesGiveBackWhatWasWritten) {
  using Copy = IoLoop::Copy;
  const Fd file = open_temporary();
  std::uint64_t offset = 0;
  for (const Copy copy : {Copy::kHere, Copy::kDevice, Copy::kWorker}) {
    for (const int flags : {0, RWF_DSYNC}) {
      std::string text = pattern(5000 + offset);
      const int written = file_result([&](Operation& operation) {
        io_->write(file.get(), std::as_bytes(std::span(text)), offset, flags, operation, copy);
      });
      ASSERT_EQ(written, static_cast<int>(text.size()));
      std::string back(text.size(), 0);
      const int read = file_result([&](Operation& operation) {
        io_->read(file.get(), std::as_writable_bytes(std::span(back)), offset, operation, copy);
      });
      ASSERT_EQ(read, static_cast<int>(back.size()));
      EXPECT_TRUE(back == text);
      offset += 7;
    }
  }
  EXPECT_EQ(file_result([&](Operation& operation) { io_->sync_data(file.get(), operation); }), 0);
  EXPECT_EQ(file_result([&](Operation& operation) { io_->fetch(file.get(), 0, 4096, operation); }),
            0);
}

TEST_P(IoLoopTest, AReadBehindTheEndIsZeroBytesAndAnErrorIsItsNumber) {
  const Fd file = open_temporary();
  const Fd unreadable(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  std::array<std::byte, 16> into;
  for (const auto copy : {IoLoop::Copy::kHere, IoLoop::Copy::kDevice, IoLoop::Copy::kWorker}) {
    const auto read = [&](const Fd& from) {
      return file_result(
          [&](Operation& operation) { io_->read(from.get(), into, 4096, operation, copy); });
    };
    EXPECT_EQ(read(file), 0);
    EXPECT_EQ(read(unreadable), -EBADF);
  }
}

TEST_P(IoLoopTest, AllocatePunchesHoles) {
  const Fd file = open_temporary();
  std::string text(65536, 'x');
  put(file, text);
  const int punched = file_result([&](Operation& operation) {
    io_->allocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192, operation);
  });
  if (punched == -EOPNOTSUPP) GTEST_SKIP() << "the file system has no holes";
  ASSERT_EQ(punched, 0);
  ASSERT_EQ(pread(file.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(text, std::string(4096, 'x') + std::string(8192, '\0') +
                      std::string(65536 - 4096 - 8192, 'x'));
}

TEST_P(IoLoopTest, ManyOperationsOnFilesCompleteOnceEach) {
  const Fd file = open_temporary();
  constexpr std::size_t kCount = 500;
  std::vector<Asked> asked(kCount);
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < kCount; ++i) texts.push_back(pattern(100 + i));
  for (std::size_t i = 0; i < kCount; ++i) {
    io_->write(file.get(), std::as_bytes(std::span(texts[i])), i * 4096, 0, asked[i],
               i % 2 == 0 ? IoLoop::Copy::kHere : IoLoop::Copy::kWorker);
  }
  for (const Asked& one : asked) until_done(one);
  settle();
  for (std::size_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(asked[i].count(), 1U);
    EXPECT_EQ(asked[i].result(), static_cast<int>(texts[i].size()));
  }
}

// ---- the loop ----

TEST_P(IoLoopTest, WaitsUntilTheTime) {
  for (const Nanoseconds span : {Nanoseconds{microseconds{1}}, Nanoseconds{microseconds{300}},
                                 Nanoseconds{milliseconds{3}}}) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_LE(turns_until(host::now() + span), kFewTurns);
    }
  }
}

TEST_P(IoLoopTest, AnEarlierTimeReplacesALaterOneAndTheReverse) {
  const Pair pair = make_pair();
  Asked asked;
  io_->receive(pair.ours.get(), asked);
  put(pair.theirs, "x");
  turn(host::now() + kStuck);  // ends early
  until_done(asked);
  text_of(asked.completions[0]);
  const Instant stuck = host::now() + kStuck;
  EXPECT_LE(turns_until(host::now() + microseconds{200}), kFewTurns);
  EXPECT_LT(host::now(), stuck);
  EXPECT_LE(turns_until(host::now() + milliseconds{2}), kFewTurns);
}

TEST_P(IoLoopTest, WhatCompletesAgainAndAgainDoesNotKeepATurnFromEnding) {
  const Pair pair = make_pair();
  Asked room;
  room.then = [&](const Completion&) { io_->poll_room(pair.ours.get(), room); };
  io_->poll_room(pair.ours.get(), room);
  until_done(room);
  const std::size_t before = room.count();
  turn(host::now());
  EXPECT_LE(room.count(), before + 1);
  room.then = nullptr;
  io_->cancel(room);
  settle();
}

// A connection at its limits has no operation in progress, whatever its client does.
TEST_P(IoLoopTest, APeerThatHasHungUpDoesNotKeepTheLoopAwake) {
  Pair unix_pair = make_pair();
  const Listener listener = make_listener();
  Fd client = connect_to(listener);
  const Fd ours(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  Asked asked;
  put(unix_pair.theirs, "x");
  io_->receive(unix_pair.ours.get(), asked);
  until_done(asked);
  text_of(asked.completions[0]);
  put(client, "x");
  io_->receive(ours.get(), asked);
  until_done(asked, 2);
  text_of(asked.completions[1]);
  put(unix_pair.theirs, "unread");
  unix_pair.theirs = Fd();
  const linger reset{1, 0};
  setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  client = Fd();
  EXPECT_LE(turns_until(host::now() + milliseconds{20}), kFewTurns);
  EXPECT_EQ(asked.count(), 2U);
}

TEST_P(IoLoopTest, TheNumberOfASocketMayComeAgain) {
  int number = -1;
  for (int i = 0; i < 3; ++i) {
    const Pair pair = make_pair();
    if (number == -1) number = pair.ours.get();
    EXPECT_EQ(pair.ours.get(), number);
    Asked asked;
    io_->receive(pair.ours.get(), asked);
    settle();
    put(pair.theirs, "x");
    until_done(asked);
    EXPECT_EQ(text_of(asked.completions[0]), "x");
    io_->forget(pair.ours.get());
  }
}

TEST(OpenIo, AutoIsOneOfThem) {
  auto opened = open_io(IoChoice::kAuto);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->loop->name() == "io_uring", opened->why_not_uring.empty());
}

}  // namespace
}  // namespace weir::host
