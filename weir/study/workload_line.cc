// SPDX-License-Identifier: Apache-2.0
#include "weir/study/workload_line.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weir/base/quote.h"

namespace weir::study {
namespace {

constexpr std::string_view kIolog2Head = "fio version 2 iolog";
constexpr std::string_view kIolog3Head = "fio version 3 iolog";
// fio ignores shorter waits, as fio(1) says.
constexpr std::uint64_t kWaitMin = 100;
constexpr std::uint64_t kSector = 512;
constexpr std::uint64_t kSecond = 1'000'000'000;

constexpr std::array<std::string_view, 6> kFormatNames = {
    "fio iolog, version 2", "fio iolog, version 3", "blkparse",
    "MSR Cambridge",        "Weir's CSV",           "trace of weir serve"};
constexpr std::array<std::string_view, kWorkloadFields> kFieldNames = {
    "file", "comm", "pid", "dev", "host", "volume", "job", "uid", "client"};
constexpr std::array<std::string_view, kSkippedKinds> kSkippedTexts = {
    "flushes",
    "trims and discards",
    "requests without data",
    "pass-through commands",
    "metadata and other operations without data",
    "events of other stages of a request",
    "lines of messages and summaries",
    "requests left out by a rule",
    "requests that no rule matches"};

constexpr std::array<std::string_view, 7> kMsrColumns = {
    "Timestamp", "Hostname", "DiskNumber", "Type", "Offset", "Size", "ResponseTime"};
constexpr std::array<std::string_view, 4> kCsvColumns = {"time_s", "job", "op", "bytes"};
// Places in kMsrColumns and kCsvColumns.
enum Msr : std::uint8_t { kMsrTime, kMsrHost, kMsrDisk, kMsrType, kMsrOffset, kMsrSize };
enum Csv : std::uint8_t { kCsvTime, kCsvJob, kCsvOp, kCsvBytes };

std::span<const std::string_view> columns_of(WorkloadFormat format) {
  if (format == WorkloadFormat::kMsr) return kMsrColumns;
  return kCsvColumns;
}

bool is_same(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The next word; empty at the end.
std::string_view take_word(std::string_view& rest) {
  const std::size_t begin = std::min(rest.find_first_not_of(" \t\r"), rest.size());
  const std::size_t end = std::min(rest.find_first_of(" \t\r", begin), rest.size());
  const std::string_view word = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return word;
}

void split(std::string_view line, std::size_t most, std::vector<std::string_view>& parts) {
  parts.clear();
  while (parts.size() < most) {
    const std::size_t comma = line.find(',');
    parts.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) break;
    line.remove_prefix(comma + 1);
  }
}

std::vector<std::string_view> split(std::string_view line, std::size_t most) {
  std::vector<std::string_view> parts;
  split(line, most, parts);
  return parts;
}

std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end || text.empty()) return std::nullopt;
  return number;
}

// "12.000345" seconds in nanoseconds; digits beyond the ninth are dropped.
std::optional<std::uint64_t> seconds(std::string_view text) {
  const std::size_t point = std::min(text.find('.'), text.size());
  const auto before = whole(text.substr(0, point));
  if (!before || *before > UINT64_MAX / kSecond - 1) return std::nullopt;
  std::uint64_t part = 0;
  std::uint64_t unit = kSecond / 10;
  for (const char digit : text.substr(std::min(point + 1, text.size()))) {
    if (digit < '0' || digit > '9') return std::nullopt;
    part += static_cast<std::uint64_t>(digit - '0') * unit;
    unit /= 10;
  }
  return *before * kSecond + part;
}

bool is_device(std::string_view word) {
  const std::size_t comma = word.find(',');
  return comma != std::string_view::npos && whole(word.substr(0, comma)) &&
         whole(word.substr(comma + 1));
}

// "8,0 1 ..." is printed as "  8,0    1 ..."; "8,16" has no space inside.
bool is_event(std::string_view line) {
  if (!is_device(take_word(line)) || !whole(take_word(line)) || !whole(take_word(line))) {
    return false;
  }
  return seconds(take_word(line)).has_value() && whole(take_word(line)).has_value();
}

