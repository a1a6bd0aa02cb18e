// SPDX-License-Identifier: Apache-2.0
#include "weir/host/file_workers.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "weir/host/io_loop.h"
#include "weir/host/mutex.h"

namespace weir::host {
namespace {

constexpr int kStuckMs = 60'000;  // after this time a test counts as stuck

bool await_results(const FileWorkers& workers) {
  pollfd waits{workers.fd(), POLLIN, 0};
  eventfd_t wakes = 0;
  return poll(&waits, 1, kStuckMs) == 1 && eventfd_read(workers.fd(), &wakes) == 0;
}

// Calls that block until they are released.
struct Gated {
  Mutex mutex;
  Condition changed;
  std::set<int> open ABSL_GUARDED_BY(mutex);  // files
  std::uint32_t inside ABSL_GUARDED_BY(mutex) = 0;
  std::uint32_t most ABSL_GUARDED_BY(mutex) = 0;

  std::int32_t run(const FileJob& job) {
    const MutexLock lock(mutex);
    most = std::max(most, ++inside);
    changed.notify_all();
    while (open.count(job.file) == 0) changed.wait(lock);
    --inside;
    return job.file;
  }
  void let(int file) {
    const MutexLock lock(mutex);
    open.insert(file);
    changed.notify_all();
  }
  void await_inside(std::uint32_t count) {
    const MutexLock lock(mutex);
    while (inside != count) changed.wait(lock);
  }
  std::uint32_t most_inside() {
    const MutexLock lock(mutex);
    return most;
  }
};

class FileWorkersTest : public testing::Test {
 protected:
  FileWorkersTest()
      : workers_(std::move(*FileWorkers::create(
            [gated = gated_](const FileJob& job) { return gated->run(job); }))) {}
  ~FileWorkersTest() override {
    for (int file = 0; file < 10; ++file) gated_->let(file);
  }

  void add(int file, Operation& operation) {
    workers_->add({.kind = FileJob::Kind::kSync, .file = file, .operation = &operation});
  }
  std::vector<FileResult> await(std::size_t count) {
    std::vector<FileResult> all;
    while (all.size() < count) {
      if (!await_results(*workers_)) break;
      for (const FileResult& one : workers_->take()) all.push_back(one);
    }
    return all;
  }

  // Shared with threads that may outlive the test.
  std::shared_ptr<Gated> gated_ = std::make_shared<Gated>();
  std::unique_ptr<FileWorkers> workers_;
};

TEST_F(FileWorkersTest, StartsAThreadForEachJobThatCanRun) {
  std::array<Operation, 5> operations;
  EXPECT_EQ(workers_->thread_count(), 1U);
  for (Operation& one : operations) add(1, one);
  gated_->await_inside(5);
  EXPECT_EQ(workers_->thread_count(), 5U);
  gated_->let(1);
  EXPECT_EQ(await(5).size(), 5U);
}

TEST_F(FileWorkersTest, AFileThatHangsHoldsSoManyThreadsAndNoMore) {
  std::array<Operation, 3 * FileWorkers::kOfFileMax> stuck;
  for (Operation& one : stuck) add(1, one);
  gated_->await_inside(FileWorkers::kOfFileMax);
  gated_->let(2);
  std::array<Operation, 40> others;
  for (Operation& one : others) add(2, one);
  const auto results = await(others.size());
  ASSERT_EQ(results.size(), others.size());
  for (const FileResult& one : results) EXPECT_EQ(one.result, 2);
  gated_->let(1);
  EXPECT_EQ(await(stuck.size()).size(), stuck.size());
}

TEST_F(FileWorkersTest, ThereAreNeverMoreThreadsThanTheBound) {
  std::vector<Operation> operations(10 * FileWorkers::kOfFileMax);
  for (std::size_t i = 0; i < operations.size(); ++i) add(static_cast<int>(i % 10), operations[i]);
  gated_->await_inside(FileWorkers::kThreadsMax);
  EXPECT_EQ(workers_->thread_count(), FileWorkers::kThreadsMax);
  for (int file = 0; file < 10; ++file) gated_->let(file);
  EXPECT_EQ(await(operations.size()).size(), operations.size());
  EXPECT_EQ(gated_->most_inside(), FileWorkers::kThreadsMax);
}

TEST_F(FileWorkersTest, AJobThatWaitsCanBeRemovedAndOneThatRunsCannot) {
  std::array<Operation, FileWorkers::kOfFileMax + 1> operations;
  for (Operation& one : operations) add(1, one);
  gated_->await_inside(FileWorkers::kOfFileMax);
  EXPECT_TRUE(workers_->remove(operations.back()));
  EXPECT_FALSE(workers_->remove(operations.back()));
  EXPECT_FALSE(workers_->remove(operations.front()));
  gated_->let(1);
  for (const FileResult& one : await(FileWorkers::kOfFileMax)) {
    EXPECT_NE(one.operation, &operations.back());
  }
  EXPECT_TRUE(workers_->take().empty());
}

TEST_F(FileWorkersTest, TheEndDoesNotWaitForACallThatNeverReturns) {
  Operation stuck;
  add(1, stuck);
  gated_->await_inside(1);
  workers_.reset();  // hangs if it waits
}

TEST(FileWorkers, ReportsWhatTheCallSays) {
  auto workers = std::move(*FileWorkers::create());
  Operation operation;
  for (const auto kind : {FileJob::Kind::kRead, FileJob::Kind::kWrite, FileJob::Kind::kSync,
                          FileJob::Kind::kAllocate, FileJob::Kind::kFetch}) {
    workers->add({.kind = kind, .file = -1, .operation = &operation});
    ASSERT_TRUE(await_results(*workers));
    const auto results = workers->take();
    ASSERT_EQ(results.size(), 1U);
    EXPECT_EQ(results[0].result, -EBADF);
  }
}

}  // namespace
}  // namespace weir::host
