// SPDX-License-Identifier: Apache-2.0
#include "weir/serve/trace_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weir/target/trace_reader.h"

namespace weir::serve {
namespace {

// A request that arrives, runs and ends.
void pass(Target& target, Instant now) {
  Request request;
  target.admit(request, Head::kRegular, now);
  ASSERT_EQ(target.next(now).kind(), Decision::Kind::kRun);
  target.complete(request, now);
}

struct Read {
  TraceReader::Ending ending;
  int admitted = 0;
};

Read read(std::string_view text) {
  TraceReader reader([text](std::span<char> into) mutable -> Result<std::size_t> {
    const std::size_t size = std::min(into.size(), text.size());
    std::copy_n(text.begin(), size, into.begin());
    text.remove_prefix(size);
    return size;
  });
  int admitted = 0;
  while (const TraceRecord* const record = reader.next()) {
    if (record->kind == TraceKind::kAdmit) ++admitted;
  }
  return {reader.ending(), admitted};
}

class TraceFileTest : public testing::Test {
 protected:
  TraceFileTest()
      : path(testing::TempDir() + "trace_file." + std::to_string(getpid()) + "." +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {}
  ~TraceFileTest() override { std::filesystem::remove(path); }

  // Its calls go to the file.
  static std::unique_ptr<Target> traced(TraceFile& file) {
    const Target::Options options;
    auto target = std::make_unique<Target>(options, instant_at(0));
    target->record(&file.add_target({"one", options, {}, instant_at(0)}));
    return target;
  }
  std::string bytes() const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::string path;
};

TEST_F(TraceFileTest, WhatWasRecordedIsWrittenInOrderWhenItIsFinished) {
  auto file = TraceFile::create(path);
  ASSERT_TRUE(file) << file.error().message();
  const auto target = traced(**file);
  constexpr int kRequests = 20'000;  // several blocks
  for (int i = 0; i < kRequests; ++i) {
    pass(*target, instant_at(i));
    (*file)->turn(instant_at(i));
  }
  (*file)->finish();
  const std::string text = bytes();
  EXPECT_GT(text.size(), 2 * kTraceBlockBytes);
  const Read whole = read(text);
  EXPECT_EQ(whole.ending, TraceReader::Ending::kWhole);
  EXPECT_EQ(whole.admitted, kRequests);
  pass(*target, instant_at(kRequests));
  (*file)->turn(instant_at(kRequests));
  (*file)->finish();
  EXPECT_EQ(bytes(), text) << "nothing is recorded after the end";
}

TEST_F(TraceFileTest, ABlockThatIsNotFullGoesOutAfterAMoment) {
  auto file = TraceFile::create(path);
  ASSERT_TRUE(file);
  const auto target = traced(**file);
  pass(*target, instant_at(0));
  (*file)->turn(instant_at(0));
  EXPECT_EQ((*file)->wakes_at(), instant_at(0) + TraceFile::kLatency);
  (*file)->turn(instant_at(0) + TraceFile::kLatency);
  EXPECT_EQ((*file)->wakes_at(), kNever) << "nothing is left";
  while (bytes().empty()) std::this_thread::yield();  // the other thread writes it
}

TEST_F(TraceFileTest, ADiskThatIsFullEndsTheTraceAndNothingElse) {
  auto file = TraceFile::create("/dev/full");
  ASSERT_TRUE(file);
  const auto target = traced(**file);
  for (int i = 0; i < 20'000; ++i) {
    pass(*target, instant_at(i));
    (*file)->turn(instant_at(i));
  }
  (*file)->finish();
  EXPECT_EQ((*file)->wakes_at(), kNever);
}

// A pipe that is not read is the slowest possible file.
TEST_F(TraceFileTest, AFileThatCannotKeepUpEndsTheTraceEarly) {
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const host::Fd end(open(path.c_str(), O_RDWR | O_CLOEXEC));
  auto file = TraceFile::create(path);
  ASSERT_TRUE(file);
  const auto target = traced(**file);
  const RuleChange change = start_of({.name = "a", .conds = std::string(4000, 'x')});
  const std::size_t most = TraceFile::kWaitingMax / change.conds.size() + 100;
  // Under fifo it is refused each time, which is recorded too.
  for (std::size_t i = 0; i < most; ++i) EXPECT_FALSE(target->apply_rule(change, instant_at(0)));
  pass(*target, instant_at(1));
  std::string text;
  std::thread reader([&] {
    for (std::string piece(1 << 16, ' '); !text.ends_with("over");) {
      const ssize_t count = ::read(end.get(), piece.data(), piece.size());
      if (count > 0) text.append(piece, 0, static_cast<std::size_t>(count));
    }
  });
  (*file)->finish();
  EXPECT_EQ(write(end.get(), "over", 4), 4);
  reader.join();
  text.resize(text.size() - 4);
  const Read early = read(text);
  EXPECT_EQ(early.ending, TraceReader::Ending::kEarly);
  EXPECT_EQ(early.admitted, 0) << "it came too late";
}

TEST_F(TraceFileTest, AFileThatCannotBeMadeIsNamed) {
  const auto file = TraceFile::create("/nonexistent/trace");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, std::errc::no_such_file_or_directory);
  EXPECT_NE(file.error().message().find("trace '/nonexistent/trace'"), std::string::npos);
}

}  // namespace
}  // namespace weir::serve