bool is_header(std::string_view line, WorkloadFormat format) {
  if (line.empty() || line.front() < 'A') return false;  // a number, as most lines begin
  const std::span<const std::string_view> known = columns_of(format);
  const std::vector<std::string_view> names = split(line, SIZE_MAX);
  return std::any_of(names.begin(), names.end(),
                     [&](std::string_view name) { return is_same(name, known.front()); });
}

}  // namespace

std::string_view format_name(WorkloadFormat format) {
  return kFormatNames[static_cast<std::size_t>(format)];
}

std::string_view field_name(WorkloadField field) {
  return kFieldNames[static_cast<std::size_t>(field)];
}

std::optional<WorkloadField> field_by(std::string_view name) {
  const auto found = std::find(kFieldNames.begin(), kFieldNames.end(), name);
  if (found == kFieldNames.end()) return std::nullopt;
  return static_cast<WorkloadField>(found - kFieldNames.begin());
}

bool has_field(WorkloadFormat format, WorkloadField field) {
  using enum WorkloadField;
  switch (format) {
    case WorkloadFormat::kIolog2:
    case WorkloadFormat::kIolog3:
      return field == kFile;
    case WorkloadFormat::kBlkparse:
      return field == kComm || field == kPid || field == kDevice;
    case WorkloadFormat::kMsr:
      return field == kHost || field == kVolume;
    case WorkloadFormat::kCsv:
      return field == kJob;
    case WorkloadFormat::kWeirTrace:
      return field == kJob || field == kUid || field == kClient;
  }
  return false;
}

WorkloadField usual_field(WorkloadFormat format) {
  switch (format) {
    case WorkloadFormat::kIolog2:
    case WorkloadFormat::kIolog3:
      return WorkloadField::kFile;
    case WorkloadFormat::kBlkparse:
      return WorkloadField::kComm;
    case WorkloadFormat::kMsr:
      return WorkloadField::kVolume;
    case WorkloadFormat::kCsv:
    case WorkloadFormat::kWeirTrace:
      break;
  }
  return WorkloadField::kJob;
}

std::uint64_t tick_ns(WorkloadFormat format) {
  switch (format) {
    case WorkloadFormat::kIolog2:
    case WorkloadFormat::kIolog3:
      return 1000;
    case WorkloadFormat::kMsr:
      return 100;
    case WorkloadFormat::kBlkparse:
    case WorkloadFormat::kCsv:
    case WorkloadFormat::kWeirTrace:
      break;
  }
  return 1;
}

std::string_view skipped_text(Skipped skipped) {
  return kSkippedTexts[static_cast<std::size_t>(skipped)];
}

std::optional<WorkloadFormat> LineParser::detect(std::string_view line) {
  line = trimmed(line);
  if (line == kIolog2Head) return WorkloadFormat::kIolog2;
  if (line == kIolog3Head) return WorkloadFormat::kIolog3;
  if (is_event(line)) return WorkloadFormat::kBlkparse;
  for (const WorkloadFormat format : {WorkloadFormat::kMsr, WorkloadFormat::kCsv}) {
    if (is_header(line, format)) return format;
  }
  const std::vector<std::string_view> parts = split(line, kColumnsMax);
  if (parts.size() == kMsrColumns.size() && whole(parts[kMsrTime]) && whole(parts[kMsrSize])) {
    return WorkloadFormat::kMsr;
  }
  if (parts.size() == kCsvColumns.size() && seconds(parts[kCsvTime]) && whole(parts[kCsvBytes])) {
    return WorkloadFormat::kCsv;
  }
  return std::nullopt;
}

LineParser::LineParser(WorkloadFormat format, char stage) : format_(format), stage_(stage) {
  columns_count_ = columns_of(format).size();
  for (std::size_t i = 0; i < columns_count_; ++i) columns_.push_back(i);
}

LineParser::Kind LineParser::parse(std::string_view line) {
  if (trimmed(line).empty()) return Kind::kNothing;
  switch (format_) {
    case WorkloadFormat::kIolog2:
    case WorkloadFormat::kIolog3:
      return parse_iolog(line);
    case WorkloadFormat::kBlkparse:
      return parse_blkparse(line);
    case WorkloadFormat::kMsr:
    case WorkloadFormat::kCsv:
      return parse_csv(line);
    case WorkloadFormat::kWeirTrace:
      break;
  }
  return refuse("is not text");
}

LineParser::Kind LineParser::skip(Skipped why) {
  skipped_ = why;
  return Kind::kSkipped;
}

