// SPDX-License-Identifier: Apache-2.0
#include "weir/study/workload_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"
#include "weir/base/units.h"
#include "weir/classify/opcode.h"
#include "weir/host/files.h"
#include "weir/target/trace_reader.h"

namespace weir::study {

// Requests of a file in the order of the file.
class RequestSource {
 public:
  RequestSource() = default;
  RequestSource(const RequestSource&) = delete;
  RequestSource& operator=(const RequestSource&) = delete;
  virtual ~RequestSource() = default;

  // nullptr at the end. Counts in the report what is not a request.
  virtual Result<const WorkloadRequest*> next(WorkloadReport& report) = 0;
  // Reports what is known of the file as a whole; no other call follows.
  virtual void finish(WorkloadReport& report) const = 0;
};

namespace {

constexpr std::size_t kBufferSize = std::size_t{256} << 10;

// Cures for files that are recognized and cannot be read.
struct Known {
  std::string_view magic;
  std::string_view what;
  std::string_view hint;
};
constexpr Known kKnown[] = {
    {"\x1f\x8b", "is compressed", "use zcat FILE > NEW, and NEW"},
    {"\xfd"
     "7zXZ",
     "is compressed", "use xzcat FILE > NEW, and NEW"},
    {"\x28\xb5\x2f\xfd", "is compressed", "use zstdcat FILE > NEW, and NEW"},
    {"BZh", "is compressed", "use bzcat FILE > NEW, and NEW"},
    {"\x07tae", "is binary output of blktrace", "use blkparse -i FILE > NEW, and NEW"},
};

tl::unexpected<Error> refuse(const std::string& path, std::string_view what,
                             std::string_view hint = {}) {
  return fail(std::errc::invalid_argument, quote(path), what, hint);
}

void note_wrong(WorkloadReport& report, std::string text) {
  ++report.wrong;
  if (report.first_wrong.size() < WorkloadReport::kKept) {
    report.first_wrong.push_back(std::move(text));
  }
}

// Lines of a file, with a bounded buffer.
class Lines {
 public:
  Lines(std::string path, host::ByteSource source)
      : path_(std::move(path)), source_(std::move(source)), buffer_(kBufferSize) {}

  // Without the newline, valid until the next call. None at the end; rest() is then what follows
  // the last newline.
  Result<std::optional<std::string_view>> next() {
    for (;;) {
      const char* const begin = buffer_.data() + begin_;
      const auto* const newline = static_cast<const char*>(std::memchr(begin, '\n', end_ - begin_));
      if (newline != nullptr) {
        const auto size = static_cast<std::size_t>(newline - begin);
        begin_ += size + 1;
        ++number_;
        if (size > WorkloadReader::kLineMax) return too_long();
        return std::string_view(begin, size);
      }
      if (is_at_end_) return std::nullopt;
      if (end_ - begin_ > WorkloadReader::kLineMax) {
        ++number_;
        return too_long();
      }
      if (auto filled = fill(); !filled) return tl::unexpected(filled.error());
    }
  }
  std::string_view rest() const { return {buffer_.data() + begin_, end_ - begin_}; }
  std::uint64_t number() const { return number_; }

 private:
  Result<void> fill() {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const auto count = source_(std::span<char>(buffer_).subspan(end_));
    if (!count) return tl::unexpected(count.error());
    is_at_end_ = *count < buffer_.size() - end_;
    end_ += *count;
    return {};
  }
  tl::unexpected<Error> too_long() const {
    return refuse(path_,
                  fmt::format("line {} is longer than {} bytes", number_, WorkloadReader::kLineMax),
                  "the file is damaged, or not a text");
  }

  std::string path_;
  host::ByteSource source_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::uint64_t number_ = 0;
  bool is_at_end_ = false;
};

class TextRequests final : public RequestSource {
 public:
  TextRequests(const WorkloadFile& file, host::ByteSource source)
      : lines_(file.path, std::move(source)), parser_(file.format, file.stage) {}

  Result<const WorkloadRequest*> next(WorkloadReport& report) override {
    for (;;) {
      const auto line = lines_.next();
      if (!line) return tl::unexpected(line.error());
      report.lines = lines_.number();
      if (!*line) {
        if (!lines_.rest().empty()) report.cut = "the last line has no newline and was left out";
        return nullptr;
      }
      switch (parser_.parse(**line)) {
        case LineParser::Kind::kRequest:
          return &parser_.request();
        case LineParser::Kind::kNothing:
          break;
        case LineParser::Kind::kSkipped:
          ++report.skipped[static_cast<std::size_t>(parser_.skipped())];
          break;
        case LineParser::Kind::kWrong:
          note_wrong(report, fmt::format("line {}: {}", lines_.number(), parser_.wrong()));
          if (auto enough = check_wrong(report); !enough) return tl::unexpected(enough.error());
          break;
      }
    }
  }

