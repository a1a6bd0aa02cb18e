// SPDX-License-Identifier: Apache-2.0
//
// Threads for calls on files that may block, for an event loop that must not:
//
//   workers.add({.kind = FileJob::Kind::kSync, .file = file, .operation = &operation});
//   ... workers.fd() becomes readable ...
//   for (const FileResult& result : workers.take()) ...
//
// Threads are started when there is work for them, at most kThreadsMax, and are kept. At most
// kOfFileMax jobs of one file run at a time, and files take turns: a file whose calls never return
// occupies only that many threads, so others continue. Results arrive through a Mailbox.
//
// A running job cannot be stopped. The destructor does not wait for it: its thread ends when the
// call returns, and its result is dropped. The file and the memory of the job must outlive the
// call, as they do in a process that is about to exit. add(), remove(), take() and the destructor
// are for one thread.
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
  Operation* operation = nullptr;  // not accessed by the threads
};

struct FileResult {
  Operation* operation = nullptr;
  std::int32_t result = 0;  // a count, or the errno below zero
};

class FileWorkers {
 public:
  // The default number of requests that a service runs at a time (ServiceOptions::slots).
  static constexpr std::uint32_t kOfFileMax = 16;
  // Three files that hang leave kOfFileMax threads for the others.
  static constexpr std::uint32_t kThreadsMax = 4 * kOfFileMax;

  // Makes the call and returns a count, or a negative errno.
  using Run = std::function<std::int32_t(const FileJob& job)>;
  static std::int32_t run(const FileJob& job);

  // Starts one thread. If the system allows fewer than kThreadsMax threads, jobs wait longer.
  static Result<std::unique_ptr<FileWorkers>> create(Run run = &FileWorkers::run);
  ~FileWorkers();
  FileWorkers(const FileWorkers&) = delete;
  FileWorkers& operator=(const FileWorkers&) = delete;

  void add(const FileJob& job);
  // Removes the job of the operation if it has not started; returns whether it was.
  bool remove(const Operation& operation);

  // Becomes readable when there are results; edge-triggered waiters need not read it.
  int fd() const;
  std::vector<FileResult> take();

  std::uint32_t thread_count() const;

 private:
  struct Crew;

  explicit FileWorkers(std::shared_ptr<Crew> crew) : crew_(std::move(crew)) {}

  std::shared_ptr<Crew> crew_;  // shared with its threads
};

}  // namespace weir::host