LineParser::Kind LineParser::refuse(std::string why) {
  wrong_ = std::move(why);
  return Kind::kWrong;
}

bool LineParser::set_bytes(std::string_view text, std::uint64_t unit) {
  const auto count = whole(text);
  if (!count || *count > kWorkloadBytesMax / unit) return false;
  request_.bytes = *count * unit;
  return true;
}

// ---- fio ----

LineParser::Kind LineParser::parse_wait(std::string_view microseconds) {
  const auto time = whole(microseconds);
  if (!time || *time > UINT64_MAX / 4 - base_) {
    return refuse(quote(microseconds) + " is not a time in microseconds");
  }
  has_waits_ = true;
  if (*time >= kWaitMin) base_ += *time;
  return Kind::kNothing;
}

LineParser::Kind LineParser::parse_iolog(std::string_view line) {
  const bool has_times = format_ == WorkloadFormat::kIolog3;
  if (trimmed(line) == (has_times ? kIolog3Head : kIolog2Head)) {
    // fio appends to a log that exists, and each run counts its time from 0.
    if (std::exchange(has_header_, true)) ++appended_;
    if (has_times) base_ = latest_;
    return Kind::kNothing;
  }
  std::string_view rest = line;
  std::uint64_t time = 0;
  if (has_times) {
    const std::string_view word = take_word(rest);
    const auto stamp = whole(word);
    if (!stamp || *stamp > UINT64_MAX / 4 - base_) {
      return refuse(quote(word) + " is not a time in microseconds");
    }
    time = *stamp;
  }
  request_.ticks = base_ + time;
  latest_ = std::max(latest_, request_.ticks);
  const std::string_view file = take_word(rest);
  const std::string_view action = take_word(rest);
  const std::string_view offset = take_word(rest);
  const std::string_view length = take_word(rest);
  if (!take_word(rest).empty()) return refuse("has too many words for an iolog");
  if (action == "add" || action == "open" || action == "close") return Kind::kNothing;
  if (action.empty() || length.empty()) return refuse("is cut, or not a line of an iolog");
  if (action == "wait") {
    if (has_times) return refuse("has a wait, which version 3 does not allow");
    return parse_wait(offset);
  }
  if (action == "sync" || action == "datasync" || action == "syncfs" ||
      action == "sync_file_range") {
    return skip(Skipped::kFlush);
  }
  if (action == "trim") return skip(Skipped::kTrim);
  if (action != "read" && action != "write") {
    return refuse(quote(action) + " is not an action of fio");
  }
  if (!whole(offset)) return refuse(quote(offset) + " is not an offset");
  if (!set_bytes(length, 1)) return refuse(quote(length) + " is not a size in bytes");
  request_.is_read = action == "read";
  set(WorkloadField::kFile, file);
  return request_.bytes == 0 ? skip(Skipped::kEmpty) : Kind::kRequest;
}

// ---- blkparse ----

// As block/blk-core of the kernel prints them: an F before the letter of the operation is a flush
// before it, letters after it are flags.
LineParser::Kind LineParser::set_operation(std::string_view type) {
  if (type.size() > 1 && type.front() == 'F' && type[1] != 'F') type.remove_prefix(1);
  switch (type.front()) {
    case 'R':
    case 'W':
      request_.is_read = type.front() == 'R';
      return Kind::kRequest;
    case 'D':
      return skip(Skipped::kTrim);
    case 'F':
    case 'N':
      return skip(Skipped::kFlush);
    default:
      return refuse(quote(type) + " is not an operation");
  }
}

