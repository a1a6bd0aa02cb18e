// SPDX-License-Identifier: Apache-2.0
//
// Standard error of this process is replaced by a pipe, a full disk, or closed.
#include "weir/host/log.h"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "weir/host/fd.h"

namespace weir::host {
namespace {

// Replaces standard error as long as this object exists.
class Replaced {
 public:
  explicit Replaced(int with) : before_(dup(STDERR_FILENO)) { dup2(with, STDERR_FILENO); }
  ~Replaced() { dup2(before_.get(), STDERR_FILENO); }

 private:
  Fd before_;
};

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    from = Fd(ends[0]);
    to = Fd(ends[1]);
  }
  // Everything that was written, after the other end was closed.
  std::string rest() const {
    std::string text;
    char some[4096];
    for (ssize_t got = 0; (got = read(from.get(), some, sizeof some)) > 0;) {
      text.append(some, static_cast<std::size_t>(got));
    }
    return text;
  }
  Fd from;
  Fd to;
};

// Reports texts that earlier tests lost, so that the next test does not.
void settle() {
  const Fd nowhere(open("/dev/null", O_WRONLY | O_CLOEXEC));
  const Replaced replaced(nowhere.get());
  const LogWriter writer;
  log_text("\n");
}

TEST(Log, IsWrittenInOrder) {
  settle();
  Pipe pipe;
  const std::uint64_t before = log_dropped();
  {
    const Replaced replaced(pipe.to.get());
    log_text("by the caller\n");
    const LogWriter writer;
    for (const char* text : {"one\n", "two\n", "three\n"}) log_text(text);
  }
  pipe.to = Fd();
  EXPECT_EQ(pipe.rest(), "by the caller\none\ntwo\nthree\n");
  EXPECT_EQ(log_dropped(), before);
}

TEST(Log, ThatCannotBeWrittenIsCounted) {
  const Fd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  const Replaced replaced(full.get());
  const std::uint64_t before = log_dropped();
  log_text("by the caller\n");
  EXPECT_EQ(log_dropped(), before + 1);
  {
    const LogWriter writer;
    log_text("by the writer\n");
  }
  EXPECT_EQ(log_dropped(), before + 2);
}

TEST(Log, WithoutAReaderRaisesNoSignal) {
  ASSERT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL);
  Pipe pipe;
  pipe.from = Fd();
  const Replaced replaced(pipe.to.get());
  const std::uint64_t before = log_dropped();
  log_text("by the caller\n");
  {
    const LogWriter writer;
    log_text("by the writer\n");
  }
  EXPECT_EQ(log_dropped(), before + 2);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

// The pipe is full: threads that log continue, and lost texts are reported.
TEST(Log, ThatNobodyReadsHoldsUpNobody) {
  Pipe pipe;
  fcntl(pipe.to.get(), F_SETFL, O_NONBLOCK);
  const std::string page(4096, '.');
  while (write(pipe.to.get(), page.data(), page.size()) > 0) {
  }
  fcntl(pipe.to.get(), F_SETFL, 0);
  const std::uint64_t before = log_dropped();
  std::string text;
  {
    const Replaced replaced(pipe.to.get());
    const LogWriter writer;
    for (std::size_t i = 0; i < 3 * kLogTextsMax; ++i) log_text("a line\n");
    EXPECT_GE(log_dropped(), before + kLogTextsMax);
    std::thread reader([&] {
      char some[4096];
      while (text.find("could not be written") == std::string::npos) {
        const ssize_t got = read(pipe.from.get(), some, sizeof some);
        if (got <= 0) return;
        text.append(some, static_cast<std::size_t>(got));
      }
    });
    reader.join();
    log_text("the last\n");
  }
  pipe.to = Fd();
  EXPECT_TRUE(pipe.rest().ends_with("the last\n"));
}

// The writer hangs for ever; the process still exits, and another writer can start.
TEST(Log, ThatHangsDoesNotKeepTheProcessFromEnding) {
  Pipe pipe;
  fcntl(pipe.to.get(), F_SETFL, O_NONBLOCK);
  const std::string page(4096, '.');
  while (write(pipe.to.get(), page.data(), page.size()) > 0) {
  }
  fcntl(pipe.to.get(), F_SETFL, 0);
  const std::uint64_t before = log_dropped();
  {
    const Replaced replaced(pipe.to.get());
    const LogWriter writer;
    log_text("stuck\n");
  }
  pipe.from = Fd();  // the write ends with an error
  {
    const LogWriter writer;
    log_text("");
  }
  EXPECT_GE(log_dropped(), before + 1);
}

}  // namespace
}  // namespace weir::host