  void finish(WorkloadReport& report) const override {
    report.is_timed = parser_.is_timed();
    report.appended = parser_.appended();
    report.at_other_stage = parser_.at_other_stage();
    report.ignored_columns = parser_.ignored_columns();
  }

 private:
  static Result<void> check_wrong(const WorkloadReport& report) {
    if (report.wrong < WorkloadReader::kWrongMin || report.wrong <= report.requests) return {};
    return refuse(report.file.path,
                  fmt::format("{} of the first {} lines are not {}: {}", report.wrong, report.lines,
                              format_name(report.file.format), report.first_wrong.front()));
  }

  Lines lines_;
  LineParser parser_;
};

// Admissions in a trace of weir serve.
class TraceRequests final : public RequestSource {
 public:
  explicit TraceRequests(host::ByteSource source) : reader_(std::move(source)) {}

  Result<const WorkloadRequest*> next(WorkloadReport& report) override {
    while (const TraceRecord* record = reader_.next()) {
      ++report.lines;
      if (record->kind != TraceKind::kAdmit) continue;
      if (take(*record, report)) return &request_;
    }
    using Ending = TraceReader::Ending;
    const Ending ending = reader_.ending();
    if (ending == Ending::kUnread) {
      return fail(std::errc::io_error, quote(report.file.path), reader_.complaint());
    }
    if (ending == Ending::kForeign || ending == Ending::kDamaged) {
      return refuse(report.file.path, reader_.complaint());
    }
    if (ending != Ending::kWhole) report.cut = reader_.complaint();
    return nullptr;
  }
  void finish(WorkloadReport& /*report*/) const override {}

 private:
  bool take(const TraceRecord& record, WorkloadReport& report) {
    const OperationKind kind = operation_kind(record.attributes->opcode);
    const auto skip = [&report](Skipped why) {
      ++report.skipped[static_cast<std::size_t>(why)];
      return false;
    };
    if (kind == OperationKind::kFlush) return skip(Skipped::kFlush);
    if (kind == OperationKind::kDiscard) return skip(Skipped::kTrim);
    if (kind != OperationKind::kRead && kind != OperationKind::kWrite) {
      return skip(Skipped::kOtherKind);
    }
    if (record.bytes.count() == 0) return skip(Skipped::kEmpty);
    request_.ticks = static_cast<std::uint64_t>(ns_of(record.now));
    request_.is_read = kind == OperationKind::kRead;
    request_.bytes = record.bytes.count();
    uid_ = record.attributes->uid == kUnknownId ? "" : std::to_string(record.attributes->uid);
    client_ = print_nid(record.attributes->nid);
    set(WorkloadField::kJob, record.attributes->job.text());
    set(WorkloadField::kUid, uid_);
    set(WorkloadField::kClient, client_);
    return true;
  }
  void set(WorkloadField field, std::string_view text) {
    request_.fields[static_cast<std::size_t>(field)] = text;
  }

  TraceReader reader_;
  WorkloadRequest request_;
  std::string uid_;
  std::string client_;
};

std::unique_ptr<RequestSource> make_source(const WorkloadFile& file, host::ByteSource source) {
  if (file.format == WorkloadFormat::kWeirTrace) {
    return std::make_unique<TraceRequests>(std::move(source));
  }
  return std::make_unique<TextRequests>(file, std::move(source));
}

}  // namespace

Result<WorkloadFile> open_workload(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  // A pipe cannot be read again for the next policy, and opening it would wait for a writer.
  if (!error && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    return refuse(path, "is not a regular file", "save the workload to a file first");
  }
  auto source = host::open_source(path);
  if (!source) return tl::unexpected(source.error());
  std::string head(WorkloadReader::kLineMax, '\0');
  const auto count = (*source)(std::span<char>(head.data(), head.size()));
  if (!count) return tl::unexpected(count.error());
  head.resize(*count);
  if (head.empty()) return refuse(path, "is empty");
  if (head.starts_with(kTraceMagic)) return WorkloadFile{path, WorkloadFormat::kWeirTrace};
  for (const Known& known : kKnown) {
    if (head.starts_with(known.magic)) return refuse(path, known.what, known.hint);
  }
  std::string_view rest = head;
  std::string_view first;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line == "\r" || line.front() == '#') continue;
    if (const auto format = LineParser::detect(line)) return WorkloadFile{path, *format};
    first = line;
    break;
  }
  return refuse(path, fmt::format("is not a workload: it begins with {}", quote(first)),
                "expected a fio iolog (version 2 or 3), text of blkparse, CSV of the MSR Cambridge "
                "traces or of time_s,job,op,bytes, or a trace of weir serve");
}

WorkloadReader::WorkloadReader(const WorkloadFile& file, JobMap& map) : map_(map) {
  report_.file = file;
  heap_.reserve(kSortMax + 1);
}

WorkloadReader::~WorkloadReader() = default;

