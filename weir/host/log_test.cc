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
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
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

// A journal of this test.
class FakeJournal {
 public:
  FakeJournal()
      : path_(testing::TempDir() + "journal." + std::to_string(getpid())),
        fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~FakeJournal() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  // The next entry; empty if there is none.
  std::string next() const {
    char some[4096];
    const ssize_t got = recv(fd_.get(), some, sizeof some, MSG_DONTWAIT);
    return got < 0 ? std::string() : std::string(some, static_cast<std::size_t>(got));
  }

 private:
  std::string path_;
  Fd fd_;
};

TEST(Log, EventsHaveFieldsInTheJournal) {
  settle();
  const FakeJournal journal;
  Pipe pipe;
  {
    const Replaced replaced(pipe.to.get());
    const LogWriter writer(journal.path());
    const std::vector<LogField> fields = {{"WEIR_WHO", "uid 0"}};
    log_event({.level = LogLevel::kWarning, .name = "tls", .text = "expired", .fields = fields});
    log_text("a plain line\n");
  }
  pipe.to = Fd();
  EXPECT_EQ(
      journal.next(),
      "MESSAGE=expired\nPRIORITY=4\nSYSLOG_IDENTIFIER=weir\nWEIR_EVENT=tls\nWEIR_WHO=uid 0\n");
  EXPECT_EQ(journal.next(), "");
  EXPECT_EQ(pipe.rest(), "a plain line\n");
}

TEST(Log, EventsAreLinesWithoutAJournal) {
  settle();
  const std::uint64_t before = log_dropped();
  Pipe pipe;
  {
    const Replaced replaced(pipe.to.get());
    log_event({.text = "by the caller"});
    {
      const LogWriter writer;
      log_event({.text = "by the writer"});
    }
    const LogWriter writer("/nonexistent/journal");
    log_event({.text = "not taken by the journal"});
  }
  pipe.to = Fd();
  EXPECT_EQ(pipe.rest(),
            "weir serve: by the caller\nweir serve: by the writer\n"
            "weir serve: not taken by the journal\n");
  EXPECT_EQ(log_dropped(), before);
}

TEST(JournalEntry, AValueWithANewlineHasItsLength) {
  using namespace std::string_literals;
  const std::vector<LogField> fields = {{"A", "x\nB=y"}, {"C", "1"}};
  EXPECT_EQ(journal_entry(fields), "A\n\x05\0\0\0\0\0\0\0x\nB=y\nC=1\n"s);
}

TEST(IsJournal, ComparesTheStreamThatSystemdMade) {
  const Pipe pipe;
  struct stat found {};
  ASSERT_EQ(fstat(pipe.to.get(), &found), 0);
  const std::string stream = fmt::format("{}:{}", found.st_dev, found.st_ino);
  EXPECT_TRUE(is_journal(pipe.to.get(), stream.c_str()));
  EXPECT_FALSE(is_journal(STDERR_FILENO, stream.c_str())) << "redirected elsewhere";
  EXPECT_FALSE(is_journal(pipe.to.get(), nullptr));
  EXPECT_FALSE(is_journal(pipe.to.get(), "nonsense"));
}

}  // namespace
}  // namespace weir::host
