// SPDX-License-Identifier: Apache-2.0
//
// Reads a recorded workload (workload_line.h) from its file, request by request and in order of
// time, and counts what it could not use. Memory does not depend on the size of the file: a buffer
// of 256 KiB, 4,096 requests to be put in order, and the first few problems as text.
//
//   WorkloadReader reader(file, map);
//   for (;;) { auto entry = reader.next(); ... }      Result; none at the end
//   reader.report()                                   what was read so far
//
// Order. Recorders write a request when it is done, or from several processors, so lines may be
// somewhat out of order: the reader sorts 4,096 of them at a time. A request that is still earlier
// than the previous one is moved to the time of that one. If this happens to more than 1 % of the
// requests the file is not sorted, which is an error. So is a file of which more lines cannot be
// understood than can.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weir/base/result.h"
#include "weir/base/time.h"
#include "weir/sim/scenario.h"
#include "weir/study/job_map.h"
#include "weir/study/workload_line.h"

namespace weir::study {

// A file, and what is known about it before it is read.
struct WorkloadFile {
  std::string path;
  WorkloadFormat format = WorkloadFormat::kMsr;
  char stage = 'Q';                                    // of blkparse
  std::optional<std::uint64_t> origin = std::nullopt;  // time 0; none: the first request
  std::optional<Nanoseconds> until = std::nullopt;     // do not read beyond
};
// Finds the format. EINVAL for a file that is none of the known ones, with what to do about it.
Result<WorkloadFile> open_workload(const std::string& path);

struct WorkloadReport {
  static constexpr std::size_t kKept = 3;
  static constexpr std::size_t kDevicesKept = 4;

  WorkloadFile file;
  std::uint64_t lines = 0;  // or records of a trace
  std::uint64_t requests = 0;
  std::uint64_t reads = 0;
  std::uint64_t bytes = 0;
  std::uint64_t largest = 0;
  std::uint64_t first_ticks = 0;
  Nanoseconds length{0};  // from time 0 to the last request
  bool is_timed = true;
  bool is_stopped = false;  // at `until`
  std::array<std::uint64_t, kSkippedKinds> skipped{};
  std::uint64_t wrong = 0;               // lines that were not understood
  std::vector<std::string> first_wrong;  // "line 17: ..."
  std::uint64_t sorted = 0;              // requests that were out of order
  std::uint64_t moved = 0;               // and too far to be sorted
  Nanoseconds moved_longest{0};
  std::string cut;  // why the end is missing; empty: it is not
  std::uint64_t appended = 0;
  std::uint64_t at_other_stage = 0;
  std::vector<std::string> ignored_columns;
  std::vector<std::string> devices;  // the first few, if it names them
  std::uint64_t in_others = 0;       // requests in the job for too many names
  std::uint64_t digest = 0;          // of all requests
};

class RequestSource;

class WorkloadReader {
 public:
  static constexpr std::size_t kLineMax = 65'536;
  static constexpr std::size_t kSortMax = 4096;
  static constexpr std::uint64_t kWrongMin = 1000;  // lines, before a file is given up

  // REQUIRES: the map outlives it.
  WorkloadReader(const WorkloadFile& file, JobMap& map);
  WorkloadReader(const WorkloadReader&) = delete;
  WorkloadReader& operator=(const WorkloadReader&) = delete;
  ~WorkloadReader();

  Result<std::optional<sim::TraceEntry>> next();
  const WorkloadReport& report() const { return report_; }

 private:
  struct Entry {
    std::uint64_t ticks = 0;
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    std::uint32_t job = 0;
    bool is_read = true;

    // For a heap with the earliest on top.
    bool operator<(const Entry& other) const {
      return ticks != other.ticks ? ticks > other.ticks : number > other.number;
    }
  };

  Result<void> fill();
  Result<void> add(const WorkloadRequest& request);
  void note_device(const WorkloadRequest& request);
  Result<void> check_order() const;
  Result<std::optional<sim::TraceEntry>> emit();

  JobMap& map_;
  WorkloadReport report_;
  std::unique_ptr<RequestSource> source_;
  bool is_at_end_ = false;
  std::vector<Entry> heap_;
  std::uint64_t added_ = 0;
  std::uint64_t latest_ = 0;                // of all that were added
  std::optional<std::uint64_t> reference_;  // the first time in the file
  std::optional<std::uint64_t> emitted_;    // the last time that was returned
};

}  // namespace weir::study
