// SPDX-License-Identifier: Apache-2.0
#include "weir/lustre/text.h"

#include <algorithm>
#include <charconv>

#include "weir/base/quote.h"

namespace weir::lustre {
namespace {

// Returns lines without their newlines.
class LineReader {
 public:
  explicit LineReader(std::string_view text) : rest_(text) {}

  std::optional<std::string_view> next() {
    if (rest_.empty()) return std::nullopt;
    const std::size_t end = rest_.find('\n');
    whole_ = end != std::string_view::npos;
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(whole_ ? end + 1 : rest_.size());
    return line;
  }
  // Whether the last line ended with a newline.
  bool was_whole() const { return whole_; }

 private:
  std::string_view rest_;
  bool whole_ = true;
};

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop == text.data()) return std::nullopt;
  return number;
}

// "1755600000.123456789 secs.nsecs", "1755600000 secs.usecs" and "1755600000"
std::optional<std::uint64_t> read_time(std::string_view text) {
  const auto seconds = read_number<std::uint64_t>(text);
  if (!seconds || *seconds > UINT64_MAX / 2'000'000'000) return std::nullopt;
  std::uint64_t part = 0;
  if (const std::size_t dot = text.find('.'); dot != std::string_view::npos) {
    std::uint64_t unit = 100'000'000;
    for (std::size_t i = dot + 1; i < text.size() && unit > 0; ++i, unit /= 10) {
      if (text[i] < '0' || text[i] > '9') break;
      part += static_cast<std::uint64_t>(text[i] - '0') * unit;
    }
  }
  return *seconds * 1'000'000'000 + part;
}

// The number after "key:" in "{ samples:  10, unit: bytes, min:4096, ... }".
std::optional<std::uint64_t> field(std::string_view braces, std::string_view key) {
  for (std::size_t at = braces.find(key); at != std::string_view::npos;
       at = braces.find(key, at + 1)) {
    const std::size_t end = at + key.size();
    const bool begins = at > 0 && (braces[at - 1] == ' ' || braces[at - 1] == ',');
    if (begins && end < braces.size() && braces[end] == ':') {
      return read_number<std::uint64_t>(trim(braces.substr(end + 1)));
    }
  }
  return std::nullopt;
}

// With what releases from 2.12 to 2.17 write there: another release may write something else.
tl::unexpected<Error> refuse(std::string_view file, std::string_view what) {
  std::string_view expected = "'job_stats:' and entries '- job_id:'";
  if (file == "stats") expected = "'snapshot_time' and lines 'NAME N samples'";
  if (file == "nrs_policies") expected = "'regular_requests:' and entries '- name:'";
  if (file == "nrs_tbf_rule")
    expected = "'regular_requests:', 'CPT N:' and 'NAME CONDITIONS RATE, ref N'";
  if (file == "cpu_partition_table") expected = "lines 'N : CPUS'";
  return fail(std::errc::invalid_argument, file, what,
              "expected " + std::string(expected) +
                  ", as Lustre 2.12 to 2.17 writes it; check the path and the release");
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  return std::nullopt;
}

// ---- job_stats ----

class JobStatsReader {
 public:
  explicit JobStatsReader(Counted counted) : counted_(counted) {}

  Result<JobStatsText> read(std::string_view text) {
    LineReader lines(text);
    bool headed = false;
    while (const auto line = lines.next()) {
      const std::string_view trimmed = trim(*line);
      if (trimmed.empty()) continue;
      if (trimmed == "job_stats:") {
        headed = true;
        continue;
      }
      if (trimmed.starts_with("- job_id:")) {
        close(true);
        begin(trim(trimmed.substr(9)));
        headed = true;
      } else if (open_) {
        take(trimmed);
      } else if (!headed) {
        return refuse("job_stats", quote(trimmed) + " is not a valid line");
      }
      if (!lines.was_whole()) cut_ = true;
    }
    close(!cut_);
    result_.is_cut = cut_;
    return std::move(result_);
  }

 private:
  // Releases before 2.15.2 do not escape: there an apparent bad escape is part of the id, and one
  // user's id must not make the whole file unreadable.
  void begin(std::string_view id) {
    open_ = JobCounters{};
    open_->job = JobId(parse_job_id(id).value_or(std::string(id)));
    if (counted_ == Counted::kOperations) open_->operations.resize(kOperationCount);
    has_ = {};
  }

  void take(std::string_view line) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string_view key = trim(line.substr(0, colon));
    const std::string_view value = trim(line.substr(colon + 1));
    if (key == "start_time") open_->since_ns = read_time(value);
    if (key == "snapshot_time") open_->update_ns = read_time(value);
    if (counted_ == Counted::kOperations) return take_operation(key, value);
    if (key != "read_bytes" && key != "write_bytes") return;
    const auto samples = field(value, "samples");
    if (!samples) return;
    (key == "read_bytes" ? has_.read : has_.write) = true;
    open_->rpcs += *samples;
    open_->bytes += field(value, "sum").value_or(0);
  }

  void take_operation(std::string_view key, std::string_view value) {
    const std::size_t operation = operation_of(key);
    if (operation == kOperationCount) return;
    const auto samples = field(value, "samples");
    if (!samples) return;
    open_->operations[operation] = *samples;
    ++has_.operations;
  }

  // A truncated entry may lack a counter, and a counter that decreases looks like a new job. It may
  // still end with a complete line; the first entry shows which counters exist.
  void close(bool is_whole) {
    if (!open_) return;
    if (!first_) first_ = has_;
    const bool has_all = (has_.read || has_.write || has_.operations > 0) &&
                         (has_.read || !first_->read) && (has_.write || !first_->write) &&
                         has_.operations >= first_->operations;
    if (!has_all) cut_ = true;
    if (is_whole && has_all && !open_->job.empty()) result_.jobs.push_back(*open_);
    open_.reset();
  }

  struct Has {
    bool read = false;
    bool write = false;
    std::size_t operations = 0;
  };

  Counted counted_;
  JobStatsText result_;
  std::optional<JobCounters> open_;
  Has has_;                   // the open entry
  std::optional<Has> first_;  // of the file
  bool cut_ = false;
};

}  // namespace