LineParser::Kind LineParser::parse_blkparse(std::string_view line) {
  if (!is_event(line)) {
    // What begins like an event and is none is damaged; the rest is the summary at the end.
    std::string_view rest = line;
    return is_device(take_word(rest)) ? refuse("is cut, or not an event of blkparse")
                                      : skip(Skipped::kNoEvent);
  }
  std::string_view rest = line;
  set(WorkloadField::kDevice, take_word(rest));
  (void)take_word(rest);  // processor
  (void)take_word(rest);  // sequence
  request_.ticks = *seconds(take_word(rest));
  set(WorkloadField::kPid, take_word(rest));
  const std::string_view action = take_word(rest);
  const std::string_view type = take_word(rest);
  if (action == "m") return skip(Skipped::kNoEvent);
  if (action.size() != 1 || action.front() != stage_) {
    if (action == "Q" || action == "D") ++at_other_stage_;
    return skip(Skipped::kOtherEvent);
  }
  if (type.empty()) return refuse("is cut, or not an event of blkparse");
  if (const Kind kind = set_operation(type); kind != Kind::kRequest) return kind;
  const std::size_t open = rest.find('[');
  const std::size_t close = rest.rfind(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return refuse("is cut: it does not end with a command in brackets");
  }
  set(WorkloadField::kComm, rest.substr(open + 1, close - open - 1));
  rest = rest.substr(0, open);
  const std::string_view sector = take_word(rest);
  if (sector.empty()) return skip(Skipped::kFlush);  // without data
  if (take_word(rest) != "+") return skip(Skipped::kPassThrough);
  const std::string_view count = take_word(rest);
  if (!whole(sector)) return refuse(quote(sector) + " is not a sector");
  if (!set_bytes(count, kSector)) return refuse(quote(count) + " is not a number of sectors");
  return request_.bytes == 0 ? skip(Skipped::kFlush) : Kind::kRequest;
}

// ---- CSV ----

LineParser::Kind LineParser::read_header(std::string_view line) {
  const std::span<const std::string_view> known = columns_of(format_);
  const std::vector<std::string_view> names = split(line, kColumnsMax + 1);
  if (names.size() > kColumnsMax) {
    return refuse(fmt::format("has more than {} columns", kColumnsMax));
  }
  columns_.assign(known.size(), SIZE_MAX);
  ignored_.clear();
  missing_.clear();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](std::string_view one) { return is_same(one, names[i]); });
    if (found == known.end()) {
      ignored_.emplace_back(names[i]);
    } else {
      columns_[static_cast<std::size_t>(found - known.begin())] = i;
    }
  }
  columns_count_ = names.size();
  for (std::size_t i = 0; i < known.size(); ++i) {
    const bool is_needed = format_ == WorkloadFormat::kCsv || i <= kMsrSize;
    if (columns_[i] == SIZE_MAX && is_needed && known[i] != kMsrColumns[kMsrOffset]) {
      missing_ = fmt::format("has no column {}", known[i]);
      return refuse(missing_);
    }
  }
  return Kind::kNothing;
}

LineParser::Kind LineParser::parse_csv(std::string_view line) {
  if (line.front() == '#') return Kind::kNothing;
  if (is_header(line, format_)) return read_header(line);
  if (!missing_.empty()) return refuse(missing_);
  split(line, kColumnsMax + 1, parts_);
  if (parts_.size() != columns_count_) {
    return refuse(fmt::format("has {}{} columns instead of {}",
                              parts_.size() > kColumnsMax ? "more than " : "",
                              std::min(parts_.size(), kColumnsMax), columns_count_));
  }
  const auto part = [&](std::size_t column) { return parts_[columns_[column]]; };
  const bool is_msr = format_ == WorkloadFormat::kMsr;
  const std::string_view time = part(is_msr ? std::size_t{kMsrTime} : std::size_t{kCsvTime});
  const std::string_view type = part(is_msr ? std::size_t{kMsrType} : std::size_t{kCsvOp});
  const std::string_view size = part(is_msr ? std::size_t{kMsrSize} : std::size_t{kCsvBytes});
  const auto ticks = is_msr ? whole(time) : seconds(time);
  if (!ticks) {
    return refuse(quote(time) +
                  (is_msr ? " is not a time in units of 100 ns" : " is not a time in seconds"));
  }
  request_.ticks = *ticks;
  if (!is_same(type, "read") && !is_same(type, "write")) {
    return refuse(quote(type) + " is neither read nor write");
  }
  request_.is_read = is_same(type, "read");
  if (!set_bytes(size, 1)) return refuse(quote(size) + " is not a size in bytes");
  if (is_msr) {
    set(WorkloadField::kHost, part(kMsrHost));
    volume_ = fmt::format("{}_{}", part(kMsrHost), part(kMsrDisk));
    set(WorkloadField::kVolume, volume_);
  } else {
    set(WorkloadField::kJob, part(kCsvJob));
  }
  return request_.bytes == 0 ? skip(Skipped::kEmpty) : Kind::kRequest;
}

}  // namespace weir::study