void WorkloadReader::note_device(const WorkloadRequest& request) {
  const std::string_view device = request.of(WorkloadField::kDevice);
  std::vector<std::string>& devices = report_.devices;
  if (device.empty() || devices.size() == WorkloadReport::kDevicesKept) return;
  if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
    devices.emplace_back(device);
  }
}

Result<void> WorkloadReader::add(const WorkloadRequest& request) {
  if (!reference_) reference_ = request.ticks;
  const std::uint64_t span =
      request.ticks > *reference_ ? request.ticks - *reference_ : *reference_ - request.ticks;
  const std::uint64_t ticks_max =
      static_cast<std::uint64_t>(sim::kLengthMax.count()) / tick_ns(report_.file.format);
  if (span > ticks_max) {
    note_wrong(report_, fmt::format("line {}: its time is more than {} from the first",
                                    report_.lines, print_duration(sim::kLengthMax)));
    if (report_.wrong < kWrongMin || report_.wrong <= added_) return {};
    return refuse(report_.file.path,
                  fmt::format("{} requests are more than {} from the first one; {}", report_.wrong,
                              print_duration(sim::kLengthMax), report_.first_wrong.front()));
  }
  const JobMap::Found found = map_.find(request, report_.file.format);
  if (found.skipped) {
    ++report_.skipped[static_cast<std::size_t>(*found.skipped)];
    return {};
  }
  if (found.is_unknown) return refuse(report_.file.path, "has changed while it was read");
  if (found.is_overflow) ++report_.in_others;
  note_device(request);
  if (added_ > 0 && request.ticks < latest_) ++report_.sorted;
  latest_ = std::max(latest_, request.ticks);
  heap_.push_back({request.ticks, added_++, request.bytes, found.job, request.is_read});
  std::push_heap(heap_.begin(), heap_.end());
  return {};
}

Result<void> WorkloadReader::fill() {
  if (!source_) {
    auto opened = host::open_source(report_.file.path);
    if (!opened) return tl::unexpected(opened.error());
    source_ = make_source(report_.file, std::move(*opened));
  }
  while (!is_at_end_ && heap_.size() < kSortMax) {
    const auto request = source_->next(report_);
    if (!request) return tl::unexpected(request.error());
    if (*request == nullptr) {
      is_at_end_ = true;
      source_->finish(report_);
    } else if (auto added = add(**request); !added) {
      return added;
    }
  }
  return {};
}

Result<void> WorkloadReader::check_order() const {
  const bool is_early = !is_at_end_ && report_.moved < kWrongMin;
  if (is_early || report_.moved * 100 <= report_.requests) return {};
  return refuse(report_.file.path,
                fmt::format("is not sorted: {} of the first {} requests are earlier than the one "
                            "before, by up to {}",
                            report_.moved, report_.requests, print_duration(report_.moved_longest)),
                "sort it by time");
}

Result<std::optional<sim::TraceEntry>> WorkloadReader::emit() {
  std::pop_heap(heap_.begin(), heap_.end());
  Entry entry = heap_.back();
  heap_.pop_back();
  const std::uint64_t unit = tick_ns(report_.file.format);
  if (!emitted_) {
    report_.first_ticks = entry.ticks;
    if (!report_.file.origin) report_.file.origin = entry.ticks;
    emitted_ = std::max(entry.ticks, *report_.file.origin);
  }
  if (entry.ticks < *emitted_) {
    ++report_.moved;
    const Nanoseconds by{static_cast<std::int64_t>((*emitted_ - entry.ticks) * unit)};
    report_.moved_longest = std::max(report_.moved_longest, by);
    entry.ticks = *emitted_;
    if (auto checked = check_order(); !checked) return tl::unexpected(checked.error());
  }
  const Nanoseconds at{static_cast<std::int64_t>((entry.ticks - *report_.file.origin) * unit)};
  if (report_.file.until && at > *report_.file.until) {
    report_.is_stopped = true;
    if (!is_at_end_) source_->finish(report_);
    is_at_end_ = true;
    heap_.clear();
    return std::nullopt;
  }
  emitted_ = entry.ticks;
  ++report_.requests;
  if (entry.is_read) ++report_.reads;
  report_.bytes += entry.bytes;
  report_.largest = std::max(report_.largest, entry.bytes);
  report_.length = at;
  for (const std::uint64_t word : {static_cast<std::uint64_t>(at.count()), entry.bytes,
                                   std::uint64_t{entry.job} * 2 + (entry.is_read ? 1 : 0)}) {
    report_.digest = (report_.digest ^ word) * 0x9e3779b97f4a7c15;
    report_.digest ^= report_.digest >> 29;
  }
  return sim::TraceEntry{at, entry.job, entry.is_read, Bytes{entry.bytes}};
}

Result<std::optional<sim::TraceEntry>> WorkloadReader::next() {
  if (auto filled = fill(); !filled) return tl::unexpected(filled.error());
  if (!heap_.empty()) return emit();
  if (auto checked = check_order(); !checked) return tl::unexpected(checked.error());
  return std::nullopt;
}

}  // namespace weir::study