Result<std::string> parse_job_id(std::string_view text) {
  if (text.size() < 2 || text.front() != '"' || text.back() != '"') return std::string(text);
  text = text.substr(1, text.size() - 2);
  std::string id;
  id.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      id += text[i];
      continue;
    }
    if (text.size() - i < 4) {
      return refuse("job_stats", "an escape in the id " + quote(text) + " is truncated");
    }
    const auto upper = hex_digit(text[i + 2]);
    const auto lower = hex_digit(text[i + 3]);
    if (text[i + 1] != 'x' || !upper || !lower) {
      return refuse("job_stats", "the id " + quote(text) + " has an escape other than \\xHH");
    }
    id += static_cast<char>(*upper * 16 + *lower);
    i += 3;
  }
  return id;
}

Result<JobStatsText> parse_job_stats(std::string_view text, Counted counted) {
  return JobStatsReader(counted).read(text);
}

// ---- stats ----

namespace {

// "10 samples [usecs] 3513 18152 66959 626807487": min, max, sum, sum of squares. Before 2.13 there
// is nothing after "[reqs]".
RequestTotal read_total(std::string_view value) {
  constexpr int kSum = 5;  // words before it
  RequestTotal total{.samples = read_number<std::uint64_t>(value).value_or(0)};
  if (value.find("[usec") == std::string_view::npos) return total;
  for (int words = 0; words < kSum; ++words) {
    value = trim(value.substr(std::min(value.find(' '), value.size())));
  }
  total.usecs = read_number<std::uint64_t>(value).value_or(0);
  return total;
}

}  // namespace

Result<std::vector<RequestTotal>> parse_stats(std::string_view text, Counted counted) {
  LineReader lines(text);
  std::vector<RequestTotal> totals(counted == Counted::kBulk ? 1 : kOperationCount);
  bool is_stats = false;
  while (const auto line = lines.next()) {
    const std::string_view trimmed = trim(*line);
    const std::string_view name = trimmed.substr(0, trimmed.find(' '));
    const std::string_view value = trim(trimmed.substr(name.size()));
    if (name == "snapshot_time") is_stats = true;
    if (counted == Counted::kOperations) {
      const std::size_t operation = operation_of(name);
      if (operation < kOperationCount) totals[operation] = read_total(value);
    } else if (name == "read_bytes" || name == "write_bytes") {
      totals[0].samples += read_total(value).samples;
    } else if (name == "read" || name == "write") {
      totals[0].usecs += read_total(value).usecs;
    }
  }
  if (!is_stats) return refuse("stats", "has no snapshot_time");
  return totals;
}

// ---- nrs_policies ----

