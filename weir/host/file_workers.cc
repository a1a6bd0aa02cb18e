// SPDX-License-Identifier: Apache-2.0
#include "weir/host/file_workers.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "weir/base/assert.h"
#include "weir/host/mailbox.h"
#include "weir/host/mutex.h"

namespace weir::host {

std::int32_t FileWorkers::run(const FileJob& job) {
  const auto offset = static_cast<off_t>(job.offset);
  const auto length = static_cast<off_t>(job.length);
  const iovec part{job.memory, job.length};
  ssize_t result = 0;
  switch (job.kind) {
    case FileJob::Kind::kRead:
      result = preadv(job.file, &part, 1, offset);
      break;
    case FileJob::Kind::kWrite:
      result = pwritev2(job.file, &part, 1, offset, job.flags);
      break;
    case FileJob::Kind::kSync:
      result = fdatasync(job.file);
      break;
    case FileJob::Kind::kAllocate:
      result = fallocate(job.file, job.flags, offset, length);
      break;
    case FileJob::Kind::kFetch:
      return -posix_fadvise(job.file, offset, length, POSIX_FADV_WILLNEED);
  }
  return static_cast<std::int32_t>(result < 0 ? -errno : result);
}

// State shared by the loop and the threads. A file is in `turns` when one of its jobs may start.
struct FileWorkers::Crew {
  Crew(Fd wake_fd, Run make_call) : run(std::move(make_call)), results(std::move(wake_fd)) {}

  struct Lane {  // the jobs of a file
    std::deque<FileJob> waiting;
    std::uint32_t running = 0;
    bool has_turn = false;
  };

  // False: the system refuses to start a thread.
  bool start_thread(const std::shared_ptr<Crew>& self) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void work();
  void give_turn(int file, Lane& lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  FileJob next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void ended(int file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Running jobs, and jobs that could start.
  std::uint32_t running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  std::uint32_t startable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  const Run run;
  Mailbox<FileResult> results;
  Mutex mutex;
  Condition changed;
  std::map<int, Lane> lanes ABSL_GUARDED_BY(mutex);
  std::deque<int> turns ABSL_GUARDED_BY(mutex);
  std::uint32_t threads ABSL_GUARDED_BY(mutex) = 0;
  std::uint32_t idle ABSL_GUARDED_BY(mutex) = 0;
  bool is_over ABSL_GUARDED_BY(mutex) = false;
};

// Detached, because the destructor must not wait for a call that may never return.
bool FileWorkers::Crew::start_thread(const std::shared_ptr<Crew>& self) {
  try {
    std::thread([self] { self->work(); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  ++threads;
  ++idle;  // it is about to look for a job
  return true;
}

void FileWorkers::Crew::give_turn(int file, Lane& lane) {
  if (lane.has_turn || lane.waiting.empty() || lane.running == kOfFileMax) return;
  lane.has_turn = true;
  turns.push_back(file);
}

FileJob FileWorkers::Crew::next() {
  const int file = turns.front();
  turns.pop_front();
  Lane& lane = lanes.at(file);
  lane.has_turn = false;
  const FileJob job = lane.waiting.front();
  lane.waiting.pop_front();
  ++lane.running;
  give_turn(file, lane);
  return job;
}

void FileWorkers::Crew::ended(int file) {
  const auto found = lanes.find(file);
  Lane& lane = found->second;
  --lane.running;
  give_turn(file, lane);
  if (lane.running == 0 && lane.waiting.empty()) lanes.erase(found);
}

std::uint32_t FileWorkers::Crew::running() const {
  std::uint32_t count = 0;
  for (const auto& [file, lane] : lanes) count += lane.running;
  return count;
}

std::uint32_t FileWorkers::Crew::startable() const {
  std::size_t count = 0;
  for (const auto& [file, lane] : lanes) {
    count += std::min<std::size_t>(lane.waiting.size(), kOfFileMax - lane.running);
  }
  return static_cast<std::uint32_t>(count);
}

void FileWorkers::Crew::work() {
  MutexLock lock(mutex);
  --idle;
  while (!is_over) {
    if (turns.empty()) {
      ++idle;
      changed.wait(lock);
      --idle;
      continue;
    }
    const FileJob job = next();
    lock.unlock();
    const std::int32_t result = run(job);
    // Fails only if the mailbox is closed; the result is then not needed.
    (void)results.put_always({job.operation, result});
    lock.lock();
    ended(job.file);
  }
  --threads;
  changed.notify_all();
}

Result<std::unique_ptr<FileWorkers>> FileWorkers::create(Run run) {
  auto wake_fd = make_wake_fd();
  if (!wake_fd) return tl::unexpected(wake_fd.error());
  auto crew = std::make_shared<Crew>(std::move(*wake_fd), std::move(run));
  const MutexLock lock(crew->mutex);
  if (!crew->start_thread(crew)) {
    return fail(std::errc::resource_unavailable_try_again, "threads for files", "cannot be started",
                "raise the limit of processes (ulimit -u, pids.max)");
  }
  return std::unique_ptr<FileWorkers>(new FileWorkers(crew));
}

// Waits only for idle threads, so that none of them remains.
FileWorkers::~FileWorkers() {
  crew_->results.close();
  const MutexLock lock(crew_->mutex);
  crew_->is_over = true;
  crew_->changed.notify_all();
  while (crew_->threads > crew_->running()) crew_->changed.wait(lock);
}

void FileWorkers::add(const FileJob& job) {
  const MutexLock lock(crew_->mutex);
  Crew::Lane& lane = crew_->lanes[job.file];
  lane.waiting.push_back(job);
  crew_->give_turn(job.file, lane);
  // An idle thread counts as idle until it runs, even if it was woken for another job.
  const std::uint32_t startable = crew_->startable();
  if (startable > crew_->idle && crew_->threads < kThreadsMax) {
    (void)crew_->start_thread(crew_);
  } else if (startable > 0) {
    crew_->changed.notify_one();
  }
}

bool FileWorkers::remove(const Operation& operation) {
  const MutexLock lock(crew_->mutex);
  for (auto& [file, lane] : crew_->lanes) {
    const auto found = std::find_if(lane.waiting.begin(), lane.waiting.end(),
                                    [&](const auto& job) { return job.operation == &operation; });
    if (found == lane.waiting.end()) continue;
    lane.waiting.erase(found);
    if (lane.waiting.empty() && lane.has_turn) {
      std::erase(crew_->turns, file);
      lane.has_turn = false;
    }
    if (lane.waiting.empty() && lane.running == 0) crew_->lanes.erase(file);
    return true;
  }
  return false;
}

int FileWorkers::fd() const { return crew_->results.fd(); }

std::vector<FileResult> FileWorkers::take() { return crew_->results.take(); }

std::uint32_t FileWorkers::thread_count() const {
  const MutexLock lock(crew_->mutex);
  return crew_->threads;
}

}  // namespace weir::host
