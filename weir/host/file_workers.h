// SPDX-License-Identifier: Apache-2.0
//
// Threads that make the calls on files which may wait, for an event loop that must not:
//
//   workers.add({.kind = FileJob::Kind::kSync, .file = file, .operation = &operation});
//   ... workers.fd() becomes readable ...
//   for (const FileResult& result : workers.take()) ...
//
// Threads are started when there is work for them, kThreadsMax at most, and stay. Jobs of one file
// run kOfFileMax at a time, and files take turns: a file whose calls never return holds that many
// threads and no more, so others continue. Results come through a Mailbox.
//
// A job that runs cannot be stopped. The destructor does not wait for such a job: its thread ends
// when the call returns, and its result is dropped. The file and the memory of the job must then
// outlive it, which a process that is about to end sees to. add(), remove(), take() and the
// destructor are for one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "weir/base/result.h"

namespace weir::host {

struct Operation;

struct FileJob {
  enum class Kind : std::uint8_t { kRead, kWrite, kSync, kAllocate, kFetch };
  Kind kind = Kind::kRead;
  int file = -1;
  int flags = 0;                // of kWrite: as in pwritev2(2); of kAllocate: as in fallocate(2)
  std::byte* memory = nullptr;  // of kRead and kWrite
  std::uint64_t length = 0;
  std::uint64_t offset = 0;
  Operation* operation = nullptr;  // is not touched by a thread
};

struct FileResult {
  Operation* operation = nullptr;
  std::int32_t result = 0;  // a count, or the errno below zero
};

class FileWorkers {
 public:
  // As many requests as a service runs at a time unless told otherwise (ServiceOptions::slots).
  static constexpr std::uint32_t kOfFileMax = 16;
  // Three files that hang leave as many for the others.
  static constexpr std::uint32_t kThreadsMax = 4 * kOfFileMax;

  // Makes the call; a count, or the errno below zero.
  using Run = std::function<std::int32_t(const FileJob& job)>;
  static std::int32_t run(const FileJob& job);

  // Starts one thread. With fewer than kThreadsMax, because the system allows no more, jobs wait
  // longer.
  static Result<std::unique_ptr<FileWorkers>> create(Run run = &FileWorkers::run);
  ~FileWorkers();
  FileWorkers(const FileWorkers&) = delete;
  FileWorkers& operator=(const FileWorkers&) = delete;

  void add(const FileJob& job);
  // Whether the operation's job waited, and is no more.
  bool remove(const Operation& operation);

  // Written to when there are results; need not be read by those who wait for the edge.
  int fd() const;
  std::vector<FileResult> take();

  std::uint32_t thread_count() const;

 private:
  struct Crew;

  explicit FileWorkers(std::shared_ptr<Crew> crew) : crew_(std::move(crew)) {}

  std::shared_ptr<Crew> crew_;  // its threads have it, too
};

}  // namespace weir::host