const Policy* Policies::tbf() const {
  for (const Policy& policy : regular) {
    if (policy.name == "tbf" && policy.state == "started") return &policy;
  }
  return nullptr;
}

std::uint64_t Policies::queued() const {
  std::uint64_t sum = 0;
  for (const auto* head : {&regular, &high}) {
    for (const Policy& policy : *head) sum += policy.queued;
  }
  return sum;
}

std::uint64_t Policies::active() const {
  std::uint64_t sum = 0;
  for (const Policy& policy : regular) sum += policy.active;
  return sum;
}

Result<Policies> parse_policies(std::string_view text) {
  Policies policies;
  std::vector<Policy>* head = nullptr;
  LineReader lines(text);
  while (const auto line = lines.next()) {
    std::string_view trimmed = trim(*line);
    if (trimmed == "regular_requests:") head = &policies.regular;
    if (trimmed == "high_priority_requests:") {
      head = &policies.high;
      policies.has_high = true;
    }
    const std::size_t colon = trimmed.find(": ");
    if (head == nullptr || colon == std::string_view::npos) continue;
    std::string_view key = trimmed.substr(0, colon);
    const std::string_view value = trim(trimmed.substr(colon + 2));
    if (key == "- name") {
      const std::string_view name = value.substr(0, value.find(' '));
      Policy& policy = head->emplace_back();
      policy.name = name;
      policy.argument = trim(value.substr(name.size()));
      continue;
    }
    if (head->empty()) continue;
    Policy& policy = head->back();
    if (key == "state") policy.state = value;
    if (key == "fallback") policy.is_fallback = value == "yes";
    if (key == "queued") policy.queued = read_number<std::uint64_t>(value).value_or(0);
    if (key == "active") policy.active = read_number<std::uint64_t>(value).value_or(0);
  }
  if (policies.regular.empty()) return refuse("nrs_policies", "names no policy");
  return policies;
}

// ---- nrs_tbf_rule ----

namespace {

// From the right: "NAME CONDS RATE, ref N".
std::optional<RuleLine> read_rule(std::string_view line) {
  constexpr std::string_view kRef = ", ref ";
  const std::size_t ref = line.rfind(kRef);
  if (ref == std::string_view::npos) return std::nullopt;
  const std::string_view before = line.substr(0, ref);
  const std::size_t blank = before.rfind(' ');
  const std::size_t name = before.find(' ');
  if (blank == std::string_view::npos || name >= blank) return std::nullopt;
  const auto rate = read_number<std::uint32_t>(before.substr(blank + 1));
  const auto refs = read_number<std::uint64_t>(line.substr(ref + kRef.size()));
  if (!rate || !refs || name == 0) return std::nullopt;
  return RuleLine{.name = std::string(before.substr(0, name)),
                  .conds = std::string(before.substr(name + 1, blank - name - 1)),
                  .rate = *rate,
                  .refs = *refs};
}

}  // namespace

Result<RuleTable> parse_rules(std::string_view text) {
  RuleTable table;
  std::vector<RuleTable::Cpt>* head = nullptr;
  LineReader lines(text);
  while (const auto line = lines.next()) {
    if (line->empty()) continue;
    if (*line == "regular_requests:") {
      head = &table.regular;
    } else if (*line == "high_priority_requests:") {
      head = &table.high;
      table.has_high = true;
    } else if (head != nullptr && line->starts_with("CPT ") && line->ends_with(':')) {
      const auto number = read_number<std::uint32_t>(line->substr(4));
      if (!number) return refuse("nrs_tbf_rule", quote(*line) + " names no CPT");
      head->push_back({*number, {}});
    } else {
      auto rule = read_rule(*line);
      if (!rule || head == nullptr || head->empty()) {
        return refuse("nrs_tbf_rule", quote(*line) + " is not a rule");
      }
      head->back().rules.push_back(std::move(*rule));
    }
  }
  if (head == nullptr) return refuse("nrs_tbf_rule", "has no regular or high-priority section");
  return table;
}

Result<std::uint32_t> parse_partitions(std::string_view text) {
  LineReader lines(text);
  std::uint32_t count = 0;
  while (const auto line = lines.next()) {
    if (line->find(':') != std::string_view::npos && read_number<std::uint32_t>(trim(*line))) {
      ++count;
    }
  }
  if (count == 0) return refuse("cpu_partition_table", "has no line for a CPT");
  return count;
}

}  // namespace weir::lustre
