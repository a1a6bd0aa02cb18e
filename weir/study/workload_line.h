// SPDX-License-Identifier: Apache-2.0
//
// Lines of workloads that other programs have recorded, one at a time. A LineParser knows the
// format of its file and turns each line into a request, or says why it is none:
//
//   fio iolog, version 2   FILE ACTION OFFSET LENGTH; no times, but `wait` with microseconds
//   fio iolog, version 3   MICROSECONDS FILE ACTION OFFSET LENGTH            fio(1), iolog.c
//   blkparse               MAJOR,MINOR CPU SEQUENCE SECONDS PID ACTION RWBS SECTOR + SECTORS [COMM]
//   MSR Cambridge          Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime; time in
//                          units of 100 ns
//   Weir's CSV             time_s,job,op,bytes
//
// The two CSV formats may begin with a line of column names, which may then be in another order and
// beside other columns; those are ignored and listed.
//
// Lines are not trusted: numbers are bounded, and the texts of a request are parts of its line,
// valid as long as the line is. One parser for each file, since lines depend on earlier ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weir::study {

enum class WorkloadFormat : std::uint8_t { kIolog2, kIolog3, kBlkparse, kMsr, kCsv, kWeirTrace };
std::string_view format_name(WorkloadFormat format);

// What rules can test, and jobs can be named after.
enum class WorkloadField : std::uint8_t {
  kFile,    // fio: the file, or its last part
  kComm,    // blkparse: the command
  kPid,     // blkparse
  kDevice,  // blkparse: "8,0"
  kHost,    // MSR
  kVolume,  // MSR: "usr_0", host and disk
  kJob,     // Weir
  kUid,     // Weir's trace
  kClient,  // Weir's trace: NID
};
inline constexpr std::size_t kWorkloadFields = 9;
std::string_view field_name(WorkloadField field);
std::optional<WorkloadField> field_by(std::string_view name);
bool has_field(WorkloadFormat format, WorkloadField field);
// What jobs are named after unless another field is chosen.
WorkloadField usual_field(WorkloadFormat format);

// A larger request is a mistake, and so is a time that is further from the first one.
inline constexpr std::uint64_t kWorkloadBytesMax = std::uint64_t{1} << 40;

struct WorkloadRequest {
  std::uint64_t ticks = 0;  // of `tick_of(format)`
  bool is_read = true;
  std::uint64_t bytes = 0;
  std::array<std::string_view, kWorkloadFields> fields;

  std::string_view of(WorkloadField field) const { return fields[static_cast<std::size_t>(field)]; }
};
std::uint64_t tick_ns(WorkloadFormat format);

// Why a line that was understood is not a request that can be simulated.
enum class Skipped : std::uint8_t {
  kFlush,
  kTrim,
  kEmpty,        // reads and writes of 0 bytes
  kPassThrough,  // commands to the device, which have no position
  kOtherKind,    // metadata, locks and other operations
  kOtherEvent,   // blkparse: of other stages of a request
  kNoEvent,      // blkparse: messages and the summary at the end
  kLeftOut,      // by a rule
  kNoRule,       // no rule matches, and jobs are named by rules only
};
inline constexpr std::size_t kSkippedKinds = 9;
std::string_view skipped_text(Skipped skipped);

class LineParser {
 public:
  enum class Kind : std::uint8_t { kRequest, kNothing, kSkipped, kWrong };

  // The format that the first line of a file has; none if it has no known one.
  static std::optional<WorkloadFormat> detect(std::string_view line);

  // `stage` is the action of blkparse that counts as arrival: Q, or D.
  explicit LineParser(WorkloadFormat format, char stage = 'Q');

  // Without its newline.
  Kind parse(std::string_view line);

  const WorkloadRequest& request() const { return request_; }  // after kRequest
  Skipped skipped() const { return skipped_; }                 // after kSkipped
  const std::string& wrong() const { return wrong_; }          // after kWrong
  bool is_timed() const { return format_ != WorkloadFormat::kIolog2 || has_waits_; }
  // Runs of fio that were appended to the file; each continues after the one before.
  std::uint64_t appended() const { return appended_; }
  // Events of blkparse at the other stage, D or Q.
  std::uint64_t at_other_stage() const { return at_other_stage_; }
  const std::vector<std::string>& ignored_columns() const { return ignored_; }

 private:
  static constexpr std::size_t kColumnsMax = 32;

  Kind parse_iolog(std::string_view line);
  Kind parse_wait(std::string_view microseconds);
  Kind parse_blkparse(std::string_view line);
  Kind parse_csv(std::string_view line);
  Kind read_header(std::string_view line);
  Kind set_operation(std::string_view type);
  Kind skip(Skipped why);
  Kind refuse(std::string why);
  bool set_bytes(std::string_view text, std::uint64_t unit);
  void set(WorkloadField field, std::string_view text) {
    request_.fields[static_cast<std::size_t>(field)] = text;
  }

  WorkloadFormat format_;
  char stage_;
  bool has_header_ = false;
  std::vector<std::size_t> columns_;  // CSV: where each known column is
  std::size_t columns_count_ = 0;
  std::vector<std::string_view> parts_;  // of the last line
  std::vector<std::string> ignored_;
  std::string missing_;       // why lines cannot be read: a column that is not there
  std::uint64_t base_ = 0;    // fio: time of the end of earlier runs; version 2: of waits
  std::uint64_t latest_ = 0;  // fio: the latest time
  bool has_waits_ = false;
  std::uint64_t appended_ = 0;
  std::uint64_t at_other_stage_ = 0;
  WorkloadRequest request_;
  std::string volume_;  // referred to by request_
  Skipped skipped_ = Skipped::kFlush;
  std::string wrong_;
};

}  // namespace weir::study
